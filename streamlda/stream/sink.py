"""What the daemon asks of the places it writes to: rejected records, and snapshots.

As with sources, connectors announce them, under the entry-point group ``streamlda.sinks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from streamlda.errors import SourceError

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

    def close(self) -> None:
        """Release what the sink holds. Closing twice is allowed."""


def open_sink(name: str, *args: Any, **options: Any) -> Any:
    """Open a sink by the name that a connector announces: ``"kafka-snapshots"``, ...

    Raises
    ------
    SourceError
        If no installed package announces that name.
    """
    found = entry_points(group=ENTRY_POINT_GROUP)
    if name not in found.names:
        known = ", ".join(sorted(found.names)) or "none (is streamlda installed?)"
        raise SourceError(
            f"a sink must be installed before it is used, got sink={name!r}; known sinks: {known}"
        )
    return found[name].load()(*args, **options)
