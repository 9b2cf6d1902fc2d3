"""Clients that hold connections: they keep nobody from the probes, or from what a token opens."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from streamlda.service.http import Limits, Server, connections
from tests.service.web import JSON, TOKEN, ask, error_of

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


def is_closed(client, seconds):
    """Return whether the other side ends a connection, without an answer, within that time."""
    client.settimeout(seconds)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_150_slow_connections_keep_nobody_out(serve, connect):
    server = serve(token=TOKEN)
    slow = [connect(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n") for _ in range(150)]
    for turn in range(4):
        for client in slow:
            # Those that were closed for the others do not matter.
            with suppress(OSError):
                client.sendall(b"X")
        for path, headers in (("/livez", {}), ("/readyz", RIGHT), ("/status", RIGHT)):
            began = time.monotonic()
            status = ask(server, path, headers=headers).status
            # Behind the slow ones it would wait for as long as they may take: ten seconds.
            assert time.monotonic() - began < 5.0
            # At first, all of them may still be about to ask.
            assert status == 200 or (path, status, turn < 3) == ("/status", 503, True)
        time.sleep(0.4)


@pytest.mark.parametrize("answered", [0, 1])
def test_a_request_must_come_in_time_also_one_byte_after_another(
    serve, connect, monkeypatch, answered
):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    client = connect(serve())
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(answered):
        client.sendall(whole)
        answer = b""
        while not answer.endswith(b'{"alive":true}'):
            answer += client.recv(4096)
    began = time.monotonic()
    for byte in whole * 10:
        try:
            client.sendall(bytes([byte]))
        except OSError:
            break
        time.sleep(0.05)
    # All of it would take 20 seconds.
    assert time.monotonic() - began < 15.0
    assert is_closed(client, 15.0)


def test_where_all_are_being_answered_only_probes_are(serve, connect, monkeypatch):
    monkeypatch.setattr(connections, "MOST_OF_ADDRESS", 2)
    server = serve(limits=Limits(body_seconds=10))
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in JSON.items())
    head = b"POST /infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n" + lines + b"\r\n"
    busy = [connect(server, head) for _ in range(2)]
    told = error_of(ask_until(server, "/status", 503), 503)
    assert "connections" in told["rule"]
    for path in ("/livez", "/readyz"):
        assert ask(server, path).status == 200
    assert not any(is_closed(client, 0.1) for client in busy)
    for client in busy:
        client.close()
    assert ask_until(server, "/status", 200).status == 200


def ask_until(server, path, status):
    """The other connections are taken in, or their ends noticed, a moment after."""
    for _ in range(400):
        answer = ask(server, path)
        if answer.status == status:
            return answer
        time.sleep(0.05)
    return answer


def test_an_answer_must_be_taken_in_time(connect, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.5)

    async def large(request):
        return Response(bytes(2**25))

    app = Starlette(routes=[Route("/", large)])
    app.state.pool = ThreadPoolExecutor(1)
    server = Server(app)
    try:
        client = connect(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(4.0)
        came, part = 0, b"first"
        while part:
            try:
                part = client.recv(2**20)
            except ConnectionResetError:
                break
            came += len(part)
        assert 0 < came < 2**25
    finally:
        server.stop()


def test_who_has_no_token_uses_up_nothing_of_those_who_have(serve):
    server = serve(token=TOKEN, limits=Limits(per_second=0.01, burst=5))
    wrong = {"Authorization": "Bearer wrong"}
    codes = [ask(server, path, headers=wrong).status for path in ["/", "/status"] * 4]
    assert codes == [200, 401, 200, 401, 200, 429, 429, 429]
    assert [ask(server, "/status", headers=RIGHT).status for _ in range(6)] == [200] * 5 + [429]


def test_requests_sent_without_waiting_end_with_the_first_that_is_refused(serve, connect):
    server = serve(limits=Limits(per_second=0.01, burst=5))
    one = f"GET /status HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n"
    client, answers = connect(server, (one * 50).encode()), b""
    while part := client.recv(2**16):
        answers += part
    assert (answers.count(b"HTTP/1.1 200"), answers.count(b"HTTP/1.1 429")) == (5, 1)


@pytest.mark.parametrize(("own", "most"), [(3, 100), (100, 3)])
def test_of_too_many_the_one_that_waits_longest_is_closed(serve, connect, monkeypatch, own, most):
    monkeypatch.setattr(connections, "SHIELD_SECONDS", 0.0)
    monkeypatch.setattr(connections, "MOST_OF_ADDRESS", own)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", most)
    server = serve()
    slow = []
    for _ in range(8):
        slow.append(connect(server, b"GET "))
        # Taken in before the next.
        time.sleep(0.05)
    assert all(is_closed(client, 10.0) for client in slow[:5])
    assert not any(is_closed(client, 0.3) for client in slow[5:])
