"""What no client can do: wrong hosts, tokens, and anything else it may send."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.service.http import make_app
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots
from tests.service.planted import model, outcomes, private, topics
from tests.service.web import TOKEN, call, error_of


def bearer(token):
    return (b"authorization", f"Bearer {token}".encode())


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/status", "GET"),
        ("DELETE", "/snapshots/1", "GET"),
        *(("GET", path, "") for path in ("/state", "/snapshots/", "/page/../app.py", "/%00")),
    ],
)
def test_there_is_nothing_else_and_a_wrong_method_is_told_the_right_one(
    app_of, method, path, right
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
        with pytest.raises(InvalidSettingError, match="differ from that of viewers"):
            app_of(token=token, operator_token=operator_token)


FAR = "203.0.113.5"


@pytest.mark.parametrize(
    ("private", "tokens", "client", "sent", "code"),
    [
        # What comes by way of a proxy on this machine looks like this, too.
        (True, (None, None), "127.0.0.1", None, 403),
        (True, (TOKEN, None), FAR, TOKEN, 403),
        (True, (TOKEN, "of operators"), FAR, TOKEN, 403),
        (True, (TOKEN, "of operators"), FAR, "of operators", 200),
        (True, (TOKEN, "of operators"), FAR, "another", 401),
        (False, (None, None), FAR, None, 200),
        (False, (TOKEN, "of operators"), FAR, TOKEN, 200),
    ],
)
def test_operating_figures_of_a_private_daemon_are_for_its_operator(
    app_of, private, tokens, client, sent, code
):
    app = app_of(private=private, token=tokens[0], operator_token=tokens[1])
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
        status.note(not_ready="")
        status.note(places=100_001, places_left=5)
        reasons = {"not JSON": 100_001 - learned}
        found = outcomes(learned=learned, rejected=100_001 - learned)
        status.note(documents=found, rejects=reasons, releases=1)
        status.count("bytes", "", 600 * learned)
        status.note(queue_bytes=99 * learned)
        status.note(warmup=(learned, 200_000))
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


@pytest.mark.parametrize(
    ("bound", "host", "code"),
    [
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
    ],
)
def test_a_name_that_was_bound_to_this_address_elsewhere_is_refused(app_of, bound, host, code):
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
