"""Routes over a real socket: their answers, and requests that do no harm."""

import asyncio
import http.client
import json
import logging
import socket
import time
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamlda.service.http
from streamlda.errors import InvalidSettingError
from streamlda.service.http import guard, make_app
from streamlda.service.http.guard import HEADERS
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots
from tests.service.planted import model, outcomes, private, topics

TOKEN = "correct horse"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def json(self):
        return json.loads(self.body)


def ask(server, path, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


def call(app, *, method="GET", path="/", host=b"localhost:1", headers=(), client="127.0.0.1"):
    """Call an application as a server would, from any address, with any bytes."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw,
        "raw_path": raw.encode("utf-8", "surrogatepass"),
        "query_string": query.encode("utf-8", "surrogatepass"),
        "root_path": "",
        "headers": [(b"host", host), *headers],
        "client": (client, 4),
        "server": ("127.0.0.1", 1),
    }
    asyncio.run(app(scope, receive, send))
    start, *rest = sent
    pairs = [(name.decode(), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer(start["status"], pairs, b"".join(m.get("body", b"") for m in rest))


def error_of(answer, status):
    assert answer.status == status, answer.body
    told = answer.json["error"]
    assert set(answer.json) == {"error"}
    assert set(told) == {"rule", "found", "remedy"}
    assert told["rule"]
    assert "=" in told["found"]
    return told


PAGE = Path(streamlda.__file__).parent / "docs" / "reference-http.md"


def test_every_route_answers_with_safe_headers_and_is_documented(serve):
    server, page = serve(), PAGE.read_text("utf-8")
    for route in server._server.config.app.routes:
        assert f"`{route.path}`" in page or f"`GET {route.path}`" in page
        answer = ask(server, route.path.replace("{number}", "2"))
        assert answer.status == 200
        shown = {name: answer.headers[name.lower()] for name in HEADERS}
        if route.path in guard.PAGE:
            shown["Cache-Control"] = HEADERS["Cache-Control"]
        assert shown == HEADERS
        # Nor does the server say what it is, or let foreign pages read.
        assert not {"server", "access-control-allow-origin"} & answer.headers.keys()

    status, snapshot = ask(server, "/status").json, ask(server, "/snapshots/latest").json
    named = {*status, *snapshot, *snapshot["topics"][0], *ask(server, "/snapshots").json}
    for inner in (status["lag"], status["group"], snapshot["interval"]):
        named |= {*(inner or {})}
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []


def test_probes_follow_the_loop(tmp_path, serve):
    now = [0.0]
    status = Status(private=False, stream="x", clock=lambda: now[0])
    app = make_app(status, Snapshots(tmp_path), private=False, token=None)
    assert call(app, path="/livez").json == {"alive": True}
    answer = call(app, path="/readyz")
    assert (answer.status, answer.json) == (503, {"ready": False, "reason": "starting"})
    now[0] = 31.0
    status.note(not_ready="")
    answer = call(app, path="/livez")
    assert (answer.status, answer.json) == (503, {"alive": False})
    assert call(app, path="/readyz").status == 200


def test_snapshots_are_served_with_their_words_and_sent_again_only_when_changed(
    serve, snapshots, caplog
):
    caplog.set_level(logging.DEBUG)
    server = serve()
    first = ask(server, "/snapshots")
    assert first.json["latest"] == 2
    ids = [[t["id"] for t in s["topics"]] for s in first.json["snapshots"]]
    assert ids == [[1, 2, 3, 4], [4, 3, 2, 1]]
    latest = ask(server, "/snapshots/latest?words=3").json
    assert latest == ask(server, "/snapshots/2?words=3").json == snapshots.topics(2, 3)
    assert {len(topic["words"]) for topic in latest["topics"]} == {3}
    assert "words=3" not in caplog.text, "no request is logged"
    tag = {"If-None-Match": first.headers["etag"]}
    again = ask(server, "/snapshots", headers=tag)
    assert (again.status, again.body) == (304, b"")
    snapshots.publish(3, model(topics()))
    changed = ask(server, "/snapshots", headers=tag)
    assert (changed.status, changed.json["latest"]) == (200, 3)


def test_representative_documents_are_of_a_snapshot_and_never_of_a_private_one(serve, snapshots):
    documents = [[{"id": "a:1", "proportion": 0.5, "text": "Whole."}], [], [{"id": "b"}], []]
    for number, more in ((3, {}), (4, {"privacy": private()})):
        snapshots.publish(number, model(topics(), representative_documents=documents, **more))
    for number, wanted in ((1, [None] * 4), (3, documents), (4, [None] * 4)):
        shown = ask(serve(), f"/snapshots/{number}").json["topics"]
        assert [topic["documents"] for topic in shown] == wanted


def test_a_snapshot_that_is_not_there_or_damaged_is_an_error_of_its_own(serve, snapshots, tmp_path):
    server = serve(of=Snapshots(tmp_path / "empty"))
    assert ask(server, "/snapshots").json == {"latest": None, "withheld": 0, "snapshots": []}
    for path in ("/snapshots/latest", "/snapshots/1", "/snapshots/0", "/snapshots/" + "9" * 5000):
        error_of(ask(server, path), 404)
    path = snapshots.path(2)
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    server = serve(of=Snapshots(snapshots.folder))
    told = error_of(ask(server, "/snapshots/2"), 503)
    assert told["found"] == "number=2 error=ModelFileError"
    assert str(snapshots.folder) not in json.dumps(told)
    assert ask(server, "/snapshots/1").status == 200


def test_in_private_mode_only_private_snapshots_are_served(serve, snapshots, caplog):
    snapshots.publish(3, model(topics(), privacy=private()))
    snapshots.publish(4, model(topics()))
    snapshots.publish(5, model(topics(), privacy=private() | {"epsilon": 0.01}))
    server = serve(private=True)
    listed = ask(server, "/snapshots").json
    assert [s["number"] for s in listed["snapshots"]] == [3]
    assert (listed["latest"], listed["withheld"]) == (3, 4)
    assert ask(server, "/snapshots/latest").json["number"] == 3
    for number in (1, 2, 4, 5):
        error_of(ask(server, f"/snapshots/{number}"), 403)


@pytest.fixture
def patient(monkeypatch):
    """Let a connection take minutes for the head of a request: nobody else waits for it."""
    monkeypatch.setattr("streamlda.service.http.server.HEAD_SECONDS", 600.0)


def test_a_server_stops_soon_though_a_client_holds_on(patient, serve):
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        time.sleep(0.1)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 60
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port))
    server.stop()


@pytest.mark.long
def test_150_slow_connections_keep_nobody_out(patient, serve):
    server, right = serve(token=TOKEN), {"Authorization": f"Bearer {TOKEN}"}
    with ExitStack() as opened:
        address, slow = ("127.0.0.1", server.port), []
        for _ in range(150):
            slow.append(opened.enter_context(socket.create_connection(address, timeout=60)))
            slow[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(2):
            for client in slow:
                # Those that were closed for the others do not matter.
                with suppress(OSError):
                    client.sendall(b"X")
            for path, headers in (("/livez", {}), ("/readyz", right), ("/status", right)):
                # Behind the slow ones it would wait for as long as they may take.
                assert ask(server, path, headers=headers).status == 200
            time.sleep(0.4)


def bearer(token):
    return (b"authorization", f"Bearer {token}".encode())


def test_there_is_nothing_else_and_a_wrong_method_is_told_the_right_one(app_of):
    for method, path, right in (
        ("POST", "/status", "GET"),
        ("DELETE", "/snapshots/1", "GET"),
        *(("GET", path, "") for path in ("/state", "/snapshots/", "/page/../app.py", "/%00")),
    ):
        answer = call(app_of(), path=path, method=method)
        error_of(answer, 405 if right else 404)
        assert right in answer.headers.get("allow", "")


def test_with_a_token_all_but_probes_and_the_empty_page_need_it(app_of, status):
    app, right, free = app_of(token=TOKEN), bearer(TOKEN), set()
    for route in app.routes:
        there = route.path.replace("{number}", "1")
        for headers in ([], [bearer("wrong")], [(b"authorization", f"Basic {TOKEN}".encode())]):
            answer = call(app, path=there, headers=headers)
            if answer.status == 200:
                free.add(route.path)
            else:
                error_of(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        assert call(app, path=there, headers=[right]).status == 200
    assert free == {"/livez", "/readyz", "/", "/page.css", "/page.js", "/icon.svg"}
    status.note(not_ready="why")
    assert call(app, path="/readyz").json == {"ready": False, "reason": None}
    assert call(app, path="/readyz", headers=[right]).json["reason"] == "why"
    lower = (b"authorization", f"bearer {TOKEN}".encode())
    assert call(app, path="/status", headers=[lower]).status == 200


def test_a_token_may_hold_any_text_but_none(app_of):
    app = app_of(token="Schlüssel")
    for token, code in (("Schlüssel", 200), ("Schlussel", 401)):
        assert call(app, path="/status", headers=[bearer(token)]).status == code
    for token, operator_token in (("", None), (TOKEN, ""), (TOKEN, TOKEN)):
        with pytest.raises(InvalidSettingError, match="that of operators"):
            app_of(token=token, operator_token=operator_token)


FAR = "203.0.113.5"


def test_operating_figures_of_a_private_daemon_are_for_its_operator(app_of):
    for is_private, tokens, client, sent, code in (
        # What comes by way of a proxy on this machine looks like this, too.
        (True, (None, None), "127.0.0.1", None, 403),
        (True, (TOKEN, None), FAR, TOKEN, 403),
        (True, (TOKEN, "of operators"), FAR, TOKEN, 403),
        (True, (TOKEN, "of operators"), FAR, "of operators", 200),
        (True, (TOKEN, "of operators"), FAR, "another", 401),
        (False, (None, None), FAR, None, 200),
        (False, (TOKEN, "of operators"), FAR, TOKEN, 200),
    ):
        app = app_of(private=is_private, token=tokens[0], operator_token=tokens[1])
        for path in ("/status", "/metrics"):
            answer = call(app, path=path, client=client, headers=[bearer(sent)] if sent else [])
            assert answer.status == code
            assert code != 403 or "not private" in error_of(answer, 403)["rule"]
        shown = call(app, path="/snapshots", client=client, headers=[bearer(sent)] if sent else [])
        assert shown.status == (401 if code == 401 else 200)


def test_nothing_that_a_viewer_sees_tells_neighbours_apart(snapshots):
    """By no route and method: not in an answer, its length or another header."""
    snapshots.publish(3, model(topics(), privacy=private()))

    def seen(learned, token, sent, client):
        status = Status(private=True, stream="planted", clock=lambda: 0.0)
        rejected = 100_001 - learned
        found = outcomes(learned=learned, rejected=rejected)
        status.note(documents=found, rejects={"not JSON": rejected}, releases=1)
        status.note(not_ready="", places=100_001, places_left=5, warmup=(learned, 200_000))
        status.note(queue_bytes=99 * learned)
        status.count("bytes", "", 600 * learned)
        app = make_app(status, snapshots, private=True, token=token, operator_token="other")
        headers = [bearer(sent)] if sent else []
        found = {}
        for method, route in product(("GET", "HEAD", "OPTIONS", "POST"), app.routes):
            path = route.path.replace("{number}", "3")
            answer = call(app, method=method, path=path, client=client, headers=headers)
            found[method, path] = (answer.status, dict(answer.headers), answer.body)
        return found

    for token, sent, client in ((TOKEN, TOKEN, FAR), (None, None, "127.0.0.1")):
        assert seen(100_000, token, sent, client) == seen(100_001, token, sent, client)
    one, other = (seen(learned, TOKEN, "other", FAR) for learned in (100_000, 100_001))
    differ = {asked for asked in one if one[asked] != other[asked]}
    assert differ >= set(product(("GET", "HEAD"), ("/status", "/metrics")))
    assert {path for _, path in differ} == {"/status", "/metrics"}


def test_a_name_that_was_bound_to_this_address_elsewhere_is_refused(app_of):
    for bound, host, code in (
        ("127.0.0.1", "LOCALHOST:8080", 200),
        ("127.0.0.1", "[::1]:1", 200),
        ("::1", "127.0.0.1:9", 200),
        ("127.0.0.1", "rebound.example", 421),
        ("127.0.0.1", "localhost:80:80", 421),
        ("127.0.0.1", "", 421),
        ("127.0.0.1", "127.0.0.2", 421),
        ("10.1.2.3", "localhost", 421),
        ("Box.example", "box.example", 200),
        ("0.0.0.0", "any.example:80", 200),
    ):
        answer = call(app_of(host=bound), path="/livez", host=host.encode())
        assert answer.status == code
        if code != 200:
            error_of(answer, code)
            assert host == "" or host not in answer.body.decode()


def test_what_fails_inside_is_told_without_what_was_sent(app_of, snapshots, monkeypatch, caplog):
    def fail(*about):
        raise RuntimeError("the text was: a secret")

    monkeypatch.setattr(snapshots, "topics", fail)
    answer = call(app_of(), path="/snapshots/1?words=7&secret")
    error_of(answer, 500)
    assert "secret" not in answer.body.decode() + caplog.text
    assert "error=RuntimeError at=fail" in caplog.text


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    snapshots = Snapshots(tmp_path_factory.mktemp("fuzz"))
    snapshots.publish(1, model(topics()))
    status = Status(private=False, stream="x")
    return make_app(status, snapshots, private=False, token=None)


@pytest.mark.long
@pytest.mark.fuzz
@given(
    path=st.text(),
    prefix=st.sampled_from(["/", "/snapshots/", "/snapshots/1?words=", "/status"]),
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE", "", "X"]),
    header=st.binary(),
)
def test_no_path_method_or_header_breaks_the_daemon(fuzzed, path, prefix, method, header):
    names = (b"authorization", b"if-none-match", b"content-type", b"x")
    headers = [(name, header) for name in names]
    answer = call(fuzzed, path=prefix + path, method=method, headers=headers)
    assert answer.status in (200, 400, 404, 405)
