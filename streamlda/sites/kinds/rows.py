"""Kinds that are learned of rows of numbers: settings, and a window.

A row is a record, in one slot, scaled down to the public `radius`. A window is one stage. A
subclass of `RowKind` says the rest: the statistic that a site sums, and what follows from the noisy
sums of all sites.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, between, one_of, require
from streamlda.errors import InvalidDocumentsError
from streamlda.privacy.accounting import check_sampler_loss, noise_multiplier, sampler_factor
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.events import NEIGHBORING_RELATIONS
from streamlda.privacy.ledger.budget_table import plain
from streamlda.privacy.noise import Noise
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.rows import Rows, RowStage, RowStatistic
from streamlda.private.settings import LEAST_WINDOW, MOST_SET_ASIDE, slots_of
from streamlda.private.stage import Stage
from streamlda.sites.estimate import Estimate
from streamlda.sites.kinds.kind import Arrays, Found
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import one_blas_thread

Array = NDArray[np.float64]
Sums = Mapping[str, Array]

_noise_multiplier = lru_cache(maxsize=64)(noise_multiplier)

#: The only stage.
MOMENTS = "moments"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings(ABC):
    """What sites agree on that learn of rows of numbers; all of it is public."""

    n_components: int  # K.
    n_features: int  # d, numbers of a row.
    epsilon: float  # Of each row, over all that it is in.
    delta: float
    documents_per_snapshot: int  # N, slots of a window, of all sites together.
    snapshots: int | None = None  # Most windows.
    neighboring_relation: str = "add-remove"
    radius: float = 1.0  # Longer rows are scaled down to it.
    seed: int = 0  # Of restarts; it seeds no noise.

    #: Of a window, with its fraction of the slots.
    stages: ClassVar[Mapping[str, float]] = {MOMENTS: 1.0}
    #: Most numbers of a row: what is summed has as many values squared, or cubed.
    most_columns: ClassVar[int]

    def __post_init__(self) -> None:
        at_least(1, n_features=self.n_features, n_components=self.n_components)
        at_least(0, seed=self.seed)
        between(1, self.most_columns, n_features=self.n_features)
        between(1, self.n_features, n_components=self.n_components)
        at_least(LEAST_WINDOW, documents_per_snapshot=self.documents_per_snapshot)
        if self.snapshots is not None:
            at_least(1, snapshots=self.snapshots)
        one_of(NEIGHBORING_RELATIONS, neighboring_relation=self.neighboring_relation)
        between(1e-30, 1e30, radius=self.radius)
        between(0, 2**64 - 1, seed=self.seed)
        _ = self.noise_multiplier  # raises if epsilon or delta is out of range

    @property
    @abstractmethod
    def cells(self) -> int:
        """Values of a release."""

    @property
    def tv_distance(self) -> float:
        """Distance of a release from one with exact noise, as far as neighbours tell."""
        return 2 * Noise.tv_distance_bound * self.cells

    @property
    def delta_left(self) -> float:
        """The part of delta left to Gaussian noise, after the distance of the sampler to it."""
        loss = self.tv_distance * sampler_factor(self.epsilon)
        check_sampler_loss(self.delta, loss, self.delta * MOST_SET_ASIDE)
        return float(self.delta - loss)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity of every release: a row is in one."""
        return _noise_multiplier(self.epsilon, self.delta_left)

    @property
    def rows_described(self) -> str:
        """What rows are, for those who sign."""
        return f"rows of {self.n_features:,} numbers, of norm at most {plain(self.radius)}"

    def stage_slots(self) -> list[tuple[str, int, int]]:
        """Return name, first slot and last slot + 1 of each stage of a window."""
        return slots_of(self.stages, self.documents_per_snapshot)

    def values(self) -> dict[str, Any]:
        """Return all fields by name."""
        return asdict(self)


class RowKind(ABC):
    """A kind that is learned of rows; see `streamlda.sites.kinds.kind.Kind`."""

    of_rows = True
    name: str
    settings_type: type[RowSettings]

    @abstractmethod
    def statistic(self, settings: Any) -> RowStatistic:
        """Return what a site sums: blocks with shapes and clip norms, `add`, `take`."""

    @abstractmethod
    def learned(self, settings: Any, stage: Stage, sums: Sums) -> dict[str, Array]:
        """Return the arrays of an `Estimate` from the noisy sums of all sites."""

    @abstractmethod
    def described(self, settings: Any, vocabulary: Vocabulary | None) -> str:
        """See `Kind`."""

    def settings(self, values: Mapping[str, Any]) -> RowSettings:
        """See `Kind`."""
        return self.settings_type(**values)

    def check(self, settings: RowSettings, vocabulary: Vocabulary | None) -> None:
        """See `Kind`."""
        require(
            vocabulary is None and type(settings) is self.settings_type,
            "rows of numbers must have no words, and the settings of their kind",
            kind=self.name,
            vocabulary=vocabulary is not None,
            settings=type(settings).__name__,
            remedy="leave the words out",
        )

    def begin(self, settings: RowSettings) -> RowEngine:
        """See `Kind`."""
        return RowEngine(self, settings, 1)

    def resume(
        self,
        settings: RowSettings,
        stage: str,
        window: int,
        bounds: ClipBounds | None,
        arrays: Arrays,
    ) -> RowEngine:
        """See `Kind`."""
        require(
            bounds is None and not arrays,
            "a round of rows of numbers has neither bounds nor arrays",
            arrays=len(arrays),
        )
        return RowEngine(self, settings, window)

    def public(self, engine: RowEngine) -> tuple[bool, ClipBounds | None, Arrays]:
        """See `Kind`."""
        return True, None, {}

    def found(self, settings: RowSettings, snapshot: Found) -> Found:
        """See `Kind`."""
        return snapshot

    def model(
        self,
        settings: RowSettings,
        found: Found,
        privacy: dict[str, Any],
        vocabulary: Vocabulary | None,
        further: Mapping[str, Any],
    ) -> Estimate:
        """See `Kind`."""
        recorded = {**settings.values(), **further}
        return Estimate(
            self.name, found.learned, recorded, privacy, settings.documents_per_snapshot
        )


class RowEngine:
    """A window of rows, which is one stage; see `streamlda.sites.kinds.kind.Engine`."""

    def __init__(self, kind: RowKind, settings: RowSettings, window: int) -> None:
        self._kind, self._settings = kind, settings
        self.snapshot: Found | None = None
        self._begin(window)

    def _begin(self, window: int) -> None:
        settings, self._window = self._settings, window
        first = (window - 1) * settings.documents_per_snapshot
        self.stage = RowStage(
            MOMENTS,
            first,
            first + settings.documents_per_snapshot,
            self._kind.statistic(settings),
            settings.noise_multiplier,
            settings.neighboring_relation,
        )

    def add(self, batch: Rows) -> int:
        """See `Engine`."""
        d = self._settings.n_features
        require(
            batch.values.ndim == 2 and batch.values.shape[1] == d,
            "rows must have the numbers that were agreed on",
            shape=batch.values.shape,
            expected=d,
            error=InvalidDocumentsError,
        )
        part = batch.rows(0, self.stage.slots_left)
        with one_blas_thread():
            self.stage.add(part, part.usable)
        return part.n_documents

    def skip(self, n: int) -> int:
        """See `Engine`."""
        taken = min(n, self.stage.slots_left)
        self.stage.skip(taken)
        return taken

    def accept(self, released: Sums) -> None:
        """See `Engine`."""
        stage, settings = self.stage, self._settings
        learned = self._kind.learned(settings, stage, released)
        multiplier = settings.noise_multiplier
        records = (ReleasedStage(stage.name, stage.first, stage.last - 1, multiplier),)
        norms = {block.name: (block.l2_clip_norm, "fixed") for block in stage.mechanism.blocks}
        self.snapshot = Found(records, norms, learned)
        self._begin(self._window + 1)
