"""Forecast of a fit on a cluster: memory, tasks, transfers, busy workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from streamlda.engine.fit import START_DOCUMENTS
from streamlda.engine.settings import EngineSettings
from streamlda.errors import failure
from streamlda.refinement.schedule import LocalSchedule, passes_for
from streamlda.scaleout.faults import ClusterError
from streamlda.scaleout.kept import ENTRY

#: Bytes of a worker that has loaded the kernels and does nothing (200 MB were measured), and of a
#: block of documents while it is read (60 MB).
IDLE_BYTES, BLOCK_BYTES = 200e6, 64e6

#: Sets of sums that a worker may have: three while two are merged, and others that wait for theirs.
SETS = 6

#: Fraction of its limit at which a worker of Dask pauses.
PAUSE = 0.8


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that a task takes at most, of what, and what comes to the driver in a round."""

    projection: float
    sums: float
    refinement: float

    @classmethod
    def of(cls, settings: EngineSettings, n_features: int) -> Self:
        """Return the plan for V words, as many triple columns as the settings say."""
        d, m, t, k = (
            *(n_features, min(n_features, settings.n_columns)),
            *(settings.n_triple_columns, settings.n_components),
        )
        sums = 8.0 * (3 * d + d * m + d * t + 2 * t**2 + 2 * t**3)
        refinement = 24.0 * d * k + 2**25 if settings.refines else 0.0
        return cls(8.0 * d * m, sums, refinement)

    @property
    def worker(self) -> float:
        """Most bytes of one worker."""
        summing = self.projection + SETS * self.sums
        return IDLE_BYTES + BLOCK_BYTES + max(summing, self.refinement)

    @property
    def driver(self) -> float:
        """Most bytes of the driver: one set of sums, two projections, the topics."""
        return IDLE_BYTES + 2 * self.projection + self.sums + self.refinement

    def check(self, limits: Sequence[float], settings: EngineSettings, n_features: int) -> None:
        """Raise `ClusterError` unless every worker has room, with what would help."""
        least = PAUSE * min(limits)
        if self.worker <= least:
            return
        fewer = n_features
        while fewer > settings.n_components and type(self).of(settings, fewer).worker > least:
            fewer //= 2
        words = f"at most {fewer:,} words or columns, " if fewer > settings.n_components else ""
        raise failure(
            f"a worker must have room for its projection and {SETS} sets of sums (or the topics of "
            "a refinement)",
            needed_mb=round(self.worker / PAUSE / 1e6),
            memory_limit_mb=round(min(limits) / 1e6),
            words=n_features,
            topics=settings.n_components,
            remedy=f"give workers that much (dask worker --memory-limit), or take {words}"
            "fewer topics",
            error=ClusterError,
        )

    def described(self, limits: Sequence[float], shards: int) -> str:
        """Return the plan in a line."""
        limit = min(limits)
        of = "no limit" if limit == float("inf") else f"{limit / 1e6:,.0f} MB"
        return (
            f"cluster: workers {len(limits):,}, shards {shards:,}; a worker takes at most "
            f"{self.worker / 1e6:,.0f} MB (of {of}) beside documents, the driver "
            f"{self.driver / 1e6:,.0f} MB and the first documents; a set of sums is "
            f"{self.sums / 1e6:,.1f} MB; documents are kept as counts on the disks of workers"
        )


class Step(NamedTuple):
    """A step of a fit: its tasks, all that the scheduler handles, and what moves at most."""

    name: str
    tasks: int
    scheduled: int
    #: Bytes between workers, in all rounds.
    moved: float = 0.0
    #: Times that all tasks are done, one after the other.
    rounds: int = 1

    def busy(self, workers: int) -> float:
        """Return how many workers are busy, in the mean of the waves of its tasks."""
        return self.tasks / -(-self.tasks // workers)


def steps_of(
    settings: EngineSettings, *, documents: int, entries: float, shards: int, heads: int
) -> list[Step]:
    """Return the steps of a refined fit that learns words.

    A range of rows that begins in one shard and ends in another is a task for each, and one more.
    The first topics are made by the client, while no worker is busy.
    """
    plan = LocalSchedule.of(documents, 2 * passes_for(documents))
    parts, rounds = plan.parts, plan.rounds * plan.passes
    topics, counts = 8.0 * settings.n_features * settings.n_components, ENTRY.itemsize * entries
    return [
        Step("first", heads, 2 * heads + 1),
        # With the stage, counts of records and what was met, merged.
        Step("keep", shards, 4 * shards, 16.0 * settings.n_features * shards),
        Step("samples", shards, 2 * shards),
        Step("rows", 1, 2 + shards, counts * min(1.0, 2 * START_DOCUMENTS / documents)),
        Step("part", parts, 2 * parts + shards, counts),
        Step("refine", parts, 2 * parts * rounds, 2 * topics * parts * rounds, rounds),
    ]
