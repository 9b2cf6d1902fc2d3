"""A server of HTTP on this machine, which answers as a test says, and may go away."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class AnsweringServer:
    """Answer requests by `answer(request, body)`: a status, bytes or a value, and headers.

    The port stays over ends and starts.
    """

    def __init__(self, answer):
        def respond(request):
            body = request.rfile.read(int(request.headers["Content-Length"] or 0))
            status, found, *headers = answer(request, body)
            sent = found if isinstance(found, bytes) else json.dumps(found).encode()
            request.send_response(status)
            for name, value in (("Content-Length", len(sent)), *headers):
                request.send_header(name, str(value))
            request.end_headers()
            request.wfile.write(sent)

        methods = {"do_GET": respond, "do_POST": respond, "log_message": lambda *_: None}
        self._handler = type("Handler", (BaseHTTPRequestHandler,), methods)
        self.port, self._server = 0, None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self):
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()
