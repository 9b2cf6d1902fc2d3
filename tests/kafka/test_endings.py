"""Why brokers cannot be used, each cause by real sockets, and who waits for it."""

import socket
from contextlib import closing, contextmanager, suppress
from threading import Thread

import pytest

from streamlda.errors import SourceAccessError, SourceAwayError
from streamlda.service.logs import name_reason
from streamlda.utils.exit_codes import exit_code
from streamlda_connectors.kafka import KafkaSource
from tests.kafka.broker import PASSWORD, USER

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
NO_ACCESS = {
    "wrong-password": (
        "login_bootstrap",
        LOGIN | WRONG,
        "login-refused:SaslAuthenticationFailedError",
    ),
    "wrong-password-by-tls": (
        "secure_bootstrap",
        BOTH | WRONG | TRUSTED,
        "login-refused:SaslAuthenticationFailedError",
    ),
    "wrong-mechanism": (
        "login_bootstrap",
        LOGIN | RIGHT | {"mechanism": "SCRAM-SHA-256"},
        "login-mechanism:UnsupportedSaslMechanismError",
    ),
    "login-to-plaintext": ("bootstrap", LOGIN | RIGHT, "no-login-wanted:IllegalSaslStateError"),
    "plaintext-to-login": ("login_bootstrap", {}, "login-wanted:KafkaConnectionError"),
    "untrusted": (
        "secure_bootstrap",
        BOTH | RIGHT,
        "untrusted-certificate:SSLCertVerificationError",
    ),
    "another-name": (
        "other_name",
        BOTH | RIGHT | TRUSTED,
        "untrusted-certificate:SSLCertVerificationError",
    ),
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
    # What no waiting ends is said long before this time is over.
    seconds = 2.0 if case in AWAY or "login-wanted" in cause else 120.0
    with reached(where, given) as (there, security), pytest.raises(kind) as caught:
        KafkaSource(
            "topic", bootstrap_servers=there, security=security, request_timeout_seconds=seconds
        )
    assert caught.value.reason.startswith(cause)
    assert f"reason='{caught.value.reason}" in str(caught.value)
    assert str(given.get("password")) not in str(caught.value)
    # What the daemon shows, and how it ends.
    assert name_reason(caught.value) == caught.value.reason
    assert (exit_code(caught.value) == 78) == (case in NO_ACCESS)
