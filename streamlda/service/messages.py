"""Events and instructions: input and output of `streamlda.service.machine`.

Both are plain values; those without fields of their own take equality from their base. Where an
answer is asked for, it comes once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamlda.stream.source import Position
from streamlda.utils import exit_codes

Away = Literal["source", "dead-letters"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `time` is in seconds of one clock that never goes back."""

    time: float


@dataclass(frozen=True, slots=True)
class StartDone(Event):
    """All is open and restored."""

    #: Record slots to the next release; None if none is left.
    slots_left: int | None
    #: The state is after a release that no checkpoint knows of; a `Release` publishes its model.
    unsaved: bool = False
    #: Records learned since the last release, and whether their words are known.
    since_release: int = 0
    has_words: bool = True
    #: Whether a last release would give better topics than the one before.
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class PollDone(Event):
    """A `Poll` brought `records` (each takes a slot), of which `rejects` were rejected."""

    records: int
    size_bytes: int
    rejects: int = 0
    exhausted: bool = False
    #: Seconds of polling for which a part of the source has not answered, None if not known; why.
    silent: float | None = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LearnDone(Event):
    """A `Learn` is done; `has_words` as in `StartDone`."""

    has_words: bool = True


@dataclass(frozen=True, slots=True)
class ReleaseDone(Event):
    """A `Release` is published; `snapshot` if it gave topics. The rest is as in `StartDone`."""

    snapshot: bool
    slots_left: int | None
    unfinished: bool = False


class BudgetExhausted(Event):
    """A `Release` was refused for good: the budget does not cover it."""


class CheckpointTaken(Event):
    """A `Checkpoint` is copied, behind durable dead letters: the engine may resume."""


@dataclass(frozen=True, slots=True)
class CheckpointDone(Event):
    """A `Checkpoint` is on the disk; it comes after its `CheckpointTaken`."""

    #: For display in the consumer group: the position, None if none was written, and a note.
    position: Position | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class WorkFailed(Event):
    """An instruction failed, with the exit code of the error and a word for it.

    ``dead-letters`` answers a `Checkpoint` before which they could not be made durable. ``account``
    answers a `Checkpoint` or a `Release`: the state does not have each record before its position
    once. ``output`` answers a `Release` that was made and not published: the next one publishes it.
    """

    what: Literal["learn", "release", "output", "checkpoint", "account", "dead-letters"]
    code: int = exit_codes.INTERNAL
    reason: str = ""


class RebuildDone(Event):
    """A `Rebuild` is done."""


@dataclass(frozen=True, slots=True)
class SourceFailed(Event):
    """A `Poll` failed, or a `Rebuild`, or the opening that `StartDone` tells the end of.

    `away` if the source cannot be reached, but nothing says that it is not what it was; or dead
    letters cannot be written, as `what` says. `code` and `reason` as in `WorkFailed`.
    """

    away: bool = False
    reason: str = ""
    code: int = exit_codes.IO
    what: Away = "source"


@dataclass(frozen=True, slots=True)
class SignalReceived(Event):
    """SIGTERM or SIGINT."""

    number: int = 15


class Tick(Event):
    """Time has passed. To be sent at least once a second."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """Something to be done."""


@dataclass(frozen=True, slots=True)
class Poll(Instruction):
    """Read at most `max_records` into a new batch; answered by `PollDone` or `SourceFailed`."""

    max_records: int


class Pause(Instruction):
    """Let the client fetch nothing more."""


class Resume(Instruction):
    """Let the client fetch again."""


class Reopen(Instruction):
    """Open state and source where the last checkpoint stands, for a machine that begins again."""


class Rebuild(Instruction):
    """Close the source and open it after the last batch polled.

    Answered by `RebuildDone` (before the start by `StartDone`), or by `SourceFailed`.
    """


@dataclass(frozen=True, slots=True)
class Learn(Instruction):
    """Learn from all batches up to this one, numbered from 1 as polled; answered by `LearnDone`."""

    batch: int


@dataclass(frozen=True, slots=True)
class Release(Instruction):
    """Make the release that is due, or publish the one that was made and could not be.

    The `last` one comes where the source has ended. Answered by `ReleaseDone` or `BudgetExhausted`.
    """

    last: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint(Instruction):
    """Make dead letters durable; then save the engine, with the position after its last batch.

    Answered by `CheckpointTaken`, and then by `CheckpointDone`.
    """

    batch: int


@dataclass(frozen=True, slots=True)
class ShowStall(Instruction):
    """Show that something cannot be reached, read or written: since when, in seconds, and why."""

    what: str
    reason: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ShowRecovery(Instruction):
    """Show that something can be reached again, after some seconds."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LogLine(Instruction):
    """Log an event with its values; never document text."""

    level: Literal["info", "warning", "error"]
    event: str
    values: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit(Instruction):
    """End the process now, with this code."""

    code: int
