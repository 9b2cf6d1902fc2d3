"""The private engine: places of a stream in, releases due, noisy sums back, topics out.

A pure state machine without noise, clock, file or ledger. When a stage is complete it says what is
`due`; somebody pays for it and draws the noise (`streamlda.private.releaser`); `accept` takes the
noisy sums. A window of N places is cut into stages at fixed places::

    norms         1.5 %   histograms of ||p1|| and ||P2 W||       clip bounds of the next stage
    pairs          85 %   sums of p1 and P2 W                     directions, the next map
    triple norms  1.5 %   histogram of ||P3(W, W, W)||            clip bound of the next stage
    triples        12 %   sum of P3(W, W, W)                      topics

(norms up to 10 % each where noise is large beside N, and less in a very large window).

With a power method as solver, "triples" is replaced by rounds ``power 1``, ``power 2``, ..., which
answer its questions (`streamlda.private.power`): 30 % or 50 % together, and pairs get less. With
refinement, all these share the first part of the window, and rounds ``refine 1``, ``refine 2``, ...
move the topics through the rest of it (`streamlda.private.refinement`).
With public bounds the stages of norms are left out. Every place is in one stage, so each stage may
spend the whole budget of its documents (parallel composition); maps and bounds come from stages
before. In ``prefix`` mode the first window is followed by rounds of N places, each adding its sums
to those of all rounds before, in the basis and with the bounds of the first window.

Places end a stage, not documents. A place is a row of a batch, whatever it holds: an empty or
short row, or one refused by `UserBound`, takes its place and adds nothing. So a document decides
nothing but its own contribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.noise import Noise
from streamlda.privacy.prefix_release import PrefixRelease, PrefixState
from streamlda.privacy.statement import ReleasedStage
from streamlda.privacy.users import UserBound
from streamlda.private.contributions import (
    FirstStatistic,
    NormStatistic,
    PairStatistic,
    Statistic,
    TripleNorms,
    TripleStatistic,
    checked_projection,
)
from streamlda.private.power import PowerRounds
from streamlda.private.readings import pair_view, quantile_bound, triple_topics
from streamlda.private.refinement import RefinementRounds, is_round
from streamlda.private.settings import WHITENED_TENSOR, PrivateSettings
from streamlda.private.snapshot import PendingRelease, PrivateSnapshot
from streamlda.private.stage import (
    PrefixStage,
    Stage,
    joint_mechanism,
    prefix_mechanism,
    restored_prefix,
)
from streamlda.private.state import (
    Arrays,
    from_arrays,
    named,
    settings_from,
    to_arrays,
    with_prefix,
)
from streamlda.private.topics import PairView, PrivateTopics
from streamlda.spectral.topics import SpectralTopics
from streamlda.spectral.whitening import random_projection
from streamlda.threads import one_blas_thread

__all__ = ["PREFIX", "PendingRelease", "PrivateEngine", "PrivateSnapshot"]

Array = NDArray[np.float64]
Sums = dict[str, Array]

#: Weights of the statistics where they are in one release.
FIRST_WEIGHT, PAIR_WEIGHT, TRIPLE_WEIGHT = 0.10, 0.78, 0.12

PREFIX = "prefix"


class PrivateEngine:
    """Learns topics from places of a stream through noisy sums only; see the module.

    Parameters
    ----------
    settings : PrivateSettings
    state_noise : Noise, optional
        With ``settings.noise_in_state``: what the sums begin with.
    first_place : int, default 0
        Place of the first row in the stream.

    Attributes
    ----------
    settings : PrivateSettings
    places : int
        Rows taken so far: a public number.
    due : Due or None
        The release without which no further row is taken.
    snapshot : PrivateSnapshot or None
        The last finished one.

    Notes
    -----
    Memory: 16 d m bytes for the pair sums (8 d^2 to 16 d^2 without a map), 16 t^3 / 3 for the
    triples, one block of documents, and their projections; in rounds of refinement, when those are
    gone, at most 100 d K bytes and 32 MiB. In prefix mode 2 b + 3 times as much
    for b buffers.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        state_noise: Noise | None = None,
        first_place: int = 0,
        *,
        _saved: tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        if settings.noise_in_state != (state_noise is not None):
            raise InvalidSettingError(
                "a state that begins with noise needs a source of it, and no other does, got "
                f"noise_in_state={settings.noise_in_state} state_noise={state_noise!r}"
            )
        self.settings = settings
        self.places = first_place
        self.snapshot: PrivateSnapshot | None = None
        self._state_noise = state_noise
        self._users = UserBound(settings.documents_per_user or 1)
        self._snapshots = self._windows = 0
        self._prefix: PrefixRelease | None = None
        self._multiplier = settings.noise_multiplier
        columns, seed = settings.n_columns, settings.seed
        self._probes = (
            None if columns is None else random_projection(settings.n_features, columns, seed)
        )
        if _saved is None:
            self._begin_window()
        else:
            self._restore(*_saved)

    def add(self, batch: DocumentBatch, users: Sequence[str | bytes | None] | None = None) -> int:
        """Take rows up to the end of the stage, and return how many.

        Parameters
        ----------
        batch : DocumentBatch
        users : sequence, optional
            Whose document each row is, for the unit "user"; rows of nobody add nothing.

        Raises
        ------
        InvalidDocumentsError
            If the batch has another vocabulary size, or counts that are not whole.
        InvalidSettingError
            If a release is due or no snapshot is left; nothing is taken then.
        """
        stage = self._open_stage()
        if batch.n_features != self.settings.n_features:
            raise InvalidDocumentsError(
                "documents must use the vocabulary of the engine, got "
                f"n_features={batch.n_features} expected={self.settings.n_features}"
            )
        if not np.array_equal(batch.counts, np.rint(batch.counts)):
            raise InvalidDocumentsError(
                "a private run must be given whole counts, for which its bounds are proven; pass "
                "counts of words, not weights"
            )
        part = batch.rows(0, min(batch.n_documents, stage.open_places))
        n = part.n_documents
        active = np.ones(n, dtype=np.bool_)
        if self.settings.privacy_unit == "user":
            active = self._users.accept([None] * n if users is None else users[:n])
        with one_blas_thread():
            stage.add(part, active)
        self.places += n
        return n

    def skip(self, places: int) -> int:
        """Leave places of the running stage empty, and return how many were left to it."""
        stage = self._open_stage()
        taken = min(places, stage.open_places)
        with one_blas_thread():
            stage.skip(taken)
        self.places += taken
        return taken

    def end_stage(self) -> None:
        """Let the running stage end here: by a clock, or at the end of the stream.

        Where it ends must not depend on what the documents say.
        """
        stage = self._open_stage()
        if stage.places == 0:
            raise InsufficientDataError(
                f"a stage must have a place before it can end, got stage={stage.name!r} places=0"
            )
        stage.last = stage.first + stage.places

    def abandon_window(self, place: int) -> None:
        """Drop all of the running window, and begin one at a place behind it.

        Its release was lost, and paid for. Not in prefix sums.
        """
        if self.settings.mode != "window" or place < self.places:
            raise InvalidSettingError(
                "a window can be dropped where windows are apart, and only forward, got "
                f"mode={self.settings.mode!r} place={place} places={self.places}"
            )
        self.places = place
        self._begin_window()

    @property
    def stage(self) -> Stage | None:
        """The running stage; None when no snapshot is left."""
        return self._stage

    @property
    def due(self) -> PendingRelease | None:
        """The release that is due, or None."""
        stage = self._stage
        if stage is None or stage.open_places:
            return None
        return PendingRelease(
            stage.name,
            stage.first,
            stage.last,
            self.settings.event,
            stage.stddevs(),
            stage,
        )

    def accept(self, released: Sums) -> None:
        """Take the noisy sums of the release that was due and go on to the next stage.

        Raises
        ------
        InsufficientDataError
            If they hold nothing but noise; then the window is lost and the next begins.
        """
        stage = self._stage
        if stage is None or stage.open_places:
            raise InvalidSettingError("sums must be accepted when a release is due, got none due")
        self._records.append(
            ReleasedStage(stage.name, stage.first, stage.last - 1, self._multiplier)
        )
        try:
            with one_blas_thread():
                # Rounds are numbered: "power 1", "refine 2".
                kind = stage.name.rstrip("0123456789").rstrip()
                getattr(self, "_after_" + kind.replace(" ", "_"))(released, stage.stddevs())
        except InsufficientDataError:
            self._begin_window() if self._prefix is None else self._begin_round()
            raise

    # Saving.

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values.

        Raw data: ``sums/`` (sums without noise, in steps of the grid), ``users/`` (who was in the
        running stage) and ``prefix.secret/``. The rest was made of noisy sums and may be seen:
        ``view/``, ``map``, ``power/``, ``refinement/``, ``prefix.private/``, ``snapshot/`` and the
        values.

        The running group of documents ends here (`Stage.flush`), so that engines that were saved
        at different places may differ by roundings of the grid. Where a state is taken must not
        depend on what documents say: a place, a clock, the end of the process.

        Time and memory O(the sums).
        """
        stage, snapshot = self._stage, self.snapshot
        arrays: Arrays = {}
        values: dict[str, Any] = {
            "settings": asdict(self.settings),
            "places": self.places,
            "snapshots": self._snapshots,
            "windows": self._windows,
            "records": [asdict(record) for record in self._records],
            "bounds": asdict(self._bounds()),
            "stage": None,
            "prefix": self._prefix is not None,
            "snapshot": None,
        }
        if stage is not None:
            with one_blas_thread():
                arrays |= with_prefix(stage.state(), "sums/")
            values["stage"] = {
                "name": stage.name,
                "first": stage.first,
                "last": stage.last,
                "places": stage.places,
            }
        if self.settings.privacy_unit == "user":
            arrays |= with_prefix(self._users.state(), "users/")
        if self._whitening is not None:
            arrays["map"] = self._whitening
        if self._prefix is not None:
            saved = self._prefix.state()
            arrays |= with_prefix(saved.secret, "prefix.secret/")
            arrays |= with_prefix(saved.private, "prefix.private/")
        elif self._view is not None:
            arrays |= to_arrays(self._view, "view/", but=("probes",))
        if self._power is not None:
            arrays |= with_prefix(self._power.state(), "power/")
        if self._refinement is not None:
            arrays |= with_prefix(self._refinement.state(), "refinement/")
        if snapshot is not None:
            arrays |= to_arrays(snapshot.topics, "snapshot/", but=("spectral",))
            arrays |= to_arrays(snapshot.topics.spectral, "snapshot/spectral/")
            values["snapshot"] = {
                "number": snapshot.number,
                "stages": [asdict(record) for record in snapshot.stages],
                "bounds": asdict(snapshot.bounds),
            }
        return arrays, values

    @classmethod
    def from_state(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        values: Mapping[str, Any],
        state_noise: Noise | None = None,
    ) -> Self:
        """Go on from what `state` returned, bit for bit.

        Nothing here can notice that the state is from before a release, whose documents would take
        part twice; the ledger must refuse it (`LedgerReader.check_epoch`).

        Parameters
        ----------
        arrays, values
            From `state`.
        state_noise : Noise, optional
            As in the constructor, for the stages to come.

        Raises
        ------
        InvalidSettingError, LookupError, TypeError, ValueError
            If they are not what `state` returned.
        """
        return cls(settings_from(values["settings"]), state_noise, _saved=(arrays, values))

    # Stages. Each _after_ method reads noisy sums only.

    def _forget_window(self) -> None:
        self._stage: Stage | None = None
        self._records: list[ReleasedStage] = []
        self._view: PairView | None = None
        self._first_bound = self._pair_bound = self._triple_bound = 1.0
        self._source: Any = "private-quantile"
        self._whitening: Array | None = None
        self._power: PowerRounds | None = None
        self._refinement: RefinementRounds | None = None

    def _begin_window(self) -> None:
        settings = self.settings
        self._forget_window()
        # Users pay for a window that was lost, too.
        begun = self._windows if settings.privacy_unit == "user" else self._snapshots
        if settings.snapshots is not None and begun >= settings.snapshots:
            return
        self._windows += 1
        if settings.clipping == "quantile":
            self._begin_stage("norms")
            return
        if isinstance(settings.clipping, ClipBounds):
            bounds = settings.clipping
            self._first_bound, self._pair_bound = bounds.first, bounds.pair
            self._triple_bound, self._source = bounds.triple, bounds.source
        else:
            self._first_bound, self._pair_bound = 1.0, self._pair_part().largest_norm
            self._source = "worst-case"
        self._begin_stage("pairs")

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self._forget_window()
        self.places, self._snapshots = int(values["places"]), int(values["snapshots"])
        self._windows = int(values["windows"])
        self._records = [ReleasedStage(**record) for record in values["records"]]
        bounds, stage, snapshot = values["bounds"], values["stage"], values["snapshot"]
        self._first_bound, self._pair_bound = bounds["first"], bounds["pair"]
        self._triple_bound, self._source = bounds["triple"], bounds["source"]
        self._whitening = arrays.get("map")
        if self._whitening is not None:
            self._whitening = checked_projection(self._whitening, self.settings.n_features)
        if self.settings.privacy_unit == "user":
            self._users = UserBound.from_state(named(arrays, "users/"))
        if values["prefix"]:
            saved = PrefixState(named(arrays, "prefix.secret/"), named(arrays, "prefix.private/"))
            parts, places = self._parts(PREFIX), self._prefix_places
            self._prefix = restored_prefix(saved, parts, places, self.settings, self._multiplier)
        elif "view/first" in arrays:
            self._view = from_arrays(PairView, arrays, "view/", probes=self._probes)
        if power := named(arrays, "power/"):
            assert self._view is not None
            assert self._whitening is not None
            self._power = PowerRounds.restored(power, self.settings, self._view, self._whitening)
        if refinement := named(arrays, "refinement/"):
            self._refinement = RefinementRounds.restored(refinement, self.settings)
        if stage is not None:
            self._stage = self._new_stage(stage["name"], int(stage["first"]))
            sums, noisy = named(arrays, "sums/"), self._state_noise is not None
            self._stage.restore(sums, int(stage["places"]), int(stage["last"]), noisy)
        if snapshot is not None:
            spectral = from_arrays(SpectralTopics, arrays, "snapshot/spectral/")
            self.snapshot = PrivateSnapshot(
                snapshot["number"],
                from_arrays(PrivateTopics, arrays, "snapshot/", spectral=spectral),
                tuple(ReleasedStage(**record) for record in snapshot["stages"]),
                ClipBounds(**snapshot["bounds"]),
            )

    def _after_norms(self, released: Sums, stddevs: dict[str, float]) -> None:
        first, pair = self._first_part().largest_norm, self._pair_part().largest_norm
        counts = released["first_norms"], released["pair_norms"]
        asked = self.settings
        self._first_bound = quantile_bound(asked, first, counts[0], stddevs["first_norms"])
        self._pair_bound = quantile_bound(asked, pair, counts[1], stddevs["pair_norms"])
        self._begin_stage("pairs")

    def _after_pairs(self, released: Sums, stddevs: dict[str, float]) -> None:
        self._view = pair_view(self.settings, self._probes, released, stddevs)
        self._whitening = self._view.whitening
        if self.settings.clipping == "quantile":
            self._begin_stage("triple norms")
            return
        if self.settings.clipping == "worst-case":
            self._triple_bound = TripleNorms(self._whitening).largest_norm
        self._begin_last()

    def _after_triple_norms(self, released: Sums, stddevs: dict[str, float]) -> None:
        assert self._whitening is not None
        largest = TripleNorms(self._whitening).largest_norm
        self._triple_bound = quantile_bound(
            self.settings, largest, released["triple_norms"], stddevs["triple_norms"]
        )
        self._begin_last()

    def _begin_last(self) -> None:
        if self.settings.solver == WHITENED_TENSOR:
            self._begin_stage("triples")
            return
        assert self._view is not None
        assert self._whitening is not None
        self._power = PowerRounds(self.settings, self._view, self._whitening)
        self._begin_stage("power 1")

    def _after_power(self, released: Sums, stddevs: dict[str, float]) -> None:
        assert self._power is not None
        assert self._stage is not None
        self._power.answer(released, stddevs)
        done = int(self._stage.name.removeprefix("power "))
        if done < self.settings.n_rounds:
            self._begin_stage(f"power {done + 1}")
            return
        rng = np.random.default_rng(self.settings.seed)
        self._publish_or_refine(self._power.topics(self._places_of_window, rng))

    def _after_triples(self, released: Sums, stddevs: dict[str, float]) -> None:
        assert self._view is not None
        topics = self._triple_topics(self._view, released, stddevs)
        if self.settings.mode == "window":
            self._publish_or_refine(topics)
            return
        self._publish(topics)
        self._prefix = prefix_mechanism(
            self._parts(PREFIX), self._prefix_places, self.settings, self._multiplier
        )
        self._begin_round()

    def _publish_or_refine(self, topics: PrivateTopics) -> None:
        if self.settings.n_refinement_rounds:
            self._refinement = RefinementRounds(self.settings, topics)
            # Topics are all that rounds know of the moments, which take more memory.
            self._view = self._power = None
            self._begin_stage("refine 1")
            return
        self._publish(topics)
        self._begin_window()

    def _after_refine(self, released: Sums, stddevs: dict[str, float]) -> None:
        refinement = self._refinement
        assert refinement is not None
        refinement.answer(released, stddevs)
        if refinement.done < self.settings.n_refinement_rounds:
            self._begin_stage(f"refine {refinement.done + 1}")
            return
        self._publish(refinement.topics())
        self._begin_window()

    def _begin_round(self) -> None:
        assert self._prefix is not None
        # A round without a snapshot is one of the horizon, too.
        if max(self._snapshots, self._prefix.rounds + 1) >= (self.settings.snapshots or 0):
            self._stage = None
            return
        self._stage = self._new_stage(PREFIX, self.places)

    def _after_prefix(self, released: Sums, stddevs: dict[str, float]) -> None:
        view = pair_view(self.settings, self._probes, released, stddevs)
        self._publish(self._triple_topics(view, released, stddevs))
        self._begin_round()

    # Parts of stages, made from what earlier stages gave.

    def _first_part(self) -> FirstStatistic:
        return FirstStatistic(self.settings.n_features, self._first_bound, FIRST_WEIGHT)

    def _pair_part(self) -> PairStatistic:
        d = self.settings.n_features
        return PairStatistic(d, self._probes, self._pair_bound, PAIR_WEIGHT)

    def _triple_part(self) -> TripleStatistic:
        assert self._whitening is not None
        return TripleStatistic(self._whitening, self._triple_bound, TRIPLE_WEIGHT)

    def _parts(self, stage: str) -> list[Statistic]:
        if stage == "norms":
            return [NormStatistic(self._first_part(), 0.3), NormStatistic(self._pair_part(), 0.7)]
        if stage == "pairs":
            return [self._first_part(), self._pair_part()]
        if stage == "triple norms":
            assert self._whitening is not None
            return [NormStatistic(TripleNorms(self._whitening), 1.0)]
        if stage == "triples":
            return [self._triple_part()]
        if stage == PREFIX:
            return [self._first_part(), self._pair_part(), self._triple_part()]
        # The name decides, and what it needs must be there.
        if is_round(stage):
            refinement = self._refinement
            if refinement is None or stage != f"refine {refinement.done + 1}":
                raise _not_begun(stage, None if refinement is None else refinement.done)
            return [refinement.part()]
        if stage.startswith("power "):
            if self._power is None:
                raise _not_begun(stage, None)
            return [self._power.part(self._triple_bound)]
        raise KeyError(stage)

    @property
    def _prefix_places(self) -> int:
        assert self.settings.snapshots is not None
        return self.settings.snapshots * self.settings.documents_per_snapshot

    def _new_stage(self, name: str, first: int) -> Stage:
        parts = self._parts(name)
        if name == PREFIX:
            assert self._prefix is not None
            last = first + self.settings.documents_per_snapshot
            return PrefixStage(name, first, last, parts, self._prefix)
        places = {stage: end - begin for stage, begin, end in self.settings.stage_places()}[name]
        mechanism = joint_mechanism(parts, places, self.settings, self._multiplier)
        return Stage(name, first, first + places, parts, mechanism)

    def _begin_stage(self, name: str) -> None:
        self._stage = self._new_stage(name, self.places)
        self._users.restart()
        if self._state_noise is not None:
            self._stage.begin_with(self._state_noise)

    def _open_stage(self) -> Stage:
        if self._stage is None:
            raise InvalidSettingError(
                "documents must not come after the last snapshot, got "
                f"snapshots={self.settings.snapshots}; begin another run with a budget of its own"
            )
        if not self._stage.open_places:
            raise InvalidSettingError(
                "a release that is due must be made before further documents are read, got "
                f"stage={self._stage.name!r}; pay, release and accept it"
            )
        return self._stage

    # Publishing.

    @property
    def _places_of_window(self) -> int:
        return self.places - self._records[0].first

    def _triple_topics(
        self, view: PairView, released: Sums, stddevs: dict[str, float]
    ) -> PrivateTopics:
        assert self._whitening is not None
        settings, places = self.settings, self._places_of_window
        return triple_topics(settings, view, self._whitening, released, stddevs, places)

    def _publish(self, topics: PrivateTopics) -> None:
        self._snapshots += 1
        records = tuple(self._records)
        self.snapshot = PrivateSnapshot(self._snapshots, topics, records, self._bounds())

    def _bounds(self) -> ClipBounds:
        return ClipBounds(self._first_bound, self._pair_bound, self._triple_bound, self._source)


def _not_begun(stage: str, done: int | None) -> InvalidSettingError:
    return InvalidSettingError(
        "a numbered stage must come with the state of the rounds before it, got "
        f"stage={stage!r} rounds done={done}; restore the state whole"
    )
