"""Rules of the machine: times, when it tries again, and when too much is rejected."""

from dataclasses import dataclass

from streamlda.service import messages as m

#: Longest pause before a failed thing is tried again, in seconds; it doubles from 1. Reading is
#: to resume within 15 s of a broker's return, and opening takes some of them.
LONGEST_BACKOFF_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of the machine."""

    #: A checkpoint is made at the first chance after this time, if anything was learned.
    checkpoint_seconds: float = 60.0
    #: The source is paused when as many bytes wait, and resumed at half.
    queue_bytes: int = 64 * 2**20
    #: Most records of a poll.
    poll_records: int = 4096
    #: From the first signal to `Exit`, at most.
    grace_seconds: float = 9.0
    #: Stop when more than this share of the last records, this many or more, were rejected.
    breaker_records: int = 10_000
    breaker_share: float = 0.5
    #: Failures in a row after which to stop, of a source that is there.
    attempts: int = 5
    #: A source that is silent for so long is opened again.
    silent_seconds: float = 60.0
    #: Stop rather than idle when no release is left.
    stop_when_exhausted: bool = False
    #: A release is due after this time, too.
    snapshot_seconds: float | None = None
    #: When the source ends, release once more what was learned since the last time. Only where
    #: releases are not private: those end at slots that were fixed in advance.
    release_at_end: bool = False


@dataclass(slots=True)
class Retry:
    """Failures in a row of one thing, when to try again, and what to show of it."""

    what: str
    failures: int = 0
    at: float | None = None
    since: float | None = None
    reason: str = ""

    def note_failure(self, time: float, reason: str) -> list[m.Instruction]:
        """Note one more failure, and show it."""
        self.again(time)
        return self.note_stall(time, reason)

    def again(self, time: float) -> None:
        """Note one more failure."""
        self.failures += 1
        # 2**9 s are longer than the longest, and 2**1024 would be no number.
        doubled = 2.0 ** min(self.failures - 1, 9)
        self.at = time + min(doubled, LONGEST_BACKOFF_SECONDS)

    def note_stall(self, time: float, reason: str, seconds: float = 0.0) -> list[m.Instruction]:
        """Note that it has been out of reach for some seconds, for this reason."""
        if self.since is None:
            self.since = time - seconds
        elif reason == self.reason:
            return []
        self.reason = reason
        return [m.ShowStall(self.what, reason, time - self.since)]

    def waits(self, time: float) -> bool:
        """Return whether it is too soon to try again; if not, it is tried now."""
        if self.at is not None and time < self.at:
            return True
        self.at = None
        return False

    def note_success(self, time: float) -> list[m.Instruction]:
        """Note that it was reached."""
        since, self.failures, self.at, self.since = self.since, 0, None, None
        return [] if since is None else [m.ShowRecovery(self.what, time - since)]


@dataclass(slots=True)
class SourceRetry(Retry):
    """That of the source, which may be away, or there and not to be read."""

    what: str = "source"
    #: It is being opened.
    opening: bool = True
    #: Failures in a row while it was there.
    damages: int = 0

    @property
    def may_poll(self) -> bool:
        """True if the source is open, and is not to be opened again."""
        return not self.opening and self.at is None

    def take_answer(self, poll: m.PollDone, silent_seconds: float) -> list[m.Instruction]:
        """Take the answer to a poll; a source that is silent for that long is opened again."""
        if poll.silent is None:
            return []
        if poll.silent == 0:
            self.damages = 0
            return self.note_success(poll.time)
        reason = poll.reason or "no-answer"
        out = self.note_stall(poll.time, reason, poll.silent)
        if poll.silent >= silent_seconds:
            out += self.note_failure(poll.time, reason)
        return out

    def take_failure(self, event: m.SourceFailed) -> list[m.Instruction]:
        """Take a failure."""
        self.opening = False
        self.damages += not event.away
        if event.what == self.what:
            return self.note_failure(event.time, event.reason)
        self.again(event.time)
        return []


class Breaker:
    """Counts rejected records among the last that came."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seen = self._rejected = 0

    def count(self, records: int, rejects: int) -> dict[str, int | float] | None:
        """Take the records of a poll; return what to say if too many were rejected."""
        self._seen += records
        self._rejected += rejects
        if self._seen < self._rules.breaker_records:
            return None
        share, values = self._rejected / self._seen, None
        if share > self._rules.breaker_share:
            values = {"records": self._seen, "rejects": self._rejected, "share": round(share, 4)}
        # Half is forgotten, so that old good records do not hide new bad ones for long.
        self._seen //= 2
        self._rejected //= 2
        return values
