"""Causes of connections that ended: a word and a class or errno, never a text of the package.

kafka-python tries again without end and raises nothing but a timeout. Each connection knows better,
and is asked here.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import Any

from streamlda.errors import SourceError, errno_of

#: Where neither a connection ended nor an answer came.
NO_ANSWER = "no-answer"
#: The brokers answer, and have no such topic.
TOPIC_MISSING = "topic-missing"

#: What to do about a cause; for all others, `CHECK`.
REMEDIES = {
    "name-not-found": "correct the host names in kafka.bootstrap, or the name server",
    "refused": "start the brokers, or correct the ports in kafka.bootstrap",
    NO_ANSWER: "check that the brokers run, and that no firewall drops packets to them",
    "wrong-protocol": "check kafka.protocol; something else than Kafka may listen there, or TLS",
    "closed": "check kafka.protocol: brokers that expect TLS or a login close other connections",
    "tls": "check kafka.protocol: the brokers may not speak TLS at this port",
    "untrusted-certificate": "name the authority in kafka.ca_file, and connect to the name that "
    "the certificate has",
    "login-refused": "correct the user, the password or the token",
    "login-mechanism": "correct kafka.mechanism, or let the brokers offer it",
    "no-login-wanted": "set kafka.protocol to PLAINTEXT or SSL: there is no login at this port",
    "login-impossible": "check the files of the login",
    TOPIC_MISSING: "create it, or correct its name",
}
CHECK = "check that the brokers run, their address, and the security settings"

#: Causes that no waiting ends.
NO_ACCESS = {
    *("untrusted-certificate", "login-refused", "login-mechanism", "no-login-wanted"),
    "login-impossible",
}

#: Most that is read of a connection at once.
RECEIVE_BYTES = 2**18


def name_cause(error: BaseException) -> str:
    """Return ``cause:detail`` of what ended a connection; the detail is an errno or a class."""
    from kafka import errors

    deepest = error
    for each in _behind(error):
        deepest = each
        if isinstance(each, SourceError) and each.reason:
            return each.reason
        for kinds, cause in (
            (ssl.SSLCertVerificationError, "untrusted-certificate"),
            (ssl.SSLError, "tls"),
            (errors.SaslAuthenticationFailedError, "login-refused"),
            (errors.UnsupportedSaslMechanismError, "login-mechanism"),
            (errors.IllegalSaslStateError, "no-login-wanted"),
            ((errors.RequestTimedOutError, errors.KafkaTimeoutError), NO_ANSWER),
            (errors.KafkaProtocolError, "wrong-protocol"),
        ):
            if isinstance(each, kinds):
                return f"{cause}:{type(each).__name__}"
    number = errno_of(error)
    if number is not None:
        names = {"ECONNREFUSED": "refused", "ETIMEDOUT": NO_ANSWER, "ECONNRESET": "closed"}
        return f"{names.get(number, 'unreachable')}:{number}"
    # Words of the package that stand for a class.
    said = str(error.args[0]) if error.args else ""
    texts = {"DNS": "name-not-found", "Connection timed out": NO_ANSWER, "socket dis": "closed"}
    for text, cause in texts.items():
        if said.startswith(text):
            return f"{cause}:{'gaierror' if text == 'DNS' else type(error).__name__}"
    cause = "lost" if isinstance(error, errors.KafkaError) else "login-impossible"
    return f"{cause}:{type(deepest).__name__}"


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was made of."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and not any(following is each for each in seen):
        yield following
        seen.append(following)
        inner = following.args[0] if following.args else None
        first = inner if isinstance(inner, BaseException) else None
        following = first or following.__cause__ or following.__context__


class Endings:
    """The last connection of one client of the package that ended by itself, and why."""

    def __init__(self) -> None:
        self._at, self._reason = 0.0, NO_ANSWER
        #: A login that is refused ends the first connecting: to try again locks accounts.
        self.connecting = True

    def watch(self, manager: Any) -> None:
        """Note what ends each connection of a manager of the package."""
        get = manager.get_connection

        def get_watched(node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
            known = manager._conns.get(node_id)
            # A server that never answers takes no more than its share of the time for all.
            longest = manager.socket_connection_setup_timeout_ms(node_id)
            found = get(node_id, min(timeout_ms or longest, longest), **options)
            if found is not known:
                found.close_future.add_errback(partial(self._note, manager))
            return found

        manager.get_connection = get_watched
        manager._build_transport = partial(_build_transport, manager)

    def _note(self, manager: Any, error: Exception) -> None:
        from kafka import errors

        # Closed by the package itself.
        own = isinstance(error, errors.KafkaConnectionError) and not error.args
        if own and len([*_behind(error)]) == 1:
            return
        self._at, self._reason = monotonic(), name_cause(error)
        if self.connecting and is_no_access(self._reason):
            manager._net.call_soon(manager.close)

    def reason(self, since: float = 0.0) -> str:
        """Return why no answer came since a time of `monotonic`."""
        return self._reason if self._at > since else NO_ANSWER


async def _build_transport(manager: Any, node: Any, timeout_at: float | None = None) -> Any:
    """Connect in time; the package's own would wait for a TLS handshake without end."""
    from kafka.net.inet import create_connection
    from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

    net, options = manager._net, manager.config["socket_options"]
    there = await create_connection(net, node.host, node.port, options, timeout_at=timeout_at)
    if not manager.ssl_enabled:
        return _reading_to_the_end(KafkaTCPTransport(net, there, host=node.host))
    context = manager.config["ssl_context"]
    transport = KafkaSSLTransport(net, there, host=node.host, ssl_context=context)
    try:
        while True:
            try:
                transport._sock.do_handshake()
                return _reading_to_the_end(transport)
            except ssl.SSLWantReadError:
                await net.wait_read(transport._sock, timeout_at=timeout_at)
            except ssl.SSLWantWriteError:
                await net.wait_write(transport._sock, timeout_at=timeout_at)
    except BaseException:
        transport.abort()
        raise


def _reading_to_the_end(transport: Any) -> Any:
    """Return a transport that gives what came before the end of a connection, and then the end.

    The package drops it, so that the answer that refuses a login is lost: brokers close after it.
    It also reads 4 KiB at a time.
    """
    from kafka.errors import KafkaConnectionError

    def receive() -> tuple[bytes, Any]:
        parts, error = [], None
        try:
            while part := transport._sock.recv(RECEIVE_BYTES):
                parts.append(part)
            error = KafkaConnectionError("socket disconnected")
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as ended:
            error = KafkaConnectionError(ended)
        # An end is read once more.
        return b"".join(parts), None if parts else error

    transport._sock_recv = receive
    return transport


def is_no_access(reason: str) -> bool:
    """Return whether waiting cannot help."""
    return reason.partition(":")[0] in NO_ACCESS


def remedy_of(reason: str) -> str:
    """Return what to do about a reason."""
    return REMEDIES.get(reason.partition(":")[0], CHECK)
