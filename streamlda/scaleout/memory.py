"""Memory of a fit on a cluster, known before documents are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from streamlda.engine.settings import EngineSettings
from streamlda.errors import failure
from streamlda.scaleout.faults import ClusterError

#: Bytes of a worker that has loaded the kernels and does nothing (200 MB were measured), and of a
#: block of documents while it is read (60 MB).
IDLE_BYTES, BLOCK_BYTES = 200e6, 64e6

#: Sets of sums that a worker may have: three while two are merged, and others that wait for theirs.
SETS = 6

#: Fraction of its limit at which a worker of Dask pauses.
PAUSE = 0.8


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of a projection, of a set of sums, and of a refinement."""

    projection: float
    sums: float
    refinement: float

    @classmethod
    def of(cls, settings: EngineSettings, n_features: int) -> Self:
        """Return the plan for V words, as many triple columns as the settings say."""
        d, t, k = n_features, settings.n_triple_columns, settings.n_components
        m = min(d, settings.n_columns)
        sums = 8.0 * (3 * d + d * m + d * t + 2 * t**2 + 2 * t**3)
        return cls(8.0 * d * m, sums, 24.0 * d * k + 2**25 if settings.refines else 0.0)

    @property
    def worker(self) -> float:
        """Most bytes of one worker."""
        return IDLE_BYTES + BLOCK_BYTES + max(self.projection + SETS * self.sums, self.refinement)

    @property
    def driver(self) -> float:
        """Most bytes of the driver: one set of sums, two projections, the topics."""
        return IDLE_BYTES + 2 * self.projection + self.sums + self.refinement


def plan_memory(
    limits: Sequence[float], settings: EngineSettings, n_features: int, shards: int
) -> str:
    """Return a line about the memory of a fit.

    Raises `ClusterError` unless every worker has room, with what would help.
    """
    plan, limit, fewer = MemoryPlan.of(settings, n_features), min(limits), n_features
    while fewer > settings.n_components and MemoryPlan.of(settings, fewer).worker > PAUSE * limit:
        fewer //= 2
    if plan.worker > PAUSE * limit:
        words = f"at most {fewer:,} words or columns, " if fewer > settings.n_components else ""
        raise failure(
            f"a worker must have room for its projection and {SETS} sets of sums (or the topics of "
            "a refinement)",
            needed_mb=round(plan.worker / PAUSE / 1e6),
            memory_limit_mb=round(limit / 1e6),
            words=n_features,
            topics=settings.n_components,
            remedy=f"give workers that much (dask worker --memory-limit), or take {words}"
            "fewer topics",
            error=ClusterError,
        )
    of = "no limit" if limit == float("inf") else f"{limit / 1e6:,.0f} MB"
    return (
        f"cluster: workers {len(limits):,}, shards {shards:,}; a worker takes at most "
        f"{plan.worker / 1e6:,.0f} MB (of {of}) beside documents, the driver "
        f"{plan.driver / 1e6:,.0f} MB and the first documents; a set of sums is "
        f"{plan.sums / 1e6:,.1f} MB; documents are kept as counts on the disks of workers"
    )
