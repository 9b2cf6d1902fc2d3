"""Status of the daemon: the loop writes it, HTTP threads read it.

Everything is kept as plain numbers behind one lock, so that the page and Prometheus show the
same. Nothing grows with the stream. These are exact counts of what was read: they are **not
private**, even where the snapshots are.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from streamlda.service import messages as m
from streamlda.service.logs import log
from streamlda.service.signals import notify
from streamlda.storage.snapshots import Summary

#: The loop must go round within this time, in seconds, or the daemon is taken for dead.
LIVE_SECONDS = 30.0

#: How often systemd is told that the loop goes round, in seconds.
WATCHDOG_SECONDS = 0.5

#: What became of a record, as `Pipeline.outcomes`.
OUTCOMES = ("learned", "short", "rejected", "blank", "skipped")

#: What fails, and is tried again or ends the daemon, as `streamlda.service.messages.WorkFailed`.
FAILURES = ("learn", "release", "output", "checkpoint", "account", "dead-letters", "source")

#: What may be out of reach for a while, or full, as `streamlda.service.messages.ShowStall`.
STALLABLE = ("source", "dead-letters", "output", "checkpoint", "beginning", "partitions")

#: Members of `/status`: figures, and counters of this process.
SHOWN = (
    *("documents", "rejects", "account", "lost", "places", "places_left", "queue_bytes"),
    *("rounds", "releases", "budget"),
)
COUNTED = ("dead_letters", "failures", "failure_reasons")

#: Figures of the state that `/metrics` counts from the start of this process.
OF_STATE = ("documents", "rejects", "releases", "rounds")


@dataclass(slots=True)
class Figures:
    """Figures of a daemon, each replaced when it changes; None is not known."""

    phase: str = "starting"
    #: Why the daemon does not do its work; empty if it does.
    not_ready: str = "starting"
    #: Of the state, which goes back with a checkpoint: records by outcome, rejects by reason.
    documents: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    rejects: Mapping[str, int] = field(default_factory=dict)
    releases: int = 0
    rounds: int = 0
    #: Record slots read in all, and those left until the next snapshot is due.
    places: int | None = None
    places_left: int | None = None
    #: As of `Pipeline`.
    account: Mapping[str, int] | None = None
    warmup: tuple[int, int] | None = None
    in_no_bin: tuple[int, ...] | None = None
    #: What waits in each partition, in `lag_unit`; the partition for which those of others wait.
    lag: Mapping[int, int | None] = field(default_factory=dict)
    lag_unit: str = "records"
    waits_for: int | None = None
    #: When the last record that was learned of each partition was made.
    newest: Mapping[int, float] = field(default_factory=dict)
    #: When the source answered last, with documents or not, by the clock on the wall.
    last_answer: float | None = None
    #: What the source could not read any more, by its unit.
    lost: Mapping[str, int] | None = None
    #: Bytes between reading and learning, and of the process.
    queue_bytes: int = 0
    resident_bytes: int | None = None
    #: Of units that spent most, of those yet to come, and of all.
    budget: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Partitions that are shared with other daemons, as far as they are known."""

    #: Learned here, to be learned here, and those of the topic that are with others.
    partitions: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)
    generation: int | None = None
    #: Whether the lease is here, and the record slots of all partitions.
    lease: bool = False
    places: int | None = None


class Status:
    """The state of one daemon, for `/status`, `/metrics` and the probes; safe between threads.

    The daemon counts as alive for `LIVE_SECONDS` from here on. `stream` names what is read, without
    secrets, since it is shown.
    """

    def __init__(
        self,
        *,
        private: bool,
        stream: str,
        memory_limit_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._private, self._stream, self._clock = private, stream, clock
        self._memory_limit_bytes = memory_limit_bytes
        self._lock = threading.RLock()
        self._began = self._beat = self._told = clock()
        self._known = Figures()
        #: Of counters that belong to the state: the last values, and how much this process added.
        self._counted: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        #: Counters of this process.
        self._counts: dict[str, dict[str, int]] = {
            **{name: {} for name in ("dead_letters", "failure_reasons")},
            **{"failures": dict.fromkeys(FAILURES, 0), "bytes": {"": 0}},
        }
        self._stalled: dict[str, tuple[float, str]] = {}  # since when, by the wall; why
        self._saved: tuple[float, float, int] | None = None  # when, seconds it took, bytes
        #: Shares of topics, by id and what they are of.
        self.topics: dict[str, float] = {}
        self._snapshot: str | None = None
        self._group: Group | None = None

    def beat(self) -> None:
        """Note that the loop went round."""
        with self._lock:
            now = self._beat = self._clock()
            tells = now - self._told >= WATCHDOG_SECONDS
            if tells:
                self._told = now
        if tells:
            notify("READY=1\nWATCHDOG=1")

    def alive(self) -> bool:
        """Return whether the loop went round within `LIVE_SECONDS`."""
        with self._lock:
            return self._clock() - self._beat < LIVE_SECONDS

    def ready(self) -> tuple[bool, str]:
        """Return whether the daemon does its work, and why not, the cause first."""
        with self._lock:
            why = [
                f"{what} stalled since {_iso(self._stalled[what][0])}: {self._stalled[what][1]}"
                for what in STALLABLE
                if what in self._stalled
            ]
            why += [self._known.not_ready] if self._known.not_ready else []
            return not why, "; ".join(why)

    def show(self, instructions: Iterable[m.Instruction]) -> None:
        """Show what is out of reach, or no longer; who reads it in the log finds it here."""
        for instruction in instructions:
            match instruction:
                case m.ShowStall(what, reason, seconds):
                    with self._lock:
                        self._stalled[what] = time.time() - seconds, reason
                        if what == "source":
                            self.forget_lag()
                    since = round(seconds, 1)
                    log("warning", "stalled", what=what, reason=reason, since_seconds=since)
                case m.ShowRecovery(what, seconds):
                    with self._lock:
                        self._stalled.pop(what, None)
                    log("info", "recovered", what=what, after_seconds=round(seconds, 1))

    def forget_lag(self) -> None:
        """Show that what waits is not known."""
        with self._lock:
            self._known.lag = dict.fromkeys(self._known.lag)
            self._known.waits_for = None

    def note(self, **figures: Any) -> None:
        """Take some of the `Figures`, which changed."""
        with self._lock:
            for name, value in figures.items():
                setattr(self._known, name, value)
                if name in OF_STATE:
                    self._add(name, value if isinstance(value, Mapping) else {"": value})

    def note_group(self, **group: Any) -> None:
        """Take what is known of shared partitions: some members of `Group`."""
        with self._lock:
            self._group = replace(self._group or Group(), **group)

    def note_checkpoint(self, seconds: float, size_bytes: int) -> None:
        """Take a finished checkpoint: the time it took and the bytes it wrote."""
        with self._lock:
            self._saved = (self._clock(), seconds, size_bytes)

    def note_snapshot(self, newest: Summary | None) -> None:
        """Take the time of the newest snapshot and the shares of its topics; private if we are."""
        if newest is None or (self._private and not newest.private):
            return
        recent = (newest.interval or {}).get("prevalence") or []
        shares = {"all": [topic.prevalence for topic in newest.topics], "interval": recent}
        found = {
            f"{topic.id} {of}": share
            for of, values in shares.items()
            for topic, share in zip(newest.topics, values, strict=False)
            if topic.id is not None and share is not None
        }
        with self._lock:
            self.topics, self._snapshot = found, newest.created

    def count(self, name: str, key: str, n: int = 1) -> None:
        """Add to a counter of this process: ``dead_letters`` or ``bytes``."""
        with self._lock:
            self._counts[name][key] = self._counts[name].get(key, 0) + n

    def count_failure(self, what: str, reason: str) -> None:
        """Count a failure of one of `FAILURES`, and the word for why."""
        self.count("failures", what)
        self.count("failure_reasons", f"{what} {reason}")

    def status(self) -> dict[str, Any]:
        """Return all of it as plain JSON values; what is not known yet is None."""
        with self._lock:
            now, known, counts = self._clock(), self._known, self._counts
            ready, reason = self.ready()
            bins, warmup, saved = known.in_no_bin, known.warmup, self._saved
            return {
                "stream": self._stream,
                "private": self._private,
                "phase": self._phase(),
                "alive": self.alive(),
                "ready": ready,
                "reason": reason,
                "stalled": {
                    what: {"since": _iso(since), "reason": why}
                    for what, (since, why) in self._stalled.items()
                },
                "uptime_seconds": now - self._began,
                **{name: getattr(known, name) for name in SHOWN},
                **{name: dict(counts[name]) for name in COUNTED},
                "bytes": counts["bytes"][""],
                "lag": self._lag(),
                **dict(zip(("undated", "ahead", "late"), bins or (None,) * 3, strict=True)),
                "warmup": warmup and dict(zip(("documents", "of"), warmup, strict=True)),
                "memory": {
                    "resident_bytes": known.resident_bytes,
                    "limit_bytes": self._memory_limit_bytes,
                },
                "last_snapshot": self._snapshot,
                "checkpoint": saved
                and {"age_seconds": now - saved[0], "seconds": saved[1], "size_bytes": saved[2]},
                "last_answer": _iso(known.last_answer),
                "group": self._group and asdict(self._group),
            }

    def _lag(self) -> dict[str, Any]:
        """Return what waits, and the largest age of newest learned records where records wait.

        The age is None where that of one of these partitions is not known.
        """
        lag, unit = dict(sorted(self._known.lag.items())), self._known.lag_unit
        newest = dict(sorted(self._known.newest.items()))
        if self._group is not None:
            newest = {n: newest[n] for n in self._group.partitions if n in newest}
        behind = [newest.get(n) for n, left in lag.items() if left != 0]
        is_known = lag and unit == "records" and None not in (*behind, *lag.values())
        waiting = [n for n in lag.values() if n is not None]
        now = time.time()
        return {
            **{"records": None, "bytes": None, unit: sum(waiting) if waiting else None},
            "partitions": {str(number): left for number, left in lag.items()},
            "waits_for": self._known.waits_for,
            "seconds": max([0.0, *(now - (at or now) for at in behind)]) if is_known else None,
            "newest": {str(n): _iso(at) for n, at in newest.items()},
        }

    def count_added(self, name: str) -> dict[str, int]:
        """Return how much this process added to a counter of the state, by label."""
        with self._lock:
            return dict(self._counted.get(name, ({}, {}))[1])

    def _add(self, name: str, values: Mapping[str, int]) -> None:
        """Add what came to a counter of the state since it was last told; the first is no rise."""
        before, added = self._counted.get(name, (values, {}))
        for key, value in values.items():
            added[key] = added.get(key, 0) + max(0, value - before.get(key, 0))
        self._counted[name] = dict(values), added

    def _phase(self) -> str:
        """Return the phase: learning is warm-up until the first round ends, or topics are shown."""
        phase = self._known.phase
        has_topics = self._known.rounds > 0 or self._snapshot is not None
        return phase if phase != "learning" or has_topics else "warm-up"


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
