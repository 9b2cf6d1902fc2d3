"""The server: uvicorn in a thread of the daemon.

uvicorn has no deadline for the head of a first request: here there is one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamlda.errors import StreamLDAError

#: Connections that wait to be taken.
BACKLOG = 128

#: Time for the head of the first request of a connection.
HEAD_SECONDS = 10.0

#: Longest that starting, and then stopping, may take, in seconds.
START_SECONDS, STOP_SECONDS = 10.0, 3.0


class Connection(H11Protocol):
    """A connection that is closed when its first request does not come in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client `HEAD_SECONDS`; between requests uvicorn has a limit of its own."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._close_unused)

    def _close_unused(self) -> None:
        if self.cycle is None:
            self.transport.abort()


class Server:
    """Serve an application from a thread, from the moment this is made until `stop`.

    It takes no signals and writes no access log. Threads: one, and the one of ``make_app``.

    Port 0 takes a free one, which `port` then says.
    """

    def __init__(self, app: Starlette, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = app
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
        self._thread = threading.Thread(target=self._serve, name="streamlda-server", daemon=True)
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                self.stop()
                raise StreamLDAError(
                    f"the server must start within {START_SECONDS:g} seconds, got "
                    f"host={host} port={self.port}; see the log"
                )
            time.sleep(0.005)

    def stop(self) -> None:
        """End it, and wait at most `STOP_SECONDS`; requests under way get one second."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._app.state.pool.shutdown(wait=False, cancel_futures=True)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        unknown = isinstance(error, socket.gaierror)
        number = errno.EADDRNOTAVAIL if unknown else error.errno or errno.EIO
        raise OSError(
            number,
            f"an address must be free to listen on ({os.strerror(number)}), got "
            f"host={host} port={port}; set http.host and http.port",
        ) from error
