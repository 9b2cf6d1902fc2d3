"""Model of a fit on a cluster: its tasks, transfers and busy workers, before it is run."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from streamlda.engine.fit import START_DOCUMENTS
from streamlda.engine.settings import EngineSettings
from streamlda.refinement.measures import COHERENCE_ENTRIES, SAMPLE_ENTRIES
from streamlda.refinement.schedule import LocalSchedule, passes_for
from streamlda.scaleout.row_files import ENTRY

#: Most bytes of the samples of a task: 12 and 5 a count.
SAMPLES_BYTES = 2 * 12 * SAMPLE_ENTRIES + 5 * COHERENCE_ENTRIES


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
    """Return the steps of a refined fit that learns words from so many `heads` among its shards.

    The first topics are made by the client, while no worker is busy.
    """
    plan = LocalSchedule.of(documents, 2 * passes_for(documents))
    parts, rounds = plan.parts, plan.rounds * plan.passes
    topics, counts = 8.0 * settings.n_features * settings.n_components, ENTRY.itemsize * entries
    first = min(1.0, 1.06 * START_DOCUMENTS / documents)
    samples = min(SAMPLES_BYTES, 3 * counts / parts) + 8.0 * settings.n_features
    return [
        Step("first", heads, 2 * heads),
        # With what was met in each.
        Step("keep", shards, 2 * shards + 1),
        Step("part", parts, parts, counts),
        Step("samples", parts, 2 * parts, 2 * samples * parts),
        Step("rows", ceil(parts * first), 2 * ceil(parts * first), first * counts),
        Step("refine", parts, 2 * parts * rounds, 2 * topics * parts * rounds, rounds),
    ]
