"""The routes of the daemon. Nothing here can reach the raw state of the engine."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamlda.errors import ModelFileError, require
from streamlda.service.http.guard import KNOWN, NONE, Guard, Refusal, json_response
from streamlda.service.metrics import Metrics
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots, Summary

#: Words of a topic that may be asked for.
MOST_WORDS = 100

_PAGE = Path(__file__).parent / "page"
#: What the page shares with the report.
_SHARED = Path(__file__).parents[2] / "page"
_SCRIPTS = ("parts.js", "course.js", "topics.js", "page.js")
_FILES = {
    "/": ("text/html; charset=utf-8", [_PAGE / "index.html"]),
    "/page.css": ("text/css; charset=utf-8", [_SHARED / "base.css", _PAGE / "page.css"]),
    "/page.js": ("text/javascript; charset=utf-8", [_PAGE / name for name in _SCRIPTS]),
    "/icon.svg": ("image/svg+xml", [_SHARED / "icon.svg"]),
}
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def make_app(
    status: Status,
    snapshots: Snapshots,
    *,
    private: bool,
    token: str | None,
    operator_token: str | None = None,
    host: str = "127.0.0.1",
) -> Starlette:
    """Return the application that serves a daemon.

    With `private`, only private snapshots are served, and `/status` and `/metrics` go to those who
    send `operator_token`, which opens all. Clients send a token as ``Authorization: Bearer TOKEN``.
    `host` is the address that the server is bound to.
    """
    known = [each for each in (token, operator_token) if each is not None]
    fits = all(known) and len({*known}) == len(known)
    rule = "a token is empty, or that of operators is that of viewers"
    require(fits, rule, tokens=len(known), remedy="set another one, or None for none")
    tokens = {"token": token, "operator_token": operator_token}
    app = Starlette(
        routes=_Api(status, snapshots, private).routes(),
        middleware=[Middleware(Guard, host=host, private=private, **tokens)],
        exception_handlers={HTTPException: _not_there},
    )
    app.router.redirect_slashes = False
    return app


class _Api:
    def __init__(self, status: Status, snapshots: Snapshots, private: bool) -> None:
        self._status, self._snapshots, self._private = status, snapshots, private
        # Models are read one at a time, however many ask.
        self._reading = Lock()

    def routes(self) -> list[Route]:
        return [
            *(Route(path, partial(_file, parts, kind)) for path, (kind, parts) in _FILES.items()),
            Route("/livez", self.livez),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
            Route("/status", self.status),
            Route("/snapshots", self.snapshots),
            Route("/snapshots/{number}", self.snapshot),
        ]

    async def livez(self, request: Request) -> Response:
        alive = self._status.alive()
        return json_response({"alive": alive}, 200 if alive else 503)

    async def readyz(self, request: Request) -> Response:
        ready, reason = self._status.ready()
        # A container manager asks without a token.
        shown = reason if request.scope[KNOWN] else None
        return json_response({"ready": ready, "reason": shown}, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        # The media type is that of the text format, not of others that prometheus-client has.
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(Metrics(self._status).text(), headers={"Content-Type": kind})

    async def status(self, request: Request) -> Response:
        return json_response(self._status.status())

    def snapshots(self, request: Request) -> Response:
        listed = self._snapshots.summaries()
        shown = [summary for summary in listed if self._may_show(summary)]
        # It is asked for every two seconds, and rarely new.
        tag = f'"{len(listed)}-{listed[-1].number if listed else 0}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        content = {
            "latest": shown[-1].number if shown else None,
            "withheld": len(listed) - len(shown),
            "snapshots": [summary.json() for summary in shown],
        }
        return json_response(content, headers={"ETag": tag})

    def snapshot(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number == "latest":
            shown = filter(self._may_show, reversed(self._snapshots.summaries()))
            if (newest := next(shown, None)) is None:
                raise _no_snapshot("snapshots=0")
            number = str(newest.number)
        if not _NUMBER.fullmatch(number):
            raise _no_snapshot("number=none")
        asked = request.query_params.get("words", "10")
        if not _NUMBER.fullmatch(asked) or int(asked) > MOST_WORDS:
            rule = f"words must be in 1..{MOST_WORDS}"
            raise Refusal(400, rule, "words=another", "ask for fewer words")
        found = f"number={number}"
        try:
            with self._reading:
                if not self._may_show(self._snapshots.summary(int(number))):
                    rule = "the daemon serves only private snapshots"
                    raise Refusal(403, rule, f"{found} private=false", "ask for another one")
                return json_response(self._snapshots.topics(int(number), int(asked)))
        except FileNotFoundError:
            raise _no_snapshot(found) from None
        except (ModelFileError, OSError) as error:
            rule, found = (
                "the snapshot is no whole model file",
                f"{found} error={type(error).__name__}",
            )
            raise Refusal(503, rule, found, "restore its file from a copy") from None

    def _may_show(self, summary: Summary) -> bool:
        return summary.private or not self._private


async def _file(parts: Sequence[Path], kind: str, request: Request) -> Response:
    headers = {"Content-Type": kind, "Cache-Control": "no-cache"}
    return Response(b"".join(part.read_bytes() for part in parts), headers=headers)


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    rule, found = "the daemon has no such path", "path=another"
    if error.status_code == 405:
        rule, found = "the route has no such method", "method=another"
    remedy = "see Routes of the daemon in the documentation"
    return Refusal(error.status_code, rule, found, remedy, error.headers or NONE).response


def _no_snapshot(found: str) -> Refusal:
    remedy = "see /snapshots for those that are there, or wait for the next one"
    return Refusal(404, "no such snapshot was published", found, remedy)
