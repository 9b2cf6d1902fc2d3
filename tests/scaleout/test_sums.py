"""The sums of a task: those of one engine in any cut, pure, and never added twice."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import (
    InvalidDocumentsError,
    InvalidSettingError,
    MissingExtraError,
    SourceError,
)
from streamlda.scaleout.shards import Shard, task_of
from streamlda.scaleout.sums import Plan, accumulate, merged
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import thread_count


@pytest.fixture(scope="module")
def plan(settings, documents):
    beginning = Engine.of_rounds(settings)
    beginning.add(documents.rows(0, 600))
    return Plan(settings, beginning.better_projection(), settings.n_triple_columns)


def summed(plan, cut, *, numbered=True):
    """Return the sums of each partition; `numbered` by the documents before."""
    before, found = 0, []
    for number, part in enumerate(cut):
        found.append(accumulate(plan, Shard(f"partition {number}"), part, before))
        before += found[-1].documents if numbered else 0
    return found


def folded(parts):
    total = parts[0]
    for part in parts[1:]:
        total = merged(total, part)
    return total


def relative_difference(engine, other):
    """Return the largest difference of a sum over the largest entry of its kind."""
    mine, theirs = engine.state()[0], other.state()[0]
    assert mine.keys() == theirs.keys()
    return max(np.abs(mine[n] - theirs[n]).max() / np.abs(theirs[n]).max() for n in theirs)


def test_shards_add_up_to_one_engine_over_all(plan, cut, documents):
    merged_engine = folded(summed(plan, cut)).engine(plan)
    whole = Engine(plan.settings, shared_projection=plan.whitening)
    whole.add(documents)
    assert relative_difference(merged_engine, whole) < 1e-12
    for name in ("documents_seen", "documents_skipped", "tokens_seen", "rounds_finished"):
        assert getattr(merged_engine, name) == getattr(whole, name), name
    assert whole.documents_skipped > 0
    one, other = merged_engine.snapshot(), whole.snapshot()
    np.testing.assert_allclose(one.components, other.components, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(one.alpha, other.alpha, rtol=1e-10)
    # The bound is not empty: a shard less, or another start of the numbers, is beyond it.
    for wrong in (summed(plan, cut[:-1]), summed(plan, cut, numbered=False)):
        assert relative_difference(folded(wrong).engine(plan), whole) > 1e-6


def test_a_sketch_gives_the_better_projection_of_one_engine(plan, cut, documents):
    sketch = folded(summed(replace(plan, triple_columns=0), cut))
    assert sketch.arrays["cube"].size == 0
    whole = Engine(plan.settings, shared_projection=plan.whitening)
    whole.add(documents)
    # Directions may change their sign with the last digits.
    mine, wanted = sketch.engine(plan).better_projection(), whole.better_projection()
    np.testing.assert_allclose(np.abs(mine), np.abs(wanted), rtol=1e-7, atol=1e-10)
    assert np.abs(mine - plan.whitening).max() > 0.01


def test_a_task_is_pure(plan, cut):
    before = plan.whitening.copy(), cut[0].counts.copy()
    one, again = (accumulate(plan, Shard("a"), cut[0], 5) for _ in range(2))
    merged(one, accumulate(plan, Shard("b"), cut[2], 0))
    for name, array in again.arrays.items():
        np.testing.assert_array_equal(array, one.arrays[name])
    assert (one.usable, one.counts) == (again.usable, again.counts)
    np.testing.assert_array_equal(plan.whitening, before[0])
    np.testing.assert_array_equal(cut[0].counts, before[1])


def test_only_sums_of_other_shards_by_the_same_plan_are_added(plan, cut):
    a, b, c = summed(plan, cut[2:5])
    both = merged(a, b)
    for many in ([a, b, a], [a, b, c, b]):
        with pytest.raises(InvalidSettingError, match=r"summed once, got shards='partition [01]'"):
            merged(*many)
    with pytest.raises(InvalidSettingError, match="each shard must be summed once"):
        merged(both, merged(b, c))
    assert merged(both, c).usable == {**a.usable, **b.usable, **c.usable}
    other = replace(plan, whitening=plan.whitening * 2)
    sketch = replace(plan, triple_columns=0)
    words = replace(plan, vocabulary=Vocabulary.given([f"w{i}" for i in range(60)]))
    for wrong in (other, sketch, words):
        with pytest.raises(InvalidSettingError, match="share projection and words"):
            merged(a, accumulate(wrong, Shard("b"), cut[2], 0))


def test_what_fails_names_its_shard(plan, tmp_path):
    wrong = DocumentBatch.from_matrix(np.ones((3, 7)))
    with pytest.raises(InvalidDocumentsError, match=r"n_features=7 .*shard='partition 3'"):
        accumulate(plan, Shard("partition 3"), wrong, 0)
    # A package that a worker lacks is a failure of the source.
    wanted = r"package=zstandard.* on every worker: shard='f'"
    with pytest.raises(SourceError, match=wanted), task_of(Shard("f", (str(tmp_path),))):
        raise MissingExtraError("zstandard", "zstd", "reading this file")


def test_a_task_runs_in_one_thread_and_leaves_the_others_alone(plan, cut, monkeypatch):
    before = thread_count()
    assert before > 1
    seen = []

    def look(self, batch):
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        seen.append((thread_count(), set(blas)))

    monkeypatch.setattr("streamlda.scaleout.sums.Moments.add", look)
    accumulate(plan, Shard("a"), cut[0], 0)
    assert seen == [(1, {1})]
    assert thread_count() == before
