"""The routes of the daemon. Nothing here can reach the raw state of the engine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from streamlda.errors import InvalidDocumentsError, ModelFileError, VocabularyError, require
from streamlda.service.http.guard import KNOWN, NONE, Guard, Refused, json_response
from streamlda.service.metrics import Metrics
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots, Summary
from streamlda.utils.threads import limit_threads

#: Words of a topic that may be asked for, and texts to infer at once.
MOST_WORDS, MOST_TEXTS = 100, 100

#: Most bytes of a body, and the time in which it must have come.
BODY_BYTES, BODY_SECONDS = 2**20, 10.0

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

_T = TypeVar("_T")


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

    Snapshots and inference run in one thread, ``app.state.pool``, however many ask. With `private`,
    only private snapshots are served, and `/status` and `/metrics` go to those who send
    `operator_token`. Clients send a token as ``Authorization: Bearer TOKEN``; that of the operator
    opens all. `host` is the address that the server is bound to.
    """
    known = [each for each in (token, operator_token) if each is not None]
    require(
        all(known) and len({*known}) == len(known),
        "a token must have a character, and that of operators must differ from that of viewers",
        tokens=len(known),
        remedy="set another one, or None for none",
    )
    api = _Api(status, snapshots, private)
    tokens = {"token": token, "operator_token": operator_token}
    app = Starlette(
        routes=api.routes(),
        middleware=[Middleware(Guard, host=host, private=private, **tokens)],
        exception_handlers={HTTPException: _not_there},
    )
    app.router.redirect_slashes = False
    app.state.pool = api.pool
    return app


class _Api:
    def __init__(self, status: Status, snapshots: Snapshots, private: bool) -> None:
        self._status, self._snapshots, self._private = status, snapshots, private
        self.pool = ThreadPoolExecutor(1, "streamlda-http")

    def routes(self) -> list[Route]:
        return [
            *(Route(path, partial(_file, parts, kind)) for path, (kind, parts) in _FILES.items()),
            Route("/livez", self.livez),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
            Route("/status", self.status),
            Route("/snapshots", self.snapshots),
            Route("/snapshots/latest", self.latest),
            Route("/snapshots/{number}", self.snapshot),
            Route("/infer", self.infer, methods=["POST"]),
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

    async def snapshots(self, request: Request) -> Response:
        listed = await self._in_pool(self._snapshots.summaries)
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

    async def latest(self, request: Request) -> Response:
        return await self._topics(await self._latest(), request)

    async def snapshot(self, request: Request) -> Response:
        number = request.path_params["number"]
        if not _NUMBER.fullmatch(number):
            raise _no_snapshot("number=none")
        return await self._topics(int(number), request)

    async def infer(self, request: Request) -> Response:
        texts = _texts(await _body(request))
        number = await self._latest()
        return json_response(await self._read(number, partial(self._infer, number, texts)))

    def _infer(self, number: int, texts: list[str]) -> dict[str, Any]:
        model = self._snapshots.model(number)
        try:
            # The other processors are for the stream.
            with limit_threads(1):
                proportions = model.transform(texts)
        except InvalidDocumentsError as error:
            rule, _, found = str(error).partition(", got ")
            raise Refused(422, rule, found, "leave the text out") from None
        except VocabularyError:
            rule = "the latest snapshot must have a vocabulary to read texts"
            raise Refused(409, rule, "vocabulary=none", "run the daemon on texts") from None
        ids = [topic.id for topic in self._snapshots.summary(number).topics]
        return {"number": number, "ids": ids, "proportions": proportions.tolist()}

    async def _topics(self, number: int, request: Request) -> Response:
        n_words = _n_words(request)
        return json_response(await self._read(number, partial(self._shown, number, n_words)))

    def _shown(self, number: int, n_words: int) -> dict[str, Any]:
        if not self._may_show(self._snapshots.summary(number)):
            rule = "a daemon in private mode must serve only private snapshots"
            raise Refused(403, rule, f"number={number} private=false", "ask for another one")
        return self._snapshots.topics(number, n_words)

    async def _latest(self) -> int:
        shown = filter(self._may_show, reversed(await self._in_pool(self._snapshots.summaries)))
        newest = next(shown, None)
        if newest is None:
            raise _no_snapshot("snapshots=0")
        return newest.number

    def _may_show(self, summary: Summary) -> bool:
        return summary.private or not self._private

    async def _read(self, number: int, read: Callable[[], _T]) -> _T:
        """Run what reads a snapshot, and say so if that is not there or damaged."""
        try:
            return await self._in_pool(read)
        except FileNotFoundError:
            raise _no_snapshot(f"number={number}") from None
        except (ModelFileError, OSError) as error:
            rule, found = "a snapshot must be a whole model file", type(error).__name__
            remedy = "restore its file from a copy"
            raise Refused(503, rule, f"number={number} error={found}", remedy) from None

    async def _in_pool(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)


async def _file(parts: Sequence[Path], kind: str, request: Request) -> Response:
    headers = {"Content-Type": kind, "Cache-Control": "no-cache"}
    return Response(b"".join(part.read_bytes() for part in parts), headers=headers)


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    rule, found = "a path must be one of the daemon's", "path=another"
    if error.status_code == 405:
        rule, found = "a route must be asked by its method", "method=another"
    remedy = "see Routes of the daemon in the documentation"
    return Refused(error.status_code, rule, found, remedy, error.headers or NONE).response


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A foreign page may send other kinds without asking first.
        remedy = "send Content-Type: application/json"
        raise Refused(415, "a body must be JSON", "content_type=another", remedy)
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > BODY_BYTES:
                    rule = f"a body must have at most {BODY_BYTES} bytes"
                    raise Refused(413, rule, "body_bytes=more", "send fewer or shorter texts")
    except (TimeoutError, ClientDisconnect):
        rule = f"a body must come within {BODY_SECONDS:g} seconds"
        raise Refused(408, rule, f"body_bytes={len(body)}", "send it at once") from None
    return body


def _texts(body: bytes) -> list[str]:
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        asked = None
    texts = asked.get("texts") if isinstance(asked, dict) and len(asked) == 1 else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        rule = 'a body must be {"texts": [...]} with a list of texts'
        raise Refused(400, rule, f"body_bytes={len(body)}", "send such an object, as UTF-8")
    if not 1 <= len(texts) <= MOST_TEXTS:
        rule = f"texts must be 1 to {MOST_TEXTS} at once"
        raise Refused(400, rule, f"texts={len(texts)}", "send them in several requests")
    return texts


def _n_words(request: Request) -> int:
    asked = request.query_params.get("words", "10")
    if not _NUMBER.fullmatch(asked) or int(asked) > MOST_WORDS:
        rule = f"words must be in 1..{MOST_WORDS}"
        raise Refused(400, rule, "words=another", "ask for fewer words")
    return int(asked)


def _no_snapshot(found: str) -> Refused:
    remedy = "see /snapshots for those that are there, or wait for the next one"
    return Refused(404, "a snapshot must have been published", found, remedy)
