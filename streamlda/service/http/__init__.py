"""The daemon over HTTP: probes, metrics, published snapshots, and a page for people.

`app` has the routes, `guard` what holds for all of them, `server` the thread they are served from,
and ``page/`` the files of the page. Needs the extra ``http``.
"""

from streamlda.errors import MissingExtraError

try:
    from streamlda.service.http.app import make_app
    from streamlda.service.http.server import Server
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "starlette", "http", "serving HTTP") from error

__all__ = ["Server", "make_app"]
