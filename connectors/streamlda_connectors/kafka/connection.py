"""Arguments of all classes of the package kafka-python, and the meaning of its errors."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from streamlda.checks import failure, require
from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    SourceError,
    SourceRefusedError,
    StreamLDAError,
)
from streamlda.stream.credentials import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, PASSWORD_MECHANISMS
from streamlda_connectors.checks import check, with_reason
from streamlda_connectors.kafka.client import ClientSettings
from streamlda_connectors.kafka.endings import (
    TOPIC_MISSING,
    Endings,
    is_no_access,
    name_cause,
    remedy_of,
)
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.tokens import TokenProvider

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
        remedy=remedy_of(reason),
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
