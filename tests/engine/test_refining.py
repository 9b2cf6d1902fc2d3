"""Engines that refine: better topics at any time, bounded state, documents in memory, refusals."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.fit import fit
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.engine.refining import aside_stride
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.model.evaluation import document_completion
from streamlda.refinement.choice import learned_before, parted
from streamlda.refinement.stepwise_em import StepwiseEM
from tests.engine.kinds import (
    KINDS,
    PLANTED,
    TEXT,
    assert_same_state,
    error,
    fed,
    resumed,
    text_corpus,
    text_documents,
)
from tests.engine.kinds import planted as planted_corpus

K, V, WARMUP = 12, 300, 300
#: Documents of a step, and those after which topics are annealed.
STEP, ANNEALED = 30, 100 * 30
SETTINGS = EngineSettings(**TEXT)


@pytest.fixture(scope="module")
def planted():
    planted = text_corpus()
    planted.seek(6000)
    return planted


@pytest.fixture(scope="module")
def documents():
    return text_documents()


def engine(**changes):
    return KINDS["refining"].engine(**changes)


@pytest.mark.statistical
def test_topics_are_refined_at_any_time(planted, documents):
    """Held for all of 60 such corpora, seeds 100 to 159: false alarms have less than 5 %.

    After 250 documents there is only the warm-up, after 2000 topics are still annealed, after
    5000 no more. The same rule rejects a refinement over documents whose words
    have other numbers.
    """
    held_out = planted.documents(500)
    refining, summing = engine(), engine(refine=False)
    at = 0
    for n in (250, 2000, 5000):
        for learner in (refining, summing):
            fed(learner, documents, at, n)
        at = n
        scores, errors = [], []
        for learner in (refining, summing):
            model = learner.snapshot()
            found = document_completion(held_out, model.components, model.alpha, model.background)
            scores.append(found.perplexity)
            errors.append(error(planted, model))
        assert errors[0] < 0.9 * errors[1]
        # A copy that ends the annealing has seen a warm-up of 300 documents only.
        assert n == 2000 or scores[0] < 0.995 * scores[1]
    mixed = documents.to_csr()[:, np.random.default_rng(0).permutation(V)]
    wrong = fed(engine(), documents, 0, 320)
    fed(wrong, DocumentBatch.from_matrix(mixed), 320, 5000)
    assert error(planted, wrong) > errors[1]


def test_documents_that_follow_the_model_keep_their_spectral_topics():
    planted = planted_corpus()
    documents = planted.documents(6000)
    settings = EngineSettings(**{**PLANTED, "warmup_documents": 1000})
    refining, summing = Engine(settings), Engine.of_rounds(settings)
    for start in range(0, 6000, 500):
        one, other = (
            fed(learner, documents, start, start + 500).snapshot()
            for learner in (refining, summing)
        )
        # Collapsed sweeps over the warm-up are better still.
        assert ("refinement" in one.diagnostics) == (start < 500)
        if start < 500:
            assert error(planted, one) < error(planted, other)
            continue
        assert abs(error(planted, one) - error(planted, other)) < 0.01
        assert one.documents_seen == start + 500
    assert not refining.refining
    # Those set aside are summed as well.
    assert refining._phase.current.documents + refining._phase.finished.documents == 6000
    # Nothing is kept for a refinement that will not be.
    assert not [name for name in refining.state()[0] if name.startswith(("kept", "aside"))]


def test_diagnostics_are_those_of_the_start_and_say_what_was_done(documents):
    learned, aside = parted(documents.rows(0, WARMUP))
    start = fed(engine(refine=False), learned).snapshot().diagnostics
    learner = fed(engine(), documents, 0, 2000)
    found = dict(learner.snapshot(settings={"stream": "s"}).diagnostics)
    choice = found["refinement_choice"]
    # Those of the latest two warm-ups, of which one is not over.
    later = (WARMUP + (2000 - WARMUP) % WARMUP) // aside_stride(WARMUP)
    assert (choice["kept"], choice["documents"]) == ("refinement", later)
    assert choice["refined_perplexity"] < choice["start_perplexity"]
    done = found.pop("refinement")
    assert done["start_documents"] == len(learned) == WARMUP - len(aside)
    assert done["documents"] == 2000
    assert done["batch_documents"] == STEP
    assert 0 < done["annealing_left"] < 1
    for name in ("eigenvalues", "eigenvalue_noise", "topic_supported", "warnings"):
        assert found["start"][name] == start[name]
    assert found["pair_eigenvalues"] == start["pair_eigenvalues"]
    assert "topic_supported" not in found
    fed(learner, documents, 2000, 4000)
    model = learner.snapshot(settings={"stream": "s"})
    assert model.diagnostics["refinement"]["annealing_left"] == 0
    assert model.diagnostics["refinement"]["steps"] == 4000 // STEP + 1
    assert model.settings["stream"] == "s"
    assert model.documents_seen == 4000
    rows = documents.rows(0, 4000).to_csr()
    background = np.asarray(rows.multiply(1 / rows.sum(axis=1)).sum(axis=0)).ravel()
    np.testing.assert_allclose(model.background, background / background.sum(), rtol=1e-10)


def test_topics_that_annealing_loses_begin_again_from_their_start(planted, documents):
    """Until then the start is published; however the stream was cut."""
    learners = []
    for size in (50, 2700):
        learner = fed(engine(), documents, 0, 310)
        phase = learner._phase
        assert phase.trial is not None
        flat = np.tile(phase.stepwise.background, (K, 1))
        stepwise = StepwiseEM(flat, phase.trial.alpha, flat[0], phase.stepwise.settings)
        stepwise.steps = phase.stepwise.steps
        phase.stepwise = stepwise
        found = learner.snapshot()
        assert found.diagnostics["refinement_choice"]["kept"] == "start"
        np.testing.assert_array_equal(found.components, phase.trial.components)
        assert not [text for text in found.diagnostics["warnings"] if "before refin" in text]
        assert found.documents_seen == 310
        # What others begin with is no worse than what is published.
        start = learner.new_beginning()
        np.testing.assert_allclose(start.stepwise.components, found.components, atol=0.01)
        begun = fed(Engine(learner.settings, shared_start=start), documents, 0, 100)
        assert "refinement_choice" not in begun.snapshot().diagnostics
        fed(learner, documents, 310, 6000, size=size)
        assert learner._phase.trial is None
        learners.append(learner)
    assert_same_state(*learners)
    model, start = learners[0].snapshot(), found
    assert "refinement_choice" not in model.diagnostics
    assert error(planted, model) < 0.8 * error(planted, start)


def test_topics_follow_a_stream_that_turns_to_other_words_at_once(planted, documents):
    """The documents that decide are of the new themes too: the old ones are predicted worse."""
    turned = np.random.default_rng(0).permutation(V)

    def other(documents):
        return DocumentBatch.from_matrix(documents.to_csr()[:, turned])

    held_out = other(planted.documents(300))

    def perplexity(model):
        parts = model.components, model.alpha, model.background
        return document_completion(held_out, *parts).perplexity

    learner = fed(engine(), documents, 0, 500)
    before = perplexity(learner.snapshot())
    for start, stop in ((500, 800), (800, 1700)):
        fed(learner, other(documents), start, stop)
        assert learner._phase.trial is not None
        model = learner.snapshot()
        assert model.diagnostics["refinement_choice"]["kept"] == "refinement"
        # Of three numberings it is 0.13 to 0.18 times that; kept as they began, 1.2 to 1.7 times.
        assert perplexity(model) < 0.4 * before


def test_a_start_without_documents_set_aside_is_kept(documents):
    learner = fed(engine(warmup_documents=4), documents, 0, 300)
    assert not learner.refining
    assert learner.snapshot().documents_seen == 300


def test_state_is_bounded_whatever_the_stream(documents):
    learner, sizes = engine(), []
    fed(learner, documents, 0, 290)
    assert "current.whitening" not in learner.state()[0]
    fed(learner, documents, 290, 1000)
    # Documents set aside are learned at the end of the warm-up after theirs.
    now, later = np.arange(WARMUP), np.arange(0, WARMUP, aside_stride(WARMUP))
    now = np.delete(now, later)
    learned = np.concatenate([2 * WARMUP + now, WARMUP + later, 3 * WARMUP + now])
    kept = documents.take(learned[learned < 1000][-WARMUP:])
    np.testing.assert_array_equal(learner.state()[0]["kept.counts"], kept.counts)
    np.testing.assert_array_equal(learner.state()[0]["kept.word_ids"], kept.word_ids)
    assert not [name for name in learner.state()[0] if name.startswith(("current", "finished"))]
    fed(learner, documents, 1000, ANNEALED + STEP)
    for _ in range(3):
        fed(learner, documents, 0, 6000)
        arrays = learner.state()[0]
        arrays = {name: a for name, a in arrays.items() if not name.startswith("measures.")}
        assert {name.partition(".")[0] for name in arrays} == {"refinement", "frequencies"}
        assert learner._phase.recent.parts == []
        waiting = [array.nbytes for name, array in arrays.items() if "waiting" in name]
        sizes.append(sum(array.nbytes for array in arrays.values()) - sum(waiting))
        assert sum(waiting) <= 12 * STEP * 100
    assert sizes == [learner.settings.refining_bytes] * 3


def test_long_documents_end_the_warm_up_and_sums_go_on_to_the_start(documents, monkeypatch):
    for module in ("engine.warmup", "engine.recent_documents"):
        monkeypatch.setattr(f"streamlda.{module}.WARMUP_MAX_ENTRIES", 5000)
    learner = fed(engine(), documents, 0, 250, size=50)
    arrays = learner.state()[0]
    assert "current.whitening" in arrays
    learned, aside = parted(documents.rows(0, 250))
    n = len(arrays["kept.counts"])
    assert 4000 < n <= 5000
    np.testing.assert_array_equal(arrays["kept.counts"], learned.counts[-n:])
    # A tenth of as many counts are set aside at most.
    n = len(arrays["aside.counts"])
    assert 400 < n <= 500
    np.testing.assert_array_equal(arrays["aside.counts"], aside.counts[-n:])
    assert "refinement" in learner.snapshot().diagnostics
    other = resumed(learner)
    for each in (learner, other):
        fed(each, documents, 250, 600)
    assert_same_state(learner, other)
    assert learner.refining
    start = learned_before(WARMUP)
    assert learner.snapshot().diagnostics["refinement"]["start_documents"] == start


@pytest.mark.parametrize(
    ("sizes", "most_entries"),
    [([1], 3000), ([1000], 10**6), ([2500], 90), ([3, 700, 1, 1999], 3000), ([1], 10**6)],
)
def test_the_latest_documents_are_those_of_the_stream(documents, sizes, most_entries, monkeypatch):
    monkeypatch.setattr("streamlda.engine.recent_documents.WARMUP_MAX_ENTRIES", most_entries)
    latest, at, pointers = RecentDocuments(400), 0, documents.row_pointers
    for size in sizes * (300 if sizes == [1] else 3):
        latest.add(documents.rows(at, at + size))
        first = at = min(at + size, len(documents))
        while first > max(0, at - 400) and pointers[at] - pointers[first - 1] <= most_entries:
            first -= 1
        expected, found = documents.rows(first, at), latest.latest()
        for name in ("counts", "word_ids", "row_pointers"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert sum(len(part) for part in latest.parts) <= 400 + 1000
    latest.clear()
    assert latest.parts == []


def test_parts_are_bounded_in_counts_whatever_the_documents(monkeypatch):
    """Of long documents in one batch, the latest are kept, and one part more at most."""
    monkeypatch.setattr("streamlda.engine.recent_documents.WARMUP_MAX_ENTRIES", 3200)
    long = DocumentBatch.from_matrix(np.ones((500, 40)))
    latest = RecentDocuments(400)
    for start, stop in ((0, 500), (0, 3), (3, 498)):
        latest.add(long.rows(start, stop))
        assert max(len(part.counts) for part in latest.parts) <= 200
        assert sum(len(part.counts) for part in latest.parts) <= 3200 + 200
        found = latest.latest()
        assert (len(found.counts), len(found)) == (3200, 80)
        # It does not hold on to a larger array.
        assert found.counts.base.size == 3200
    # A single document is kept whole.
    monkeypatch.setattr("streamlda.engine.recent_documents.WARMUP_MAX_ENTRIES", 30)
    latest.add(long.rows(0, 2))
    assert len(latest.latest()) == len(latest.parts) == 1


def test_documents_in_memory_are_refined_over_all_of_them(planted, documents, monkeypatch):
    monkeypatch.setattr("streamlda.engine.fit.START_DOCUMENTS", 1000)
    learner, model = fit(SETTINGS, documents)
    assert model.diagnostics["documents_behind_topics"] == 1000
    assert model.diagnostics["refinement"]["documents"] == model.documents_seen == 6000
    assert model.tokens_seen == documents.lengths.sum()
    spectral = fed(engine(refine=False), documents, 0, 6000).snapshot()
    assert error(planted, model) < error(planted, spectral)
    np.testing.assert_allclose(model.background, spectral.background, rtol=1e-10)
    # The engine says the same, and goes on from there.
    same = learner.snapshot()
    np.testing.assert_allclose(same.components, model.components, rtol=0.02, atol=1e-4)
    assert (same.documents_seen, same.tokens_seen) == (6000, model.tokens_seen)
    np.testing.assert_allclose(same.background, model.background)
    learner.add(planted.documents(1000))
    after = learner.snapshot()
    assert after.documents_seen == 7000
    assert 0 < np.abs(after.components - same.components).sum(axis=1).max() < 0.5
    assert error(planted, after) < error(planted, spectral)


def test_an_engine_of_a_model_moves_by_the_weight_of_a_step(documents):
    """After t steps a minibatch counts (10 + t + 1)^-0.7, as in a stream."""

    def steps_of(learner):
        return learner.state()[1]["refinement"]["stepwise"]["counters"]["steps"]

    # Sweeps alone have made the steps of a pass.
    _, model = fit(SETTINGS, documents, passes=0, gibbs_sweeps=2)
    assert steps_of(Engine.of_model(SETTINGS, model)) == model.documents_seen // STEP > 1
    _, model = fit(SETTINGS, documents)
    learner = Engine.of_model(SETTINGS, model)
    steps = model.diagnostics["refinement"]["steps"]
    size = model.diagnostics["refinement"]["batch_documents"]
    weights = [learner.state()[0]["refinement.totals"].sum()]
    learner.add(documents.rows(0, size))
    weights.append(learner.state()[0]["refinement.totals"].sum())
    new = documents.rows(0, size).lengths.sum()
    rho = (10.0 + steps + 1) ** -0.7
    mean = model.tokens_seen / model.documents_seen * size
    assert weights[0] * (10.0 + steps) ** -0.7 == pytest.approx(mean)
    assert rho * weights[1] == pytest.approx((1 - rho) * mean + rho * new)
    assert steps_of(learner) == steps + 1


def test_few_documents_keep_their_spectral_topics_and_may_still_be_refined_later(documents):
    learner, model = fit(SETTINGS, documents.rows(0, 150))
    straight = fed(engine(), documents, 0, 150)
    for found in (model, learner.snapshot(), straight.release()):
        assert "refinement" not in found.diagnostics
        np.testing.assert_array_equal(model.components, found.components)
    for each in (learner, straight):
        assert "refinement" in fed(each, documents, 150, 250).snapshot().diagnostics
        fed(each, documents, 250, 1000)
    assert_same_state(learner, straight)


def test_documents_in_memory_that_follow_the_model_are_all_summed(monkeypatch):
    monkeypatch.setattr("streamlda.refinement.collapsed.FEW_DOCUMENTS", 0)
    monkeypatch.setattr("streamlda.engine.fit.START_DOCUMENTS", 3000)
    documents = planted_corpus().documents(5000)
    settings = EngineSettings(n_components=4, n_features=150, warmup_documents=500)
    learner, model = fit(settings, documents)
    spectral = fed(Engine.of_rounds(settings), documents)
    np.testing.assert_array_equal(model.components, spectral.release().components)
    assert_same_state(learner, spectral)
    # By number, they are refined all the same.
    assert fit(settings, documents, 2)[1].diagnostics["refinement"]["passes"] == 2


def test_sums_that_are_gone_are_not_read(documents):
    learner = fed(engine(), documents, 0, 250)
    assert learner.topics().topics.shape == (K, V)
    assert learner.better_projection().shape == (V, K + 10)
    fed(learner, documents, 250, 1000)
    for read in (learner.topics, learner.better_projection):
        with pytest.raises(InvalidSettingError, match=r"take a snapshot.*topics\.refine = false"):
            read()
    with pytest.raises(InvalidSettingError, match=r"one start.*got start=None,None"):
        learner.merge(fed(engine(), documents, 0, 500))


@pytest.fixture
def many(monkeypatch):
    """Twelve topics are many, so that documents answer in place of triple sums."""
    monkeypatch.setattr("streamlda.engine.rounds.MANY_COMPONENTS", K)


@pytest.mark.parametrize("size", [None, 77])
def test_a_stream_of_many_topics_begins_without_triple_sums(documents, many, size):
    learner = fed(engine(warmup_documents=600), documents, 0, 599, size)
    found = learner.snapshot()
    assert "refinement" in found.diagnostics
    learner = fed(resumed(learner), documents, 599, 2000, size)
    assert learner.refining
    assert_same_state(learner, fed(engine(warmup_documents=600), documents, 0, 2000))


def test_long_documents_end_a_warm_up_of_many_topics_and_documents_answer(
    documents, many, monkeypatch
):
    """The warm-up ends by its counts; until the start no round ends, and a state has no cube."""
    monkeypatch.setattr("streamlda.engine.warmup.WARMUP_MAX_ENTRIES", 5000)
    changes = {"warmup_documents": 1500, "round_growth": 1.5}
    learner = fed(engine(**changes), documents, 0, 1400)
    assert learner.rounds_finished == 0
    arrays, _ = learner.state()
    assert arrays["current.cube"].size == 0
    assert int(arrays["current.tally"][0]) > 1000
    assert len(learner.topics().alpha) == K
    other = fed(resumed(learner), documents, 1400, 1600)
    assert_same_state(other, fed(engine(**changes), documents, 0, 1600, 100))


def test_many_topics_that_stay_spectral_are_summed_with_their_triples(many, monkeypatch):
    """As without that: sums of the documents kept, and of those set aside."""
    monkeypatch.setattr("streamlda.engine.rounds.MANY_COMPONENTS", 4)
    stream = planted_corpus().documents(900)
    settings = EngineSettings(**PLANTED)
    learner = fed(Engine(settings), stream)
    monkeypatch.setattr("streamlda.engine.rounds.MANY_COMPONENTS", 100)
    expected = fed(Engine(settings), stream)
    mine, theirs = learner.state()[0], expected.state()[0]
    assert mine.keys() == theirs.keys()
    for name in ("current.tally", "current.cube", "current.word_totals", "current.triple_cross"):
        scale = np.abs(theirs[name]).max()
        upper = np.isfinite(mine[name])
        np.testing.assert_allclose(mine[name][upper], theirs[name][upper], atol=1e-9 * scale)


def test_documents_in_memory_of_many_topics_begin_by_themselves(documents, many, monkeypatch):
    """Neither the start nor a comparison takes triple sums."""
    monkeypatch.setattr("streamlda.engine.fit._summed", lambda *_: pytest.fail("summed"))
    monkeypatch.setattr("streamlda.engine.fit.START_DOCUMENTS", 2000)
    monkeypatch.setattr("streamlda.refinement.choice.CLOSE_GAIN", 10.0)
    _, by_documents = fit(EngineSettings(**TEXT), documents)
    assert "refinement" in by_documents.diagnostics
    assert by_documents.documents_seen == len(documents)
    _, again = fit(EngineSettings(**TEXT), documents)
    np.testing.assert_array_equal(by_documents.components, again.components)
