"""What the daemon needs of what it writes to: rejected records, and snapshots.

As with sources, connectors announce them, under the entry-point group ``streamlda.sinks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from streamlda.stream.source import announced

ENTRY_POINT_GROUP = "streamlda.sinks"


@runtime_checkable
class DeadLetterSink(Protocol):
    """Where references to rejected records go. Used from one thread."""

    def put(self, record: Any, reason: str) -> None:
        """Take a reference to a record of the source, and why it was rejected."""

    def flush(self, timeout_seconds: float) -> None:
        """Return once all that was put is durable; else raise `SourceError`."""

    def close(self) -> None:
        """Release what the sink holds. Closing twice is allowed."""


@runtime_checkable
class SnapshotSink(Protocol):
    """Where snapshots are published beside their folder. Used from one thread."""

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        """Make a value durable as the last one of a key; else raise `SourceError`."""

    def newest(self, key: str) -> bytes | None:
        """Return the last value of a key, None if it has none; else raise `SourceError`."""

    def close(self) -> None:
        """Release what the sink holds. Closing twice is allowed."""


def open_sink(name: str, *args: Any, **options: Any) -> Any:
    """Open a sink by the name that a connector announces: ``"kafka-snapshots"``, ...

    Raises `SourceError` if no installed package announces that name.
    """
    return announced(ENTRY_POINT_GROUP, "sink", name)(*args, **options)
