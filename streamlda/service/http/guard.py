"""The guard of every request: its host, its token, its size, and how errors look.

An error is one JSON object, ``{"error": {"rule": ..., "found": ..., "remedy": ...}}``; it never
repeats what the client sent, nor does the log.
"""

import hmac
import logging
import re
import traceback
from collections.abc import Mapping
from ipaddress import ip_address

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

#: Asked by what would stop the daemon: they need no token.
PROBES = ("/livez", "/readyz")

#: Member of a scope: whether the client has a token, where one is needed.
KNOWN = "streamlda.known"

#: Exact counts of what was read, with privacy for operators only.
OPERATING = ("/status", "/metrics")

#: Files of the page: they hold no data, and a browser cannot send a token for them.
PAGE = ("/", "/page.css", "/page.js", "/icon.svg")

#: Sent with every answer.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

#: No headers of an answer's own.
NONE: Mapping[str, str] = {}

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def json_response(content: object, code: int = 200, headers: Mapping[str, str] = NONE) -> Response:
    """Return an answer in JSON."""
    return Response(orjson.dumps(content), code, headers, "application/json")


class Refusal(Exception):
    """An answer that refuses a request."""

    def __init__(
        self, code: int, rule: str, found: str, remedy: str, headers: Mapping[str, str] = NONE
    ) -> None:
        super().__init__(f"{rule}, got {found}; {remedy}")
        problem = {"rule": rule, "found": found, "remedy": remedy}
        self.response = json_response({"error": problem}, code, headers)


class Guard:
    """The middleware; see the module."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        private: bool,
        token: str | None,
        operator_token: str | None,
    ) -> None:
        self._app, self._private = app, private
        self._hosts = parse_hosts(host)
        self._token, self._operator_token = token, operator_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, send_guarded)
        except Refusal as refused:
            await refused.response(scope, receive, send_guarded)
        except Exception as error:
            # Only kind and place: the message of an error may hold what the client sent.
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind, at = type(error).__name__, f"{place.name}:{place.lineno}"
            logger.error("a request failed: error=%s at=%s", kind, at)
            if begun:
                raise RuntimeError("a request failed while its answer was sent") from None
            await _FAILED.response(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        host = _HOST.fullmatch(headers.get("host", ""))
        if host is None or not (self._hosts is None or host[1].lower() in self._hosts):
            rule = "the Host header does not name the server's address"
            remedy = "open it by that address, or let the proxy send that Host"
            raise Refusal(421, rule, f"host={'another' if host else 'none'}", remedy)
        is_operator = _carries(headers, self._operator_token)
        is_known = self._token is None or is_operator or _carries(headers, self._token)
        scope[KNOWN] = is_known
        if path in (*PROBES, *PAGE):
            return
        if not is_known:
            sent = "another" if "authorization" in headers else "none"
            rule, remedy = (
                "the request lacks the token of the server",
                "send Authorization: Bearer TOKEN",
            )
            asked = {"WWW-Authenticate": "Bearer"}
            raise Refusal(401, rule, f"authorization={sent}", remedy, asked)
        # Loopback opens nothing: behind a proxy that names no client it is everybody.
        if self._private and path in OPERATING and not is_operator:
            rule = "operating figures are not private, and go to the operator only"
            found = f"operator_token={'none' if self._operator_token is None else 'another'}"
            remedy = "send the token of http.operator_token_file, and set one if there is none"
            raise Refusal(403, rule, found, remedy)


_FAILED = Refusal(
    500, "the request failed", "error=internal", "see the log of the daemon, and report it"
)


def parse_hosts(host: str) -> frozenset[str] | None:
    """Return the names that the Host header may have, or None for any.

    Another name for a loopback address means that a foreign page had its own name resolve to it,
    to read with the browser of somebody here. Bound to all addresses, the server cannot know its
    names; the token protects it then.
    """
    if host in ("", "0.0.0.0", "::"):
        return None
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host.lower() == "localhost"
    name = f"[{host.lower()}]" if ":" in host else host.lower()
    return frozenset({name, *(_LOOPBACK_NAMES if local else ())})


def _carries(headers: Headers, token: str | None) -> bool:
    kind, _, sent = headers.get("authorization", "").partition(" ")
    if token is None or kind.lower() != "bearer":
        return False
    return hmac.compare_digest(sent.strip().encode("latin-1"), token.encode())
