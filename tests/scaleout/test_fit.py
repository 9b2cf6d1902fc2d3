"""Sums of tasks, and a fit on two worker processes: those of one, whoever is killed on the way."""

import os
import signal
from dataclasses import replace

import dask
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    MissingExtraError,
    SourceError,
    VocabularyError,
)
from streamlda.model.evaluation import document_completion
from streamlda.scaleout import connect, learn, learn_once, no_progress, of_files, of_partitions
from streamlda.scaleout.beginning import warmup_of
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.shards import Shard, task_of
from streamlda.scaleout.sums import Plan, accumulate, merged
from streamlda.simulate import PlantedLDA
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.threads import thread_count
from tests.engine.kinds import assert_same_state
from tests.scaleout.conftest import D, cluster_of, logged, wait_until, wait_until_empty

WORDS = VocabularyLearner(
    documents=400,
    min_document_frequency=1,
    max_document_frequency=1.0,
    analyzer=TextAnalyzer(token_pattern=r"w\d+"),
)


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


def sums_of(engine):
    """Return the arrays of a state but for samples: which documents they have is no sum."""
    return {n: a for n, a in engine.state()[0].items() if not n.startswith("measures.")}


def relative_difference(engine, other):
    """Return the largest difference of a sum over the largest entry of its kind.

    What the first documents say of themselves is in the one that made its projection of them.
    """
    mine, theirs = engine.state()[0], sums_of(other)
    assert {n for n in sums_of(engine) if not n.startswith("beginning.")} == theirs.keys()
    return max(np.abs(mine[n] - theirs[n]).max() / np.abs(theirs[n]).max() for n in theirs)


def test_shards_add_up_to_one_engine_over_all(plan, cut, documents):
    merged_engine = folded(summed(plan, cut)).engine(plan)
    whole = Engine(plan.settings, shared_projection=plan.whitening)
    whole.add(documents)
    assert relative_difference(merged_engine, whole) < 1e-12
    for name in ("documents_seen", "documents_skipped", "tokens_seen", "rounds_finished"):
        assert getattr(merged_engine, name) == getattr(whole, name), name
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
    with pytest.raises(SourceError, match=wanted), task_of(Shard("f")):
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


def test_partitions_give_what_one_engine_gives_through_the_same_projection(
    client, settings, documents, cut
):
    met = []
    found = learn(
        client,
        of_partitions(cut),
        settings,
        on_progress=lambda label, counts, *done: met.append((label, counts.documents)),
    )
    one = Engine(settings, shared_projection=found.engine.shared_projection)
    one.add(documents)
    assert relative_difference(found.engine, one) < 1e-10
    mine, theirs = found.model(), one.snapshot()
    # The projection was made of these documents: they are tested in halves.
    half = settings.warmup_documents // 2
    assert 0.9 * half < mine.diagnostics["documents_behind_directions"] <= half
    assert mine.diagnostics["directions_supported"] == settings.n_components
    for name in ("components", "alpha", "background"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), 1e-10, 1e-14)
    assert mine.documents_seen == theirs.documents_seen == 4875
    assert (found.counts.documents, found.counts.short) == (5000, 125)
    assert (mine.tokens_seen, found.counts.tokens) == (documents.lengths.sum(),) * 2
    # Every shard was reported in every round, the last with all documents.
    labels = [label for label, _ in met]
    assert labels == [f"round {1 + i // len(cut)} of 3" for i in range(3 * len(cut))]
    assert [documents for _, documents in met[len(cut) - 1 :: len(cut)]] == [5000] * 3
    # Tasks are named by what they do, and nothing stays.
    kinds = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    wanted = {"first", "given", "sketch", "sums", "merge"}
    assert {f"streamlda-{kind}" for kind in wanted} <= kinds
    wait_until_empty(client)


@pytest.mark.parametrize("most_entries", [4_000_000, 1000])
def test_a_warm_up_without_documents_begins_again_as_in_one_process(
    client, settings, documents, most_entries, monkeypatch
):
    """Two runs of rows that are too short come first, and long rows end a warm-up early."""
    monkeypatch.setattr("streamlda.engine.warmup.WARMUP_MAX_ENTRIES", most_entries)
    short = DocumentBatch.from_matrix(np.eye(D)[np.zeros(2 * settings.warmup_documents, int)])
    parts = [short.rows(0, 400), short.rows(400, 600), documents.rows(0, 50)]
    parts += [documents.rows(50, 50), documents.rows(50, 400)]
    one = Engine.of_rounds(settings)
    one.add(DocumentBatch.joined(parts))
    found = warmup_of(Run(client), of_partitions(parts), settings, None)
    assert one.counters.projection_documents == np.count_nonzero(found.usable)
    np.testing.assert_array_equal(found.counts, documents.rows(0, found.n_documents).counts)


@pytest.mark.long
def test_topics_are_as_good_as_those_of_one_process(client):
    """Held-out perplexity within 1 % of a fit in one process, and far from that of one word."""
    planted = PlantedLDA(5, 400, seed=3, mean_length=40, topic_concentration=0.05)
    train, held_out = planted.documents(12_000), planted.documents(1000)
    settings = EngineSettings(
        n_components=5, n_features=400, oversampling=10, warmup_documents=1000
    )
    one = Engine.of_rounds(settings)
    one.add(train)
    parts = [train.rows(a, a + 1500) for a in range(0, 12_000, 1500)]
    models = one.snapshot(), learn(client, of_partitions(parts), settings).model()
    scores = [document_completion(held_out, m.components, m.alpha, m.background) for m in models]
    assert scores[1].perplexity < 1.01 * scores[0].perplexity
    assert scores[1].perplexity < 0.7 * scores[1].unigram_perplexity


def test_a_shared_projection_is_kept_so_that_engines_can_be_merged(
    client, settings, documents, cut
):
    beginning = Engine.of_rounds(settings)
    beginning.add(documents.rows(0, 500))
    shared = beginning.better_projection()
    there, one = (Engine(settings, shared_projection=shared) for _ in range(2))
    there.add(documents.rows(2600, 5000))
    one.add(documents)
    for fitted in (learn, learn_once):
        corpus = of_partitions(cut[:4])
        found = fitted(client, corpus, settings, shared_projection=shared).engine
        found.merge(there)
        for name in ("word_totals", "pair_cross", "triple_cross"):
            mine, theirs = (engine.state()[0][f"current.{name}"] for engine in (found, one))
            assert np.abs(mine - theirs).max() < 1e-10 * np.abs(theirs).max()
        with pytest.raises(InvalidSettingError, match="shape"):
            fitted(client, corpus, settings, shared_projection=shared[:, :-1])
    # Of documents that are numbered, the halves are those of one engine too.
    whole = learn_once(client, of_partitions(cut), settings, shared_projection=shared).engine
    assert relative_difference(whole, one) < 1e-10


@pytest.mark.long
def test_neither_a_killed_worker_nor_the_number_of_workers_changes_a_bit(settings, cut, tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    quiet.mkdir()
    killed.mkdir()
    with cluster_of(2) as own, connect(own.scheduler_address) as client:

        def run(folder, on_progress=no_progress):
            parts = [dask.delayed(logged)(part, folder) for part in cut]
            return learn(client, of_partitions(parts), settings, on_progress=on_progress)

        undisturbed = run(quiet)
        workers, victims = client.run(os.getpid), []

        def kill(label, counts, *done):
            # The worker that made the last partition so far holds sums that are still needed.
            if label == "round 3 of 3" and not victims:
                last = max(killed.iterdir(), key=lambda path: int(path.name.split("-")[0]))
                victims.append(int(last.name.split("-")[1]))
                os.kill(victims[0], signal.SIGKILL)

        found = run(killed, kill)
        assert victims[0] in workers.values()
        assert victims[0] not in client.run(os.getpid).values()
        own.scale(1)
        wait_until(lambda: len(client.nthreads()) == 1)
        alone = run(tmp_path)
    assert_same_state(found.engine, undisturbed.engine)
    assert_same_state(alone.engine, undisturbed.engine)
    assert found.counts == undisturbed.counts
    # It did matter: what the worker had done was done again.
    assert len(list(killed.iterdir())) > len(list(quiet.iterdir()))


def test_what_cannot_be_learned_from_is_refused_by_its_shard(client, settings, cut, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"text": "w00001 w00002 w00003"}\n' * 20)
    gone = of_files(tmp_path, shards=2)
    (tmp_path / "b.jsonl").unlink()
    three = Vocabulary.given(["w00001", "w00002", "w00003"], WORDS.analyzer)
    wide, ones, blank = (
        DocumentBatch.from_matrix(matrix)
        for matrix in (np.ones((3, D + 1)), np.ones((5, D)), np.zeros((9, D)))
    )
    five, many = (replace(settings, n_components=n) for n in (5, D + 1))
    for parts, words, asked, error, wanted in (
        ([cut[0], wide], None, settings, InvalidDocumentsError, f"{D + 1}.*'partition 1'"),
        ([wide, cut[0]], None, settings, InvalidDocumentsError, f"{D + 1} expected={D}"),
        ([["some text"]], None, settings, InvalidDocumentsError, "vocabulary=None"),
        (cut, WORDS, settings, InsufficientDataError, "texts=0"),
        (cut, None, many, VocabularyError, rf"words={D} n_components={D + 1}"),
        ([ones.rows(0, 4)], None, five, InsufficientDataError, "usable=4 topics=5"),
        ([blank, blank], None, five, InsufficientDataError, "usable=0"),
        (gone, three, settings, SourceError, r"b\.jsonl"),
    ):
        corpus = parts if parts is gone else of_partitions(parts)
        with pytest.raises(error, match=wanted):
            learn(client, corpus, asked, words)
    assert learn(client, of_partitions([ones]), five).engine.documents_seen == 5
    wait_until_empty(client)
    whitening = np.ones((D, 11))
    for changed, options, wanted in (
        (replace(settings, solver="online-power"), {}, "solver='online-power'"),
        (settings, {"rounds": 0}, "rounds=0"),
        (settings, {"rounds": 2, "shared_projection": whitening}, "rounds=2"),
    ):
        with pytest.raises(InvalidSettingError, match=wanted):
            learn(client, of_partitions(cut), changed, **options)
