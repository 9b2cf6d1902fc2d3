"""Connections that strangers cannot use up: uvicorn's protocol, with deadlines and with room.

uvicorn has no deadline for the head of a request, and its own limit refuses probes like all else.
Here a connection whose request does not come, or whose answer is not taken, is closed in time; of
too many, the one that has waited longest for a request is closed for the new one. Where all others
are being answered, a few more are taken for probes alone.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Most connections: a browser has six, a proxy a pool. Beyond them, most for probes alone.
MOST_CONNECTIONS, MOST_PROBES = 128, 16

#: Member of a scope: whether there is room for probes alone.
BUSY = "streamlda.busy"

#: Time for the head of a request, from the beginning or from the answer before it, and then for
#: its body and its answer.
HEAD_SECONDS, ANSWER_SECONDS = 10.0, 60.0


class Connection(H11Protocol):
    """One connection; those of a server know each other."""

    _timer: asyncio.TimerHandle | None = None
    #: Since when no request is being answered, by the clock of the loop.
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it; where all others are being answered, there is some for probes."""
        super().connection_made(transport)
        others = self._others()
        if len(others) >= MOST_CONNECTIONS:
            waiting = [each for each in others if each.waits]
            full = len(others) >= MOST_CONNECTIONS + MOST_PROBES
            if waiting or full:
                min(waiting, key=lambda each: each._since, default=self).transport.abort()
        self.app = partial(self._serve, self.app)
        self._wait()

    def _others(self) -> list[Connection]:
        known = cast(set[Connection], self.connections)
        return [each for each in known - {self} if not each.transport.is_closing()]

    async def _serve(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        scope[BUSY] = len(self._others()) >= MOST_CONNECTIONS
        await app(scope, receive, send)

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
    def waits(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._overdue)

    def _overdue(self, cycle: object = None) -> None:
        if self.waits or self.cycle is cycle:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(ANSWER_SECONDS, self._overdue, self.cycle)
