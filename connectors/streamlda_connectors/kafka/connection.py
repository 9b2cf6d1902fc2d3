"""Arguments of all classes of the package kafka-python, and causes of connections that end.

kafka-python tries again without end and raises nothing but a timeout. Each connection knows better,
and is asked here. A cause is a word and a class or errno, never a text of the package.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any

from streamlda import errors
from streamlda.stream.credentials import OAUTHBEARER, PASSWORD_MECHANISMS
from streamlda_connectors.checks import fault, with_reason
from streamlda_connectors.kafka.partitions import Identity
from streamlda_connectors.kafka.security import ClientSettings, TokenProvider, trust

#: Longest time to close a connection, in seconds.
CLOSE_SECONDS = 2.0

#: Longest time to connect and log in. After an outage a connection that was begun before its end
#: is waited for so long, twice in a row: that of the metadata and that of the records.
SETUP_SECONDS = 5.0

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
    "closed": "check kafka.protocol and the login: brokers that expect others close connections",
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
        own = security.certificate_file, security.key_file
        options["ssl_context"] = trust(security.ca_file, *own)
    if not security.sasl:
        return options
    options["sasl_mechanism"] = security.mechanism
    options["sasl_kerberos_service_name"] = security.kerberos_service or "kafka"
    if security.mechanism == OAUTHBEARER:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        AbstractTokenProvider.register(TokenProvider)
        # A file that cannot be read is no matter of the brokers.
        if security.token_endpoint is None:
            security.read("token")
        options["sasl_oauth_token_provider"] = TokenProvider(security)
    elif security.mechanism in PASSWORD_MECHANISMS:
        options["sasl_plain_username"] = security.username
        options["sasl_plain_password"] = security.read("password")
    return options


class Brokers:
    """Brokers of one topic: how clients connect, and why their connections fail and end."""

    def __init__(self, settings: ClientSettings, purpose: str) -> None:
        try:
            import kafka
        except ImportError as error:
            raise errors.MissingExtraError("kafka-python", "kafka", purpose) from error
        # At DEBUG it logs whole records, which no level of the whole program may bring about.
        own = logging.getLogger(kafka.__name__)
        if own.level == logging.NOTSET:
            own.setLevel(logging.WARNING)
        self.kafka, self.settings = kafka, settings
        #: The longest wait for an answer.
        self.timeout_ms = milliseconds(settings.request_timeout_seconds)
        #: When a connection ended last by itself, and why.
        self._ended_at, self._reason = 0.0, NO_ANSWER
        #: A login that is refused ends connecting: to try again locks accounts.
        self._connecting = False

    @contextmanager
    def open_connection(self) -> Iterator[dict[str, Any]]:
        """Give the options to connect with; on an error, close what was opened, and name it."""
        kafka, made = self.kafka, list[Any]()
        self._ended_at, self._connecting = 0.0, True

        def keep(**options: Any) -> Any:
            make = kafka.KafkaConsumer.DEFAULT_CONFIG["kafka_client"]
            setup = min(milliseconds(SETUP_SECONDS), self.timeout_ms)
            client = make(
                **options,
                # It would warn of each moment in which its thread has to wait for a processor.
                slow_task_threshold_secs=0,
                socket_connection_setup_timeout_ms=setup,
                socket_connection_setup_timeout_max_ms=setup,
            )
            made.append(client)
            self._watch(client._manager)
            # Its own option does not reach what asks: a topic that was deleted would come back.
            client.cluster.config["allow_auto_create_topics"] = False
            return client

        options = {**connection(self.settings), "kafka_client": keep}
        try:
            yield options
        except (kafka.errors.KafkaError, OSError, ValueError, AssertionError) as error:
            for client in made:
                client.close()
            if isinstance(error, errors.SourceError):
                raise
            raise self.make_error("cannot be reached", error) from error
        self._connecting = False

    def partition(self, number: int) -> Any:
        """Return the name of the package for a partition of the topic."""
        return self.kafka.TopicPartition(self.settings.topic, number)

    def entries(self, offsets: Mapping[int, int], note: str = "") -> dict[Any, Any]:
        """Return offsets of partitions, with a note, as the group takes them."""
        entry = self.kafka.structs.OffsetAndMetadata
        return {self.partition(number): entry(at, note, -1) for number, at in offsets.items()}

    def make_producer(self, shared: dict[str, Any], **options: Any) -> Any:
        """Return a producer of the package, which sends messages of 20 ms together."""
        more = {"linger_ms": 20, "batch_size": 2**16, "max_block_ms": self.timeout_ms}
        return self.kafka.KafkaProducer(**shared, **options, **more, metrics_enabled=False)

    def describe(self, options: dict[str, Any], name: str) -> tuple[Identity, set[int]]:
        """Return which topic has a name, and its partitions; raise `SourceError` if none has."""
        with closing(self.kafka.KafkaAdminClient(**options)) as admin:
            (topic,) = admin.describe_topics([name])
            cluster = admin.describe_cluster()["cluster_id"]
        code = topic["error_code"] or (0 if topic["partitions"] else 3)
        if code == self.kafka.errors.UnknownTopicOrPartitionError.errno:
            raise with_reason(fault("topic", topic=name), TOPIC_MISSING)
        if code:
            raise self.kafka.errors.for_code(code)
        partitions = {partition["partition_index"] for partition in topic["partitions"]}
        return Identity(str(cluster), name, str(topic.get("topic_id"))), partitions

    @contextmanager
    def name_errors(self, problem: str) -> Iterator[None]:
        """Turn errors of the package into those of `make_error`."""
        try:
            yield
        except self.kafka.errors.KafkaError as error:
            raise self.make_error(problem, error) from error

    def make_error(self, problem: str, error: BaseException) -> errors.StreamLDAError:
        """Return the error for a problem of the brokers, with the reason."""
        settings, known = self.settings, self.kafka.errors
        reason, kind = type(error).__name__, errors.SourceError
        if isinstance(error, known.UnknownTopicOrPartitionError):
            reason, kind = TOPIC_MISSING, errors.SourceAwayError
        elif isinstance(error, OSError) or getattr(error, "retriable", False):
            reason = self._reason if self._ended_at else name_cause(error)
            kind = errors.SourceAwayError
            if reason.partition(":")[0] in NO_ACCESS:
                kind = errors.SourceAccessError
                problem = "refuse the login" if "login" in reason else "have no trusted certificate"
        elif isinstance(error, known.AuthorizationError | known.SaslAuthenticationFailedError):
            kind = errors.SourceAccessError
        elif isinstance(error, ValueError | AssertionError | known.KafkaConfigurationError):
            kind = errors.SourceRefusedError
        about = {"bootstrap_servers": settings.bootstrap_servers, "topic": settings.topic}
        about["remedy"] = (REMEDIES | NO_ACCESS).get(reason.partition(":")[0], CHECK)
        found = errors.failure(f"the brokers {problem}", **about, reason=reason, error=kind)
        # The text of an error of the package may quote settings, so only the reason is told.
        return with_reason(found, reason)

    def reason_since(self, since: float) -> str:
        """Return why no answer came since a time of `monotonic`."""
        return self._reason if self._ended_at > since else NO_ANSWER

    def _watch(self, manager: Any) -> None:
        """Note what ends each connection of a manager of the package."""
        get = manager.get_connection

        def watch(node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
            known = manager._conns.get(node_id)
            # A server that never answers takes no more than its share of the time for all.
            longest = manager.socket_connection_setup_timeout_ms(node_id)
            found = get(node_id, min(timeout_ms or longest, longest), **options)
            if found is not known:
                found.close_future.add_errback(partial(self._note_end, manager, found))
            return found

        manager.get_connection = watch
        manager._build_transport = partial(_build_transport, manager)

    def _note_end(self, manager: Any, ended: Any, error: Exception) -> None:
        # Closed by the package itself.
        own = isinstance(error, self.kafka.errors.KafkaConnectionError) and not error.args
        if own and len([*_behind(error)]) == 1:
            return
        reason = name_cause(error)
        # The last of several attempts to connect runs out of time, whatever ended the others.
        if self._connecting and self._ended_at and reason.startswith(NO_ANSWER):
            return
        self._reason = reason
        if self._reason.startswith("closed:") and _wants_login(ended):
            # Brokers that restart close one, and then refuse connections; tried until the end.
            self._reason = f"login-wanted:{self._reason.partition(':')[2]}"
        elif self._connecting and self._reason.partition(":")[0] in NO_ACCESS:
            manager._net.call_soon(manager.close)
        self._ended_at = monotonic()


def _wants_login(ended: Any) -> bool:
    """Return whether a broker closed at the first request behind one or two for versions."""
    waiting = ended.parser.in_flight_requests if ended.parser else ()
    number = waiting[0].correlation_id if waiting else 0
    return not ended.sasl_enabled and number in (2, 3) and bool(ended.init_future.succeeded())


#: Causes by the name of a class; those of the package are loaded with it.
CAUSES = {
    "SSLCertVerificationError": "untrusted-certificate",
    "SSLError": "tls",
    "SaslAuthenticationFailedError": "login-refused",
    "UnsupportedSaslMechanismError": "login-mechanism",
    "IllegalSaslStateError": "no-login-wanted",
    "RequestTimedOutError": NO_ANSWER,
    "KafkaTimeoutError": NO_ANSWER,
    "KafkaProtocolError": "wrong-protocol",
}


def name_cause(error: BaseException) -> str:
    """Return ``cause:detail`` of what ended a connection; the detail is an errno or a class."""
    for each in _behind(error):
        if isinstance(each, errors.SourceError) and each.reason:
            return each.reason
        for kind in type(each).__mro__:
            if kind.__name__ in CAUSES:
                return f"{CAUSES[kind.__name__]}:{type(each).__name__}"
    number = errors.name_errno(error)
    if number is not None:
        names = {"ECONNREFUSED": "refused", "ETIMEDOUT": NO_ANSWER, "ECONNRESET": "closed"}
        return f"{names.get(number, 'unreachable')}:{number}"
    # Words of the package that stand for a class.
    said = str(error.args[0]) if error.args else ""
    texts = {"DNS": "name-not-found", "Connection timed out": NO_ANSWER, "socket dis": "closed"}
    for text, cause in texts.items():
        if said.startswith(text):
            return f"{cause}:{'gaierror' if text == 'DNS' else type(error).__name__}"
    cause = "lost" if hasattr(error, "retriable") else "login-impossible"
    return f"{cause}:{type([*_behind(error)][-1]).__name__}"


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


async def _build_transport(manager: Any, node: Any, timeout_at: float | None = None) -> Any:
    """Connect in time; the package's own would wait for a TLS handshake without end."""
    from kafka.net.inet import create_connection
    from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

    net, options = manager._net, manager.config["socket_options"]
    there = await create_connection(net, node.host, node.port, options, timeout_at=timeout_at)
    if manager.ssl_enabled:
        context = manager.config["ssl_context"]
        made = KafkaSSLTransport(net, there, host=node.host, ssl_context=context)
    else:
        made = KafkaTCPTransport(net, there, host=node.host)
    made._sock_recv = partial(_receive, made._sock_recv)
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


def _receive(receive: Callable[[], tuple[bytes, Any]]) -> tuple[bytes, Any]:
    """Return what came before the end of a connection, and then the end, read once more."""
    # The package drops what came, and with it the answer that refuses a login.
    data, error = receive()
    return data, None if data else error
