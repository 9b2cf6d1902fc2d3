"""Times of releases, by records and by a clock, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamlda.learner import NEVER_BY_ITSELF
from streamlda.model.topic_model import TopicModel


class Released(NamedTuple):
    """A model, or the reason that there is none, and True if no document is to be seen."""

    model: TopicModel | None
    missed: str = ""
    shows_nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Snapshots of an engine after every `every` records, `most` times at most."""

    every: int | None = None
    most: int | None = None

    def due(self, records: int, released_at: int, snapshots: int) -> int | None:
        """Return the records until the next snapshot, None if none is left."""
        if self.most is not None and snapshots >= self.most:
            return None
        if self.every is None:
            return NEVER_BY_ITSELF
        return max(0, self.every * (released_at // self.every + 1) - records)


class SnapshotClock:
    """Ends a window after some seconds of a clock that never goes back; never without them."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._began: float | None = None

    def restart(self, time: float) -> None:
        """Begin with a release, or with the run."""
        self._began = time

    def is_over(self, time: float, records: int) -> bool:
        """Return whether the time is over for a window that has these records."""
        if self._seconds is None or self._began is None or not records:
            return False
        return time - self._began >= self._seconds
