"""A schema registry in this process: a real HTTP server with the documented REST API.

What it answers is as Confluent's reference has it (ids, versions, error codes, basic
authentication); what it keeps is what the library's own serializers register.
"""

import base64
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit


class SchemaRegistry:
    def __init__(self):
        self.schemas, self.asked = [], []
        #: What every request is answered with, if anything; and who may ask, if not everybody.
        self.answer, self.login = None, None
        self._server = self.port = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                login = self.headers.get("Authorization")
                status, found = registry.respond(self.command, self.path, body, login)
                sent = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_POST = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port or 0), Handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self):
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def respond(self, method, path, body, login):
        self.asked.append(path)
        if self.answer is not None:
            return self.answer
        if self.login is not None:
            basic = base64.b64encode(self.login.encode()).decode()
            if login != f"Basic {basic}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        path = urlsplit(path).path
        if path == "/schemas/types":
            return 200, ["JSON", "AVRO"]
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            if not 0 < int(match[1]) <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            shown = self.schemas[int(match[1]) - 1].items()
            return 200, {key: value for key, value in shown if value != "AVRO"}
        if re.fullmatch(r"/subjects/[^/]+(/versions)?", path):
            return 200, {"subject": "s", "version": 1, "id": self.register(body)}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def register(self, schema):
        """Keep a schema; return its id."""
        kept = {key: schema[key] for key in ("schema", "schemaType", "references") if key in schema}
        if kept not in self.schemas:
            self.schemas.append(kept)
        return self.schemas.index(kept) + 1


@contextmanager
def schema_registry():
    registry = SchemaRegistry()
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
