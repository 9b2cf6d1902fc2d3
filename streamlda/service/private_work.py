"""The private engine under the daemon: stages, the choice of words, and what a crash left behind.

A release may be on the disk while no checkpoint knows of it yet. Then the state of before it is
taken up, the rest of its records is passed over unread, and the stored noisy sums are accepted as
if nothing had happened (`PrivateLearner.catch_up`): no document is released twice, none is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.events import Event
from streamlda.privacy.ledger import Intent
from streamlda.private.budget import STATEMENTS, for_fewer_words
from streamlda.private.engine import PrivateSnapshot
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.service.work import Learned, Released, check_words
from streamlda.storage.checkpoint import Checkpoint, Checkpoints, PendingCheckpoint
from streamlda.stream.source import Position, RecordBatch
from streamlda.stream.vocabulary_choice import WORDS, PrivateVocabularySelection
from streamlda.text.vocabulary import Vocabulary


class ResumedReleaseManager(ReleaseManager):
    """Pays for a run that is under way, and lets it start when the budget is used up.

    Its snapshots are still served then, and its last release may be one that a crash cut short.
    What is left was asked before the first document, and is asked again at each release.
    """

    def check(self, event: Event) -> None:
        """Do nothing."""


class PrivateWork:
    """A private engine with its ledger; something is due at the end of each stage.

    Parameters
    ----------
    settings : PrivateSettings
        For the most words there can be.
    words : Vocabulary or WordsToSelect
    releaser : Releaser
        With a ledger.
    delta : float
        In all, that of the words included.
    about : dict
        Plain JSON values that each model says of its stream.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        words: Vocabulary | PrivateVocabularySelection,
        releaser: ReleaseManager,
        *,
        delta: float,
        about: dict[str, Any],
    ) -> None:
        self._settings, self._releaser = settings, releaser
        self._delta, self._about = delta, about
        self._votes = words if isinstance(words, PrivateVocabularySelection) else None
        self._voted = 0
        self._made: list[PrivateSnapshot] = []
        self._vocabulary: Vocabulary | None = None
        self._learner: PrivateLearner | None = None
        self._stages = 0
        if isinstance(words, Vocabulary):
            self._begin(words, 0)

    def _begin(self, vocabulary: Vocabulary, first_slot: int) -> PrivateLearner:
        settings = self._settings
        if vocabulary.n_features != settings.n_features:
            settings = for_fewer_words(settings, vocabulary.n_features)
        self._vocabulary = vocabulary
        self._learner = PrivateLearner(
            settings,
            self._releaser,
            vocabulary=STATEMENTS[vocabulary.kind],
            delta_of_words=self._delta - settings.delta,
            first_slot=first_slot,
            on_snapshot=self._made.append,
        )
        return self._learner

    @property
    def rounds(self) -> int:
        """Stages that were finished."""
        return self._stages

    @property
    def slots(self) -> int:
        """Records that took a slot."""
        if self._learner is not None:
            return self._learner.engine.slots
        assert self._votes is not None
        return self._votes.first_slot + self._voted

    @property
    def slots_left(self) -> int | None:
        """Records to the end of the stage."""
        if self._learner is None:
            assert self._votes is not None
            return self._votes.slots - self._voted
        stage = self._learner.engine.stage
        return None if stage is None else stage.slots_left

    @property
    def fresh(self) -> bool:
        """Whether the running stage has records."""
        if self._learner is None:
            return self._voted > 0
        stage = self._learner.engine.stage
        return stage is not None and stage.slots_filled > 0

    def learn(self, batch: RecordBatch) -> Learned:
        """Let the rows vote for words, or add them to the stage."""
        rows = [text or "" for text in batch.texts]
        if self._learner is None:
            assert self._votes is not None
            for text in rows:
                self._votes.vote(text)
            self._voted += batch.n_records
            return Learned(batch.n_documents, 0)
        assert self._vocabulary is not None
        encoded = self._vocabulary.encode(rows).batch
        taken = self._learner.engine.add(encoded, batch.users or None)
        assert taken == batch.n_records, "polls end where stages do"
        learned = int(np.count_nonzero(encoded.usable))
        return Learned(learned, batch.n_documents - learned)

    def release(self) -> Released:
        """Pay for the words or the stage, and release them; a last stage gives a model."""
        if self._learner is None:
            assert self._votes is not None
            self._begin(self._votes.choose(), self.slots)
            return Released(None)
        missed = len(self._learner.missed)
        self._learner.settle()
        self._stages += 1
        lost = self._learner.missed[missed:]
        # Whoever reads the state later needs the last reason only.
        del self._learner.missed[:-1]
        return Released(self._take_snapshot(), lost[-1] if lost else "")

    def _take_snapshot(self) -> Any:
        """Return the model that was just made, or None."""
        if not self._made:
            return None
        assert self._learner is not None
        snapshot = self._made[-1]
        self._made.clear()
        about = {**self._about, "snapshot": snapshot.number, "places": self.slots}
        return self._learner.model_of(snapshot, self._vocabulary, about)

    def capture(self, store: Checkpoints, position: Position) -> PendingCheckpoint | None:
        """Copy the engine; while words are voted for there is nothing but records to read again."""
        if self._learner is None:
            return None
        assert self._vocabulary is not None
        about = {"stages": self._stages, "first_place": self._learner.first_slot}
        return store.capture(self._learner, position, self._vocabulary, about)

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint.

        Raises
        ------
        InvalidSettingError, LedgerError
            If it was made with other words, settings or another ledger.
        """
        if self._vocabulary is not None:
            check_words(self._vocabulary, saved.vocabulary)
        saved.restore(self._begin(saved.vocabulary, int(saved.about["first_place"])))
        self._stages = int(saved.about["stages"])

    def catch_up(self, intent: Intent) -> tuple[int, Released]:
        """Go on behind a release that no checkpoint knows of.

        Returns
        -------
        slots : int
            Records to pass over.
        released : Released

        Raises
        ------
        LedgerError, InsufficientDataError
            If there is no way on.
        """
        if intent.description != WORDS:
            if self._learner is None:
                raise LedgerError(
                    "a release of topics must come after that of the words, got "
                    f"release={intent.number} description={intent.description!r}; begin anew "
                    "with other documents and a ledger of their own"
                )
            left = self._learner.catch_up(intent)
            self._stages += 1
            return left, Released(self._take_snapshot())
        return self._catch_up_with_words(intent)

    def _catch_up_with_words(self, intent: Intent) -> tuple[int, Released]:
        votes, (documents,) = self._votes, intent.cohort.documents
        stream = self._releaser.stream
        if votes is None or self._voted or documents.stream != stream:
            raise LedgerError(
                "a release of words must be that of this run, got "
                f"stream={documents.stream!r} first={documents.start}; use the settings that it "
                "was made with, or another ledger"
            )
        left = documents.stop - self.slots
        found = self._releaser.stored(intent)
        if found is None:
            # Paid for and never drawn: the next records vote.
            votes.first_slot, self._voted = documents.stop, 0
            return left, Released(None, "a choice of words was lost in a crash")
        try:
            words = votes.chosen(found.arrays, found.metadata["selection"])
        except InsufficientDataError as error:
            raise InsufficientDataError(
                f"{error}; choose another ledger, and begin behind place {documents.stop}"
            ) from error
        self._begin(words, documents.stop)
        return left, Released(None)
