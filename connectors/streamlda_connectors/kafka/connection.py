"""Arguments of all classes of the package kafka-python, and causes of connections that end.

kafka-python tries again without end and raises nothing but a timeout. Each connection knows better,
and is asked here. A cause is a word and a class or errno, never a text of the package.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any

from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    SourceError,
    SourceRefusedError,
    StreamLDAError,
    errno_of,
    failure,
)
from streamlda.stream.credentials import OAUTHBEARER, PASSWORD_MECHANISMS
from streamlda_connectors.checks import with_reason
from streamlda_connectors.kafka.security import ClientSettings, Security, TokenProvider
from streamlda_connectors.kafka.web import trust

logger = logging.getLogger(__name__)

#: Longest time to close a connection, in seconds.
CLOSE_SECONDS = 2.0

#: Longest time to connect and log in. After an outage a connection that was begun before its end
#: is waited for so long, twice in a row: that of the metadata and that of the records.
SETUP_SECONDS = 5.0

#: Most that is read of a connection at once.
RECEIVE_BYTES = 2**18

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
    "closed": "check kafka.protocol: brokers that expect TLS close other connections",
    "tls": "check kafka.protocol: the brokers may not speak TLS at this port",
    "token": "check kafka.token_endpoint, and the client there",
    TOPIC_MISSING: "create it, or correct its name",
}
CHECK = "check that the brokers run, their address, and the security settings"

#: The same about causes that no waiting ends.
NO_ACCESS = {
    "untrusted-certificate": "name the authority in kafka.ca_file (that of a token endpoint in "
    "SSL_CERT_FILE), and connect to the name that the certificate has",
    "login-refused": "correct the user, the password or the token",
    "login-wanted": "set kafka.protocol to SASL_SSL or SASL_PLAINTEXT, and a user",
    "login-mechanism": "correct kafka.mechanism, or let the brokers offer it",
    "no-login-wanted": "set kafka.protocol to PLAINTEXT or SSL: there is no login at this port",
    "login-impossible": "check the files, tickets and credentials of the login, and install "
    "botocore for AWS_MSK_IAM, gssapi for GSSAPI",
}


def load(purpose: str) -> Any:
    """Return the package, or raise."""
    try:
        import kafka
    except ImportError as error:
        raise MissingExtraError("kafka-python", "kafka", purpose) from error
    # At DEBUG it logs whole records, which no level of the whole program may bring about.
    own = logging.getLogger(kafka.__name__)
    if own.level == logging.NOTSET:
        own.setLevel(logging.WARNING)
    return kafka


def milliseconds(seconds: float) -> int:
    """Return the unit of the package."""
    return int(seconds * 1000)


def connection(settings: ClientSettings) -> dict[str, Any]:
    """Return the options that all classes of the package take; secrets are read now."""
    security = settings.security
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers.split(","),
        "bootstrap_timeout_ms": milliseconds(settings.request_timeout_seconds),
        "client_id": "streamlda",
        "request_timeout_ms": max(2, milliseconds(settings.request_timeout_seconds)),
        "metadata_max_age_ms": max(1, milliseconds(settings.refresh_seconds)),
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": security.protocol,
    }
    if security.tls:
        # A password is never asked for on the terminal.
        own = security.certificate_file, security.key_file, lambda: security.read("key_password")
        options["ssl_context"] = trust(security.ca_file, *(own if own[0] else ()))
    if security.sasl:
        options |= {"sasl_mechanism": security.mechanism, **login(security)}
    return options


def login(security: Security) -> dict[str, Any]:
    """Return who logs in."""
    if security.mechanism == OAUTHBEARER:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        AbstractTokenProvider.register(TokenProvider)
        # A file that cannot be read is no matter of the brokers.
        if security.token_endpoint is None:
            security.read("token")
        return {"sasl_oauth_token_provider": TokenProvider(security)}
    if security.mechanism in PASSWORD_MECHANISMS:
        password = security.read("password")
        return {"sasl_plain_username": security.username, "sasl_plain_password": password}
    return {"sasl_kerberos_service_name": security.kerberos_service or "kafka"}


@contextmanager
def connecting(
    kafka: Any, settings: ClientSettings, endings: Endings | None = None
) -> Iterator[dict[str, Any]]:
    """Give the options to connect with; on an error, close what was opened and name the brokers."""
    made: list[Any] = []
    endings = endings or Endings()

    def keep(**options: Any) -> Any:
        make = kafka.KafkaConsumer.DEFAULT_CONFIG["kafka_client"]
        setup = milliseconds(min(SETUP_SECONDS, settings.request_timeout_seconds))
        client = make(
            **options,
            # It would warn of each moment in which its thread has to wait for a processor.
            slow_task_threshold_secs=0,
            socket_connection_setup_timeout_ms=setup,
            socket_connection_setup_timeout_max_ms=setup,
        )
        made.append(client)
        endings.watch(client._manager)
        # Its own option does not reach what asks: a topic that was deleted would come back, empty.
        client.cluster.config["allow_auto_create_topics"] = False
        return client

    options = {**connection(settings), "kafka_client": keep}
    try:
        yield options
    except (kafka.errors.KafkaError, OSError, ValueError, AssertionError) as error:
        for client in made:
            client.close()
        if isinstance(error, SourceError):
            raise
        raise refused(settings, "be reachable", error, endings) from error
    endings.connecting = False


def is_away(errors: Any, error: BaseException) -> bool:
    """Return whether an error says that brokers do not answer, or not yet."""
    return isinstance(error, errors.KafkaError) and bool(error.retriable)


def refused(
    settings: ClientSettings, rule: str, error: BaseException, endings: Endings | None = None
) -> StreamLDAError:
    """Return the error for brokers that do not do what they must, with the reason of `endings`."""
    from kafka import errors

    reason, kind = type(error).__name__, SourceError
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        reason, kind = TOPIC_MISSING, SourceAwayError
    elif is_away(errors, error) or isinstance(error, OSError):
        reason = name_cause(error) if endings is None else endings.reason()
        kind = SourceAccessError if is_no_access(reason) else SourceAwayError
        if kind is SourceAccessError:
            rule = "accept the login" if "login" in reason else "have a trusted certificate"
    elif isinstance(error, errors.AuthorizationError | errors.SaslAuthenticationFailedError):
        kind = SourceAccessError
    elif isinstance(error, ValueError | AssertionError | errors.KafkaConfigurationError):
        kind = SourceRefusedError
    found = failure(
        f"the brokers must {rule}",
        bootstrap_servers=settings.bootstrap_servers,
        topic=settings.topic,
        reason=reason,
        remedy=(REMEDIES | NO_ACCESS).get(reason.partition(":")[0], CHECK),
        error=kind,
    )
    # The text of an error of the package may quote settings, so only the reason is told.
    return with_reason(found, reason)


@contextmanager
def asking(settings: ClientSettings, rule: str, endings: Endings | None = None) -> Iterator[None]:
    """Turn errors of the package into those of `refused`."""
    from kafka import errors

    try:
        yield
    except errors.KafkaError as error:
        raise refused(settings, rule, error, endings) from error


def show_offsets(consumer: Any, topic: str, offsets: Mapping[int, int], note: str) -> None:
    """Show offsets and a note under the group of a consumer; a failure is only logged."""
    from kafka.structs import OffsetAndMetadata, TopicPartition

    def log_commit(_: object, response: object) -> None:
        if isinstance(response, Exception):
            why = type(response).__name__
            logger.warning("offsets are not shown to the group (%s); nothing is lost by it", why)

    rows = {TopicPartition(topic, n): OffsetAndMetadata(at, note, -1) for n, at in offsets.items()}
    consumer.commit_async(rows, callback=log_commit)


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
    following: BaseException | None = error
    for _ in range(9):
        if following is None:
            return
        yield following
        inner = following.args[0] if following.args else None
        first = inner if isinstance(inner, BaseException) else None
        following = first or following.__cause__ or following.__context__


def is_no_access(reason: str) -> bool:
    """Return whether waiting cannot help."""
    return reason.partition(":")[0] in NO_ACCESS


class Endings:
    """The last connection of one client of the package that ended by itself, and why."""

    def __init__(self) -> None:
        self._at, self._reason = 0.0, NO_ANSWER
        #: A login that is refused ends the first connecting: to try again locks accounts.
        self.connecting = True

    def watch(self, manager: Any) -> None:
        """Note what ends each connection of a manager of the package."""
        get = manager.get_connection

        def watched(node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
            known = manager._conns.get(node_id)
            # A server that never answers takes no more than its share of the time for all.
            longest = manager.socket_connection_setup_timeout_ms(node_id)
            found = get(node_id, min(timeout_ms or longest, longest), **options)
            if found is not known:
                found.close_future.add_errback(partial(self._note, manager, found))
            return found

        manager.get_connection = watched
        manager._build_transport = partial(_build_transport, manager)

    def _note(self, manager: Any, connection: Any, error: Exception) -> None:
        from kafka import errors

        # Closed by the package itself.
        own = isinstance(error, errors.KafkaConnectionError) and not error.args
        if own and len([*_behind(error)]) == 1:
            return
        self._at, self._reason = monotonic(), name_cause(error)
        if self.connecting and is_no_access(self._reason):
            manager._net.call_soon(manager.close)
        elif self._reason.startswith("closed:") and (cause := _closed_login(connection)):
            # Brokers that restart close one, and then refuse connections; tried until the end.
            self._reason = f"{cause}:{self._reason.partition(':')[2]}"

    def reason(self, since: float = 0.0) -> str:
        """Return why no answer came since a time of `monotonic`."""
        return self._reason if self._at > since else NO_ANSWER


def _closed_login(connection: Any) -> str:
    """Return the cause if the first request that was not answered tells it.

    Before it come one question for versions, or two, and with a login that for the mechanism.
    """
    waiting = connection.parser.in_flight_requests if connection.parser else ()
    number = waiting[0].correlation_id if waiting else 0
    is_in = connection.init_future.succeeded()
    if connection.sasl_enabled:
        return "login-refused" if number >= 3 and not is_in else ""
    return "login-wanted" if 2 <= number <= 3 and is_in else ""


async def _build_transport(manager: Any, node: Any, timeout_at: float | None = None) -> Any:
    """Connect in time; the package's own would wait for a TLS handshake without end."""
    from kafka.net.inet import create_connection
    from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

    net, config = manager._net, manager.config
    options = config["socket_options"]
    there = await create_connection(net, node.host, node.port, options, timeout_at=timeout_at)
    if manager.ssl_enabled:
        context = config["ssl_context"]
        made = KafkaSSLTransport(net, there, host=node.host, ssl_context=context)
    else:
        made = KafkaTCPTransport(net, there, host=node.host)
    made._sock_recv = partial(_receive, made)
    waits = (partial(wait, timeout_at=timeout_at) for wait in (net.wait_read, net.wait_write))
    try:
        made._net = SimpleNamespace(**dict(zip(("wait_read", "wait_write"), waits, strict=True)))
        await made.handshake()
    except BaseException:
        made._net = net
        made.abort()
        raise
    made._net = net
    return made


def _receive(transport: Any) -> tuple[bytes, Any]:
    """Return what came before the end of a connection, and then the end.

    The package drops it, and with it the answer that refuses a login.
    """
    from kafka.errors import KafkaConnectionError

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
