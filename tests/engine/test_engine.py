"""Laws of every phase of every kind of engine; rounds, shared projections, weak data."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine import rounds
from streamlda.engine.engine import Engine
from streamlda.engine.projections import warmup_end
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from streamlda.storage.checkpoint import load_state
from tests.engine.kinds import (
    EXACT,
    KINDS,
    assert_equal_states,
    assert_same_model,
    assert_same_state,
    copied,
    error,
    fed,
    planted,
    planted_documents,
    save_state,
    shared_projection,
    state_bytes,
)


@cache
def straight_run(name, *cuts):
    """Return states and snapshots at each cut and some documents behind it."""
    kind, found, at = KINDS[name], {}, 0
    documents, learner = kind.documents(), kind.engine()
    for stop in sorted({min(n, len(documents)) for cut in cuts for n in (cut, cut + kind.after)}):
        fed(learner, documents, at, stop)
        at, state = stop, copied(learner.state())
        found[stop] = state, learner.snapshot() if stop > 1 else None
    return found


def check_resume(name, cut, *cuts):
    """A resumed engine equals one that never stopped, to the last bit, and reads the same."""
    kind, found = KINDS[name], straight_run(name, *(cuts or (cut,)))
    documents = kind.documents()
    learner = Engine.from_state(*copied(found[cut][0]))
    assert_equal_states(learner.state(), found[cut][0])
    if cut > 1:
        assert_same_model(learner.snapshot(), found[cut][1])
    # Sums depend on the batches, so that these are those of the other one.
    stops = [stop for stop in found if cut <= stop <= min(cut + kind.after, len(documents))]
    for start, stop in pairwise(stops):
        fed(learner, documents, start, stop)
    state, model = found[stops[-1]]
    assert_equal_states(learner.state(), state)
    assert_same_model(learner.snapshot(), model)


def long_if_turning(names):
    return [pytest.param(n, marks=pytest.mark.long) if "turning" in n else n for n in names]


@pytest.mark.parametrize("name", long_if_turning(KINDS))
def test_resume_equals_uninterrupted_bit_for_bit(name):
    cuts = KINDS[name].cuts
    for cut in cuts:
        check_resume(name, cut, *cuts)


def test_resume_in_a_turn_equals_uninterrupted_bit_for_bit():
    check_resume("turning", 1085)


@pytest.mark.parametrize("name", long_if_turning(KINDS))
def test_what_is_refused_changes_nothing_and_a_file_brings_the_engine_back(name, tmp_path):
    found = straight_run(name, *KINDS[name].cuts)
    state = found[max(found)][0]
    learner = Engine.from_state(*copied(state))
    with pytest.raises(InvalidDocumentsError, match="n_features=3 expected="):
        learner.add(DocumentBatch.from_matrix(np.ones((5, 3))))
    save_state(tmp_path / "state", learner)
    assert_equal_states(load_state(tmp_path / "state").state(), state)


@pytest.mark.parametrize("name", long_if_turning(EXACT))
def test_cuts_of_the_stream_change_nothing(name):
    kind = KINDS[name]
    documents, whole = kind.documents().rows(0, 3400), kind.engine()
    whole.add(documents)
    cuts, parts = [1, 299, 300, 301, 1200, *range(1207, 3100, 97), 3157, 3158], kind.engine()
    for start, stop in pairwise([0, *(cut for cut in cuts if cut < len(documents)), 10**6]):
        parts.add(documents.rows(start, stop))
    assert_same_state(whole, parts)
    assert_same_model(whole.snapshot(), parts.snapshot())


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        *((name, 2) for name in ("sums", "shared", "online-power")),
        *((name, tokens) for name in ("started", "refining") for tokens in (0, 1, 2)),
    ],
)
def test_short_documents_are_counted_and_refinement_alone_learns_them(name, tokens):
    """Not within the warm-up, which they make longer or shorter like any other."""
    kind = KINDS[name]
    plain, mixed = kind.engine(), kind.engine()
    short = DocumentBatch.from_matrix(tokens * np.eye(plain.settings.n_features)[3:4])
    for start in range(0, 1200, 100):
        for learner in (plain, mixed):
            fed(learner, kind.documents(), start, start + 100)
        if start >= 500:
            mixed.add(short)
    assert mixed.counters.documents_skipped - plain.counters.documents_skipped == 7
    assert mixed.documents_seen == plain.documents_seen
    one, other = plain.snapshot(), mixed.snapshot()
    learned = name in ("started", "refining") and tokens > 0
    assert np.array_equal(one.components, other.components) != learned
    assert np.array_equal(one.background, other.background) != learned
    assert (other.background[3] > one.background[3]) == learned
    assert other.interval.documents == one.interval.documents


@pytest.mark.parametrize("name", ["sums", "shared", "online-power"])
def test_memory_is_bounded_by_the_formula_whatever_the_stream(name):
    """Online solvers take d (K + L): no K^3, no d^2, no documents; a shared projection half."""
    kind = KINDS[name]
    learner, documents = kind.engine(n_restarts=3), planted_documents()
    sizes = [state_bytes(fed(learner, documents)) for _ in range(3)]
    assert sizes[0] == sizes[1] == sizes[2]
    bound, online = learner.settings.state_bytes, name == "online-power"
    assert sizes[0] * (2 if kind.begins == "projection" else 1) == pytest.approx(
        bound, rel=0.1 if online else 0.02
    )
    assert not online or bound < KINDS["sums"].engine().settings.state_bytes / 4


@pytest.mark.parametrize("name", KINDS)
def test_too_few_documents_are_an_error_that_says_so(name):
    learner = KINDS[name].engine()
    learner.add(DocumentBatch.from_matrix(np.eye(learner.settings.n_features)[:90]))
    with pytest.raises(InsufficientDataError, match="seen=0 documents_skipped=90"):
        learner.snapshot()


def rounds_by_hand(documents, warmup, growth):
    """Return the rounds finished, and the documents that the last projection was made of."""
    used, done, finished = warmup, warmup, 0
    for _ in range(documents - warmup):
        done += 1
        if done >= int(growth * used):
            used, done, finished = done, 0, finished + 1
    return finished, used


@pytest.mark.parametrize("growth", [1.04, 3.0])
def test_a_round_ends_with_the_document_that_fills_it(growth, monkeypatch):
    monkeypatch.setattr(rounds, "ROUND_GROWTH", growth)
    documents = planted_documents()
    documents = documents.where(documents.usable)
    learner = KINDS["sums"].engine(warmup_documents=20)
    learner.add(documents.rows(0, 20))
    for n in range(20, 500):
        found = learner.counters.rounds_finished, learner.counters.projection_documents
        assert found == rounds_by_hand(n, 20, growth)
        learner.add(documents.rows(n, n + 1))


def test_a_warm_up_ends_with_the_document_that_reaches_a_limit():
    batch = DocumentBatch.from_matrix(np.tril(np.ones((6, 5)), -1)[[1, 0, 3, 2, 5, 4]])
    widths = np.diff(batch.row_pointers).tolist()
    for start in range(6):
        for documents in range(1, 8):
            for entries in range(1, 17):
                stop = start
                while stop < 6 and stop - start < documents and sum(widths[start:stop]) < entries:
                    stop += 1
                assert warmup_end(batch, start, documents, entries) == stop


@pytest.fixture(scope="module")
def documents():
    return planted().documents(12_000)


engine = KINDS["sums"].engine


def sharing(projection=None, **changes):
    projection = shared_projection() if projection is None else projection
    return Engine(engine(**changes).settings, shared_projection=projection)


def test_alpha_0_is_that_of_the_topics_that_are_there_or_said_to_be_unknown():
    for there, wanted, solver, reason in (
        (4, 4, "whitened-tensor", None),
        # Twice as many as there are: by all of them it is 4.
        (4, 8, "whitened-tensor", None),
        (2, 4, "whitened-tensor", "word pairs tell 2 apart"),
        (4, 2, "whitened-tensor", "word pairs tell 2 apart"),
        (4, 4, "online-power", "does not estimate"),
    ):
        documents = PlantedLDA(there, 150, topic_concentration=0.1, seed=3).documents(6000)
        asked = {"n_components": wanted, "alpha_0": None, "solver": solver, "refine": False}
        found = fed(engine(**asked), documents).snapshot()
        estimate = found.diagnostics["alpha_0_estimate"]
        assert estimate["value"] == pytest.approx(1.0, rel=0.1)
        assert estimate["value"] == pytest.approx(found.alpha_0)
        assert estimate["identified"] == (reason is None)
        assert reason is None or reason in estimate["reason"]
        assert (estimate["reason"] in found.diagnostics["warnings"]) == (reason is not None)


def test_through_a_shared_projection_all_documents_add_to_one_sum(documents):
    learner = sharing()
    plain = Moments(shared_projection(), learner.settings.n_triple_columns)
    for start, stop in [(0, 7), (7, 450), (450, 5000), (5000, 12_000)]:
        fed(learner, documents, start, stop)
        plain.add(documents.rows(start, stop))
    arrays, values = learner.state()
    assert values["counters"]["rounds_finished"] == 0
    np.testing.assert_array_equal(arrays.pop("current.whitening"), shared_projection())
    sums = {name for name in arrays if not name.startswith("measures.")}
    assert {f"current.{name}" for name in plain.state()} == sums
    for name, wanted in plain.state().items():
        np.testing.assert_array_equal(arrays[f"current.{name}"], wanted)
    assert fed(sharing(warmup_documents=10**6), documents, 0, 2).snapshot().documents_seen == 2
    # As good as the same documents in rounds, which end with a projection of 2000 of them.
    assert error(planted(), learner) < 0.05


def test_a_better_projection_is_the_one_of_the_next_round(documents):
    learner = engine()
    with pytest.raises(InsufficientDataError):
        learner.new_beginning()
    fed(learner, documents, 0, 100)
    assert learner.new_beginning().shape == (150, learner.settings.n_columns)
    assert "warmup.kept.counts" in learner.state()[0]
    fed(learner, documents, 100, 1999)
    before = {k: v.copy() for k, v in learner.state()[0].items()}
    early = learner.new_beginning()
    assert all(np.array_equal(v, before[k]) for k, v in learner.state()[0].items())
    fed(learner, documents, 1999, 2000)
    assert learner.counters.rounds_finished == 1
    late = learner.state()[0]["current.whitening"]
    np.testing.assert_array_equal(learner.new_beginning(), late)
    assert not np.array_equal(early, late)
    # A document more turns the span by next to nothing; the first projection is far off.
    spans = [np.linalg.qr(W)[0][:, :4] for W in (early, late, before["current.whitening"])]
    near, far = (np.linalg.svd(spans[1].T @ spans[i])[1].min() for i in (0, 2))
    assert near > 0.9999
    assert far < near


def test_a_shared_projection_that_does_not_fit_is_refused(documents):
    shared = shared_projection()
    broken = shared.copy()
    broken[3, 2] = np.nan
    for make, message in (
        (lambda: sharing(shared[:, :-1]), r"oversampling than the engine, got shape=\(150, 13\)"),
        (lambda: sharing(broken), "NaN or infinite"),
        (lambda: sharing(refine=True), "that refines a projection, got refine=True"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            make()
    learner = fed(engine(solver="online-power"), documents, 0, 1000)
    with pytest.raises(InvalidSettingError, match="got solver='online-power'"):
        learner.new_beginning()
