"""Outputs that connectors announce: rejected records, snapshots, answers to documents."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamlda.stream.source import RecordBatch, load_entry_point

ENTRY_POINT_GROUP = "streamlda.sinks"


class Received(NamedTuple):
    """Records of a poll, and the key of each: aligned."""

    batch: RecordBatch
    keys: list[bytes | None]


class Answer(NamedTuple):
    """The answer to one document: under its key, for the partition it came from."""

    partition: int
    key: bytes | None
    value: bytes


def open_sink(name: str, *args: Any, **options: Any) -> Any:
    """Open a sink by the name that a connector announces: ``"kafka-snapshots"``, ..."""
    return load_entry_point(ENTRY_POINT_GROUP, "sink", name)(*args, **options)
