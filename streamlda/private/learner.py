"""A private engine with a release manager, which a run feeds in place of an `Engine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.errors import InsufficientDataError, LedgerError, failure, require
from streamlda.learner import Learner, LearnerProgress, PrivateProgress, Users
from streamlda.model.model_file import vocabulary_parts
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.costs import cost
from streamlda.privacy.ledger import Release
from streamlda.privacy.ledger.state import describe_spent
from streamlda.privacy.ledger.terms import NOTHING, Loss, cap
from streamlda.private.budget import ledger_terms
from streamlda.private.engine import PrivateEngine
from streamlda.private.public_start import PUBLIC_ARRAYS, PublicTopics
from streamlda.private.published import describe_useless, model_of, statement_of
from streamlda.private.release_manager import ReleaseManager, config_hash
from streamlda.private.settings import PrivateSettings, slots_to_spare
from streamlda.private.stage import Stage
from streamlda.private.window import PREFIX, PrivateSnapshot
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays

#: Messages of lost windows that are kept.
MOST_LOST = 100


class PrivateLearner(Learner):
    """A private engine, whose releases are paid for; or `BudgetExceededError` before any document.

    Where it is not known to have a document (`has_document`), nothing is released before a row is
    one. `vocabulary` says where the columns come from, one of `privacy.statement.VOCABULARIES`;
    `delta_of_words` is what a private selection of the words took off the total delta; `public` is
    the public model of the settings, if there is one. Without `publish_useless`, topics that are
    expected to predict no better than word frequencies give no model.
    """

    counts_slots = True
    #: What other fits of the process have spent on rows of this one, where there is no ledger.
    spent_before = NOTHING

    def __init__(
        self,
        settings: PrivateSettings,
        releaser: ReleaseManager,
        *,
        vocabulary: str,
        delta_of_words: float = 0.0,
        first_slot: int = 0,
        public: PublicTopics | None = None,
        publish_useless: bool = True,
        has_document: bool = True,
    ) -> None:
        self.delta = settings.delta + delta_of_words  # In all, that of the words included.
        releaser.check(settings.event)
        self.settings = settings
        self.engine = PrivateEngine(settings, first_slot, public=public)
        self.releaser = releaser
        self.vocabulary = vocabulary
        self.first_slot = first_slot
        #: Why windows gave no snapshot although they were paid for, the last `MOST_LOST` of them.
        self.lost: list[str] = []
        #: Fingerprints of the rows that come next, of which a ledger keeps those that are taken.
        self.documents: list[bytes] | None = None
        #: Of rows of matrices: models of the last call that gave any, oldest first; and the slots
        #: consumed when a call failed half way (`streamlda.private.matrix`).
        self.models: list[TopicModel] = []
        self.failed_at: int | None = None
        self._publish_useless = publish_useless
        self._has_document = has_document
        self._missed, self._shows_nothing = "", False
        self._stages = 0

    @property
    def price_of_unit(self) -> Loss:
        """The most that this fit spends on one unit."""
        terms = ledger_terms(self.settings)
        price = terms.price(cost(self.settings.event))
        return price if terms.parallel else Loss(cap(terms, price.rate), price.rate)

    @property
    def epsilon(self) -> float:
        """Epsilon that a unit is promised: that of the settings, or more where fits add up."""
        before = self.spent_before
        if before == NOTHING:
            return self.settings.epsilon
        total = before.joined(self.price_of_unit)
        return describe_spent(total, ledger_terms(self.settings))["epsilon"]

    @property
    def documents_seen(self) -> int:
        """Slots read so far, which are public; the number of documents is not."""
        return self.engine.slots - self.first_slot

    @property
    def due(self) -> int | None:
        """Rows until the running stage ends; None if no snapshot is left to come."""
        stage = self.engine.stage
        return None if stage is None else stage.slots_left

    @property
    def progress(self) -> LearnerProgress:
        """Stages that were released."""
        return LearnerProgress(self._stages)

    @property
    def private(self) -> PrivateProgress:
        """State of the running stage, and result of the last release."""
        missing = self._least_missing()
        ends_well = self.engine.stage is not None and not missing
        return PrivateProgress(ends_well, missing, self._missed, self._shows_nothing)

    def resume(self, stages: int) -> None:
        """Resume with the number of stages that were released before."""
        self._stages = stages

    @property
    def slots_missing(self) -> int:
        """Slots that the running window still needs; 0 if no snapshot is left."""
        stage = self.engine.stage
        return 0 if stage is None else stage.slots_left + self._slots_after(stage)

    def _slots_after(self, stage: Stage) -> int:
        """Return the slots of a window after a stage; rounds of prefix mode are whole windows."""
        whole = self.settings.documents_per_snapshot
        ends = {name: last for name, _, last in self.settings.stage_slots()}
        return whole - ends.get(stage.name, whole)

    def _least_missing(self) -> int:
        """Return the fewest further slots with which the end of the stream gives a snapshot.

        A last stage that is half full gives one: the end is a slot, and so public.
        """
        stage = self.engine.stage
        if stage is None:
            return 0
        spare = slots_to_spare(stage.last - stage.first)
        if self._slots_after(stage):
            spare = self.settings.documents_per_snapshot - self.settings.least_slots
        return max(0, self.slots_missing - spare)

    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Take rows up to the end of the running stage."""
        first = self.engine.slots
        taken = self.engine.add(batch, users)
        self._has_document = self._has_document or bool(batch.usable[:taken].any())
        if self.releaser.provenance is not None and self.documents is not None:
            places = [("rows", first + number) for number in range(1, taken + 1)]
            self.releaser.provenance.add(places, self.documents[:taken])
            del self.documents[:taken]
        return taken

    def release(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel | None:
        """End the running stage here, pay for it, and release it; a last stage gives a model.

        Where it ends before its last slot must not depend on what documents say; without a slot
        there is nothing to end (`InsufficientDataError`).
        """
        require(
            self._has_document,
            f"a private fit needs documents of {MIN_TOKENS} words or more, and no row is one",
            slots=self.engine.slots,
            remedy="pass whole counts of words, CountVectorizer output and not TF-IDF; nothing was "
            "spent",
            error=InsufficientDataError,
        )
        stage, before = self.engine.stage, self.engine.snapshot
        if stage is not None and stage.slots_left:
            self.engine.end_stage()
        due = self.engine.due
        if due is None:
            return None
        # With what a model of the noisy sums needs besides (`streamlda.private.released`).
        about = {
            "settings": asdict(self.settings),
            "stddevs": due.stddevs(),
            "delta": self.delta,
            "columns": self.vocabulary,
            "facts": dict(settings or {}),
        }
        beside: Arrays = {}
        if due.name == self.engine.window.first_stage:
            about["vocabulary"], beside = vocabulary_parts(vocabulary)
            if self.engine.public is not None:
                beside |= self.engine.public.arrays(PUBLIC_ARRAYS)
        released = self.releaser.release(
            *(due.name, due.first, due.last, self.settings.event, due.release, about),
            config_hash(self.settings, self.vocabulary),
            beside=beside,
        )
        self._accept(released, due.last)
        return self.new_model(before, vocabulary, settings)

    def new_model(
        self,
        before: PrivateSnapshot | None,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel | None:
        """Return the model of the last snapshot, if it came after `before` and is of use."""
        snapshot = self.engine.snapshot
        if snapshot is None or snapshot is before:
            return None
        if snapshot.topics.is_useless and not self._publish_useless:
            self._missed = (
                f"{describe_useless(snapshot.topics)}; privacy.publish_useless writes such models, "
                "and streamlda budget --publish that of a release"
            )
            return None
        return self.snapshot(vocabulary, settings)

    def _accept(self, released: Mapping[str, Any], end: int) -> None:
        self._stages, self._missed = self._stages + 1, ""
        stage = self.engine.stage
        try:
            self.engine.replay(end, dict(released))
        except InsufficientDataError as error:
            self._shows_nothing = stage is not None and stage.name == "norms"
            # The window is lost, and paid for; the next one may do better.
            self._missed = str(error)
            self.lost = [*self.lost, self._missed][-MOST_LOST:]

    def catch_up(self, intent: Release) -> int:
        """Continue after the ledger's last release, which a restored state does not know of.

        A crash between a release and the next checkpoint leads here. What the state has of raw sums
        of that release is dropped; its noisy sums are read. If it was lost, so is its window.
        Refused where it is not the release that comes next, or is of prefix sums, whose noise went
        with the state. Returns how many records the caller must skip unread.
        """
        engine, stage = self.engine, self.engine.stage
        first, last = intent.cohort.slots
        found = (self.releaser.is_of_run(intent), first, intent.description)
        wanted = stage and (True, stage.first, stage.name)
        # A clock or the end of the stream may have ended the stage before its last slot.
        ends = stage is not None and engine.slots <= last <= stage.last
        alike = intent.config_hash == config_hash(self.settings, self.vocabulary)
        released = self.releaser.read_stored(intent)
        lost_prefix = self.settings.mode == "prefix" and released is None
        no_prefix = found[-1] != PREFIX and not lost_prefix
        if stage is None or not (found == wanted and ends and alike and no_prefix):
            raise LedgerError(
                "a state can continue only after the release that directly follows it, of the same "
                f"run and settings, and not in prefix sums, got same_run={found[0]} "
                f"release={found[2]!r} slots={first}-{last} of the state={wanted and wanted[1:]} "
                f"slots={engine.slots} same_settings={alike} mode={self.settings.mode}; drop the "
                "state and begin with other documents"
            )
        left = last - engine.slots
        if released is None:
            self._stages += 1
            engine.abandon_window(last)
            return left
        self._accept(released.arrays, last)
        return left

    def snapshot(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel:
        """Return the model of the last snapshot; `settings` are further ones to record."""
        snapshot = self.engine.snapshot
        if snapshot is not None:
            return self.model_of(snapshot, vocabulary, settings)
        if self.lost:
            raise InsufficientDataError(self.lost[-1])
        raise failure(
            "a private snapshot needs a whole window of slots",
            slots=self.documents_seen,
            documents_per_snapshot=self.settings.documents_per_snapshot,
            remedy="take smaller windows, or read more",
            error=InsufficientDataError,
        )

    def model_of(
        self,
        snapshot: PrivateSnapshot,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return a snapshot as a model with its privacy statement."""
        ledger = self.releaser.ledger
        said = statement_of(
            snapshot,
            self.settings,
            epsilon=self.epsilon,
            delta=self.delta,
            vocabulary=self.vocabulary,
            secure=self.releaser.noise.secure,
            ledger=None if ledger is None else ledger.ledger_id,
            generation=None if ledger is None else ledger.generation,
        )
        return model_of(snapshot, self.settings, said, vocabulary, settings)
