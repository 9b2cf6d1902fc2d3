"""What every class of the package kafka-python is made with, and what its errors mean for us."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
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
from streamlda_connectors.kafka.client import ClientSettings
from streamlda_connectors.kafka.security import Security

#: Longest time to close a connection, in seconds.
CLOSE_SECONDS = 2.0


def load(purpose: str) -> Any:
    """Return the package, or raise `MissingExtraError`.

    Without crc32c the package checks sums in Python, at a tenth of the speed.
    """
    for package, distribution in (("kafka", "kafka-python"), ("crc32c", "crc32c")):
        if find_spec(package) is None:
            raise MissingExtraError(distribution, "kafka", purpose)
    import kafka

    # At DEBUG it logs whole records, which no level of the whole program may bring about.
    logger = logging.getLogger(kafka.__name__)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
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
        "client_id": settings.client_id,
        "request_timeout_ms": max(2, milliseconds(settings.request_timeout_seconds)),
        "metadata_max_age_ms": max(1, milliseconds(settings.refresh_seconds)),
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": security.protocol,
    }
    if security.tls:
        options["ssl_context"] = tls_context(security)
    if security.sasl:
        options |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": security.password(),
        }
    return options


class _Socket(ssl.SSLSocket):
    """Tells its context of a broker that is not trusted: the package only tries again.

    It does not close the socket then, either.
    """

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except ssl.SSLCertVerificationError:
            if isinstance(self.context, _Context):
                self.context.untrusted = True
            self.close()
            raise


class _Context(ssl.SSLContext):
    untrusted = False
    sslsocket_class = _Socket


def tls_context(security: Security) -> _Context:
    """Return how to trust brokers, and what to show them."""
    context, problem = _Context(ssl.PROTOCOL_TLS_CLIENT), ""
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
    require(
        not problem,
        "the files of certificates and keys must be readable, and in PEM",
        ca_file=security.ca_file,
        certificate_file=security.certificate_file,
        key_file=security.key_file,
        problem=problem,
        remedy="correct their names, permissions, contents or password",
    )
    return context


@contextmanager
def connecting(kafka: Any, settings: ClientSettings) -> Iterator[dict[str, Any]]:
    """Give the options to connect with; on an error, close what was opened and name the brokers.

    A consumer or producer that cannot be made leaves its thread and sockets behind.
    """
    made: list[Any] = []

    def keep(**options: Any) -> Any:
        make = kafka.KafkaConsumer.DEFAULT_CONFIG["kafka_client"]
        # It would warn of each moment in which its thread has to wait for a processor.
        client = make(**options, slow_task_threshold_secs=0)
        made.append(client)
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
        if getattr(options.get("ssl_context"), "untrusted", False):
            raise refusal(
                settings,
                "have a trusted certificate",
                "SSLCertVerificationError",
                SourceAccessError,
            ) from error
        raise refused(settings, "be reachable", error) from error


def is_away(errors: Any, error: BaseException) -> bool:
    """Return whether an error says that brokers do not answer, or not yet."""
    return isinstance(error, errors.KafkaError) and bool(error.retriable)


def refused(settings: ClientSettings, rule: str, error: BaseException) -> StreamLDAError:
    """Return the error for brokers that do not do what they must."""
    from kafka import errors

    no_access = (
        *(errors.AuthorizationError, errors.SaslAuthenticationFailedError),
        *(errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError),
    )
    kind = SourceError
    if is_away(errors, error) or isinstance(error, OSError):
        kind = SourceAwayError
    elif isinstance(error, no_access):
        kind = SourceAccessError
    elif isinstance(error, ValueError | AssertionError | errors.KafkaConfigurationError):
        kind = SourceRefusedError
    return refusal(settings, rule, type(error).__name__, kind)


def refusal(
    settings: ClientSettings, rule: str, error_type: str, kind: type[SourceError]
) -> StreamLDAError:
    """Return an error of brokers; the text of a package's own may quote settings."""
    return failure(
        f"the brokers must {rule}",
        bootstrap_servers=settings.bootstrap_servers,
        topic=settings.topic,
        error_type=error_type,
        remedy="check that they run, the address, and the security settings",
        error=kind,
    )
