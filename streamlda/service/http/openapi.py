"""The description of the routes, OpenAPI 3.1; the tests hold it to the code."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from streamlda.service.http.guard import PROBES, Limits
from streamlda.service.status import FAILURES, OUTCOMES

Schema = dict[str, Any]

NOT_PRIVATE = (
    "Operating figures: exact counts of what was read. They are **not private**, even where the "
    "snapshots are. In private mode they need the operator's token; where there is none, nobody is "
    "served."
)

_TEXT: Schema = {"type": "string"}
_YES_NO: Schema = {"type": "boolean"}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_MAYBE_WHOLE: Schema = {"type": ["integer", "null"], "minimum": 0}
_NUMBER: Schema = {"type": "number", "minimum": 0}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COUNTS: Schema = {"type": "object", "additionalProperties": _WHOLE}

_ERRORS = {
    "400": "The request is not understood.",
    "401": "The token is missing or wrong.",
    "403": "It is not private, and may not be served so.",
    "404": "There is none.",
    "408": "The body did not come in time.",
    "409": "The snapshot reads no texts.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "421": "The Host header names another host.",
    "429": "Too many requests; see Retry-After.",
    "503": "Too many connections are being answered, or the file of the snapshot is damaged.",
}


def _object(**members: Schema) -> Schema:
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}


def description(limits: Limits) -> dict[str, Any]:
    """Return the whole description, as plain JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamlda",
            "version": version("streamlda"),
            "summary": "A daemon that learns topics from a stream, and publishes snapshots.",
            "description": (
                "Only published snapshots are served; raw state has no route. In private mode "
                "only private snapshots are. The figures of /status and /metrics are exact "
                "counts and are not private."
            ),
        },
        "security": [{}, {"token": []}],
        "paths": _paths(limits),
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed where the daemon has a token. That of the operator "
                    "opens /status and /metrics in private mode, too.",
                }
            },
            "schemas": _schemas(),
        },
    }


def _paths(limits: Limits) -> dict[str, Any]:
    number = {
        "name": "number",
        "in": "path",
        "required": True,
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    }
    words = {
        "name": "words",
        "in": "query",
        "description": "Words of each topic.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    }
    asked = _object(texts=_list(_TEXT, minItems=1, maxItems=limits.texts))
    infer = _operation(
        "/infer",
        "Topic proportions of texts, by the latest snapshot. Nothing is learned or kept.",
        "Proportions",
        "400 404 408 409 413 415",
        body=asked,
    )
    infer["description"] = (
        f"At most {limits.texts} texts and {limits.body_bytes} bytes. A text without a known "
        "word gets the proportions that are expected of any text."
    )
    latest = _operation(
        "/snapshots/latest", "The newest snapshot.", "Snapshot", "400 404", parameters=[words]
    )
    one = _operation(
        "/snapshots/{number}",
        "One snapshot.",
        "Snapshot",
        "400 403 404",
        parameters=[number, words],
    )
    many = _operation("/snapshots", "The last 200 snapshots, oldest first.", "Snapshots")
    many["responses"]["304"] = {"description": "As the ETag in If-None-Match has it."}
    status = _operation("/status", "How the daemon fares, for the page.", "Status", "403")
    metrics = _operation("/metrics", "The same for Prometheus.", None, "403", "text/plain")
    status["description"] = metrics["description"] = NOT_PRIVATE
    live = _operation("/livez", "Whether the loop that reads goes round.", "Alive")
    ready = _operation("/readyz", "Whether the daemon does its work.", "Ready")
    for probe, name in ((live, "Alive"), (ready, "Ready")):
        probe["responses"]["503"] = _answer("It does not.", _named(name))
    page = "The page for people; with operating figures for those who may ask for /status."
    return {
        "/livez": {"get": live},
        "/readyz": {"get": ready},
        "/metrics": {"get": metrics},
        "/status": {"get": status},
        "/snapshots": {"get": many},
        "/snapshots/latest": {"get": latest},
        "/snapshots/{number}": {"get": one},
        "/infer": {"post": infer},
        "/openapi.json": {"get": _operation("/openapi.json", "This description.", "Any")},
        "/": {"get": _operation("/", page, None, kind="text/html")},
        "/page.css": {"get": _operation("/page.css", "Its style.", None, kind="text/css")},
        "/page.js": {"get": _operation("/page.js", "Its code.", None, kind="text/javascript")},
        "/icon.svg": {"get": _operation("/icon.svg", "Its icon.", None, kind="image/svg+xml")},
    }


def _operation(
    path: str,
    summary: str,
    schema: str | None,
    errors: str = "",
    kind: str = "application/json",
    *,
    parameters: list[Schema] | None = None,
    body: Schema | None = None,
) -> dict[str, Any]:
    free = path == "/livez" or (schema is None and kind != "text/plain")
    codes = ["421", *([] if path in PROBES else ["429", "503"]), *([] if free else ["401"])]
    made: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": _answer("Done.", _named(schema) if schema else _TEXT, kind)},
    }
    for code in sorted({*codes, *errors.split()}):
        made["responses"][code] = _answer(_ERRORS[code], _named("Error"))
    if free:
        made["security"] = []
    if parameters:
        made["parameters"] = parameters
    if body:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return made


def _answer(text: str, schema: Schema, kind: str = "application/json") -> Schema:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _schemas() -> dict[str, Schema]:
    # Word and probability; ``prefixItems`` would say which is which, but few tools read it.
    word = _list({"type": ["string", "number"]}, minItems=2, maxItems=2)
    topic: Schema = {
        "id": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "The same over snapshots; null where it is not known.",
        },
        "prevalence": {
            "oneOf": [_SHARE, {"type": "null"}],
            "description": "Share of all tokens; null where it was not measured.",
        },
        "moved": {
            "oneOf": [_SHARE, {"type": "null"}],
            "description": "Hellinger distance to the snapshot before; null for a new topic.",
        },
    }
    head = {
        "number": {"type": "integer", "minimum": 1},
        "created": _TIME,
        "documents": {
            **_WHOLE,
            "description": "Of a private snapshot: record slots.",
        },
        "private": _YES_NO,
        "interval": _or_null(_named("Interval")),
        "slots": {
            "oneOf": [_list(_WHOLE, minItems=2, maxItems=2), {"type": "null"}],
            "description": "Of a private snapshot: the first and the last record slot it is of.",
        },
    }
    share = {"oneOf": [_SHARE, {"type": "null"}]}
    quality: Schema = {
        "name": {
            "type": ["string", "null"],
            "description": "Of its seed (`topics.seeds`); null without one.",
        },
        "npmi": {
            "type": ["number", "null"],
            "description": "Mean NPMI of the ten top words; null where it was not counted.",
        },
        "exclusivity": {**_SHARE, "description": "How much its top words are its own."},
        "marks": {
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "Why it should not be relied on, in words; empty if it may be.",
        },
        "nearest": _or_null(_object(id={"type": ["integer", "null"]}, distance=_SHARE)),
    }
    return {
        "Any": {"type": "object"},
        "Alive": _object(alive=_YES_NO),
        "Ready": _object(ready=_YES_NO, reason=_TEXT),
        "Error": _object(error=_object(rule=_TEXT, found=_TEXT, remedy=_TEXT)),
        "Snapshots": _object(
            latest={"type": ["integer", "null"], "minimum": 1},
            withheld={**_WHOLE, "description": "Not shown, since they are not private."},
            snapshots=_list(_object(**head, topics=_list(_object(**topic)))),
        ),
        "Snapshot": _object(
            **head,
            topics=_list(_object(**topic, words=_list(word), **quality)),
            timeline=_or_null(_named("Timeline")),
            privacy={"type": "object", "description": "The privacy statement."},
            privacy_lines=_list(_TEXT),
        ),
        "Interval": {
            **_object(
                documents=_WHOLE,
                tokens=_WHOLE,
                prevalence=_or_null(_list(_SHARE)),
                start=_or_null(_TIME),
                end=_or_null(_TIME),
            ),
            "description": "What came since the snapshot before: shares of its tokens in the order "
            "of topics, event time of its earliest and latest document.",
        },
        "Timeline": {
            **_object(
                unit=_TEXT,
                starts=_list({"type": "integer"}),
                documents=_list(_WHOLE),
                shares=_list(_list(share)),
                undated=_WHOLE,
                late=_WHOLE,
            ),
            "description": "Shares of topics by event time: bins by their start in seconds since "
            "1970 UTC. Undated and late documents are in none.",
        },
        "Proportions": _object(
            number={"type": "integer", "minimum": 1, "description": "The snapshot."},
            ids=_list({"type": ["integer", "null"], "description": "Topic of each column."}),
            proportions=_list(_list(_SHARE)),
        ),
        "Status": _status(),
    }


def _status() -> Schema:
    return _object(
        stream=_TEXT,
        private=_YES_NO,
        phase=_TEXT,
        alive=_YES_NO,
        ready=_YES_NO,
        reason=_TEXT,
        stalled={
            "type": "object",
            "additionalProperties": _object(since=_TIME, reason=_TEXT),
            "description": "What cannot be reached, read or written now, and is tried again.",
        },
        uptime_seconds=_NUMBER,
        documents=_object(**dict.fromkeys(OUTCOMES, _WHOLE)),
        documents_per_second=_NUMBER,
        bytes=_WHOLE,
        rejects=_COUNTS,
        dead_letters=_COUNTS,
        failures=_object(**dict.fromkeys(FAILURES, _WHOLE)),
        failure_reasons={**_COUNTS, "description": "What failed, a space, and a word for why."},
        places=_MAYBE_WHOLE,
        places_left=_MAYBE_WHOLE,
        lag=_object(
            records=_MAYBE_WHOLE,
            bytes=_MAYBE_WHOLE,
            partitions={"type": "object", "additionalProperties": _MAYBE_WHOLE},
            waits_for={
                **_MAYBE_WHOLE,
                "description": "Partition without a record for which those of the others wait; "
                "null if there is none, or the order of partitions is not fixed.",
            },
        ),
        undated={
            **_MAYBE_WHOLE,
            "description": "Documents without an event time or before the first bin; null if no "
            "times are read.",
        },
        late={
            **_MAYBE_WHOLE,
            "description": "Documents older than the oldest of the time bins that are held; null "
            "if no times are read.",
        },
        lost={
            "oneOf": [_COUNTS, {"type": "null"}],
            "description": "What could not be read any more: records, gaps, bytes.",
        },
        warmup={
            **_or_null(_object(documents=_WHOLE, of=_WHOLE)),
            "description": "Documents towards the first topics, and at most how many these need.",
        },
        queue_bytes=_WHOLE,
        memory=_object(resident_bytes=_MAYBE_WHOLE, limit_bytes=_MAYBE_WHOLE),
        rounds=_WHOLE,
        releases=_WHOLE,
        last_snapshot=_or_null(_TIME),
        checkpoint=_or_null(_object(age_seconds=_NUMBER, seconds=_NUMBER, size_bytes=_WHOLE)),
        budget=_or_null(
            _object(
                epsilon_spent=_NUMBER, epsilon_left=_NUMBER, epsilon_total=_NUMBER, delta=_NUMBER
            )
        ),
        last_answer={
            **_or_null(_TIME),
            "description": "When the source answered last; of Kafka, when a fetch was completed.",
        },
        group={
            **_or_null(
                _object(
                    partitions=_list(_WHOLE),
                    waiting=_list(_WHOLE),
                    generation=_MAYBE_WHOLE,
                    lease=_YES_NO,
                )
            ),
            "description": "Partitions that are learned here and that are to be, the generation of "
            "the consumer group, and whether snapshots of all partitions are made here; null where "
            "none are shared.",
        },
        inference={
            **_or_null(
                _object(
                    records=_object(inferred=_WHOLE, rejected=_WHOLE),
                    snapshot=_MAYBE_WHOLE,
                    lag=_MAYBE_WHOLE,
                    partitions={"type": "object", "additionalProperties": _MAYBE_WHOLE},
                    lost=_WHOLE,
                )
            ),
            "description": "Results written by this process, the snapshot of the last ones, and "
            "what waits in the partitions that it holds; null without infer.topic.",
        },
    )
