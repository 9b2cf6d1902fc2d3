"""The learner of private runs: rows of a stream in, noisy sums that are paid for, topics out.

A state machine without noise, clock, file or ledger: these are of its `releaser`. A window of N
record slots is cut into stages at fixed slots (`settings`): norms give clip bounds to the next
stage, pairs directions, triples or rounds of a power method (`streamlda.private.power`) topics.
Over many words other stages find topics by common words and refine them
(`streamlda.private.refinement`). Every slot is in one stage, so each stage may spend the whole
budget of its documents (parallel composition); projections and bounds come from stages before. In
``prefix`` mode the first window is followed by rounds of N slots, each adding its sums to those of
all rounds before, in the basis and with the bounds of the first window.

A slot is a row of a batch, whatever it holds: an empty or short row, or one refused by `UserBound`,
takes its slot and adds nothing. So a document decides nothing but its own contribution.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.errors import InsufficientDataError, LedgerError, failure, require
from streamlda.learner import Learner, LearnerProgress, PrivateProgress, Users
from streamlda.model.model_file import vocabulary_parts
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.costs import cost
from streamlda.privacy.ledger import Release
from streamlda.privacy.ledger.state import describe_spent
from streamlda.privacy.ledger.terms import NOTHING, Loss, cap
from streamlda.privacy.prefix_release import PrefixRelease, PrefixState
from streamlda.privacy.statement import VOCABULARIES, ReleasedStage
from streamlda.private.budget import ledger_terms
from streamlda.private.public_start import PUBLIC_ARRAYS, PublicTopics
from streamlda.private.release_manager import ReleaseManager, config_hash
from streamlda.private.settings import PrivateSettings, slots_to_spare
from streamlda.private.snapshot_model import describe_useless, model_of, statement_of
from streamlda.private.stage import Stage, check_rows, joint_mechanism, prefix_mechanism
from streamlda.private.topics import PrivateTopics
from streamlda.private.window import PREFIX, PrivateSnapshot, Window
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, take_named, with_prefix
from streamlda.utils.threads import one_blas_thread

Sums = Mapping[str, NDArray[np.float64]]


class PrivateLearner(Learner):
    """Learns topics from slots of a stream through noisy sums only; see the module.

    `releaser` pays for releases, or raises `BudgetExceededError` before any document; without one,
    `replay` and `accept` take what others released. Where it is not known to have a document
    (`has_document`), nothing is released before a row is one. `vocabulary` says where the columns
    come from, one of `privacy.statement.VOCABULARIES`; `delta_of_words` is what a private selection
    of the words took off the total delta; `public` is the public model of the settings, if there is
    one. Without `publish_useless`, topics that are expected to predict no better than word
    frequencies give no model.

    Memory: 16 d m bytes for the pair sums (8 d^2 to 16 d^2 without a projection), 16 t^3 / 3 for
    the triples; in refinement at most 100 d K bytes and 32 MiB. In prefix mode some 15 times as
    much.
    """

    counts_slots = True
    #: What other fits of the process have spent on rows of this one, where there is no ledger.
    spent_before = NOTHING

    def __init__(
        self,
        settings: PrivateSettings,
        releaser: ReleaseManager | None = None,
        *,
        vocabulary: str = VOCABULARIES[-1],
        delta_of_words: float = 0.0,
        first_slot: int = 0,
        public: PublicTopics | None = None,
        publish_useless: bool = True,
        has_document: bool = True,
    ) -> None:
        found = None if public is None else public.digest
        rule, wanted = "the public model is not that of the settings", settings.public_model
        about: dict[str, Any] = {"public_model": wanted, "found": found}
        require(wanted == found, rule, **about, remedy="give the same model again")
        if releaser is not None:
            releaser.check(settings.event)
        self._releaser = releaser
        self.settings, self.vocabulary, self.public = settings, vocabulary, public
        self.delta = settings.delta + delta_of_words  # In all, that of the words included.
        self.first_slot = self.slots = first_slot  # Slots taken so far: a public number.
        self.last: PrivateSnapshot | None = None  # The last finished one.
        #: Why windows gave no snapshot although they were paid for, the last hundred of them.
        self.lost: list[str] = []
        #: Fingerprints of the rows that come next, of which a ledger keeps those that are taken.
        self.documents: list[bytes] | None = None
        #: Of rows of matrices: models of the last call that gave any, oldest first; and the slots
        #: consumed when a call failed half way (`streamlda.private.matrix`).
        self.models: list[TopicModel] = []
        self.failed_at: int | None = None
        self._publish_useless, self._has_document = publish_useless, has_document
        self._missed, self._shows_nothing = "", False
        self._stages = self._snapshots = self._windows = 0
        #: Releases of lost windows in prefix mode: a horizon counts them in place of rounds.
        self._lost = 0
        self._multiplier = settings.noise_multiplier
        self._by_user = settings.privacy_unit == "user"
        self.window = Window(settings, public)
        self.stage: Stage | None = None  # The running one; None when no snapshot is left.
        self._prefix: PrefixRelease | None = None
        self._begin_window()

    # Progress and prices, all public.

    @property
    def releaser(self) -> ReleaseManager:
        """Payer of the releases; a learner that replays those of others has none."""
        assert self._releaser is not None
        return self._releaser

    @property
    def price_of_unit(self) -> Loss:
        """The most that this fit spends on one unit."""
        terms = ledger_terms(self.settings)
        price = terms.price(cost(self.settings.event))
        return price if terms.parallel else Loss(cap(terms, price.rate), price.rate)

    @property
    def epsilon(self) -> float:
        """Epsilon that a unit is promised: that of the settings, or more where fits add up."""
        if self.spent_before == NOTHING:
            return self.settings.epsilon
        total = self.spent_before.join(self.price_of_unit)
        return describe_spent(total, ledger_terms(self.settings))["epsilon"]

    @property
    def documents_seen(self) -> int:
        """Slots read so far, which are public; the number of documents is not."""
        return self.slots - self.first_slot

    @property
    def due(self) -> int | None:
        """Rows until the running stage ends; None if no snapshot is left to come."""
        return None if self.stage is None else self.stage.slots_left

    @property
    def due_stage(self) -> Stage | None:
        """The stage without whose release no further row is taken, or None."""
        return self.stage if self.due == 0 else None

    @property
    def progress(self) -> LearnerProgress:
        """Stages that were released."""
        return LearnerProgress(self._stages)

    @property
    def private(self) -> PrivateProgress:
        """State of the running stage, and result of the last release."""
        missing = self._least_missing()
        ends_well = self.stage is not None and not missing
        return PrivateProgress(ends_well, missing, self._missed, self._shows_nothing)

    @property
    def slots_missing(self) -> int:
        """Slots that the running window still needs; 0 if no snapshot is left."""
        return 0 if self.stage is None else self.stage.slots_left + self._slots_after(self.stage)

    def _slots_after(self, stage: Stage) -> int:
        """Return the slots of a window after a stage; rounds of prefix mode are whole windows."""
        whole = self.settings.documents_per_snapshot
        ends = {name: last for name, _, last in self.settings.stage_slots()}
        return whole - ends.get(stage.name, whole)

    def _least_missing(self) -> int:
        """Return the fewest further slots with which the end of the stream gives a snapshot.

        A last stage that is half full gives one: the end is a slot, and so public.
        """
        if self.stage is None:
            return 0
        spare = slots_to_spare(self.stage.last - self.stage.first)
        if self._slots_after(self.stage):
            spare = self.settings.documents_per_snapshot - self.settings.least_slots
        return max(0, self.slots_missing - spare)

    # Rows.

    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Take rows up to the end of the stage, none if a release is due; return how many.

        `users` says whose document each row is, where they are the unit; rows of nobody add
        nothing.
        """
        stage, first = self._open_stage(), self.slots
        check_rows(batch, self.settings.n_features)
        part = batch.rows(0, min(batch.n_documents, stage.slots_left))
        taken = part.n_documents
        stage.add(part, users if users is None else users[:taken])
        self.slots += taken
        self._has_document = self._has_document or bool(part.usable.any())
        if self.documents is not None and self.releaser.provenance is not None:
            places = [("rows", first + number) for number in range(1, taken + 1)]
            self.releaser.provenance.add(places, self.documents[:taken])
            del self.documents[:taken]
        return taken

    def skip(self, n: int) -> int:
        """Leave slots of the running stage empty, and return how many were left to it."""
        stage = self._open_stage()
        taken = min(n, stage.slots_left)
        stage.skip(taken)
        self.slots += taken
        return taken

    def end_stage(self) -> None:
        """Let the running stage end here, by a clock or the end of the stream; not by documents."""
        stage = self._open_stage()
        rule = "a stage that is to end has no slot"
        filled = stage.slots_filled
        require(filled, rule, stage=stage.name, slots=filled, error=InsufficientDataError)
        stage.last = stage.first + filled

    def _open_stage(self) -> Stage:
        stage = self.stage
        if stage is None:
            raise failure(
                "documents come after the last snapshot",
                snapshots=self.settings.snapshots,
                remedy="begin another run with a budget of its own",
            )
        rule = "a release is due before further documents are read"
        require(stage.slots_left, rule, stage=stage.name, remedy="pay, release and accept it")
        return stage

    # Releases.

    def release(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel | None:
        """End the running stage here, pay for it, and release it; a last stage gives a model.

        Where it ends before its last slot must not depend on what documents say; without a slot
        there is nothing to end (`InsufficientDataError`).
        """
        require(
            self._has_document,
            f"no row is a document of {MIN_TOKENS} words or more",
            slots=self.slots,
            remedy="pass whole counts of words, CountVectorizer output and not TF-IDF; nothing was "
            "spent",
            error=InsufficientDataError,
        )
        stage, before = self.stage, self.last
        if stage is None:
            return None
        if stage.slots_left:
            self.end_stage()
        # With what a model of the noisy sums needs besides (`streamlda.private.ledger_model`).
        about = {
            "settings": asdict(self.settings),
            "stddevs": stage.stddevs(),
            "delta": self.delta,
            "columns": self.vocabulary,
            "facts": dict(settings or {}),
        }
        beside: Arrays = {}
        if stage.name == self.window.first_stage:
            about["vocabulary"], beside = vocabulary_parts(vocabulary)
            if self.public is not None:
                beside |= self.public.arrays(PUBLIC_ARRAYS)
        released = self.releaser.release(
            *(stage.name, stage.first, stage.last, self.settings.event, stage.release, about),
            config_hash(self.settings, self.vocabulary),
            beside=beside,
        )
        self.accept(released)
        return self.new_model(before, vocabulary, settings)

    def accept(self, sums: Sums) -> None:
        """Take the noisy sums of the due release; a window of nothing but noise is lost."""
        stage, window = self.due_stage, self.window
        if stage is None:
            raise failure("sums were given, and no release is due")
        self._stages, self._missed, self._shows_nothing = self._stages + 1, "", False
        record = ReleasedStage(stage.name, stage.first, stage.last - 1, self._multiplier)
        if stage.name != PREFIX:
            window.released[stage.name] = sums
        elif window.records[-1].name == PREFIX and not self._by_user:
            # All rounds are one release, which a document pays for once.
            record = replace(record, first=window.records.pop().first)
        window.records.append(record)
        slots = self.slots - window.records[0].first
        try:
            with one_blas_thread():
                found = window.accept(stage.name, sums, stage.stddevs(), slots)
                if isinstance(found, str):
                    self._begin_stage(found)
                else:
                    self._publish(found)
        except InsufficientDataError as error:
            # The window is lost, and paid for; the next one may do better.
            self._missed, self._shows_nothing = str(error), stage.name == "norms"
            self.lost = [*self.lost, self._missed][-100:]
            if self._prefix is not None:
                self._begin_round()
                return
            self._lost += len(window.records) if self.settings.mode == "prefix" else 0
            self._begin_window()

    def replay(self, end: int, sums: Sums) -> None:
        """Accept the release of the running stage, which ended at slot `end`; rows are skipped."""
        if end > self.slots:
            self.skip(end - self.slots)
        if self.stage is not None and self.stage.slots_left:
            self.end_stage()
        if self.stage is not None and self.stage.prefix is not None and not self.stage.drawn:
            self.stage.prefix.skip()
        self.accept(sums)

    def catch_up(self, intent: Release) -> int:
        """Continue after the ledger's last release, which a restored state does not know of.

        A crash between a release and the next checkpoint leads here. What the state has of raw sums
        of that release is dropped; its noisy sums are read. If it was lost, so is its window.
        Refused where it is not the release that comes next, or is of prefix sums, whose noise went
        with the state. Returns how many records the caller must skip unread.
        """
        stage = self.stage
        first, last = intent.cohort.slots
        found = (self.releaser.is_of_run(intent), first, intent.description)
        wanted = stage and (True, stage.first, stage.name)
        # A clock or the end of the stream may have ended the stage before its last slot.
        ends = stage is not None and self.slots <= last <= stage.last
        alike = intent.config_hash == config_hash(self.settings, self.vocabulary)
        released = self.releaser.read_stored(intent)
        lost_prefix = self.settings.mode == "prefix" and released is None
        no_prefix = found[-1] != PREFIX and not lost_prefix
        if stage is None or not (found == wanted and ends and alike and no_prefix):
            raise LedgerError(
                "the release does not directly follow the state in its run and settings, or is of "
                f"prefix sums, got same_run={found[0]} "
                f"release={found[2]!r} slots={first}-{last} of the state={wanted and wanted[1:]} "
                f"slots={self.slots} same_settings={alike} mode={self.settings.mode}; drop the "
                "state and begin with other documents"
            )
        left = last - self.slots
        if released is None:
            self._stages += 1
            self.slots = last
            self._begin_window()
        else:
            self.replay(last, dict(released.arrays))
        return left

    # Models.

    def snapshot(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel:
        """Return the model of the last snapshot; `settings` are further ones to record."""
        if self.last is not None:
            return self.model_of(self.last, vocabulary, settings)
        if self.lost:
            raise InsufficientDataError(self.lost[-1])
        raise failure(
            "the documents do not fill a window of slots",
            slots=self.documents_seen,
            documents_per_snapshot=self.settings.documents_per_snapshot,
            remedy="take smaller windows, or read more",
            error=InsufficientDataError,
        )

    def new_model(
        self,
        before: PrivateSnapshot | None,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel | None:
        """Return the model of the last snapshot, if it came after `before` and is of use."""
        if self.last is None or self.last is before:
            return None
        if self.last.topics.is_useless and not self._publish_useless:
            self._missed = (
                f"{describe_useless(self.last.topics)}; privacy.publish_useless writes such "
                "models, and streamlda budget --publish that of a release"
            )
            return None
        return self.model_of(self.last, vocabulary, settings)

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

    def get_released(self) -> PrivateSnapshot:
        """Return the topics of what the running window has released, without its last stages.

        Raises `InsufficientDataError` where the stages of the moments are not all there.
        """
        with one_blas_thread():
            return self.window.snapshot(self._snapshots + 1, self.window.so_far())

    # Saving.

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to continue: arrays, and plain JSON values.

        Raw data: ``sums/`` (in steps of the grid), ``users/`` (who was in the running stage) and
        ``prefix.secret/``. The rest may be seen: ``window/`` (noisy sums, of which all else is made
        again), ``prefix.private/``, ``snapshot/`` and the values. Where a state is taken must not
        depend on what documents say.
        """
        stage, snapshot = self.stage, self.last
        arrays: Arrays = with_prefix(self.window.arrays, "window/")
        values: dict[str, Any] = {
            "settings": asdict(self.settings),
            "places": self.slots,
            "snapshots": self._snapshots,
            "windows": self._windows,
            "lost": self._lost,
            "released": self._stages,
            "records": [asdict(record) for record in self.window.records],
            "stage": None,
            "prefix": self._prefix is not None,
            "snapshot": None,
        }
        if stage is not None:
            arrays |= with_prefix(stage.state(), "sums/")
            own = {name: getattr(stage, name) for name in ("name", "first", "last")}
            values["stage"] = own | {"places": stage.slots_filled, "stddevs": stage.stddevs()}
        if stage is not None and stage.sums.users is not None:
            arrays |= with_prefix(stage.sums.users.state(), "users/")
        if self._prefix is not None:
            saved = self._prefix.state()
            arrays |= with_prefix(saved.secret, "prefix.secret/")
            arrays |= with_prefix(saved.private, "prefix.private/")
        if snapshot is not None:
            arrays |= snapshot.topics.arrays("snapshot/")
            values["snapshot"] = {
                "number": snapshot.number,
                "stages": [asdict(record) for record in snapshot.stages],
                "bounds": asdict(snapshot.bounds),
            }
        return arrays, values

    def restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Resume a new learner from what `state` returned, bit for bit; return it.

        The settings must be those of then. Time is that of the window's topics. A state from before
        a release must be refused by the ledger (`LedgerReader.check_epoch`). Any other that does
        not fit raises `InvalidSettingError`, LookupError, TypeError or ValueError.
        """
        stage, snapshot = values["stage"], values["snapshot"]
        records = [ReleasedStage(**record) for record in values["records"]]
        self.slots = records[0].first if records else int(values["places"])
        self._begin_stage(self.window.first_stage)
        for record in records:
            if record.name == PREFIX:
                self.window.records.append(record)
            else:
                self.replay(record.last + 1, take_named(arrays, f"window/{record.name}/"))
        self.slots, self._stages = int(values["places"]), int(values["released"])
        self._snapshots, self._windows = int(values["snapshots"]), int(values["windows"])
        self._lost, self.stage = int(values["lost"]), None
        if values["prefix"]:
            self._prefix = self._prefix_release()
            names = "prefix.secret/", "prefix.private/"
            self._prefix.restore(PrefixState(*(take_named(arrays, name) for name in names)))
        if stage is not None:
            running = self._begin_stage(stage["name"], int(stage["first"]))
            users = take_named(arrays, "users/") if self._by_user else None
            ends = int(stage["places"]), int(stage["last"])
            running.restore(take_named(arrays, "sums/"), *ends, users, stage["stddevs"])
        if snapshot is not None:
            self.last = PrivateSnapshot(
                snapshot["number"],
                PrivateTopics.of_arrays(arrays, "snapshot/"),
                tuple(ReleasedStage(**record) for record in snapshot["stages"]),
                ClipBounds(**snapshot["bounds"]),
            )
        return self

    # Windows, stages and rounds.

    def _begin_window(self) -> None:
        self.stage, self.window = None, Window(self.settings, self.public)
        # Users pay for a window that was lost, too; in prefix mode all count its releases.
        by_user = self._by_user and self.settings.mode == "window"
        begun = self._windows if by_user else self._snapshots + self._lost
        if self.settings.snapshots is None or begun < self.settings.snapshots:
            self._windows += 1
            self._begin_stage(self.window.first_stage)

    def _begin_round(self) -> None:
        assert self._prefix is not None
        # A round without a snapshot is one of the horizon, too.
        rounds = max(self._snapshots, self._prefix.rounds + 1) + self._lost
        self.stage = None
        if rounds < self._prefix.strategy.rounds:
            self._begin_stage(PREFIX)

    def _begin_stage(self, name: str, first: int | None = None) -> Stage:
        """Begin a stage at the next slot, or where a saved one began."""
        first = self.slots if first is None else first
        statistics, slots = self.window.statistics(name), self.settings.documents_per_snapshot
        prefix = self._prefix if name == PREFIX else None
        if prefix is None:
            slots = {stage: end - begin for stage, begin, end in self.settings.stage_slots()}[name]
            mechanism = joint_mechanism(statistics, slots, self.settings, self._multiplier)
        else:
            mechanism = prefix.mechanism
        ends, by_user = (first, first + slots), self._by_user
        self.stage = Stage(name, *ends, statistics, mechanism, by_user=by_user, prefix=prefix)
        return self.stage

    def _publish(self, topics: PrivateTopics) -> None:
        self._snapshots += 1
        self.last = self.window.snapshot(self._snapshots, topics)
        if self.settings.mode == "window":
            self._begin_window()
            return
        if self._prefix is None:
            # Rounds see pairs of their own.
            self.window.view = None
            self._prefix = self._prefix_release()
        self._begin_round()

    def _prefix_release(self) -> PrefixRelease:
        slots, statistics = self.settings.documents_per_snapshot, self.window.statistics(PREFIX)
        return prefix_mechanism(statistics, slots, self.settings, self._multiplier)
