"""The protocol: sums of any spans, merged in any tree, are those of all documents, each once."""

import itertools
import os
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.phase import Counters
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import WarmUp
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    MissingExtraError,
    SourceError,
)
from streamlda.model.evaluation import document_completion
from streamlda.refinement.choice import HELD_OUT, hold_out
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout import fit_with, merge, sums_of
from streamlda.scaleout.fit import SavedRounds
from streamlda.scaleout.row_files import write
from streamlda.scaleout.shards import Shard, task_of
from streamlda.scaleout.store import KeptShard, fold, join
from streamlda.scaleout.sums import Census, Documents, Plan, Refine, Sums, check_whole
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import join_state, split_state
from streamlda.utils.threads import thread_count
from tests.scaleout.conftest import D

WORDS = Vocabulary.given([f"w{i:05}" for i in range(D)], TextAnalyzer(token_pattern=r"w\d+"))


def by_pickles(parts, draw):
    """Return a function that sums shards as another engine does: in any order and tree."""

    def summed(stage):
        sent = pickle.dumps(stage)
        left = [sums_of(part, pickle.loads(sent), shard=n) for n, part in enumerate(parts)]
        while len(left) > 1:
            taken = [left.pop(draw.randrange(len(left))) for _ in range(min(3, len(left)))]
            left.append(merge(*(pickle.loads(pickle.dumps(part)) for part in taken)))
        return left[0]

    return summed


def census_of(parts, n_features=D, **how):
    stage = Census(spans=((0, len(parts)),), n_features=n_features, **how)
    found = merge(*(sums_of(part, stage, shard=n) for n, part in enumerate(parts)))
    return Documents(stage, [met for _, met in found.parts], by_pickles(parts, random.Random(0)))


@pytest.fixture(scope="module")
def usable(documents):
    return documents.where(documents.usable)


@pytest.fixture(scope="module")
def plan(settings, usable):
    engine = Engine.of_phase(WarmUp(settings, Counters(), refines=False))
    engine.add(usable.rows(0, 600))
    last = usable.n_documents
    how = {"whitening": engine.new_beginning(), "columns": settings.n_triple_columns}
    return Plan(spans=((0, last),), starts=(0, last), **how)


def test_a_census_counts_what_one_process_counts(documents, cut, usable):
    found = census_of(cut)
    assert found.starts[-1] == usable.n_documents == 4875
    assert (found.counts.documents, found.counts.short) == (5000, 125)
    assert found.counts.tokens == documents.lengths.sum()
    wanted = (usable.to_csr() / usable.lengths[:, None]).sum(axis=0)
    np.testing.assert_allclose(
        found.samples(HELD_OUT).arrays["frequencies"], np.ravel(wanted), rtol=1e-12
    )
    with pytest.raises(InvalidDocumentsError, match=rf"n_features={D} expected=7.*shard='shard 0'"):
        census_of(cut, 7)


def test_any_tree_of_sums_is_that_of_one_engine(plan, cut, usable):
    """Through spans that end at no shard; the bound is not empty."""
    starts, draw = census_of(cut).starts, random.Random(1)
    stage = replace(plan, starts=starts, spans=((650, 4870),))
    one = Moments(plan.whitening, plan.columns)
    one.add(usable.rows(650, 4870))
    wanted = one.state()

    def differs(found):
        names = ("word_totals", "pair_cross", "triple_cross", "gram")
        every = [(found.arrays[name], wanted[name]) for name in names]
        return max(np.abs(mine - other).max() / np.abs(other).max() for mine, other in every)

    for _ in range(3):
        found = by_pickles(cut, draw)(stage)
        check_whole(stage, found)
        assert differs(found) < 1e-12
    assert found.spans == ((650, 4870),)
    fewer = replace(stage, spans=((650, 4869),))
    assert differs(by_pickles(cut, draw)(fewer)) > 1e-6


def test_each_document_is_summed_once_and_by_one_stage(plan, cut):
    stage = replace(plan, starts=census_of(cut).starts)
    a, b, c = (sums_of(cut[n], stage, shard=n) for n in (2, 3, 4))
    assert merge(a, Sums(stage.stage_id)).arrays.keys() == a.arrays.keys()
    for twice in ((a, b, a), (merge(a, b), merge(b, c))):
        with pytest.raises(InvalidSettingError, match="documents are summed twice"):
            merge(*twice)
    with pytest.raises(InvalidDocumentsError, match="of all documents of the stage"):
        check_whole(stage, merge(a, b))
    again = replace(plan, starts=stage.starts, stage_id="another")
    with pytest.raises(InvalidSettingError, match="of another stage"):
        merge(a, sums_of(cut[3], again, shard=3))
    with pytest.raises(InvalidDocumentsError, match="than were counted"):
        sums_of(cut[2].rows(0, 9), stage, shard=2)


def test_a_task_keeps_to_one_thread(plan, cut, monkeypatch):
    before, stage = thread_count(), replace(plan, starts=(0, 682), spans=((0, 682),))
    assert before > 1
    seen = []

    def look(self, batch):
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        seen.append((thread_count(), set(blas)))

    monkeypatch.setattr("streamlda.scaleout.sums.Moments.add", look)
    sums_of(cut[0], stage, shard=0)
    assert seen == [(1, {1})]
    assert thread_count() == before


def as_received(array):
    """Return an array that begins in the middle of a message."""
    return np.frombuffer(b"0" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)


def test_arrays_of_a_message_need_not_be_aligned(plan, usable):
    span = (0, 900)
    plan = replace(plan, spans=(span,), starts=span)
    received = replace(plan, whitening=as_received(plan.whitening))
    assert not received.whitening.flags.aligned
    first, again = (sums_of(usable.rows(*span), own, shard=0) for own in (plan, received))
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    state = StepwiseEM(np.ones((D, 3)), np.ones(3), np.full(D, 1 / D), StepwiseEMSettings()).state()
    whole = refined_by(state, usable, *span, 3).arrays["totals"]
    arrays, values = split_state(state)
    received = join_state({name: as_received(array) for name, array in arrays.items()}, values)
    found = refined_by(received, usable, *span, 3).arrays["totals"]
    np.testing.assert_array_equal(found, whole)


def test_a_package_that_a_worker_lacks_is_a_failure_of_the_source():
    wanted = r"package=zstandard.* on every worker: shard='f'"
    with pytest.raises(SourceError, match=wanted), task_of(Shard("f")):
        raise MissingExtraError("zstandard", "zstd", "reading this file")


def kept_of(batches):
    return KeptShard([write(((batch, batch.usable) for batch in batches), D)], RecordCounts())


def assert_same_documents(one, other):
    for name in ("counts", "word_ids", "row_pointers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def numbered(documents, first, last):
    """Return documents by their numbers, each behind the shorter ones before it."""
    numbers = np.cumsum(documents.usable) - documents.usable
    whole = int(documents.usable.sum())
    return documents.where((numbers >= first) & ((numbers < last) | (last == whole)))


def test_rows_of_files_are_read_where_they_are_asked_for(documents):
    """Some documents are blank or short, also at the end of a file."""
    counts = documents.to_csr().copy()
    for row in (3, 699, 2599, 4998, 4999):
        own = slice(*counts.indptr[row : row + 2])
        counts.data[own] = 0
        counts.data[own.start] = 1
    short = DocumentBatch.from_matrix(counts)
    cut = [short.rows(0, 700), short.rows(700, 2600), short.rows(2600, 5000)]
    kept = join(*map(kept_of, [[part] for part in cut]))
    whole = int(short.usable.sum())
    paths = {rows.path for rows in kept.files}
    spans = [*itertools.pairwise([0, 1, 650, 1900, 1901, whole - 1, whole])]
    for one in (kept, pickle.loads(pickle.dumps(kept))):
        assert sum(map(len, one.files)) == whole
        for span in [(0, whole), *spans]:
            found = DocumentBatch.joined([*one.read(*span)])
            assert_same_documents(found, numbered(short, *span))
        assert [*one.read(7, 7)] == []
        each = [batch for span in spans for batch in one.read(*span)]
        assert_same_documents(DocumentBatch.joined(each), short)
    del kept, one
    assert not any(map(os.path.exists, paths))


def refined_by(state, documents, first, last, steps):
    how = {"spans": ((first, last),), "starts": (0, int(documents.usable.sum()))}
    stage = Refine(steps=steps, state=state, held_out=HELD_OUT[:0], **how)
    return fold(kept_of([documents]), stage, 0)


def test_one_part_is_a_refinement_in_one_process(usable, settings):
    engine = Engine(replace(settings, refine=False))
    engine.add(usable.rows(0, 300))
    model, size = engine.snapshot(), 100
    how = StepwiseEMSettings(batch_documents=size, annealing=0.7, annealing_steps=2)
    wanted = StepwiseEM.of_topics(model.components, model.alpha, model.background, how)
    state = wanted.state()
    last = 1000 + 5 * size
    wanted.add(usable.rows(1000, last))
    # Pure: the state that was handed over does not move, and comes out the same again.
    for _ in range(2):
        found = refined_by(state, usable, 1000, last, 5)
        np.testing.assert_array_equal(found.arrays["totals"], wanted.state()["totals"])
    assert found.arrays["documents"] == 5 * size
    stage = Refine(spans=((0, 900),), starts=(0, 900), steps=5, state=state, held_out=HELD_OUT)
    known = hold_out(usable.rows(0, 900))[0].n_documents
    found = [
        sums_of(usable.rows(0, 900), stage, shard=0),
        fold(kept_of([usable.rows(0, 900)]), stage, 0),
    ]
    np.testing.assert_array_equal(*(each.arrays["totals"] for each in found))
    assert found[0].arrays["documents"] == known < 900


def test_another_engine_learns_topics_as_good_as_those_of_one_process():
    """In any tree, of texts of two sorts that no one alpha fits."""
    planted = [PlantedLDA(3, D, seed=s, mean_length=25, topic_concentration=0.05) for s in (2, 3)]
    pairs = zip(*(lda.texts(2000) for lda in planted), strict=True)
    texts = [text for pair in pairs for text in pair]
    held_out = DocumentBatch.joined([lda.documents(400) for lda in planted])
    settings = EngineSettings(n_components=6, n_features=D, oversampling=8)
    counts = [WORDS.encode(texts[a : a + 1000]).batch for a in range(0, 4000, 1000)]
    draw = random.Random(2)
    model = fit_with(by_pickles(counts, draw), settings, WORDS, shards=4)
    done = model.diagnostics["refinement"]
    assert model.diagnostics["refinement_choice"]["kept"] == "refinement"
    assert (done["documents"], done["lanes"]) == (4000, 4)
    assert model.vocabulary == WORDS
    _, one = Engine.fit(settings, DocumentBatch.joined(counts))

    # Documents of one and two words are learned too, and blank ones are not.
    few = WORDS.encode(["w00001", "w00001 w00002", "", "other"] * 20).batch
    more = fit_with(
        by_pickles([DocumentBatch.joined([own, few]) for own in counts], draw), settings, shards=4
    )
    assert (more.documents_seen, more.diagnostics["documents_skipped"]) == (4000, 320)
    assert more.diagnostics["refinement"]["documents"] == 4160
    assert more.components[:, 1:3].sum() > model.components[:, 1:3].sum()

    def perplexity(of):
        return document_completion(held_out, of.components, of.alpha, of.background).perplexity

    assert perplexity(model) < 1.03 * perplexity(one)
    with pytest.raises(InvalidDocumentsError, match="no real numbers"):
        fit_with(by_pickles([texts], draw), settings, WORDS, shards=1)
    with pytest.raises(InsufficientDataError, match="fewer shards"):
        fit_with(by_pickles([*counts, counts[0].rows(0, 9)], draw), settings, shards=5)


def test_the_state_of_a_round_is_kept_at_a_url():
    how = np.ones(2), np.full(4, 0.25), StepwiseEMSettings()
    state = StepwiseEM(np.full((4, 2), 0.25), *how).state()
    saved = SavedRounds("memory://streamlda-rounds")
    assert saved.load("a") is None
    for rounds in (1, 2):
        saved.save("a", rounds, state)
    found, again = saved.load("a")
    assert (found, again["steps"]) == (2, state["steps"])
    np.testing.assert_array_equal(again["totals"], state["totals"])
