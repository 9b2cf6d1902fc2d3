"""The daemon over HTTP: probes, metrics, published snapshots, inference, and a page for people.

`app` has the routes, `guard` what holds for all of them, `server` the thread they are
served from, and ``page/`` the files of the page. Needs the extra ``http``.
"""

from __future__ import annotations

from importlib.util import find_spec

from streamlda.errors import MissingExtraError

for _package, _distribution in (
    ("starlette", "starlette"),
    ("uvicorn", "uvicorn"),
    ("prometheus_client", "prometheus-client"),
):
    if find_spec(_package) is None:
        raise MissingExtraError(_distribution, "http", "serving HTTP")

from streamlda.service.http.app import make_app  # noqa: E402
from streamlda.service.http.server import Server  # noqa: E402

__all__ = ["Server", "make_app"]
