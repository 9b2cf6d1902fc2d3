"""Clients that hold connections: they keep nobody from the probes, or from what a token opens."""

import socket
import time
from contextlib import ExitStack, suppress

import pytest

from tests.service.web import TOKEN, ask

pytestmark = pytest.mark.long

RIGHT = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def connect():
    with ExitStack() as opened:

        def connected(server, sent=b""):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            opened.enter_context(client)
            client.sendall(sent)
            return client

        yield connected


def test_150_slow_connections_keep_nobody_out(serve, connect):
    server = serve(token=TOKEN)
    slow = [connect(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n") for _ in range(150)]
    for _ in range(2):
        for client in slow:
            # Those that were closed for the others do not matter.
            with suppress(OSError):
                client.sendall(b"X")
        for path, headers in (("/livez", {}), ("/readyz", RIGHT), ("/status", RIGHT)):
            began = time.monotonic()
            status = ask(server, path, headers=headers).status
            # Behind the slow ones it would wait for as long as they may take: ten seconds.
            assert time.monotonic() - began < 5.0
            assert status == 200
        time.sleep(0.4)
