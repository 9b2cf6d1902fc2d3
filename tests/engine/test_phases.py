"""What holds in every phase of every kind of engine: resumption, reading, cuts, rounds."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine import rounds
from streamlda.engine.generation import Generation
from streamlda.engine.phase import Counters
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.engine.refining import Refinement
from streamlda.engine.warmup import warmup_end
from streamlda.errors import InsufficientDataError, InvalidDocumentsError
from streamlda.storage.state import load_state, save_state
from tests.engine.kinds import (
    EXACT,
    KINDS,
    assert_same_model,
    assert_same_state,
    fed,
    planted_documents,
    resumed,
    state_bytes,
)


def check_resume(name, cut):
    """A resumed engine equals one that never stopped, to the last bit, and reads the same."""
    kind = KINDS[name]
    documents = kind.documents()
    straight = fed(kind.engine(), documents, 0, cut)
    other = resumed(straight)
    assert_same_state(straight, other)
    if cut > 1:
        assert_same_model(straight.snapshot(), other.snapshot())
    for learner in (straight, other):
        fed(learner, documents, cut, min(cut + 1500, len(documents)))
    assert_same_state(straight, other)
    assert_same_model(straight.snapshot(), other.snapshot())


@pytest.mark.parametrize(
    ("name", "cut"), [(name, cut) for name, kind in KINDS.items() for cut in kind.cuts]
)
def test_resume_equals_uninterrupted_bit_for_bit(name, cut):
    check_resume(name, cut)


@pytest.mark.parametrize("name", KINDS)
def test_reading_is_possible_at_any_time_and_changes_nothing(name, tmp_path):
    kind = KINDS[name]
    read, unread = kind.engine(), kind.engine()
    documents = kind.documents()
    for start in range(0, 4000, 200):
        for learner in (read, unread):
            fed(learner, documents, start, start + 200)
        read.snapshot()
        assert_same_state(read, unread)
    # What is refused changes nothing either, and a file brings the engine back.
    with pytest.raises(InvalidDocumentsError, match="n_features=3 expected="):
        read.add(DocumentBatch.from_matrix(np.ones((5, 3))))
    save_state(tmp_path / "state", read)
    assert_same_state(unread, load_state(tmp_path / "state"))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("cuts", [[1], [299, 300, 301, 1999, 3157, 3158, 3159], range(7, 7000, 97)])
def test_cuts_of_the_stream_change_nothing(name, cuts):
    kind = KINDS[name]
    documents, whole, parts = kind.documents().rows(0, 7000), kind.engine(), kind.engine()
    inside = [cut for cut in cuts if cut < len(documents)]
    for start, stop in zip([0, *inside], [*inside, len(documents)], strict=True):
        parts.add(documents.rows(start, stop))
    whole.add(documents)
    assert_same_state(whole, parts)
    assert_same_model(whole.snapshot(), parts.snapshot())


@pytest.mark.parametrize("name", ["sums", "shared", "refining", "simultaneous"])
def test_short_documents_are_counted_and_change_nothing(name):
    """Not within the warm-up, which they make longer or shorter like any other."""
    kind = KINDS[name]
    plain, mixed = kind.engine(), kind.engine()
    short = DocumentBatch.from_matrix(2 * np.eye(plain.settings.n_features)[3:4])
    for start in range(0, 3500, 100):
        for learner in (plain, mixed):
            fed(learner, kind.documents(), start, start + 100)
        if start >= 500:
            mixed.add(short)
    assert mixed.documents_skipped - plain.documents_skipped == 30
    assert mixed.documents_seen == plain.documents_seen
    one, other = plain.snapshot(), mixed.snapshot()
    np.testing.assert_array_equal(one.components, other.components)
    np.testing.assert_array_equal(one.background, other.background)


@pytest.mark.parametrize("name", ["sums", "shared", "online-power", "simultaneous"])
def test_memory_is_bounded_by_the_formula_whatever_the_stream(name):
    """Online solvers take d (K + L): no K^3, no d^2, no documents; a shared projection half."""
    kind = KINDS[name]
    learner, documents = kind.engine(n_restarts=3), planted_documents()
    sizes = [state_bytes(fed(learner, documents)) for _ in range(3)]
    assert sizes[0] == sizes[1] == sizes[2]
    bound, online = learner.settings.state_bytes, name in ("online-power", "simultaneous")
    assert sizes[0] * (2 if kind.shared else 1) == pytest.approx(bound, rel=0.1 if online else 0.01)
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


def check_rounds(growth):
    documents = planted_documents()
    documents = documents.where(documents.usable)
    learner = KINDS["sums"].engine(warmup_documents=20, round_growth=growth)
    learner.add(documents.rows(0, 20))
    for n in range(20, 500):
        found = learner.rounds_finished, learner.counters.projection_documents
        assert found == rounds_by_hand(n, 20, growth)
        learner.add(documents.rows(n, n + 1))


@pytest.mark.parametrize("growth", [1.04, 1.5, 3.0])
def test_a_round_ends_with_the_document_that_fills_it(growth):
    check_rounds(growth)


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


def forgetful(*names):
    """Return a way to restore counters that forgets some."""
    restore = Counters.from_state.__func__

    def from_state(cls, values):
        return restore(cls, {**values, **dict.fromkeys(names, 0)})

    return classmethod(from_state)


def without(owner, attribute, value):
    """Return what restores an object whose attribute is then lost."""
    restore = owner.from_state.__func__

    def from_state(cls, *saved):
        made = restore(cls, *saved)
        setattr(made, attribute, value)
        return made

    return classmethod(from_state)


LENGTH = rounds.round_length
FORGETS = "forgetting simultaneous"
BUGS = {
    "a counter of documents": (Counters, forgetful("documents_skipped"), "sums", 2001),
    "a counter of rounds": (Counters, forgetful("rounds_finished"), "online-power", 2750),
    "the documents of a projection": (Counters, forgetful("behind_map"), "sums", 2001),
    "a trial": (Generation, without(Generation, "_on_trial", False), FORGETS, 3600),
    "documents": (RecentDocuments, without(RecentDocuments, "parts", []), "refining", 2000),
    "the start": (Refinement, without(Refinement, "start", {}), "refining", 3330),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_phase_that_forgets_is_found(bug, monkeypatch):
    owner, restore, name, cut = BUGS[bug]
    monkeypatch.setattr(owner, "from_state", restore)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check_resume(name, cut)


@pytest.mark.parametrize("late", [1, -1])
def test_a_round_that_ends_a_document_late_or_early_is_found(late, monkeypatch):
    monkeypatch.setattr(rounds, "round_length", lambda *a, **k: LENGTH(*a, **k) + late)
    with pytest.raises(AssertionError):
        check_rounds(3.0)
