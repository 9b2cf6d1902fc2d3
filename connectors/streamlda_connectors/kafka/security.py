"""TLS and SASL for a Kafka connection, and tokens of OAuth 2.0. Secrets are named, never held.

No error holds a secret, a token or a text of the token endpoint.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from streamlda.checks import failure, one_of, require
from streamlda.errors import SourceAccessError, SourceAwayError, StreamLDAError, errno_of
from streamlda.stream.credentials import (
    AWS_MSK_IAM,
    MECHANISMS,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PROTOCOLS,
    read_secret,
)
from streamlda_connectors.checks import with_reason

#: Hosts to which a secret may go without TLS.
LOOPBACK = ("127.0.0.1", "::1", "localhost")


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
        by_token = self.sasl and self.mechanism == OAUTHBEARER
        by_client = by_token and self.token_endpoint is not None
        by_password = by_client or (self.sasl and self.mechanism in PASSWORD_MECHANISMS)
        given = {name: value for name, value in asdict(self).items() if value is not None}
        passwords = (self.password_file, self.password_env).count(None)
        tokens = (self.token_file, self.token_env).count(None)
        pairs = (self.token_extensions or "=").split(",")
        for holds, rule in (
            (
                self.sasl or not (self.mechanism or self.username),
                "set protocol to SASL_SSL for a login",
            ),
            (
                self.tls or not (self.ca_file or self.certificate_file or self.key_file),
                "set protocol to SSL or SASL_SSL for certificates",
            ),
            (
                not by_password or (self.username and passwords == 1),
                "set username, and either password_file or password_env",
            ),
            (
                not by_token or by_client or tokens == 1,
                "set either token_file or token_env, or a token_endpoint and its client",
            ),
            (
                self.mechanism != AWS_MSK_IAM or self.tls,
                f"set protocol to SASL_SSL for {AWS_MSK_IAM}",
            ),
            (
                self.token_endpoint is None or _is_safe(self.token_endpoint),
                "the address of a token_endpoint is https:// without a user, or on this machine",
            ),
            (all("=" in pair for pair in pairs), "token_extensions are name=value,name=value"),
            (
                (self.certificate_file is None) == (self.key_file is None),
                "set certificate_file and key_file together",
            ),
            (
                not (self.key_password_file and self.key_password_env),
                "set either key_password_file or key_password_env",
            ),
        ):
            require(holds, "settings of a connection must fit together", **given, remedy=rule)

    @classmethod
    def of(cls, security: Self | Mapping[str, Any] | None) -> Self:
        """Return settings from a mapping of the attributes; None is a plain connection."""
        if security is None:
            return cls()
        if not isinstance(security, Mapping):
            return security
        check_names(cls, security)
        return cls(**security)

    @property
    def sasl(self) -> bool:
        """True if a user logs in."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def password(self) -> str | None:
        """Return the password of the user, read now; it must not be stored or shown."""
        file, variable = self.password_file, self.password_env
        return read_secret(file, variable) if file or variable else None

    def token(self) -> str:
        """Return the token that another program renews, read now."""
        return read_secret(self.token_file, self.token_env)

    def key_password(self) -> str | None:
        """Return the password of the client's key, read now."""
        file, variable = self.key_password_file, self.key_password_env
        return read_secret(file, variable) if file or variable else None


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    by_tls = parts.scheme == "https" and parts.hostname
    here = parts.scheme == "http" and parts.hostname in LOOPBACK
    return bool(by_tls or here) and "@" not in parts.netloc


def check_names(settings: Any, given: Mapping[str, Any]) -> None:
    """Raise `InvalidSettingError` if one of the names is no field of a dataclass of settings."""
    known = settings.__dataclass_fields__
    require(
        set(given) <= set(known),
        f"options must be among {', '.join(known)}",
        unknown=", ".join(sorted(set(given) - set(known))),
        remedy="correct the name",
    )


#: Longest wait for a token, in seconds; shorter than a connection may take to be made.
TOKEN_SECONDS = 4.0
#: Part of its life after which a token is renewed, as Kafka's own clients do.
RENEW_AT = 0.8
#: Longest answer that is read.
MOST_BYTES = 2**20

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
            return _checked(self._security, self._security.token())
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
        return dict(pair.split("=", 1) for pair in pairs if pair)


class _NoRedirect(HTTPRedirectHandler):
    """Refusal to send the secret of the client elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the answer counts as an error."""


def fetch_token(security: Security) -> tuple[str, float]:
    """Return a new token of the endpoint, and its life in seconds."""
    endpoint = security.token_endpoint or ""
    client = f"{quote_plus(security.username or '')}:{quote_plus(security.password() or '')}"
    asked = {"grant_type": "client_credentials"}
    if security.token_scope:
        asked["scope"] = security.token_scope
    request = Request(
        endpoint,
        urlencode(asked).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(client.encode()).decode()}",
            "Accept": "application/json",
        },
    )
    problem, answer = "", b""
    try:
        with _opener(endpoint).open(request, timeout=TOKEN_SECONDS) as response:
            answer = response.read(MOST_BYTES)
    except HTTPError as error:
        error.close()
        refused = error.code in REFUSALS
        problem = f"{'login-refused' if refused else 'token'}:HTTP{error.code}"
    except OSError as error:
        cause = error.reason if isinstance(error, URLError) else error
        name = errno_of(cause) if isinstance(cause, OSError) else None
        untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        word = "untrusted-certificate" if untrusted else "token"
        problem = f"{word}:{name or type(cause).__name__}"
    if problem:
        raise _failed(security, "give a token", problem)
    found: Any = None
    try:
        found = json.loads(answer)
    except ValueError:
        problem = "token:ValueError"
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
        raise _failed(security, "answer with an access_token", problem or "token:missing")
    seconds = found.get("expires_in")
    # Without an end it is asked for at each login.
    life = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0
    return _checked(security, found["access_token"]), life


def _checked(security: Security, token: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise _failed(security, "be printable, and without blanks", "token:malformed")
    return token


def _opener(endpoint: str) -> OpenerDirector:
    handlers = [_NoRedirect(), HTTPSHandler(context=ssl.create_default_context())]
    # What goes without TLS stays on this machine.
    own = [ProxyHandler({})] if urlsplit(endpoint).scheme == "http" else []
    return build_opener(*handlers, *own)


def _failed(security: Security, rule: str, reason: str) -> StreamLDAError:
    refused = not reason.startswith("token:")
    found = failure(
        f"the {'token endpoint' if security.token_endpoint else 'token'} must {rule}",
        token_endpoint=security.token_endpoint,
        token_file=security.token_file,
        reason=reason,
        error=SourceAccessError if refused else SourceAwayError,
    )
    return with_reason(found, reason)
