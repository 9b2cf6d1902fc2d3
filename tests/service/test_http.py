"""What the routes serve, over a real socket."""

import json
import logging
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import streamlda.service.http
from streamlda.service.http import guard, make_app
from streamlda.service.http.guard import HEADERS
from streamlda.service.http.server import HEAD_SECONDS
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots
from tests.service.planted import model, private, topics
from tests.service.web import TOKEN, ask, call, error_of

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


def test_every_member_of_an_answer_is_documented(serve):
    server = serve()
    status, snapshot = ask(server, "/status").json, ask(server, "/snapshots/latest").json
    named = {*status, *snapshot, *snapshot["topics"][0], *ask(server, "/snapshots").json}
    for inner in (status["lag"], status["group"], snapshot["interval"]):
        named |= {*(inner or {})}
    assert [name for name in sorted(named) if f"`{name}`" not in PAGE.read_text("utf-8")] == []


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


def test_a_server_stops_soon_though_a_client_holds_on(serve):
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        time.sleep(0.1)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 8
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port))
    server.stop()


@pytest.fixture
def connect():
    with ExitStack() as opened:

        def connected(server, sent=b""):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            opened.enter_context(client)
            client.sendall(sent)
            return client

        yield connected


@pytest.mark.long
def test_150_slow_connections_keep_nobody_out(serve, connect):
    server, right = serve(token=TOKEN), {"Authorization": f"Bearer {TOKEN}"}
    slow = [connect(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n") for _ in range(150)]
    for _ in range(2):
        for client in slow:
            # Those that were closed for the others do not matter.
            with suppress(OSError):
                client.sendall(b"X")
        for path, headers in (("/livez", {}), ("/readyz", right), ("/status", right)):
            began = time.monotonic()
            status = ask(server, path, headers=headers).status
            # Behind the slow ones it would wait for as long as they may take.
            assert time.monotonic() - began < HEAD_SECONDS - 1.0
            assert status == 200
        time.sleep(0.4)
