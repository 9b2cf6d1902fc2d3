"""What the engine asks of a stream of documents, and nothing about how it is read.

A connector is a class with the methods of `Source`, announced under the entry-point group
``streamlda.connectors``. It owns no thread, never blocks longer than it was told to, and can
resume from a position that somebody else stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

from streamlda.errors import SourceError

#: A place in a source, as plain JSON values: what was read before it is never read again.
Position = Mapping[str, Any]

ENTRY_POINT_GROUP = "streamlda.connectors"


class Reject(NamedTuple):
    """A record that was skipped: where it stands and why, never what it says.

    Attributes
    ----------
    location : str
        The file, topic partition or other container.
    record : int
        Number of the record in its container, from 1 (line number where lines are records).
    reason : str
        A short fixed word such as ``not-utf8``; the same words are counted in summaries.
    """

    location: str
    record: int
    reason: str


class Place(NamedTuple):
    """Where a document stands in its source.

    Attributes
    ----------
    location : str
        The file, topic partition or other container.
    record : int
        Number of the record in its container, from 1 (line number where lines are records).
    """

    location: str
    record: int


@dataclass(frozen=True, slots=True)
class Poll:
    """What one call of `Source.poll` brought.

    Attributes
    ----------
    texts : list of str
        Documents in stream order; empty when nothing is there yet.
    rejects : list of Reject
        Records passed over in this poll, in stream order.
    exhausted : bool
        True when the source has ended and later polls will bring nothing.
    places : list of Place
        Where each text stands, in the order of the texts; empty if the source does not say.
    users : list of str or None
        Whose each text is, in the order of the texts, None where that is not known; empty if the
        source does not say. Never to be logged.
    gaps : list of int
        For each record of the poll that brought no text (a reject or a blank line), in stream
        order, how many texts of this poll stand before it. So texts and gaps together are all
        records of the poll, and a document can be numbered by the records before it, whatever
        they say. At least as long as `rejects`.
    """

    texts: list[str] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    exhausted: bool = False
    places: list[Place] = field(default_factory=list)
    users: list[str | None] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)

    def check(self, max_records: int | None = None) -> None:
        """Raise `SourceError` if the poll breaks the rules above; the message names no user.

        Parameters
        ----------
        max_records : int, optional
            Records that were asked for. Without it `gaps` are not looked at.
        """
        n_texts, n_gaps = len(self.texts), len(self.gaps)
        if len(self.users) not in (0, n_texts):
            raise SourceError(
                "a poll must name the users of all its texts or of none, got "
                f"users={len(self.users)} texts={n_texts}; correct the connector"
            )
        if max_records is None:
            return
        ordered = all(a <= b for a, b in pairwise([0, *self.gaps, n_texts]))
        if not ordered or n_gaps < len(self.rejects) or n_texts + n_gaps > max_records:
            raise SourceError(
                "a poll must say in order where its records without a text stand, and bring no "
                f"more records than it was asked for, got texts={n_texts} gaps={n_gaps} "
                f"ordered={ordered} rejects={len(self.rejects)} max_documents={max_records}; "
                "read with a connector that counts every record"
            )


class Progress(NamedTuple):
    """How far a source has come, in its own unit, for a progress bar.

    Attributes
    ----------
    done : int
        Units read so far.
    total : int or None
        Units in all, or None for a source without a known end.
    unit : str
        ``"B"`` for stored (compressed) bytes, ``"documents"`` otherwise.
    """

    done: int
    total: int | None
    unit: str


@runtime_checkable
class Source(Protocol):
    """A stream of documents that can be polled in bounded batches and resumed.

    Notes
    -----
    The position returned after a poll resumes *after* the last record of that poll, rejects
    included. Opening a source reads no document. The same source polled with other batch sizes
    yields the same documents in the same order.
    """

    def poll(self, max_documents: int, timeout_seconds: float = 1.0) -> Poll:
        """Return what comes next, waiting at most `timeout_seconds` for a document.

        At most `max_documents` records: documents, rejects and blank lines together.
        """

    def position(self) -> Position:
        """Return where the next poll will go on."""

    def seek(self, position: Position) -> None:
        """Go on from a position that `position` returned, in this process or an earlier one."""

    def progress(self) -> Progress:
        """Return how far the source has come."""

    def close(self) -> None:
        """Release what the source holds. Closing twice is allowed."""


def open_source(connector: str, *args: Any, **options: Any) -> Source:
    """Open a source by the name of its connector.

    Parameters
    ----------
    connector : str
        Entry-point name in the group ``streamlda.connectors``: ``"files"``, ``"stdin"``, ...
    *args, **options
        Handed to the connector.

    Raises
    ------
    SourceError
        If no installed package announces that name.
    """
    found = entry_points(group=ENTRY_POINT_GROUP)
    if connector not in found.names:
        known = ", ".join(sorted(found.names)) or "none (is streamlda installed?)"
        raise SourceError(
            f"a connector must be installed before it is used, got connector={connector!r}; "
            f"known connectors: {known}"
        )
    source: Source = found[connector].load()(*args, **options)
    return source
