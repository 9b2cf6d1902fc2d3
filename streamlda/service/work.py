"""What the daemon's worker does to an engine: learn a batch, make what is due, say what to save."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import projection_digest
from streamlda.errors import InsufficientDataError, InvalidSettingError, VocabularyError
from streamlda.model.topic_model import TopicModel
from streamlda.storage.checkpoint import Checkpoint, Checkpoints, PendingCheckpoint
from streamlda.stream.blocks import Blocks
from streamlda.stream.source import Position, RecordBatch
from streamlda.stream.vocabulary_choice import VOCABULARY_CHARACTERS, VocabularyLearner
from streamlda.text.vocabulary import Vocabulary


class Learned(NamedTuple):
    """Documents of a batch, by what became of them."""

    learned: int
    short: int


class Released(NamedTuple):
    """What was due: a model, or why there is none."""

    model: TopicModel | None
    missed: str = ""


class Work(Protocol):
    """An engine as the daemon sees it. Not safe for several threads."""

    @property
    def rounds(self) -> int:
        """Rounds, or stages, that were finished; not 0 once a warm-up is over."""

    @property
    def slots(self) -> int:
        """Records learned from, of those that count from the beginning of the stream."""

    @property
    def slots_left(self) -> int | None:
        """Records until something is due; 0 if it is due now, None if nothing will be."""

    @property
    def fresh(self) -> bool:
        """Whether records were learned from that are in no release yet."""

    def learn(self, batch: RecordBatch) -> Learned:
        """Learn from at most `slots_left` records."""

    def release(self) -> Released:
        """Make what is due.

        Raises
        ------
        BudgetExceededError
            If the budget does not cover it.
        """

    def capture(self, store: Checkpoints, position: Position) -> PendingCheckpoint | None:
        """Copy what a checkpoint holds; None while there is nothing but records to read again."""


class PublicWork:
    """An engine that is not private; a snapshot after every so many records.

    Memory: the engine, one block of documents and, while the words are learned, their documents.

    Parameters
    ----------
    settings : EngineSettings
        ``n_features`` is taken from the words once they are known.
    words : Vocabulary or WordsToLearn
    every, most : int, int or None
        Records between snapshots, and most snapshots.
    about : dict
        Plain JSON values that each model says of its stream.
    shared_map : ndarray of shape (n_features, n_columns), optional
        See `streamlda.storage.projection`.
    """

    def __init__(
        self,
        settings: EngineSettings,
        words: Vocabulary | VocabularyLearner,
        *,
        every: int,
        most: int | None,
        about: dict[str, Any],
        shared_projection: NDArray[np.float64] | None = None,
    ) -> None:
        self.slots = 0
        self._snapshots = self._released_at = 0
        self._settings, self._shared_map = settings, shared_projection
        self._every, self._most, self._about = every, most, about
        self._blocks = Blocks()
        self._texts: list[str] = []
        self._characters = 0
        self._words = words if isinstance(words, VocabularyLearner) else None
        self._vocabulary: Vocabulary | None = None
        self._engine: Engine | None = None
        if isinstance(words, Vocabulary):
            self._begin(words)

    def _begin(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._settings = replace(self._settings, n_features=vocabulary.n_features)
        self._engine = Engine(self._settings, shared_projection=self._shared_map)

    @property
    def rounds(self) -> int:
        """Rounds that the engine finished; a map that was given, or a refinement, is one more."""
        if self._engine is None:
            return 0
        past_warmup = self._engine.refining or self._shared_map is not None
        return self._engine.rounds_finished + int(past_warmup)

    @property
    def slots_left(self) -> int | None:
        """Records until the next snapshot."""
        if self._most is not None and self._snapshots >= self._most:
            return None
        return self._every * (self._snapshots + 1) - self.slots

    @property
    def fresh(self) -> bool:
        """Whether records were learned from since the last snapshot."""
        return self.slots > self._released_at

    def learn(self, batch: RecordBatch) -> Learned:
        """Learn from a batch; texts are kept until the words are known."""
        self.slots += batch.n_records
        texts = batch.documents
        if self._words is not None and self._engine is None:
            self._texts += texts
            self._characters += sum(map(len, texts))
            enough = self._characters >= VOCABULARY_CHARACTERS
            if enough or len(self._texts) >= self._words.documents:
                return self._learn_words()
            return Learned(0, 0)
        return self._learn(texts)

    def _learn_words(self) -> Learned:
        """Learn the words from what is kept, and then all else."""
        assert self._words is not None
        texts, self._texts = self._texts, []
        # Cut at a document, not where a poll happened to end.
        reached = np.cumsum([len(text) for text in texts]) >= VOCABULARY_CHARACTERS
        n = int(np.argmax(reached)) + 1 if reached.any() else len(texts)
        self._begin(self._words.learn(texts[: min(n, self._words.documents)]))
        return self._learn(texts)

    def _learn(self, texts: list[str]) -> Learned:
        assert self._vocabulary is not None
        assert self._engine is not None
        batch = self._vocabulary.encode(texts).batch
        for block in self._blocks.add(batch):
            self._engine.add(block)
        learned = int(np.count_nonzero(batch.usable))
        return Learned(learned, len(texts) - learned)

    def release(self) -> Released:
        """Return a snapshot of all that was learned."""
        self._snapshots += 1
        self._released_at = self.slots
        try:
            if self._engine is None:
                self._learn_words()
            assert self._engine is not None
            if self._blocks.waiting is not None:
                self._engine.add(self._blocks.flush())
            about = {**self._about, "places": self.slots}
            return Released(self._engine.snapshot(self._vocabulary, about))
        except (InsufficientDataError, VocabularyError) as error:
            return Released(None, str(error))

    def capture(self, store: Checkpoints, position: Position) -> PendingCheckpoint | None:
        """Copy the engine, the rows that wait, and the counters."""
        if self._engine is None:
            return None
        assert self._vocabulary is not None
        about = {
            "places": self.slots,
            "snapshots": self._snapshots,
            "released_at": self._released_at,
        }
        waiting = self._blocks.waiting
        return store.capture(self._engine, position, self._vocabulary, about, waiting)

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint.

        Raises
        ------
        InvalidSettingError
            If it was made with other words or settings.
        """
        if self._vocabulary is None:
            self._begin(saved.vocabulary)
        assert self._vocabulary is not None
        check_words(self._vocabulary, saved.vocabulary)
        engine = saved.restore()
        assert isinstance(engine, Engine)
        found, wanted = asdict(engine.settings), asdict(self._settings)
        check_same({name: (wanted[name], found[name]) for name in wanted})
        maps = [
            None if W is None else projection_digest(W)
            for W in (self._shared_map, engine.shared_projection)
        ]
        check_same({"map": (maps[0], maps[1])})
        self._engine = engine
        self._blocks = Blocks(saved.rows())
        self.slots, self._snapshots = int(saved.about["places"]), int(saved.about["snapshots"])
        self._released_at = int(saved.about["released_at"])
        # Another distance between snapshots counts from here.
        while self.slots_left is not None and self.slots_left < 0:
            self._snapshots += 1


def check_words(wanted: Vocabulary, saved: Vocabulary) -> None:
    """Raise `InvalidSettingError` unless both are the same words."""
    check_same({"words": (wanted.fingerprint, saved.fingerprint)})


def check_same(values: dict[str, tuple[Any, Any]]) -> None:
    """Raise `InvalidSettingError` naming the values that differ from the saved ones."""
    differing = [f"{name}={a!r} (saved: {b!r})" for name, (a, b) in values.items() if a != b]
    if differing:
        raise InvalidSettingError(
            "a daemon must go on with the settings of its checkpoints, got "
            f"{', '.join(differing)}; use those, or begin in an empty checkpoint.folder"
        )
