"""When a learner that counts no slots is asked for a model, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamlda.learner import NEVER_BY_ITSELF
from streamlda.model.topic_model import TopicModel


class Released(NamedTuple):
    """What was due: a model, or why there is none; whether it is that no document is to be seen."""

    model: TopicModel | None
    missed: str = ""
    shows_nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When an engine is asked for a snapshot: after every `every` records, `most` times at most."""

    every: int | None = None
    most: int | None = None

    def due(self, records: int, released_at: int, snapshots: int) -> int | None:
        """Return the records until the next snapshot, None if none is left."""
        if self.most is not None and snapshots >= self.most:
            return None
        if self.every is None:
            return NEVER_BY_ITSELF
        return max(0, self.every * (released_at // self.every + 1) - records)
