"""TLS and SASL for a Kafka connection, and tokens of OAuth 2.0. Secrets are named, never held.

No error holds a secret, a token or a text of the token endpoint.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from time import monotonic
from urllib.parse import quote_plus, urlencode, urlsplit

from streamlda.errors import SourceAccessError, SourceAwayError, failure, one_of, require
from streamlda.stream.credentials import (
    MECHANISMS,
    PROTOCOLS,
    read_secret,
)
from streamlda_connectors.checks import with_reason
from streamlda_connectors.kafka.web import LOOPBACK, NoAnswer, ask, trust


@dataclass(frozen=True, slots=True)
class Security:
    """Encryption and login of a connection.

    A secret comes from a file (the first line) or from an environment variable, whose *names* stand
    here; it is read for each connection, so it can be rotated.

    Attributes
    ----------
    protocol : {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
        As in Kafka's own settings.
    mechanism : str, optional
        For the SASL protocols: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM (with
        the package botocore and the credentials and region that it finds) or GSSAPI (with the
        package gssapi and the ticket of this process).
    username : str, optional
        For PLAIN and SCRAM; with a `token_endpoint`, the id of the client.
    password_file, password_env : str, optional
        Where the password is, or the secret of the client; one of them.
    token_file, token_env : str, optional
        Where the token for OAUTHBEARER is that another program renews; one of them.
    token_endpoint : str, optional
        Address that gives tokens for OAUTHBEARER to a client.
    token_scope : str, optional
        Scope to ask the endpoint for.
    token_extensions : str, optional
        SASL extensions that go with tokens, ``name=value,name=value``.
    kerberos_service : str, optional
        Name of the brokers' service for GSSAPI, ``kafka`` by default.
    ca_file : str, optional
        Certificates to trust, PEM; those of the system by default.
    certificate_file, key_file : str, optional
        Of the client, PEM, if the broker asks for them.
    key_password_file, key_password_env : str, optional
        Where the password of `key_file` is, if it has one.

    Notes
    -----
    The name of the broker is always checked against its certificate. ``SASL_PLAINTEXT`` with
    ``PLAIN`` sends the password as it is: for a loopback or a trusted network only.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    token_endpoint: str | None = None
    token_scope: str | None = None
    token_extensions: str | None = None
    kerberos_service: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password_file: str | None = None
    key_password_env: str | None = None

    def __post_init__(self) -> None:
        one_of(PROTOCOLS, protocol=self.protocol)
        if self.sasl:
            one_of(MECHANISMS, mechanism=self.mechanism)
        certificates = self.ca_file or self.certificate_file or self.key_file
        endpoint = self.token_endpoint
        rules = {
            "set protocol to SASL_SSL for a login": self.sasl or not self.username,
            "set protocol to SSL or SASL_SSL for certificates": self.tls or not certificates,
            "name a token_endpoint by https:// and without a user, or on this machine": (
                endpoint is None or _is_safe(endpoint)
            ),
        }
        given = {name: value for name, value in asdict(self).items() if value is not None}
        for rule, holds in rules.items():
            require(holds, "settings of a connection must fit together", **given, remedy=rule)

    @property
    def sasl(self) -> bool:
        """True if a user logs in."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def read(self, secret: str) -> str:
        """Return a password, token or key_password, read now; it must not be stored."""
        file, variable = getattr(self, f"{secret}_file"), getattr(self, f"{secret}_env")
        # A key may have none.
        is_optional = secret == "key_password" and not (file or variable)
        return "" if is_optional else read_secret(file, variable)


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    by_tls = parts.scheme == "https" and parts.hostname
    here = parts.scheme == "http" and parts.hostname in LOOPBACK
    return bool(by_tls or here) and "@" not in parts.netloc


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings for reaching the brokers."""

    #: ``host:port``, several with commas.
    bootstrap_servers: str
    #: The one topic to read or to write.
    topic: str
    #: Consumer group under which offsets are shown; none is ever read from it.
    group: str | None = None
    #: How often to look for new partitions.
    refresh_seconds: float = 60.0
    #: How long to wait for an answer when connecting and when asking for offsets.
    request_timeout_seconds: float = 10.0
    #: TLS and SASL.
    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        named = self.bootstrap_servers and self.topic
        require(named, "brokers and a topic must be named", topic=self.topic, remedy="name both")


#: Longest wait for a token, in seconds; shorter than a connection may take to be made.
TOKEN_SECONDS = 4.0
#: Part of its life after which a token is renewed, as Kafka's own clients do.
RENEW_AT = 0.8

#: Answers of an endpoint that knows the client not, or does not allow it what it asks for.
REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class TokenProvider:
    """Tokens for one client of the package; those of an endpoint are kept until they get old."""

    def __init__(self, security: Security, clock: Callable[[], float] = monotonic) -> None:
        self._security, self._clock = security, clock
        self._token, self._renew_at, self._ends_at = "", 0.0, 0.0

    def token(self) -> str:
        """Return a token that is valid now."""
        if self._security.token_endpoint is None:
            return self._security.read("token")
        now = self._clock()
        if not self._token or now >= self._renew_at:
            try:
                self._token, seconds = fetch_token(self._security)
                self._renew_at, self._ends_at = now + RENEW_AT * seconds, now + seconds
            except SourceAwayError:
                # The endpoint may be back before the token ends.
                if now >= self._ends_at:
                    raise
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return what goes with each token."""
        pairs = (self._security.token_extensions or "").split(",")
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name}


def fetch_token(security: Security) -> tuple[str, float]:
    """Return a new token of the endpoint, and its life in seconds."""
    client = quote_plus(security.username or ""), quote_plus(security.read("password"))
    asked = {"grant_type": "client_credentials", "scope": security.token_scope}
    form = urlencode({name: value for name, value in asked.items() if value}).encode()
    try:
        found = ask(security.token_endpoint or "", client, trust(None), TOKEN_SECONDS, form)
    except NoAnswer as answer:
        word = "login-refused" if answer.status in REFUSALS else "token"
        if answer.reason == ssl.SSLCertVerificationError.__name__:
            word = "untrusted-certificate"
        problem = f"{word}:{answer.reason}"
    else:
        token = found.get("access_token") if isinstance(found, dict) else None
        if isinstance(token, str):
            seconds = found.get("expires_in")
            # Without an end it is asked for at each login.
            life = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0
            return token, life
        problem = "token:missing"
    error = SourceAwayError if problem.startswith("token:") else SourceAccessError
    found = failure(
        "the endpoint must give a token",
        token_endpoint=security.token_endpoint,
        reason=problem,
        error=error,
    )
    raise with_reason(found, problem)
