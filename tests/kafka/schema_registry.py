"""A schema registry in this process: a real HTTP server with the documented REST API.

What it answers is as Confluent's reference has it (ids, versions, error codes, basic
authentication); what it keeps is what the library's own serializers register.
"""

import base64
import json
import re
import ssl
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit


class SchemaRegistry:
    def __init__(self):
        self.schemas, self.subjects, self.asked = [], {}, []
        #: What every request is answered with, if anything; and who may ask, if not everybody.
        self.answer, self.login = None, None
        self._server = self.port = None

    @property
    def url(self):
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self, tls=None):
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

        self._tls = tls is not None
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port or 0), Handler)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._server.handle_error = lambda *_: None
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
        for pattern, act in (
            (r"/schemas/types", lambda: (200, ["JSON", "AVRO"])),
            (r"/schemas/ids/(\d+)", self._by_id),
            (r"/subjects/([^/]+)/versions", self._register),
            (r"/subjects/([^/]+)", self._lookup),
        ):
            if match := re.fullmatch(pattern, urlsplit(path).path):
                more = [body] if method == "POST" else []
                return act(*match.groups(), *more)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number):
        if not 0 < int(number) <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self._shown(int(number))

    def _register(self, subject, schema):
        versions = self.subjects.setdefault(subject, [])
        kept = {key: schema[key] for key in ("schema", "schemaType", "references") if key in schema}
        if kept not in self.schemas:
            self.schemas.append(kept)
        number = self.schemas.index(kept) + 1
        if number not in versions:
            versions.append(number)
        return 200, {"id": number, **self._full(subject, versions.index(number))}

    def _lookup(self, subject, schema):
        return self._register(subject, schema)

    def _full(self, subject, index):
        number = self.subjects[subject][index]
        names = {"subject": subject, "version": index + 1, "id": number}
        return names | self._shown(number)

    def _shown(self, number):
        return {key: value for key, value in self.schemas[number - 1].items() if value != "AVRO"}


@contextmanager
def schema_registry():
    registry = SchemaRegistry()
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
