"""Brokers that cannot be used, each cause by real sockets, and logins by tokens."""

import base64
import json
import socket
import time
from contextlib import closing, contextmanager, suppress
from threading import Thread
from urllib.parse import parse_qs

import pytest

from streamlda.errors import SourceAccessError, SourceAwayError, SourceError
from streamlda.service.logs import name_reason
from streamlda.utils.exit_codes import exit_code
from streamlda_connectors.kafka import KafkaSource, Security
from streamlda_connectors.kafka.security import TokenProvider
from tests.http_server import AnsweringServer
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.topics import read

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
#: A frame of Kafka that answers another request.
FRAME = b"\x00\x00\x00\x04abcd"

PLAIN = {"mechanism": "PLAIN", "username": USER}
WRONG = {**PLAIN, "password": "wrong secret"}
RIGHT = {**PLAIN, "password": PASSWORD}
LOGIN, TLS, BOTH = ({"protocol": name} for name in ("SASL_PLAINTEXT", "SSL", "SASL_SSL"))
#: That of the broker is trusted.
TRUSTED = {"ca_file": None}

#: Where something listens, how it is connected to, and the cause that is named.
AWAY = {
    "refused": ("127.0.0.1:1", {}, "refused:ECONNREFUSED"),
    "no-such-host": ("no.such.host.invalid:9092", {}, "name-not-found:gaierror"),
    "no-answer": (None, {}, "no-answer:RequestTimedOutError"),
    "no-tls-answer": (None, TLS, "no-answer:KafkaTimeoutError"),
    "closes": (b"", {}, "closed:"),
    "http": (HTTP, {}, "wrong-protocol:InvalidReceiveError"),
    "another-answer": (FRAME, {}, "wrong-protocol:CorrelationIdError"),
    "tls-to-http": (HTTP, TLS, "tls:SSLError"),
    "tls-to-plaintext": ("bootstrap", TLS, "tls:"),
    "plaintext-to-tls": ("secure_bootstrap", {}, "wrong-protocol:"),
    "advertised-elsewhere": ("relayed_bootstrap", {}, "refused:ECONNREFUSED"),
}
SCRAM = RIGHT | {"mechanism": "SCRAM-SHA-256"}
REFUSED = "login-refused:SaslAuthenticationFailedError"
NO_MECHANISM = "login-mechanism:UnsupportedSaslMechanismError"
UNTRUSTED = "untrusted-certificate:SSLCertVerificationError"
NO_ACCESS = {
    "wrong-password": ("login_bootstrap", LOGIN | WRONG, REFUSED),
    "wrong-password-by-tls": ("secure_bootstrap", BOTH | WRONG | TRUSTED, REFUSED),
    "wrong-mechanism": ("login_bootstrap", LOGIN | SCRAM, NO_MECHANISM),
    "login-to-plaintext": ("bootstrap", LOGIN | RIGHT, "no-login-wanted:IllegalSaslStateError"),
    "plaintext-to-login": ("login_bootstrap", {}, "login-wanted:KafkaConnectionError"),
    "untrusted": ("secure_bootstrap", BOTH | RIGHT, UNTRUSTED),
    "another-name": ("other_name", BOTH | RIGHT | TRUSTED, UNTRUSTED),
}


@contextmanager
def listening(answer):
    """Answer whatever comes with some bytes and the end; with None, never."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer_all():
            with suppress(OSError):
                while True:
                    client = server.accept()[0]
                    opened.append(client)
                    if answer is not None:
                        with client, suppress(OSError):
                            if answer:
                                client.recv(1000)
                            client.sendall(answer)

        opened = []
        Thread(target=answer_all, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for each in opened:
            each.close()


@pytest.fixture
def reached(request, tmp_path):
    """Return the address of a case and the security settings, with the password in a file."""

    @contextmanager
    def reached(where, given):
        security, there = dict(given), where
        if password := security.pop("password", None):
            (tmp_path / "password").write_text(password)
            security["password_file"] = str(tmp_path / "password")
        if "ca_file" in security:
            security["ca_file"] = str(request.getfixturevalue("broker").certificate)
        if where is None or isinstance(where, bytes):
            with listening(where) as there:
                yield there, security
            return
        if where == "other_name":
            address = request.getfixturevalue("broker").secure_bootstrap
            there = address.replace("127.0.0.1", "localhost")
        elif ":" not in where:
            there = getattr(request.getfixturevalue("broker"), where)
        yield there, security

    return reached


@pytest.mark.parametrize("case", [*AWAY, *NO_ACCESS])
def test_a_cause_is_named_and_only_what_no_waiting_ends_is_a_refusal(case, reached):
    where, given, cause = (AWAY | NO_ACCESS)[case]
    kind = SourceAwayError if case in AWAY else SourceAccessError
    waited = case in AWAY or "login-wanted" in cause
    # What no waiting ends is said long before this time is over; for the others a busy machine may
    # need more than two seconds.
    for seconds in (2.0, 60.0) if waited else (120.0,):
        with reached(where, given) as (there, security), pytest.raises(SourceError) as caught:
            KafkaSource(
                "topic", bootstrap_servers=there, security=security, request_timeout_seconds=seconds
            )
        if caught.value.reason.startswith(cause):
            break
    assert type(caught.value) is kind
    assert caught.value.reason.startswith(cause)
    assert f"reason='{caught.value.reason}" in str(caught.value)
    assert str(given.get("password")) not in str(caught.value)
    assert name_reason(caught.value) == caught.value.reason
    assert (exit_code(caught.value) == 78) == (case in NO_ACCESS)


CLIENT, SECRET = "reader", "s3cret + more"


def make_unsigned_token(seconds):
    now = time.time()
    parts = {"alg": "none"}, {"sub": CLIENT, "iat": now - 60, "exp": now + seconds}
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join(coded).decode() + "."


@pytest.fixture
def endpoint():
    def respond(request, body):
        basic = request.headers["Authorization"].removeprefix("Basic ")
        server.asked.append((parse_qs(body.decode()), base64.b64decode(basic).decode()))
        return *server.answer, ("Location", request.path)

    with AnsweringServer(respond) as server:
        server.asked, server.answer = [], (200, {})
        yield server


@pytest.fixture
def security(endpoint, monkeypatch):
    monkeypatch.setenv("TEST_CLIENT_SECRET", SECRET)
    return {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "OAUTHBEARER",
        "username": CLIENT,
        "password_env": "TEST_CLIENT_SECRET",
        "token_scope": "topics",
        "token_endpoint": f"{endpoint.url}/token",
    }


def test_a_token_is_kept_until_it_gets_old_and_beyond_that_while_the_endpoint_is_away(
    endpoint, security
):
    now, settings = [1000.0], Security(**security, token_extensions="a=b,c=d=,")
    provider = TokenProvider(settings, clock=lambda: now[0])

    def token_at(seconds, *answer):
        endpoint.answer, now[0] = answer, 1000.0 + seconds
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
    assert token_at(21, 200, given("four")) == "four"
    asked = {"grant_type": ["client_credentials"], "scope": ["topics"]}
    assert endpoint.asked[0] == (asked, "reader:s3cret+%2B+more")
    assert provider.extensions() == {"a": "b", "c": "d="}


def test_an_endpoint_without_a_token_has_a_reason_that_holds_no_secret(endpoint, security):
    for answer, kind, reason in (
        ((401, {"error": "canary"}), SourceAccessError, "login-refused:HTTP401"),
        ((302, b""), SourceAwayError, "token:HTTP302"),
        ((200, b"canary"), SourceAwayError, "token:JSONDecodeError"),
        ((200, ["canary"]), SourceAwayError, "token:missing"),
        (None, SourceAwayError, "token:ECONNREFUSED"),
    ):
        if answer is None:
            security["token_endpoint"] = "http://127.0.0.1:1/"
        endpoint.answer = answer
        with pytest.raises(kind, match="endpoint gives no token") as caught:
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
    there = {"bootstrap_servers": broker.login_bootstrap, "request_timeout_seconds": 60.0}

    def check_read(security):
        assert read(source_of(topics, topic, **there, security=security), 1)[0] == ["one"]

    endpoint.answer = 200, {"access_token": make_unsigned_token(300), "expires_in": 300}
    check_read(security)
    (tmp_path / "token").write_text(make_unsigned_token(300) + "\n")
    ways = {name: security[name] for name in ("protocol", "mechanism")}
    by_file = {**ways, "token_file": str(tmp_path / "token")}
    check_read(by_file)

    (tmp_path / "token").write_text(make_unsigned_token(-30))
    endpoint.answer = 401, {}
    for wrong, problem in ((by_file, "SaslAuthenticationFailedError"), (security, "HTTP401")):
        with pytest.raises(SourceAccessError) as caught:
            KafkaSource(topic, **there, security=wrong)
        assert caught.value.reason == f"login-refused:{problem}"
        assert SECRET not in str(caught.value)
