"""OAuth 2.0 tokens for the login OAUTHBEARER: from a file, or from an endpoint that knows a client.

The grant is that of client credentials (RFC 6749, 4.4). No error holds a secret, a token or a text
of the endpoint.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Any
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

from streamlda.checks import failure
from streamlda.errors import SourceAccessError, SourceAwayError, StreamLDAError, errno_of
from streamlda_connectors.checks import with_reason
from streamlda_connectors.kafka.security import Security

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
