"""The private engine: rows of a stream in, releases due, noisy sums back, topics out.

A pure state machine without noise, clock, file or ledger. When a stage is complete it says what is
`due`; somebody pays for it and draws the noise (`streamlda.private.release_manager`); `accept`
takes the noisy sums. A window of N record slots is cut into stages at fixed slots (`settings`):
norms give clip bounds to the next stage, pairs directions, triples or rounds of a power method
(`streamlda.private.power`) topics. Over many words other stages find topics by common words and
refine them (`streamlda.private.refinement`). Every slot is in one stage, so each stage may spend
the whole budget of its documents (parallel composition); projections and bounds come from stages
before. In ``prefix`` mode the first window is followed by rounds of N slots, each adding its sums
to those of all rounds before, in the basis and with the bounds of the first window.

A slot is a row of a batch, whatever it holds: an empty or short row, or one refused by `UserBound`,
takes its slot and adds nothing. So a document decides nothing but its own contribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, failure, require
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.prefix_release import PrefixRelease, PrefixState
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.public_start import PUBLIC_ARRAYS, PublicTopics
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage, check_rows, joint_mechanism, prefix_mechanism
from streamlda.private.topics import PrivateTopics
from streamlda.private.window import PREFIX, PrivateSnapshot, Window
from streamlda.utils.arrays import Arrays, named, with_prefix
from streamlda.utils.threads import one_blas_thread

Sums = dict[str, NDArray[np.float64]]


class PrivateEngine:
    """Learns topics from slots of a stream through noisy sums only; see the module.

    Memory: 16 d m bytes for the pair sums (8 d^2 to 16 d^2 without a projection), 16 t^3 / 3 for
    the triples; in refinement at most 100 d K bytes and 32 MiB. In prefix mode some 15 times as
    much.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        first_slot: int = 0,
        *,
        public: PublicTopics | None = None,
    ) -> None:
        found = None if public is None else public.digest
        require(
            settings.public_model == found,
            "an engine must have the public model of its settings",
            public_model=settings.public_model,
            found=found,
            remedy="give the same model again",
        )
        self.settings, self.public = settings, public
        self.slots = first_slot  # Slots taken so far: a public number.
        self.snapshot: PrivateSnapshot | None = None  # The last finished one.
        self._snapshots = self._windows = 0
        #: Releases of lost windows in prefix mode: a horizon counts them in place of rounds.
        self._lost = 0
        self._multiplier = settings.noise_multiplier
        self.window = Window(settings, public)
        self.stage: Stage | None = None  # The running one; None when no snapshot is left.
        self._prefix: PrefixRelease | None = None
        self._begin_window()

    def add(self, batch: DocumentBatch, users: Sequence[str | bytes | None] | None = None) -> int:
        """Take rows up to the end of the stage, none if a release is due; return how many.

        `users` says whose document each row is, where they are the unit; rows of nobody add
        nothing.
        """
        stage = self._open_stage()
        check_rows(batch, self.settings.n_features)
        part = batch.rows(0, min(batch.n_documents, stage.slots_left))
        n = part.n_documents
        stage.add(part, users if users is None else users[:n])
        self.slots += n
        return n

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
        rule = "a stage must have a slot before it can end"
        filled = stage.slots_filled
        require(filled, rule, stage=stage.name, slots=filled, error=InsufficientDataError)
        stage.last = stage.first + filled

    def abandon_window(self, slot: int) -> None:
        """Drop the running window, whose release was paid for and lost, and begin one at a slot."""
        self.slots = slot
        self._begin_window()

    @property
    def due(self) -> Stage | None:
        """The stage without whose release no further row is taken, or None."""
        return None if self.stage is None or self.stage.slots_left else self.stage

    def accept(self, released: Sums) -> None:
        """Take the noisy sums of the due release; a window of nothing but noise is lost."""
        stage, window = self.due, self.window
        if stage is None:
            raise failure("sums must be accepted when a release is due, but none is due")
        record = ReleasedStage(stage.name, stage.first, stage.last - 1, self._multiplier)
        if stage.name != PREFIX:
            window.released[stage.name] = released
        elif window.records[-1].name == PREFIX and not self._by_user:
            # All rounds are one release, which a document pays for once.
            record = replace(record, first=window.records.pop().first)
        window.records.append(record)
        slots = self.slots - window.records[0].first
        try:
            with one_blas_thread():
                found = window.accept(stage.name, released, stage.stddevs(), slots)
                if isinstance(found, str):
                    self.begin_stage(found)
                    return
                self._publish(found)
        except InsufficientDataError:
            if self._prefix is None:
                self._lost += len(window.records) if self.settings.mode == "prefix" else 0
                self._begin_window()
            else:
                self._begin_round()
            raise

    def replay(self, end: int, released: Sums) -> None:
        """Accept the release of the running stage, which ended at slot `end`; rows are skipped."""
        if end > self.slots:
            self.skip(end - self.slots)
        if self.stage is not None and self.stage.slots_left:
            self.end_stage()
        if self.stage is not None and self.stage.prefix is not None and not self.stage.drawn:
            self.stage.prefix.skip()
        self.accept(released)

    def released(self) -> PrivateSnapshot:
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
        again), ``public/``, ``prefix.private/``, ``snapshot/`` and the values. Where a state is
        taken must not depend on what documents say.
        """
        stage, snapshot = self.stage, self.snapshot
        arrays: Arrays = with_prefix(self.window.arrays, "window/")
        values: dict[str, Any] = {
            "settings": asdict(self.settings),
            "places": self.slots,
            "snapshots": self._snapshots,
            "windows": self._windows,
            "lost": self._lost,
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
        if self.public is not None:
            arrays |= self.public.arrays(PUBLIC_ARRAYS)
        if snapshot is not None:
            arrays |= snapshot.topics.arrays("snapshot/")
            values["snapshot"] = {
                "number": snapshot.number,
                "stages": [asdict(record) for record in snapshot.stages],
                "bounds": asdict(snapshot.bounds),
            }
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Resume from what `state` returned, bit for bit; time is that of the window's topics.

        A state from before a release must be refused by the ledger (`LedgerReader.check_epoch`).
        Any other that does not fit raises `InvalidSettingError`, LookupError, TypeError or
        ValueError.
        """
        settings, public = PrivateSettings.of(values["settings"]), None
        if settings.public_model is not None:
            public = PublicTopics.of_arrays(arrays, PUBLIC_ARRAYS, settings.public_model)
        stage, snapshot = values["stage"], values["snapshot"]
        records = [ReleasedStage(**record) for record in values["records"]]
        begun = records[0].first if records else int(values["places"])
        engine = cls(settings, begun, public=public)
        for record in records:
            if record.name == PREFIX:
                engine.window.records.append(record)
            else:
                engine.replay(record.last + 1, named(arrays, f"window/{record.name}/"))
        engine.slots, engine._snapshots = int(values["places"]), int(values["snapshots"])
        engine._windows, engine._lost = int(values["windows"]), int(values["lost"])
        if values["prefix"]:
            engine._prefix = engine._prefix_release()
            names = "prefix.secret/", "prefix.private/"
            engine._prefix.restore(PrefixState(*(named(arrays, name) for name in names)))
        engine.stage = None
        if stage is not None:
            engine.stage = engine._new_stage(stage["name"], int(stage["first"]))
            users = named(arrays, "users/") if engine._by_user else None
            ends = int(stage["places"]), int(stage["last"])
            engine.stage.restore(named(arrays, "sums/"), *ends, users, stage["stddevs"])
        if snapshot is not None:
            engine.snapshot = PrivateSnapshot(
                snapshot["number"],
                PrivateTopics.of_arrays(arrays, "snapshot/"),
                tuple(ReleasedStage(**record) for record in snapshot["stages"]),
                ClipBounds(**snapshot["bounds"]),
            )
        return engine

    # Windows, stages and rounds.

    def _begin_window(self) -> None:
        self.stage, self.window = None, Window(self.settings, self.public)
        # Users pay for a window that was lost, too; in prefix mode all count its releases.
        by_user = self.settings.privacy_unit == "user" and self.settings.mode == "window"
        begun = self._windows if by_user else self._snapshots + self._lost
        if self.settings.snapshots is not None and begun >= self.settings.snapshots:
            return
        self._windows += 1
        self.begin_stage(self.window.first_stage)

    def begin_stage(self, name: str) -> None:
        """Begin a stage at the next slot."""
        self.stage = self._new_stage(name, self.slots)

    def _begin_round(self) -> None:
        assert self._prefix is not None
        # A round without a snapshot is one of the horizon, too.
        rounds = max(self._snapshots, self._prefix.rounds + 1) + self._lost
        if rounds >= self._prefix.strategy.rounds:
            self.stage = None
            return
        self.begin_stage(PREFIX)

    def _publish(self, topics: PrivateTopics) -> None:
        self._snapshots += 1
        self.snapshot = self.window.snapshot(self._snapshots, topics)
        if self.settings.mode == "window":
            self._begin_window()
            return
        if self._prefix is None:
            # Rounds see pairs of their own.
            self.window.view = None
            self._prefix = self._prefix_release()
        self._begin_round()

    def _new_stage(self, name: str, first: int) -> Stage:
        statistics, slots = self.window.statistics(name), self.settings.documents_per_snapshot
        prefix = self._prefix if name == PREFIX else None
        if prefix is None:
            slots = {stage: end - begin for stage, begin, end in self.settings.stage_slots()}[name]
            mechanism = joint_mechanism(statistics, slots, self.settings, self._multiplier)
        else:
            mechanism = prefix.mechanism
        ends, by_user = (first, first + slots), self._by_user
        return Stage(name, *ends, statistics, mechanism, by_user=by_user, prefix=prefix)

    @property
    def _by_user(self) -> bool:
        return self.settings.privacy_unit == "user"

    def _prefix_release(self) -> PrefixRelease:
        slots, statistics = self.settings.documents_per_snapshot, self.window.statistics(PREFIX)
        return prefix_mechanism(statistics, slots, self.settings, self._multiplier)

    def _open_stage(self) -> Stage:
        stage = self.stage
        if stage is None:
            raise failure(
                "documents must not come after the last snapshot",
                snapshots=self.settings.snapshots,
                remedy="begin another run with a budget of its own",
            )
        require(
            stage.slots_left,
            "a release that is due must be made before further documents are read",
            stage=stage.name,
            remedy="pay, release and accept it",
        )
        return stage
