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
from importlib.util import find_spec
from time import monotonic
from typing import Any

from streamlda.checks import failure, require
from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    SourceError,
    SourceRefusedError,
    StreamLDAError,
    errno_of,
)
from streamlda.stream.credentials import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, PASSWORD_MECHANISMS
from streamlda_connectors.checks import check, with_reason
from streamlda_connectors.kafka.client import ClientSettings
from streamlda_connectors.kafka.security import Security, TokenProvider

logger = logging.getLogger(__name__)

#: What kafka-python needs for some logins, and does not bring.
PACKAGES = {AWS_MSK_IAM: "botocore", GSSAPI: "gssapi"}

#: Longest time to close a connection, in seconds.
CLOSE_SECONDS = 2.0

#: Longest time to connect and log in. After an outage a connection that was begun before its end
#: is waited for so long, twice in a row: that of the metadata and that of the records.
SETUP_SECONDS = 5.0


def load(purpose: str) -> Any:
    """Return the package with crc32c, without which sums take ten times as long; or raise."""
    for package, distribution in (("kafka", "kafka-python"), ("crc32c", "crc32c")):
        if find_spec(package) is None:
            raise MissingExtraError(distribution, "kafka", purpose)
    import kafka

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
        options["ssl_context"] = tls_context(security)
    if security.sasl:
        options |= {"sasl_mechanism": security.mechanism, **login(security)}
    return options


def login(security: Security) -> dict[str, Any]:
    """Return who logs in."""
    package = PACKAGES.get(security.mechanism or "")
    require(
        package is None or find_spec(package),
        "the login needs a package that is not installed",
        mechanism=security.mechanism,
        package=package,
        remedy=f"pip install {package}",
    )
    if security.mechanism == OAUTHBEARER:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        AbstractTokenProvider.register(TokenProvider)
        # A file that cannot be read is no matter of the brokers.
        if security.token_endpoint is None:
            security.token()
        return {"sasl_oauth_token_provider": TokenProvider(security)}
    if security.mechanism == GSSAPI:
        return {"sasl_kerberos_service_name": security.kerberos_service or "kafka"}
    if security.mechanism in PASSWORD_MECHANISMS:
        password = security.password()
        return {"sasl_plain_username": security.username, "sasl_plain_password": password}
    return {}


def tls_context(security: Security) -> ssl.SSLContext:
    """Return how to trust brokers, and what to show them."""
    context, problem = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ""
    password = security.key_password()
    try:
        if security.ca_file:
            context.load_verify_locations(security.ca_file)
        else:
            context.load_default_certs()
        if security.certificate_file:
            # Never asked for on the terminal.
            context.load_cert_chain(
                security.certificate_file, security.key_file, lambda: password or ""
            )
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    check(
        not problem,
        "certificates",
        ca_file=security.ca_file,
        certificate_file=security.certificate_file,
        key_file=security.key_file,
        problem=problem,
    )
    return context


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
        remedy=REMEDIES.get(reason.partition(":")[0], CHECK),
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

    rows = {TopicPartition(topic, n): OffsetAndMetadata(at, note, -1) for n, at in offsets.items()}
    consumer.commit_async(rows, callback=_log_commit)


def _log_commit(offsets: object, response: object) -> None:
    if isinstance(response, Exception):
        logger.warning(
            "offsets could not be shown to the group (%s); nothing is lost by it",
            type(response).__name__,
        )


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
    "untrusted-certificate": "name the authority in kafka.ca_file (that of a token endpoint in "
    "SSL_CERT_FILE), and connect to the name that the certificate has",
    "login-refused": "correct the user, the password or the token",
    "login-wanted": "set kafka.protocol to SASL_SSL or SASL_PLAINTEXT, and a user",
    "login-mechanism": "correct kafka.mechanism, or let the brokers offer it",
    "no-login-wanted": "set kafka.protocol to PLAINTEXT or SSL: there is no login at this port",
    "login-impossible": "check the files, tickets and credentials of the login",
    "token": "check kafka.token_endpoint, and the client there",
    TOPIC_MISSING: "create it, or correct its name",
}
CHECK = "check that the brokers run, their address, and the security settings"

#: Causes that no waiting ends.
NO_ACCESS = {
    *("untrusted-certificate", "login-refused", "login-wanted", "login-mechanism"),
    *("no-login-wanted", "login-impossible"),
}

#: Connections in a row that brokers closed where they should have answered a login, or the first
#: request without one: brokers that restart close one, and then refuse connections.
CLOSED_LOGINS = 3

#: For how long a first connecting continues after each server was tried, in seconds: brokers that
#: only restart may be there by then, and who waits longer asks again.
NAMING_SECONDS = 3.0


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
        #: Connections in a row that were closed where a login should have been answered.
        self._closed_logins = 0
        #: Servers to which a connection ended, and when the first did.
        self._tried: set[Any] = set()
        self._tried_since = 0.0

    def watch(self, manager: Any) -> None:
        """Note what ends each connection of a manager of the package."""
        get = manager.get_connection

        def watched(node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
            known = manager._conns.get(node_id)
            # A server that never answers takes no more than its share of the time for all.
            longest = manager.socket_connection_setup_timeout_ms(node_id)
            found = get(node_id, min(timeout_ms or longest, longest), **options)
            if found is not known:
                self._watch(manager, found)
            return found

        manager.get_connection = watched
        manager._build_transport = partial(_build_transport, manager)

    def _watch(self, manager: Any, connection: Any) -> None:
        from kafka import errors

        send = connection._send_request
        first: list[tuple[str, Any]] = []

        def sent(request: Any, **options: Any) -> Any:
            future = send(request, **options)
            name = type(request).__name__
            first.append((name, future))
            if not name.startswith(("ApiVersions", "Sasl")):
                # The login is over, if there was one.
                connection._send_request = send
                future.add_callback(forget)
            return future

        def forget(_: Any) -> None:
            self._closed_logins = 0
            first.clear()

        def note(error: Exception) -> None:
            # Closed by the package itself.
            own = isinstance(error, errors.KafkaConnectionError) and not error.args
            if own and len([*_behind(error)]) == 1:
                return
            self._at, self._reason = monotonic(), name_cause(error)
            login = _closed_login(first) if self._reason.startswith("closed:") else ""
            self._closed_logins = self._closed_logins + 1 if login else 0
            if self._closed_logins >= CLOSED_LOGINS:
                self._reason = f"{login}:{self._reason.partition(':')[2]}"
            self._tried.add(connection.node_id)
            self._tried_since = self._tried_since or self._at
            if self.connecting and (is_no_access(self._reason) or self._is_enough(manager)):
                manager._net.call_soon(manager.close)

        connection._send_request = sent
        connection.close_future.add_errback(note)

    def _is_enough(self, manager: Any) -> bool:
        """Return whether connections to all servers have ended, again and again."""
        if 0 < self._closed_logins < CLOSED_LOGINS:
            return False
        servers = {broker.node_id for broker in manager.cluster.bootstrap_brokers()}
        return servers <= self._tried and self._at - self._tried_since > NAMING_SECONDS

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

    The package drops it, and with it the answer that refuses a login.
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


def _closed_login(first: list[tuple[str, Any]]) -> str:
    """Return the cause if the first requests of a closed connection tell it."""
    answered = [name for name, future in first if future.succeeded()]
    missing = next((name for name, future in first if not future.succeeded()), "")
    if missing.startswith(("SaslAuthenticate", "SaslBytes")):
        return "login-refused"
    versions = [name for name in answered if name.startswith("ApiVersions")]
    if missing and versions and answered == versions and not missing.startswith("Sasl"):
        return "login-wanted"
    return ""


def is_no_access(reason: str) -> bool:
    """Return whether waiting cannot help."""
    return reason.partition(":")[0] in NO_ACCESS
