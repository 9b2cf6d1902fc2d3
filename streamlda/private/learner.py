"""A private engine with a release manager: what an ingestion feeds in place of an `Engine`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from streamlda.checks import above, require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import Intent
from streamlda.privacy.statement import private_statement, seeded
from streamlda.private.budget import ledger_terms
from streamlda.private.engine import PrivateEngine, PrivateSnapshot
from streamlda.private.refinement import REFINED_NORM
from streamlda.private.release_manager import ReleaseManager, config_hash
from streamlda.private.settings import PrivateSettings
from streamlda.private.window import PREFIX
from streamlda.spectral.topics import diagnostics
from streamlda.text.vocabulary import Vocabulary

#: A stream that ends within the last stage of a window gives a snapshot if at least this part of
#: the stage is filled.
LEAST_LAST_STAGE = 0.5

#: Rows of a batch where a clock ends stages: these end at multiples of it, whatever rows hold.
CLOCKED_ROWS = 64


class PrivateLearner:
    """A private engine, whose releases are paid for; or `BudgetExceededError` before any document.

    `vocabulary` says where the columns come from, one of `privacy.statement.VOCABULARIES`;
    `delta_of_words` is what a private selection of the words took off the total delta. Snapshots
    are kept in `snapshots` unless `on_snapshot` takes them.

    With `seconds_per_snapshot` a window also ends after this time: each stage after its fraction
    of it, by the clock alone, if it has a slot. ``documents_per_snapshot`` stays the most. The
    clock is looked at after every batch: their ends must not depend on what documents say, as with
    `CLOCKED_ROWS` rows each. A document that takes longer to process moves the border by timing,
    which the promise excludes.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        releaser: ReleaseManager,
        *,
        vocabulary: str,
        delta_of_words: float = 0.0,
        first_slot: int = 0,
        on_snapshot: Callable[[PrivateSnapshot], None] | None = None,
        seconds_per_snapshot: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if seconds_per_snapshot is not None:
            above(0, seconds_per_snapshot=seconds_per_snapshot)
        releaser.check(settings.event)
        self.settings = settings
        state_noise = releaser.noise if settings.noise_in_state else None
        self.engine = PrivateEngine(settings, state_noise, first_slot)
        self.snapshots: list[PrivateSnapshot] = []
        self.releaser = releaser
        self.vocabulary = vocabulary
        self.delta = settings.delta + delta_of_words  # In all, that of the words included.
        self.first_slot = first_slot
        self._on_snapshot = on_snapshot or self.snapshots.append
        self.missed: list[str] = []  # Why windows gave no snapshot although they were paid for.
        self._seconds, self._clock = seconds_per_snapshot, clock
        self._stage_began = clock()

    @property
    def documents_seen(self) -> int:
        """Slots read so far, which are public; the number of documents is not."""
        return self.engine.slots - self.first_slot

    @property
    def finished(self) -> bool:
        """Whether no snapshot is left to come."""
        return self.engine.stage is None

    def add(
        self, batch: DocumentBatch, users: Sequence[str | bytes | None] | None = None, /
    ) -> None:
        """Take rows, and make the releases that fall due on the way.

        Rows after the last snapshot are dropped.
        """
        start = 0
        while start < batch.n_documents and not self.finished:
            rest = batch.rows(start, batch.n_documents)
            start += self.engine.add(rest, None if users is None else users[start:])
            self.settle()
            self.tick()

    def tick(self) -> None:
        """End the running stage if its time is over; call it while no documents come, too."""
        stage = self.engine.stage
        if self._seconds is None or stage is None or stage.slots_filled == 0:
            return
        fraction = self.settings.stages.get(stage.name, 1.0)
        if self._clock() - self._stage_began >= fraction * self._seconds:
            self.engine.end_stage()
            self.settle()

    def finish(self) -> None:
        """Take the end of the stream: a last stage that is half full gives a snapshot.

        The end is a slot, and so public. What was summed in an unfinished window is dropped.
        """
        stage = self.engine.stage
        if stage is None or stage.name not in (list(self.settings.stages)[-1], PREFIX):
            return
        if stage.slots_filled >= LEAST_LAST_STAGE * (stage.last - stage.first):
            self.engine.end_stage()
            self.settle()

    def settle(self) -> None:
        """Make the release that is due, if one is."""
        due = self.engine.due
        if due is None:
            return
        self._stage_began = self._clock()
        before = self.engine.snapshot
        about = {"settings": asdict(self.settings), "stddevs": due.stddevs}
        released = self.releaser.release(
            *(due.stage, due.first, due.last, due.event, due.release, about),
            config_hash(self.settings, self.vocabulary),
        )
        self._accept(released, before)

    def _accept(self, released: Mapping[str, Any], before: PrivateSnapshot | None) -> None:
        try:
            self.engine.accept(dict(released))
        except InsufficientDataError as error:
            # The window is lost, and paid for; the next one may do better.
            self.missed.append(str(error))
        if self.engine.snapshot is not None and self.engine.snapshot is not before:
            self._on_snapshot(self.engine.snapshot)

    def catch_up(self, intent: Intent) -> int:
        """Go on after the ledger's last release, which a restored state does not know of.

        A crash between a release and the next checkpoint leads here. None of the documents of that
        release is released again: what the state has of their raw sums is dropped, and their
        noisy sums are taken from where the release was stored. If it was lost, so is its window.
        Refused if it is not the release that comes next, or belongs to prefix sums, whose noise
        went with the state that was lost. Returns how many records the caller must skip unread.
        """
        engine, stage = self.engine, self.engine.stage
        (documents,) = intent.cohort.documents
        found = (documents.stream, documents.start, intent.description)
        wanted = stage and (self.releaser.stream, stage.first, stage.name)
        # A clock or the end of the stream may have ended the stage before its last place.
        ends = stage is not None and engine.slots <= documents.stop <= stage.last
        alike = intent.config_hash == config_hash(self.settings, self.vocabulary)
        released = self.releaser.stored(intent)
        lost_prefix = self.settings.mode == "prefix" and released is None
        no_prefix = found[-1] != PREFIX and not lost_prefix
        if stage is None or not (found == wanted and ends and alike and no_prefix):
            raise LedgerError(
                "a state can go on behind the one release that comes next, made with the same "
                f"settings, and not in prefix sums, got release={found} stop={documents.stop} of "
                f"the state={wanted} slots={engine.slots} same_settings={alike} "
                f"mode={self.settings.mode}; drop the state and begin with other documents and a "
                "budget of their own"
            )
        left = documents.stop - engine.slots
        self._stage_began = self._clock()
        if released is None:
            engine.abandon_window(documents.stop)
            return left
        if left:
            engine.skip(left)
        if stage.slots_left:
            engine.end_stage()
        self._accept(released.arrays, engine.snapshot)
        return left

    def snapshot(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel:
        """Return the model of the last snapshot; `settings` are further ones to record."""
        snapshot = self.engine.snapshot
        if snapshot is None and self.missed:
            raise InsufficientDataError(self.missed[-1])
        require(
            snapshot,
            "a private snapshot needs a whole window of slots",
            slots=self.documents_seen,
            documents_per_snapshot=self.settings.documents_per_snapshot,
            remedy="take smaller windows, or read more",
            error=InsufficientDataError,
        )
        assert snapshot is not None
        return self.model_of(snapshot, vocabulary, settings)

    def model_of(
        self,
        snapshot: PrivateSnapshot,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return a snapshot as a model with its privacy statement."""
        found = snapshot.topics
        slots = sum(stage.last + 1 - stage.first for stage in snapshot.stages)
        wanted = self.settings.n_components
        notes = diagnostics(found.spectral)
        warnings = notes["warnings"]
        assert isinstance(warnings, list)
        notes["mixed_with_background"] = found.mixed.tolist()
        notes["topics_asked"] = wanted
        if len(found.components) < wanted:
            notes["warnings"] = [
                *warnings,
                f"{len(found.components)} of {wanted} topics stand above the noise and are "
                "published; more documents per snapshot or a larger epsilon would show more",
            ]
        return TopicModel(
            components=found.components,
            alpha=found.alpha,
            background=found.background,
            vocabulary=vocabulary,
            settings={**asdict(self.settings), **(settings or {})},
            diagnostics=notes,
            documents_seen=slots,
            privacy=self.statement(snapshot),
        )

    def statement(self, snapshot: PrivateSnapshot) -> dict[str, Any]:
        """Return the privacy statement of a snapshot."""
        if not self.releaser.noise.secure:
            return seeded()
        settings, bounds = self.settings, snapshot.bounds
        clip_bounds = {
            name: (getattr(bounds, name), bounds.source) for name in ("first", "pair", "triple")
        }
        if settings.n_refinement_rounds:
            clip_bounds["shares"] = REFINED_NORM, "fixed"
        horizon = ledger_terms(settings).horizon
        return private_statement(
            epsilon=settings.epsilon,
            delta=self.delta,
            stages=snapshot.stages,
            clip_bounds=clip_bounds,
            vocabulary=self.vocabulary,
            secure=True,
            ledger=self.releaser.ledger_id,
            privacy_unit=settings.privacy_unit,
            documents_per_user=settings.documents_per_user,
            neighboring_relation=settings.neighboring_relation,
            mode=settings.mode,
            horizon=horizon,
        )
