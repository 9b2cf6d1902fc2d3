"""The question of health checks, without the libraries that a daemon runs on."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from streamlda.checks import failure

if TYPE_CHECKING:
    from streamlda.settings.table import HttpSettings

#: Longest wait for an answer.
ANSWER_SECONDS = 4.0

#: Where a server that listens on all addresses is found.
_HERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def is_alive(http: HttpSettings) -> bool:
    """Ask ``/livez`` where the settings say that it is served."""
    if not http.port:
        raise failure(
            "a daemon must have an HTTP port for a health check",
            http_port=http.port,
            remedy="set http.port, or leave the health check out",
        )
    connection = HTTPConnection(_HERE.get(http.host, http.host), http.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
