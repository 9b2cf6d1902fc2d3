"""Whether the fetches of a broker are answered, by what confluent-kafka says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Fetches:
    """Fetches that were sent to one broker; each but the first was sent once its last was answered.

    `unanswered` counts those up to the last that no later one shows to be answered, and `troubles`
    are what ends fetches without an answer: connections, disconnections, time-outs.
    """

    troubles: tuple[int, ...] = ()
    unanswered: int = 0
    answered_at: float | None = None

    def note(self, broker: Mapping[str, Any], now: float) -> None:
        """Take what the package says of the broker."""
        sent = broker["req"].get("Fetch", 0)
        troubles = tuple(broker[name] for name in ("connects", "disconnects", "req_timeouts"))
        if troubles != self.troubles:
            self.troubles, self.unanswered = troubles, sent
        elif sent > self.unanswered + 1:
            self.unanswered, self.answered_at = sent - 1, now
