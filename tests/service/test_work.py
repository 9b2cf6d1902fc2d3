"""The work of the daemon: the same whatever batches come, and wherever it is taken up again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlda.service.work import PublicWork

from streamlda.container import to_json
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.storage.checkpoint import Checkpoints
from streamlda.stream import blocks
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.service import planted
from tests.service.daemon_process import texts

TEXTS = texts(700)
#: Every seventh record brings no text.
ROWS = [None if i % 7 == 3 else text for i, text in enumerate(TEXTS)]
NAMES: list[str] = planted.words(200)  # type: ignore[no-untyped-call]
WORDS: dict[str, Vocabulary | VocabularyLearner] = {
    "given": Vocabulary.given(NAMES),
    "hashed": Vocabulary.hashed(7, TextAnalyzer()),
    "learned": VocabularyLearner(size=100, documents=150),
}


def new_work(kind: str, **changes: Any) -> PublicWork:
    values: dict[str, Any] = {
        "n_components": 3,
        "n_features": 200,
        "oversampling": 5,
        "warmup_documents": 100,
    }
    if kind == "hashed":
        # Documents do not follow this model, so that likelihood refines its topics.
        values |= {"n_features": 128, "alpha_0": 10.0}
    more = {"every": 200, "most": None, "about": {"stream": "s"}, **changes}
    return PublicWork(EngineSettings(**values), WORDS[kind], **more)


def run(
    kind: str, folder: Path, cuts: list[int], restarts: set[int]
) -> tuple[list[bytes], PublicWork]:
    """Learn all rows in batches; at some of their ends, go on from a checkpoint."""
    work, found = new_work(kind), []
    ends = sorted({*(cut % len(ROWS) for cut in cuts), *range(200, 700, 200), len(ROWS)} - {0})
    start = 0
    with Checkpoints.open(folder) as store:
        for number, end in enumerate(ends):
            work.learn(RecordBatch(ROWS[start:end]))
            start = end
            if work.slots_left == 0:
                released = work.release()
                assert released.model is not None
                found.append(content(released.model))
            if number in restarts:
                captured = work.capture(store, {"at": end})
                if captured is not None:
                    store.write(captured)
                    work = new_work(kind)
                    newest = store.newest()
                    assert newest is not None
                    assert newest.position == {"at": work.slots or end}
                    work.restore(newest)
    return found, work


def content(model: TopicModel) -> bytes:
    arrays = (model.components, model.alpha, model.background)
    values = to_json([model.settings, model.diagnostics, model.documents_seen])
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays) + values.encode()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    patch = pytest.MonkeyPatch()
    patch.setattr(blocks, "BLOCK_ROWS", 64)
    found = {kind: run(kind, tmp_path_factory.mktemp(kind) / "c", [], set())[0] for kind in WORDS}
    patch.undo()
    return found


@pytest.mark.parametrize("kind", list(WORDS))
@given(data=st.data())
@settings(max_examples=10)
def test_any_batches_and_restarts_give_the_same_snapshots(
    kind: str,
    data: st.DataObject,
    undisturbed: dict[str, list[bytes]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(ROWS) - 1), max_size=12))
    restarts = data.draw(st.sets(st.integers(0, 15)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 64)
        found, work = run(kind, tmp_path_factory.mktemp("run") / "c", cuts, restarts)
    assert len(found) == 3
    assert found == undisturbed[kind]
    assert (work.slots, work.slots_left) == (700, 100)


@pytest.mark.parametrize(("kind", "refined"), [("given", False), ("hashed", True)])
def test_topics_are_refined_unless_documents_follow_the_model(
    kind: str, refined: bool, tmp_path: Path
) -> None:
    found, work = run(kind, tmp_path / "c", [], set())
    assert work.fresh
    released = work.release()
    assert released.model is not None
    assert ("refinement" in released.model.diagnostics) == refined
    assert all((b"start_documents" in snapshot) == refined for snapshot in found)


def test_a_round_is_told_when_the_warm_up_is_over(tmp_path: Path) -> None:
    work = new_work("hashed")
    work.learn(RecordBatch(ROWS[:90]))
    assert work.rounds == 0
    work.learn(RecordBatch(ROWS[90:200]))
    assert work.release().model is not None
    assert work.rounds == 1
    # An engine with a map from elsewhere has no warm-up.
    asked = EngineSettings(n_components=3, n_features=200, oversampling=5, refine=False)
    W = np.random.default_rng(0).normal(size=(200, 8))
    shared = PublicWork(asked, WORDS["given"], every=200, most=None, about={}, shared_projection=W)
    assert shared.rounds == 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_checkpoint_from_before_refinement_is_gone_on_with(tmp_path: Path, shared: bool) -> None:
    """A daemon with a map file always says ``refine=False``; others have to be told to."""
    W = np.random.default_rng(0).normal(size=(200, 8)) if shared else None
    asked = EngineSettings(n_components=3, n_features=200, oversampling=5, refine=False)

    def work_of(settings: EngineSettings) -> PublicWork:
        return PublicWork(
            settings, WORDS["given"], every=200, most=None, about={}, shared_projection=W
        )

    work = work_of(asked)
    work.learn(RecordBatch(ROWS[:200]))
    with Checkpoints.open(tmp_path / "c") as store:
        captured = work.capture(store, {})
        assert captured is not None
        del captured.metadata["state"]["settings"]["refine"]
        store.write(captured)
        saved = store.newest()
    assert saved is not None
    work_of(asked).restore(saved)
    if not shared:
        with pytest.raises(InvalidSettingError, match=r"refine=None \(saved: False\)"):
            work_of(replace(asked, refine=None)).restore(saved)


def test_counts_are_of_documents(tmp_path: Path) -> None:
    work = new_work("given")
    # Short are an empty text too, and one with too few words of the list for a triple.
    found = work.learn(RecordBatch([" ".join(NAMES[:5]), None, NAMES[0], "none of these", ""]))
    assert (found.learned, found.short) == (1, 3)
    assert work.slots == 5


def test_the_last_snapshot_leaves_none_to_come() -> None:
    work = new_work("hashed", most=1)
    work.learn(RecordBatch(ROWS[:200]))
    assert work.slots_left == 0
    assert work.release().model is not None
    assert work.slots_left is None


def test_too_few_documents_give_a_reason_and_no_model() -> None:
    work = new_work("hashed")
    work.learn(RecordBatch([None] * 200))
    released = work.release()
    assert released.model is None
    assert released.missed
    assert work.slots_left == 200


def test_nothing_is_captured_before_the_words_are_known(tmp_path: Path) -> None:
    work = new_work("learned")
    with Checkpoints.open(tmp_path / "c") as store:
        work.learn(RecordBatch(ROWS[:100]))
        assert work.capture(store, {}) is None
        work.learn(RecordBatch(ROWS[100:200]))
        assert work.capture(store, {}) is not None


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"kind": "given"}, "words="),
        ({"n_components": 4}, "n_components=4"),
        ({"seed": 1}, "seed=1"),
    ],
)
def test_other_settings_than_the_saved_ones_are_refused(
    tmp_path: Path, other: dict[str, Any], named: str
) -> None:
    work = new_work("hashed")
    work.learn(RecordBatch(ROWS[:200]))
    with Checkpoints.open(tmp_path / "c") as store:
        captured = work.capture(store, {})
        assert captured is not None
        store.write(captured)
        saved = store.newest()
    assert saved is not None
    new_work("hashed").restore(saved)
    kind = other.pop("kind", "hashed")
    values: dict[str, Any] = {"n_components": 3, "n_features": 128, "oversampling": 5}
    values |= {"warmup_documents": 100, "alpha_0": 10.0}
    asked = EngineSettings(**{**values, **other})
    changed = PublicWork(asked, WORDS[kind], every=200, most=None, about={})
    with pytest.raises(InvalidSettingError, match=named):
        changed.restore(saved)


def test_another_distance_of_snapshots_counts_from_the_checkpoint(tmp_path: Path) -> None:
    work = new_work("hashed")
    for end in (200, 400, 500):
        work.learn(RecordBatch(ROWS[work.slots : end]))
        if work.slots_left == 0:
            work.release()
    with Checkpoints.open(tmp_path / "c") as store:
        captured = work.capture(store, {})
        assert captured is not None
        store.write(captured)
        saved = store.newest()
    assert saved is not None
    nearer, farther = new_work("hashed", every=120), new_work("hashed", every=1000)
    nearer.restore(saved)
    farther.restore(saved)
    assert nearer.slots_left == 100
    assert farther.slots_left == 2500
