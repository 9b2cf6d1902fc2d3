"""Causes of brokers that cannot be reached, by real sockets."""

import socket
from contextlib import closing, contextmanager, suppress
from threading import Thread

import pytest

from streamlda.errors import SourceAccessError, SourceAwayError
from streamlda_connectors.kafka import KafkaSource
from tests.kafka.broker import PASSWORD, USER


def listening(closes):
    """Return a server that never answers, or closes each connection at once."""
    server = socket.create_server(("127.0.0.1", 0))

    def close_all():
        try:
            while True:
                server.accept()[0].close()
        except OSError:
            return

    if closes:
        Thread(target=close_all, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("closes", "address", "reason"),
    [
        (False, "127.0.0.1:1", "refused:ECONNREFUSED"),
        (False, "no.such.host.invalid:9092", "name-not-found:gaierror"),
        (False, None, "no-answer:"),
        (True, None, "closed:"),
    ],
)
def test_brokers_that_are_away_have_a_reason(closes, address, reason):
    with closing(listening(closes)) as server:
        there = address or f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SourceAwayError) as caught:
            KafkaSource("topic", bootstrap_servers=there, request_timeout_seconds=2.0)
    assert caught.value.reason.startswith(reason)
    assert f"reason='{caught.value.reason}" in str(caught.value)


@pytest.mark.parametrize(
    ("listener", "mechanism", "password", "reason"),
    [
        ("login", "PLAIN", "wrong secret", "login-refused:SaslAuthenticationFailedError"),
        ("login", "SCRAM-SHA-256", PASSWORD, "login-mechanism:UnsupportedSaslMechanismError"),
        ("plain", "PLAIN", PASSWORD, "no-login-wanted:IllegalSaslStateError"),
        ("login", None, None, "login-wanted:KafkaConnectionError"),
    ],
)
def test_a_login_that_cannot_succeed_ends_the_start(
    broker, monkeypatch, listener, mechanism, password, reason
):
    there = broker.login_bootstrap if listener == "login" else broker.bootstrap
    security = None
    if mechanism:
        monkeypatch.setenv("TEST_KAFKA_PASSWORD", password)
        security = {"protocol": "SASL_PLAINTEXT", "mechanism": mechanism, "username": USER}
        security["password_env"] = "TEST_KAFKA_PASSWORD"
    with pytest.raises(SourceAccessError, match="must accept the login") as caught:
        KafkaSource("topic", bootstrap_servers=there, security=security)
    assert caught.value.reason == reason
    assert password is None or password not in str(caught.value)


@contextmanager
def relay(address, closes):
    """Pass connections on to a broker, but close the first ones in place of the third answer."""
    host, port = address.split(":")
    server, opened = socket.create_server(("127.0.0.1", 0)), []

    def pass_on(source, target, messages):
        with suppress(OSError), source.makefile("rb") as stream:
            while messages != 0 and (size := stream.read(4)):
                target.sendall(size + stream.read(int.from_bytes(size)))
                messages -= 1
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def accept():
        with suppress(OSError):
            while True:
                client = server.accept()[0]
                there = socket.create_connection((host, int(port)))
                messages = 2 if len(opened) < 2 * closes else -1
                opened.extend((client, there))
                for way in ((client, there, -1), (there, client, messages)):
                    threads.append(Thread(target=pass_on, args=way, daemon=True))
                    threads[-1].start()

    threads = [Thread(target=accept, daemon=True)]
    threads[0].start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        for each in (server, *opened):
            each.close()


def test_brokers_that_close_logins_again_and_again_refuse_them_and_those_that_restart_do_not(
    broker, own_topics, topic, monkeypatch
):
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": USER}
    security["password_env"] = "TEST_KAFKA_PASSWORD"
    own_topics.fill(topic, [b"one"])
    with relay(broker.login_bootstrap, 2) as there:
        KafkaSource(topic, format="text", bootstrap_servers=there, security=security).close()
    with (
        relay(broker.login_bootstrap, 3) as there,
        pytest.raises(SourceAccessError, match="must accept the login") as caught,
    ):
        KafkaSource(topic, format="text", bootstrap_servers=there, security=security)
    assert caught.value.reason == "login-refused:KafkaConnectionError"
