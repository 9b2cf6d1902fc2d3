"""What the machine goes by: its rules, when it tries again, and when too much is rejected."""

from __future__ import annotations

from dataclasses import dataclass

from streamlda.checks import above, at_least, between, require

#: Longest pause before a failed thing is tried again, in seconds; it doubles from 1.
LONGEST_BACKOFF_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the machine goes by."""

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
    #: Failures in a row of one thing after which to stop.
    attempts: int = 5
    #: How long memory may stay short while nothing is read.
    memory_patience_seconds: float = 60.0
    #: Stop rather than idle when no release is left.
    stop_when_exhausted: bool = False
    #: A release is due after this time, too, or after the fraction of it that a stage is.
    snapshot_seconds: float | None = None
    #: Whether releases are private: a clock ends them at multiples of record slots then.
    counts_slots: bool = False
    #: When the source ends, release once more what was learned since the last time. Only where
    #: releases are not private: those end at slots that were fixed in advance.
    release_at_end: bool = False

    def __post_init__(self) -> None:
        for name in ("queue_bytes", "poll_records", "breaker_records", "attempts"):
            at_least(1, **{name: getattr(self, name)})
        above(0, checkpoint_seconds=self.checkpoint_seconds)
        between(0, 1, breaker_share=self.breaker_share)
        require(
            self.grace_seconds >= 0, "grace_seconds must be >= 0", grace_seconds=self.grace_seconds
        )


@dataclass(slots=True)
class Retry:
    """Failures in a row of one thing, and when to try again."""

    failures: int = 0
    at: float | None = None

    def failed(self, time: float) -> None:
        """Note one more failure."""
        self.failures += 1
        self.at = time + min(2.0 ** (self.failures - 1), LONGEST_BACKOFF_SECONDS)


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
