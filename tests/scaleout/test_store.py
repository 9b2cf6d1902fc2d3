"""Documents kept with the workers that read them, and local steps over them."""

import itertools
import os
import signal
from dataclasses import replace

import dask
import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.model.evaluation import document_completion
from streamlda.refinement.choice import parted
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import LOCAL_STEPS, LocalSchedule
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout import connect, learn_once, of_partitions
from streamlda.scaleout import local_steps as module
from streamlda.scaleout.cluster import Run, memory_limits
from streamlda.scaleout.local_steps import local_steps, refined_on, summed
from streamlda.scaleout.resume import SavedRounds
from streamlda.scaleout.shards import Piece, Shard
from streamlda.scaleout.store import (
    MOST_OF_WORKER,
    documents_of,
    joined,
    store_documents,
    together,
)
from streamlda.simulate import PlantedLDA
from streamlda.utils.threads import thread_count
from tests.scaleout.conftest import D, cluster_of, logged, wait_until, wait_until_empty

K, V = 4, 120


@pytest.fixture(scope="module")
def corpus():
    """Documents, others held out, and a spectral model of the former."""
    planted = PlantedLDA(K, V, seed=7, mean_length=25, topic_concentration=0.05)
    documents, held_out = planted.documents(6000), planted.documents(800)
    engine = Engine(EngineSettings(n_components=K, n_features=V, oversampling=8, refine=False))
    engine.add(documents.rows(0, 300))
    return documents, held_out, engine.snapshot()


def parts_of(documents, parts=5):
    step = -(-len(documents) // parts)
    return [documents.rows(a, a + step) for a in range(0, len(documents), step)]


def stored(client, parts, n_features=V, most_bytes=None):
    limits = memory_limits(client)
    most = {"limits": limits, "most_bytes": 1e9 if most_bytes is None else most_bytes}
    return store_documents(Run(client), of_partitions(parts), None, n_features, read={}, **most)


def stepped(state, documents, first, last, steps):
    given = None, [Piece(Shard("a"), first, last)], None, documents
    return local_steps(state, f"{first}", last - first, steps, *given)


def replace_bytes(store, nbytes):
    store.contents = replace(store.contents, nbytes=nbytes)
    return store


def settings_of(**changes):
    return EngineSettings(**{"n_components": K, "n_features": V, "oversampling": 8} | changes)


@pytest.fixture(scope="module")
def usable(documents):
    return documents.where(documents.usable)


def assert_same_documents(one, other):
    for name in ("counts", "word_ids", "row_pointers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def test_a_shard_gives_its_usable_documents_and_what_was_met(documents, cut, usable):
    kept, found = documents_of(Shard("a"), documents, None, D)
    assert_same_documents(kept, usable)
    assert found.usable == {"a": 4875}
    assert (found.counts.documents, found.counts.short) == (5000, 125)
    assert found.counts.tokens == documents.lengths.sum()
    assert found.nbytes >= 12 * len(usable.counts)
    wanted = (usable.to_csr() / usable.lengths[:, None]).sum(axis=0)
    np.testing.assert_allclose(found.frequencies, np.ravel(wanted), rtol=1e-12)
    parts = [documents_of(Shard(f"{i}"), part, None, D, 0)[1] for i, part in enumerate(cut)]
    assert [part.whole for part in parts] == [not len(part) for part in cut]
    total = together(*parts)
    assert [*total.usable] == [f"{i}" for i in range(len(cut))]
    assert sum(total.usable.values()) == 4875
    assert total.counts == found.counts
    np.testing.assert_allclose(total.frequencies, found.frequencies, rtol=1e-12)
    with pytest.raises(InvalidDocumentsError, match=rf"n_features={D} expected=7.*shard='x'"):
        documents_of(Shard("x"), documents, None, 7)


def test_pieces_are_joined_and_missing_documents_noticed(cut, usable):
    first = cut[0].where(cut[0].usable).n_documents
    shards = [Piece(Shard("a"), 600, first), Piece(Shard("b"), 0, 500)]
    found = joined(None, shards, None, cut[0], cut[2])
    rows = [cut[0].where(cut[0].usable).rows(600, first), cut[2].where(cut[2].usable).rows(0, 500)]
    assert_same_documents(found, DocumentBatch.joined(rows))
    with pytest.raises(InvalidDocumentsError, match=r"documents=\d+ at_least=9999"):
        joined(None, [Piece(Shard("a"), 0, 9999)], None, cut[0])


@pytest.mark.parametrize("number", [0, 150, 19_500, 30_000])
def test_what_is_set_aside_is_left_out_however_documents_are_cut(cut, usable, number):
    lengths = [part.where(part.usable).n_documents for part in cut]
    pieces = [Piece(Shard("a"), 0, length) for length in lengths if length]
    values = [part for part, length in zip(cut, lengths, strict=True) if length]
    wanted, aside = parted(usable, number)
    assert_same_documents(joined(number, pieces, None, *values), wanted)
    assert_same_documents(joined(None, pieces, None, *values), usable)
    assert (len(aside) > 0) == (number < 20_000)


@pytest.mark.parametrize("most_bytes", [None, 0, 50_000], ids=["kept", "read again", "too large"])
def test_any_run_of_documents_can_be_asked_for(client, cut, usable, most_bytes):
    with stored(client, cut, D, most_bytes=most_bytes) as store:
        assert store.in_memory == (most_bytes is None)
        assert store.documents == 4875
        for first, last in ((0, 4875), (0, 1), (650, 1900), (2000, 2001), (4870, 4875)):
            found = store.run.compute(store.task("rows", first, last))
            assert_same_documents(found, usable.rows(first, last))


def test_parts_are_equal_runs_and_survive_the_shards_until_the_block_ends(client, cut, usable):
    def failing():
        with stored(client, cut, D) as store:
            ends = [4875 * part // 4 for part in range(5)]
            parts = client.gather(store.parts(ends))
            for part, (first, last) in zip(parts, itertools.pairwise(ends), strict=True):
                assert_same_documents(part, usable.rows(first, last))
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    wait_until_empty(client)


@pytest.mark.long
def test_documents_may_take_a_share_of_the_memory_of_all_workers(cut):
    with cluster_of(2, memory_limit="700MB") as own, connect(own.scheduler_address) as client:
        assert memory_limits(client) == pytest.approx([700e6] * 2)
        with stored(client, cut, D) as store:
            assert store.most_of_worker == pytest.approx(MOST_OF_WORKER * 700e6)
            assert store.fits(1)
            assert not replace_bytes(store, 1.01 * MOST_OF_WORKER * 700e6).fits(1)
            assert replace_bytes(store, 1.01 * MOST_OF_WORKER * 700e6).fits(2)


@pytest.mark.parametrize("documents", [1, 29, 6000, 50_000, 195_000, 400_000, 10**9])
@pytest.mark.parametrize("passes", [1, 2, 10])
def test_a_schedule_follows_from_the_number_of_documents(documents, passes):
    plan = LocalSchedule.of(documents, passes)
    steps = passes * plan.rounds * plan.steps
    assert plan.rounds * plan.steps <= max(1, documents // plan.parts)
    assert plan.settings.annealing_steps <= max(1, steps / 2)
    if passes * documents >= 50_000 and documents >= 6000:
        assert steps >= 0.9 * LOCAL_STEPS
        assert plan.rounds == (4 if passes == 1 else 2)
    if passes == 1:
        wanted = {1: 1, 29: 1, 195_000: 4, 400_000: 8, 10**9: 256}
        assert plan.parts == wanted.get(documents, 2)


def test_one_part_is_a_refinement_in_one_process(corpus):
    documents, _, model = corpus
    settings = StepwiseEMSettings(batch_documents=100, annealing_steps=10)
    wanted = StepwiseEM(model.components, model.alpha, model.background, settings)
    state = wanted.state()
    wanted.add(documents.rows(1000, 3000))
    # Pure: the state that was handed over does not move, and comes out the same again.
    for _ in range(2):
        found = stepped(state, documents, 1000, 3000, 20)
        np.testing.assert_array_equal(found.totals, wanted.state()[0]["totals"])
    assert (found.documents, found.steps, wanted.steps) == ({"1000": 2000}, 0, 20)
    other, before = stepped(state, documents, 0, 500, 5), found.totals.copy()
    both = summed(found, other)
    np.testing.assert_array_equal(both.totals, found.totals + other.totals)
    np.testing.assert_array_equal(found.totals, before)
    assert both.documents == {"1000": 2000, "0": 500}
    with pytest.raises(InvalidDocumentsError, match="steps=3 expected=5"):
        stepped(state, documents, 0, 3, 5)


def test_a_part_keeps_to_one_thread_from_the_beginning(corpus, monkeypatch):
    """Also while the refinement is made from the state, by a parallel kernel of its own."""
    documents, _, model = corpus
    state, seen = StepwiseEM(model.components, model.alpha, model.background).state(), []

    class Watched(StepwiseEM):
        @classmethod
        def from_state(cls, *given):
            seen.append(thread_count())
            return super().from_state(*given)

        def learn(self, batch):
            seen.append(thread_count())
            super().learn(batch)

    monkeypatch.setattr(module, "StepwiseEM", Watched)
    assert thread_count() > 1
    stepped(state, documents, 0, 500, 2)
    assert seen == [1, 1, 1]


@pytest.mark.long
def test_a_part_that_is_lost_is_noticed(client, corpus, monkeypatch):
    documents, _, model = corpus
    monkeypatch.setattr(module, "summed", lambda one, *others: one)
    wanted = pytest.raises(InvalidDocumentsError, match="each part must be counted once")
    with stored(client, parts_of(documents)) as store, wanted:
        refined_on(store, model, 1)


@pytest.mark.long
def test_topics_are_as_good_as_those_of_one_process(client, corpus):
    """Held-out perplexity within 1 % of a refinement in one process, and better than before."""
    documents, held_out, model = corpus
    with stored(client, parts_of(documents)) as store:
        found = refined_on(store, model, 4)
    one = refined(model, documents, passes=4)

    def perplexity(of):
        result = document_completion(held_out, of.components, of.alpha, of.background)
        return result.perplexity

    assert perplexity(found) < 1.01 * perplexity(one)
    # The bounds are not empty: the model to begin with is beyond one, a flatter one beyond both.
    assert perplexity(found) < perplexity(model)
    flat = replace(model, components=0.8 * model.components + 0.2 * model.background)
    assert perplexity(flat) > 1.01 * perplexity(one)
    done = found.diagnostics["refinement"]
    assert (done["lanes"], done["passes"], done["documents"]) == (2, 4, 6000)
    assert done["steps"] >= 0.9 * LOCAL_STEPS
    assert found.settings["refinement_passes"] == 4
    np.testing.assert_array_equal(found.alpha, model.alpha)
    assert found.diagnostics["start"]["topic_supported"] == model.diagnostics["topic_supported"]


@pytest.mark.long
def test_neither_cut_nor_memory_changes_a_bit(client, corpus):
    documents, _, model = corpus
    found = []
    for cuts, most_bytes in ((5, None), (1, None), (7, 0)):
        with stored(client, parts_of(documents, cuts), most_bytes=most_bytes) as store:
            found.append(refined_on(store, model, 2).components)
        np.testing.assert_array_equal(found[-1], found[0])


@pytest.mark.long
def test_neither_a_killed_worker_nor_the_number_of_workers_changes_a_bit(corpus, tmp_path):
    documents, _, model = corpus
    parts = [dask.delayed(logged)(part, tmp_path) for part in parts_of(documents)]
    killed = []

    def kill(label, counts, done, total):
        if (label, done) == ("refinement", 3) and not killed:
            # One that has blocks: it may be that the other has them all.
            held = client.has_what()
            worker = max(held, key=lambda address: len(held[address]))
            killed.append(client.run(os.getpid)[worker])
            os.kill(killed[0], signal.SIGKILL)

    with cluster_of(2) as own, connect(own.scheduler_address) as client:
        with stored(client, parts) as store:
            undisturbed = refined_on(store, model, 2)
        assert len(list(tmp_path.iterdir())) == len(parts)
        with stored(client, parts) as store:
            found = refined_on(store, model, 2, kill)
        assert killed
        assert killed[0] not in client.run(os.getpid).values()
        # What the lost worker kept was read again.
        assert len(list(tmp_path.iterdir())) > 2 * len(parts)
        own.scale(1)
        wait_until(lambda: len(client.nthreads()) == 1)
        with stored(client, parts) as store:
            alone = refined_on(store, model, 2)
    np.testing.assert_array_equal(found.components, undisturbed.components)
    np.testing.assert_array_equal(alone.components, undisturbed.components)
    assert found.diagnostics == undisturbed.diagnostics


def test_few_passes_and_few_steps(client, corpus):
    documents, _, model = corpus
    with stored(client, [documents.rows(0, 200)]) as store:
        assert refined_on(store, model, 0) is model
        found = refined_on(store, model, 1)
    said = " ".join(found.diagnostics["warnings"])
    assert "a refinement must take some 200 steps" in said
    with pytest.raises(InvalidSettingError, match="refinement_passes=-1"):
        learn_once(client, of_partitions([documents]), settings_of(), refinement_passes=-1)


@pytest.mark.long
def test_a_fit_decides_like_one_process_whether_to_refine(client, corpus):
    """Documents that follow the model keep their spectral topics, unless passes are asked for."""
    documents, _, _ = corpus
    parts, settings = of_partitions(parts_of(documents)), settings_of(warmup_documents=3000)
    plain = learn_once(client, parts, settings)
    one = Engine.of_rounds(settings)
    one.add(documents)
    assert plain.refined is None
    np.testing.assert_allclose(plain.model().components, one.snapshot().components, 1e-10, 1e-14)
    mine, theirs = plain.model(), one.snapshot()
    np.testing.assert_allclose(mine.prevalence, theirs.prevalence, rtol=1e-10)
    assert mine.interval.tokens == theirs.interval.tokens == documents.lengths.sum()
    assert mine.diagnostics["topic_npmi"] == theirs.diagnostics["topic_npmi"]
    # The same documents, so that nothing but rounding of the topics is between the two.
    samples = [found.measures.state() for found in (plain.engine, one)]
    assert samples[0][1] == samples[1][1]
    for name, array in samples[0][0].items():
        np.testing.assert_array_equal(array, samples[1][0][name])
    asked = learn_once(client, parts, settings, refinement_passes=2)
    model = asked.model({"corpus": "planted"})
    assert model.diagnostics["refinement"]["passes"] == 2
    assert np.all(np.diff(model.prevalence) <= 0)
    assert model.interval.prevalence == tuple(model.prevalence)
    assert (model.documents_seen, model.settings["corpus"]) == (6000, "planted")
    assert model.tokens_seen == documents.lengths.sum()
    assert learn_once(client, parts, replace(settings, refine=False)).refined is None
    # Two sorts of documents that no one alpha fits are refined by themselves.
    planted = [PlantedLDA(K, V, seed=s, mean_length=25, topic_concentration=0.05) for s in (1, 2)]
    parts = [lda.documents(1500) for lda in planted]
    found = learn_once(client, of_partitions(parts), settings_of(n_components=3))
    assert found.refined is not None
    assert found.model().diagnostics["refinement"]["documents"] == 3000


class Died(Exception):
    pass


@pytest.mark.parametrize("rounds", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 8))])
def test_a_refinement_goes_on_behind_the_last_round_that_was_saved(
    client, corpus, tmp_path, rounds
):
    """Whoever died: the topics are those of a refinement that was not cut short."""
    documents, _, model = corpus
    folder, made = str(tmp_path / "state"), []

    def die(label, counts, done, total):
        made.append(done)
        if done == rounds:
            raise Died

    with stored(client, parts_of(documents)) as store:
        wanted = refined_on(store, model, 4)
        with pytest.raises(Died):
            refined_on(store, model, 4, die, None, SavedRounds(folder))
    with stored(client, parts_of(documents), most_bytes=0) as store:
        found = refined_on(
            store, model, 4, lambda *report: made.append(report[2]), None, SavedRounds(folder)
        )
        assert made == [1, 2, 3, 4, 5, 6, 7, 8]
        np.testing.assert_array_equal(found.components, wanted.components)
        assert found.diagnostics == wanted.diagnostics
        with pytest.raises(InvalidSettingError, match="of the same files, settings and shards"):
            refined_on(store, model, 3, saved=SavedRounds(folder))


def test_the_state_of_a_round_is_kept_at_a_url(corpus):
    _, _, model = corpus
    state = StepwiseEM(model.components, model.alpha, model.background).state()
    saved = SavedRounds("memory://streamlda-rounds")
    assert saved.load("a") is None
    for rounds in (1, 2):
        saved.save("a", rounds, state)
    found, (arrays, values) = saved.load("a")
    assert (found, values["counters"]) == (2, state[1]["counters"])
    np.testing.assert_array_equal(arrays["totals"], state[0]["totals"])
