"""Events and instructions: what goes in and out of the brain (`streamlda.service.machine`).

Both are plain values. Where an answer is asked for, it comes once; the machine refuses others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamlda import exit_codes

# Events. `time` is in seconds of one clock that never goes back.


@dataclass(frozen=True, slots=True)
class Started:
    """All is open and restored; `slots_left` to the next release, None if none is left.

    `snapshot` if one was restored: it is published again, for the last time may have failed.
    `unsaved` if the state is behind a release that no checkpoint knows of yet; `since_release` are
    the records learned since the last one, and `fraction` is that of a window that they are of.
    """

    time: float
    slots_left: int | None
    rounds: int = 0
    snapshot: bool = False
    unsaved: bool = False
    since_release: int = 0
    fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Polled:
    """A `Poll` brought `records` (each takes a slot), of which `rejects` were rejected."""

    time: float
    records: int
    size_bytes: int
    rejects: int = 0
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class Learned:
    """A `Learn` is done; the engine has finished `rounds`; `fraction` as in `Started`."""

    time: float
    rounds: int = 0
    fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class ReleaseDone:
    """A `Release` is durable; `snapshot` if it gave topics. `slots_left` as in `Started`."""

    time: float
    snapshot: bool
    slots_left: int | None
    fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """A `Release` was refused for good: the budget does not cover it."""

    time: float


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """What a `Checkpoint` saves is copied: the engine may go on while the copy is written."""

    time: float


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """A `Checkpoint` is on the disk; it comes behind its `CheckpointTaken`."""

    time: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An instruction failed. Behind failed dead letters, the checkpoint must not be made.

    All other instructions of the same list are carried out all the same. `code` is the exit code
    of the error.
    """

    time: float
    what: Literal["learn", "release", "checkpoint", "dead-letters", "publish"]
    code: int = exit_codes.INTERNAL


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A `Poll` failed, or a `Rebuild` did, which leaves out the poll behind it."""

    time: float


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """Memory is short (`short`), or no longer."""

    time: float
    short: bool = True


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """SIGTERM or SIGINT."""

    time: float
    number: int = 15


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. To be sent at least once a second."""

    time: float


Event = (
    Started
    | Polled
    | Learned
    | ReleaseDone
    | BudgetExhausted
    | CheckpointTaken
    | CheckpointDone
    | Failed
    | SourceFailed
    | MemoryPressure
    | SignalReceived
    | Tick
)


# Instructions.


@dataclass(frozen=True, slots=True)
class Poll:
    """Read at most `max_records` into a new batch; answered by `Polled` or `SourceFailed`."""

    max_records: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Let the client fetch nothing more."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the client fetch again."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Close the source and open it behind the last batch polled."""


@dataclass(frozen=True, slots=True)
class Learn:
    """Learn from all batches up to this one, numbered from 1 as polled; answered by `Learned`."""

    batch: int


@dataclass(frozen=True, slots=True)
class Release:
    """Make the release that is due; answered by `ReleaseDone` or `BudgetExhausted`."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Give the newest snapshot out; the same bytes, however often."""


@dataclass(frozen=True, slots=True)
class FlushDeadLetters:
    """Make all dead letters durable that were written so far."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Save the engine, with the position behind a batch.

    Answered by `CheckpointTaken`, and then by `CheckpointDone`.
    """

    batch: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """Log an event with its values; never document text."""

    level: Literal["info", "warning", "error"]
    event: str
    values: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process now, with this code."""

    code: int


Instruction = (
    Poll
    | Pause
    | Resume
    | Rebuild
    | Learn
    | Release
    | Publish
    | FlushDeadLetters
    | Checkpoint
    | LogLine
    | Exit
)
