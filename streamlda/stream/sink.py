"""Interfaces of outputs: rejected records, snapshots, answers to documents.

Connectors announce them under the entry-point group ``streamlda.sinks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from streamlda.stream.source import RecordBatch, load_entry_point

ENTRY_POINT_GROUP = "streamlda.sinks"


@runtime_checkable
class DeadLetterSink(Protocol):
    """Output of references to rejected records. Used from one thread."""

    def put(self, record: Any, reason: str) -> None:
        """Take a reference to a record of the source, and the reason of its rejection."""

    def flush(self, timeout_seconds: float) -> None:
        """Return once all records are durable; else raise `SourceError`."""

    def close(self) -> None:
        """Close the sink. Closing twice is allowed."""


@runtime_checkable
class SnapshotSink(Protocol):
    """Output of snapshots beside their folder. Used from one thread."""

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        """Make a value durable as the last one of a key; else raise `SourceError`."""

    def newest(self, key: str) -> bytes | None:
        """Return the last value of a key, None if it has none; else raise `SourceError`."""

    def close(self) -> None:
        """Close the sink. Closing twice is allowed."""


class Received(NamedTuple):
    """Records of a poll, and the key of each: aligned."""

    batch: RecordBatch
    keys: list[bytes | None]


class Answer(NamedTuple):
    """The answer to one document: under its key, for the partition it came from."""

    partition: int
    key: bytes | None
    value: bytes


class Exchange(Protocol):
    """Documents of a log that members share, and an answer to each, exactly once.

    After an error, and where `commit` returns False, another has to be opened.
    """

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> Received:
        """Return the next documents, waiting at most `timeout_seconds`."""

    def commit(self, answers: Sequence[Answer]) -> bool:
        """Make answers and the offsets of their records durable, at once or not at all."""

    def check_answers(self) -> None:
        """Raise `SourceAwayError` if the log is silent."""

    def lag(self) -> dict[int, int | None]:
        """Return the records that wait in each partition that is held; None if unknown."""

    def lost(self) -> int:
        """Return how many records were gone before they were read."""

    def close(self) -> None:
        """Close the exchange. Closing twice is allowed."""


def open_sink(name: str, *args: Any, **options: Any) -> Any:
    """Open a sink by the name that a connector announces: ``"kafka-snapshots"``, ..."""
    return load_entry_point(ENTRY_POINT_GROUP, "sink", name)(*args, **options)
