"""When a clock makes a release due: a rule over times that others read."""

from __future__ import annotations

#: Where a clock ends private stages, they end at multiples of this many record slots, whatever
#: documents say. One that takes longer to process moves the border by timing, which the promise
#: excludes.
CLOCKED_SLOTS = 64


class SnapshotClock:
    """Ends what is running after a time, in seconds of one clock that never goes back.

    Without `seconds` it never does. What counts record slots ends at multiples of `CLOCKED_SLOTS`.
    """

    def __init__(self, seconds: float | None, *, counts_slots: bool) -> None:
        self.seconds = seconds
        self.step = CLOCKED_SLOTS if counts_slots and seconds is not None else 0
        self._began: float | None = None

    def restart(self, time: float) -> None:
        """Begin with a release, or with the run."""
        self._began = time

    def over(self, time: float, records: int, fraction: float = 1.0) -> bool:
        """Return whether the time is over for a fraction of a window that has these records."""
        if self.seconds is None or self._began is None or not records:
            return False
        on_step = not self.step or records % self.step == 0
        return on_step and time - self._began >= fraction * self.seconds

    def records_to_step(self, records: int, most: int) -> int:
        """Return how many records to read next, at most, so that none crosses a step."""
        return min(most, self.step - records % self.step) if self.step else most
