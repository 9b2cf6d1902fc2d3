"""TLS and SASL for connections, and servers that give tokens and schemas by HTTP.

Secrets are named, never held. No error holds a secret, a token or a text of a server.
"""

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from time import monotonic
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import orjson

from streamlda import errors
from streamlda.stream.credentials import MECHANISMS, PROTOCOLS, read_secret
from streamlda_connectors.checks import fault, with_reason

#: Hosts to which a secret may go without TLS, and not by a proxy.
LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: Longest answer of a server that is read.
MOST_BYTES = 16 * 2**20


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
        Of the client, PEM, if the broker asks for them; the key without a password.

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

    def __post_init__(self) -> None:
        errors.one_of(PROTOCOLS, protocol=self.protocol)
        if self.sasl:
            errors.one_of(MECHANISMS, mechanism=self.mechanism)
        certificates = self.ca_file or self.certificate_file or self.key_file
        endpoint, rule = self.token_endpoint, "settings of the connection do not fit together"
        for holds, remedy in (
            (self.sasl or not self.username, "set protocol to SASL_SSL for a login"),
            (self.tls or not certificates, "set protocol to SSL or SASL_SSL for certificates"),
            (
                endpoint is None or _is_safe(endpoint),
                "name a token_endpoint by https:// and without a user, or on this machine",
            ),
        ):
            errors.require(holds, rule, protocol=self.protocol, remedy=remedy)

    @property
    def sasl(self) -> bool:
        """True if a user logs in."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def read(self, secret: str) -> str:
        """Return a password or token, read now; it must not be stored."""
        return read_secret(getattr(self, f"{secret}_file"), getattr(self, f"{secret}_env"))


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
    security: Security = field(default_factory=Security)


class NoAnswer(Exception):
    """Failure of a server to answer; the `reason` is an errno or a class name, never a text."""

    def __init__(self, reason: str, status: int = 0, body: bytes = b"") -> None:
        super().__init__(reason)
        self.reason, self.status, self.body = reason, status, body

    @property
    def is_untrusted(self) -> bool:
        """True if the server has no certificate that is trusted."""
        return self.reason == ssl.SSLCertVerificationError.__name__


class _NoRedirect(HTTPRedirectHandler):
    """Refusal to send a secret elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the answer counts as an error."""


def trust(
    ca_file: str | None, certificate: str | None = None, key: str | None = None
) -> ssl.SSLContext:
    """Return the TLS context: certificates to trust (default: the system's), and our own."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate:
            # A password is never asked for on the terminal.
            context.load_cert_chain(certificate, key, "")
        return context
    except (OSError, ValueError) as error:
        about = {"certificates": (certificate, key), "problem": type(error).__name__}
        raise fault("certificates", ca_file=ca_file, **about) from None


def ask(
    url: str,
    login: tuple[str, str] | None,
    context: ssl.SSLContext,
    seconds: float,
    form: bytes | None = None,
) -> Any:
    """Return the JSON that a server answers to a GET, or to the POST of a form; or `NoAnswer`."""
    request = Request(url, form, {"Accept": "application/json"})
    if login is not None:
        basic = base64.b64encode(":".join(login).encode()).decode()
        request.add_header("Authorization", f"Basic {basic}")
    own = [ProxyHandler({})] if urlsplit(url).hostname in LOOPBACK else []
    opener = build_opener(_NoRedirect(), HTTPSHandler(context=context), *own)
    try:
        with opener.open(request, timeout=seconds) as response:
            return orjson.loads(response.read(MOST_BYTES))
    except HTTPError as error:
        with error:
            raise NoAnswer(f"HTTP{error.code}", error.code, error.read(MOST_BYTES)) from None
    except (ValueError, HTTPException) as error:
        raise NoAnswer(type(error).__name__, 200) from None
    except OSError as error:
        cause = error.reason if isinstance(error, URLError) else error
        number = errors.name_errno(cause) if isinstance(cause, OSError) else None
        untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        raise NoAnswer(type(cause).__name__ if untrusted or not number else number) from None


#: Longest wait for a token, in seconds; shorter than a connection may take to be made.
TOKEN_SECONDS = 4.0
#: Part of its life after which a token is renewed, as Kafka's own clients do.
RENEW_AT = 0.8


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
                self._token, seconds = self._fetch(self._security.token_endpoint)
                self._renew_at, self._ends_at = now + RENEW_AT * seconds, now + seconds
            except errors.SourceAwayError:
                # The endpoint may be back before the token ends.
                if now >= self._ends_at:
                    raise
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return what goes with each token."""
        pairs = (self._security.token_extensions or "").split(",")
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name}

    def _fetch(self, endpoint: str) -> tuple[str, float]:
        """Return a new token, and its life in seconds."""
        security = self._security
        client = quote_plus(security.username or ""), quote_plus(security.read("password"))
        asked = {"grant_type": "client_credentials", "scope": security.token_scope}
        form = urlencode({name: value for name, value in asked.items() if value}).encode()
        try:
            found = ask(endpoint, client, trust(None), TOKEN_SECONDS, form)
        except NoAnswer as answer:
            # An endpoint that does not know the client, or does not allow what it asks for.
            word = "login-refused" if answer.status in (400, 401, 403) else "token"
            problem = f"{'untrusted-certificate' if answer.is_untrusted else word}:{answer.reason}"
        else:
            token = found.get("access_token") if isinstance(found, dict) else None
            if isinstance(token, str):
                seconds = found.get("expires_in")
                # Without an end it is asked for at each login.
                known = isinstance(seconds, int | float) and seconds > 0
                return token, float(seconds) if known else 0.0
            problem = "token:missing"
        kind = errors.SourceAwayError if problem.startswith("token:") else errors.SourceAccessError
        rule, about = "the endpoint gives no token", {"token_endpoint": endpoint}
        raise with_reason(errors.failure(rule, **about, reason=problem, error=kind), problem)
