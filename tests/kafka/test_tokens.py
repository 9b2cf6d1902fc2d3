"""Logins by tokens: an endpoint on this machine, and Apache Kafka's check of unsigned ones."""

import base64
import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import parse_qs

import pytest

from streamlda.errors import SourceAccessError, SourceAwayError
from streamlda_connectors.kafka import KafkaSource, Security
from streamlda_connectors.kafka.security import TokenProvider

CLIENT, SECRET = "reader", "s3cret + more"


def unsigned(seconds):
    """Return a JSON Web Token without a signature, from now for so long."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": CLIENT, "iat": now - 60, "exp": now + seconds}
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join(coded).decode() + "."


class Endpoint(BaseHTTPRequestHandler):
    """Token endpoint; `server.answer` is a status and a body."""

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        basic = self.headers["Authorization"].removeprefix("Basic ")
        self.server.asked.append((parse_qs(asked), base64.b64decode(basic).decode()))
        status, body = self.server.answer
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.path)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoint():
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked, server.answer = [], (200, {})
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def security(endpoint, monkeypatch):
    monkeypatch.setenv("TEST_CLIENT_SECRET", SECRET)
    return {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "OAUTHBEARER",
        "username": CLIENT,
        "password_env": "TEST_CLIENT_SECRET",
        "token_scope": "topics",
        "token_endpoint": f"http://127.0.0.1:{endpoint.server_port}/token",
    }


def test_a_token_is_kept_until_it_gets_old_and_beyond_that_while_the_endpoint_is_away(
    endpoint, security
):
    now = [1000.0]
    provider = TokenProvider(
        Security(**security, token_extensions="a=b,c=d=,"), clock=lambda: now[0]
    )

    def token_at(seconds, status, body):
        endpoint.answer = status, body
        now[0] = 1000.0 + seconds
        return provider.token()

    def given(token):
        return {"access_token": token, "expires_in": 10}

    assert token_at(0, 200, given("one")) == "one"
    assert token_at(7, 200, given("two")) == "one"
    assert len(endpoint.asked) == 1
    assert token_at(9, 503, {}) == "one"
    assert len(endpoint.asked) == 2
    with pytest.raises(SourceAwayError):
        token_at(11, 503, {})
    assert token_at(12, 200, given("two")) == "two"
    assert token_at(19, 200, given("three")) == "two"
    assert token_at(21, 200, {"access_token": "three"}) == "three"
    # Its life is not known.
    assert token_at(21, 200, given("four")) == "four"
    asked = {"grant_type": ["client_credentials"], "scope": ["topics"]}
    assert endpoint.asked[0] == (asked, "reader:s3cret+%2B+more")
    assert provider.extensions() == {"a": "b", "c": "d="}


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        ((401, {"error": "canary"}), SourceAccessError, "login-refused:HTTP401"),
        ((302, b""), SourceAwayError, "token:HTTP302"),
        ((200, b"canary"), SourceAwayError, "token:JSONDecodeError"),
        ((200, ["canary"]), SourceAwayError, "token:missing"),
        (None, SourceAwayError, "token:ECONNREFUSED"),
    ],
)
def test_an_endpoint_without_a_token_has_a_reason_that_holds_no_secret(
    endpoint, security, answer, kind, reason
):
    if answer is None:
        security["token_endpoint"] = "http://127.0.0.1:1/"
    endpoint.answer = answer
    with pytest.raises(kind, match="must ") as caught:
        TokenProvider(Security(**security)).token()
    assert caught.value.reason == reason
    assert caught.value.__context__ is None
    for secret in ("canary", SECRET, "s3cret"):
        assert secret not in str(caught.value)


@pytest.mark.long
def test_a_topic_is_read_with_tokens_of_an_endpoint_and_of_a_file(
    broker, topics, topic, endpoint, security, tmp_path, source_of
):
    topics.fill(topic, [b"one"])
    there = {"bootstrap_servers": broker.login_bootstrap, "request_timeout_seconds": 5.0}

    def read(security):
        source = source_of(topics, topic, **there, security=security)
        deadline, texts = time.monotonic() + 30, []
        while not texts and time.monotonic() < deadline:
            texts = source.poll(10, 1.0).documents
        assert [*texts] == ["one"]

    endpoint.answer = 200, {"access_token": unsigned(300), "expires_in": 300}
    read(security)
    (tmp_path / "token").write_text(unsigned(300) + "\n")
    ways = {name: security[name] for name in ("protocol", "mechanism")}
    by_file = {**ways, "token_file": str(tmp_path / "token")}
    read(by_file)

    (tmp_path / "token").write_text(unsigned(-30))
    endpoint.answer = 401, {}
    for wrong, problem in ((by_file, "SaslAuthenticationFailedError"), (security, "HTTP401")):
        with pytest.raises(SourceAccessError) as caught:
            KafkaSource(topic, **there, security=wrong)
        assert caught.value.reason == f"login-refused:{problem}"
        assert SECRET not in str(caught.value)
