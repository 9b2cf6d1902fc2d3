"""A server of the daemon for tests, asked over a real socket or called with whatever bytes."""

import asyncio
import http.client
import json

from hypothesis import strategies as st

TOKEN = "correct horse"
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def json(self):
        return json.loads(self.body)


def ask(server, path, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


def call(app, *, method="GET", path="/", host=b"localhost:1", headers=(), client="127.0.0.1"):
    """Call an application as a server would, from any address, with any bytes."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw,
        "raw_path": raw.encode("utf-8", "surrogatepass"),
        "query_string": query.encode("utf-8", "surrogatepass"),
        "root_path": "",
        "headers": [(b"host", host), *headers],
        "client": (client, 4),
        "server": ("127.0.0.1", 1),
    }
    asyncio.run(app(scope, receive, send))
    start, *rest = sent
    pairs = [(name.decode(), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer(start["status"], pairs, b"".join(m.get("body", b"") for m in rest))


def error_of(answer, status):
    assert answer.status == status, answer.body
    told = answer.json["error"]
    assert set(answer.json) == {"error"}
    assert set(told) == {"rule", "found", "remedy"}
    assert " must " in told["rule"] or "operating figures" in told["rule"]
    assert "=" in told["found"]
    return told
