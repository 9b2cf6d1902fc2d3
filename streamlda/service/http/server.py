"""The server: uvicorn in a thread of the daemon, with connections that strangers cannot use up.

uvicorn has no deadline for the head of a request, and its own limit refuses probes like all else.
Here a connection whose request does not come, or whose answer is not taken, is closed in time; of
too many, the one that has waited longest for a request is closed for the new one.
"""

import asyncio
import errno
import os
import socket
import threading
import time
from functools import partial
from typing import cast

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamlda.errors import StreamLDAError

#: Most connections: a browser has six, a proxy a pool.
MOST_CONNECTIONS = 128

#: Time for the head of a request, from the beginning or from the answer before it, and then for
#: its answer.
HEAD_SECONDS, ANSWER_SECONDS = 10.0, 60.0

#: Longest that starting, and then stopping, may take, in seconds.
START_SECONDS, STOP_SECONDS = 10.0, 3.0


class Connection(H11Protocol):
    """One connection; those of a server know each other."""

    _timer: asyncio.TimerHandle | None = None
    #: Since when no request is being answered, by the clock of the loop.
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it: of too many, close the one that has waited longest, or this one."""
        super().connection_made(transport)
        known = cast(set[Connection], self.connections) - {self}
        others = [each for each in known if not each.transport.is_closing()]
        if len(others) >= MOST_CONNECTIONS:
            waiting = [each for each in others if each.waits]
            min(waiting, key=lambda each: each._since, default=self).transport.abort()
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
    def waits(self) -> bool:
        """True if the connection waits for a request."""
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


class Server:
    """Serve an application from a thread, from the moment this is made until `stop`.

    It takes no signals and writes no access log. Port 0 takes a free one, which `port` then says.
    """

    def __init__(self, app: Starlette, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            # Whom a header names as the client is not believed.
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        serve = partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=serve, name="streamlda-server", daemon=True)
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                self.stop()
                raise StreamLDAError(
                    f"the server did not start in {START_SECONDS:g} seconds, got "
                    f"host={host} port={self.port}; see the log"
                )
            time.sleep(0.005)

    def stop(self) -> None:
        """End it, and wait at most `STOP_SECONDS`; requests under way get one second."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._socket.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        unknown = isinstance(error, socket.gaierror)
        number = errno.EADDRNOTAVAIL if unknown else error.errno or errno.EIO
        raise OSError(
            number,
            f"the server cannot listen here ({os.strerror(number)}), got "
            f"host={host} port={port}; set http.host and http.port",
        ) from error
