"""Connections that strangers cannot use up: uvicorn's protocol, with deadlines and with room.

uvicorn has no deadline for the head of a request, and its own limit refuses probes like all else.
Here a connection whose request does not come is closed in time. Where there are too many, from one
address or in all, the one that has waited longest for a request is closed for the new one; if all
are being answered, the new one is `CROWDED`, and may ask for nothing but probes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Most connections in all, and from one address: a browser has six, a proxy a pool.
MOST_CONNECTIONS, MOST_OF_ADDRESS = 128, 64

#: Time for the head of a request, from the beginning or from the answer before it.
HEAD_SECONDS = 10.0

#: For how long it is not closed for another one, unless there are four times too many.
SHIELD_SECONDS = 1.0

#: Time in which a client must take an answer.
ANSWER_SECONDS = 60.0

#: In the state of a request: that its connection is one too many.
CROWDED = "streamlda.crowded"


class Connection(H11Protocol):
    """One connection; those of a server know each other."""

    _timer: asyncio.TimerHandle | None = None
    #: Since when no request is being answered, by the clock of the loop.
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it, or mark it."""
        super().connection_made(transport)
        known = cast(set[Connection], self.connections)
        others = [each for each in known - {self} if not each.transport.is_closing()]
        here = [each for each in others if each.client_host == self.client_host]
        now = self.loop.time()
        if not (_has_room(here, MOST_OF_ADDRESS, now) and _has_room(others, MOST_CONNECTIONS, now)):
            self.app_state = {**self.app_state, CROWDED: True}
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be here already."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def client_host(self) -> str:
        """Return the address of the other side."""
        return self.client[0] if self.client else ""

    @property
    def waiting_since(self) -> float | None:
        """Return since when it waits for a request; None while one is being answered."""
        waits = self.cycle is None or self.cycle.response_complete
        return self._since if waits else None

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._overdue)

    def _overdue(self) -> None:
        is_late = self.loop.time() >= self._since + ANSWER_SECONDS
        if self.transport.get_write_buffer_size() > 0 and not is_late:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._overdue)
        elif self.waiting_since is not None:
            self.transport.abort()


def _has_room(others: Sequence[Connection], most: int, now: float) -> bool:
    """Return whether there are fewer than `most`, after closing one that waits if need be."""
    if len(others) < most:
        return True
    waiting = [(each.waiting_since, each) for each in others if each.waiting_since is not None]
    since, oldest = min(waiting, key=lambda pair: pair[0], default=(now, None))
    # The request of a new one may be here, and not read yet.
    if oldest is None or (now - since < SHIELD_SECONDS and len(others) < 4 * most):
        return False
    oldest.transport.abort()
    return True
