"""Questions to servers that give tokens and schemas: JSON over HTTP, and whom to trust."""

from __future__ import annotations

import base64
import ssl
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import orjson

from streamlda.errors import errno_of
from streamlda_connectors.checks import fault

#: Hosts to which a secret may go without TLS, and not by a proxy.
LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: Longest answer that is read.
MOST_BYTES = 16 * 2**20


class NoAnswer(Exception):
    """An answer that is none: a status above 299 with a body, another content, or nothing at all.

    The `reason` is an errno or the name of a class, never a text.
    """

    def __init__(self, reason: str, status: int = 0, body: bytes = b"") -> None:
        super().__init__(reason)
        self.reason, self.status, self.body = reason, status, body


class _NoRedirect(HTTPRedirectHandler):
    """Refusal to send a secret elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the answer counts as an error."""


def trust(ca_file: str | None, *client: Any) -> ssl.SSLContext:
    """Return whom to trust, those of the system by default, and what a client shows of itself."""
    problem = ""
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if client:
            context.load_cert_chain(*client)
        return context
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    raise fault("certificates", ca_file=ca_file, certificates=client[:2], problem=problem)


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
        number = errno_of(cause) if isinstance(cause, OSError) else None
        untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        raise NoAnswer(type(cause).__name__ if untrusted or not number else number) from None
