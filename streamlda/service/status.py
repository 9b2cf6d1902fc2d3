"""How the daemon fares: the loop writes it down, HTTP threads read it.

Everything is kept as plain numbers behind one lock, so that the page and Prometheus show the
same. Nothing grows with the stream. These are exact counts of what was read: they are **not
private**, even where the snapshots are.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamlda.stream.time_bins import InNoBin

if TYPE_CHECKING:
    from streamlda.storage.snapshots import Summary

#: The loop must go round within this time, in seconds, or the daemon is taken for dead.
LIVE_SECONDS = 30.0

#: Documents per second are taken over this time, in samples this far apart, in seconds.
RATE_SECONDS, SAMPLE_SECONDS = 10.0, 0.5

#: What became of a record, as `Pipeline.outcomes`.
OUTCOMES = ("learned", "short", "rejected", "blank", "skipped")

#: What fails, and is tried again or ends the daemon, as `streamlda.service.messages.Failed`.
FAILURES = (
    *("learn", "release", "output", "checkpoint", "account"),
    *("dead-letters", "publish", "source", "infer"),
)

#: What may be out of reach for a while, or full, as `streamlda.service.messages.Stalled`.
STALLABLE = (
    *("source", "dead-letters", "output", "checkpoint", "publish", "infer"),
    *("beginning", "partitions"),
)

#: Upper bounds of the histogram of checkpoint durations, in seconds.
CHECKPOINT_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, math.inf)

#: Reasons kept apart; further ones are counted as "other", so that the tables stay small.
MOST_REASONS = 64


class Status:
    """The state of one daemon, for `/status`, `/metrics` and the probes; safe between threads.

    Every method takes O(1) time but for the number of partitions; memory O(partitions). The
    daemon counts as alive for `LIVE_SECONDS` from here on.

    `stream` is what is read, for people: no secret, since it is shown.
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
        self._lock = threading.Lock()
        self._began = self._beat = clock()
        self._ready, self._reason = False, "starting"
        self._phase = "starting"
        self._documents = dict.fromkeys(OUTCOMES, 0)
        #: Of counters that belong to the state: the last values, and how much this process added.
        self._counted: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self._samples: deque[tuple[float, int]] = deque()
        self._rejects: dict[str, int] = {}
        self._dead_letters: dict[str, int] = {}
        self._failures = dict.fromkeys(FAILURES, 0)
        self._failure_reasons: dict[str, int] = {}
        self._stalled: dict[str, tuple[float, str]] = {}  # since when, by the wall; why
        self._bytes = 0
        self._account: dict[str, int] | None = None
        self._slots: int | None = None
        self._slots_left: int | None = None
        self._lag: dict[int, int | None] = {}
        self._waits_for: int | None = None
        self._lag_unit = "records"
        #: Of each partition, when the last record that was learned was made.
        self._newest: dict[int, float] = {}
        self._queue_bytes = 0
        self._resident_bytes: int | None = None
        self._memory_limit_bytes = memory_limit_bytes
        self._rounds = self._releases = 0
        self._saved: tuple[float, float, int] | None = None  # when, seconds it took, bytes
        self._save_seconds = 0.0
        self._save_buckets = [0] * len(CHECKPOINT_SECONDS)
        self._budget: dict[str, float] | None = None
        self._last_answer: float | None = None
        self._topics: list[tuple[str, str, float]] = []
        self._snapshot: str | None = None
        self._warmup: tuple[int, int] | None = None
        self._in_no_bin: InNoBin | None = None
        self._lost: dict[str, int] | None = None
        self._group: dict[str, Any] | None = None
        self._inferred: dict[str, int] | None = None
        self._inferred_by: int | None = None
        self._infer_lag: dict[int, int | None] = {}
        self._infer_lost = 0

    def beat(self) -> None:
        """Note that the loop went round."""
        with self._lock:
            self._beat = self._clock()

    def alive(self) -> bool:
        """Return whether the loop went round within `LIVE_SECONDS`."""
        with self._lock:
            return self._is_alive()

    def set_ready(self, ready: bool, reason: str = "") -> None:
        """Note whether the daemon does its work, and why not."""
        with self._lock:
            self._ready, self._reason = ready, reason

    def ready(self) -> tuple[bool, str]:
        """Return whether the daemon does its work, and why not."""
        with self._lock:
            return self._is_ready()

    def stalled(self, what: str, reason: str, seconds: float) -> None:
        """Note what cannot be reached, read or written, since when, and why: a word of no text."""
        with self._lock:
            self._stalled[what] = time.time() - seconds, reason
            if what == "source":
                self._lag, self._waits_for = dict.fromkeys(self._lag), None

    def recovered(self, what: str) -> None:
        """Note that it can be again."""
        with self._lock:
            self._stalled.pop(what, None)

    def share(self, **group: Any) -> None:
        """Note what is known of partitions that are shared with other daemons.

        ``partitions`` that are learned here, those that are ``waiting`` to be, and those of the
        topic that are ``elsewhere``; the ``generation`` of the group, whether the ``lease`` is
        here, and the ``places`` of all partitions.
        """
        with self._lock:
            unknown = dict.fromkeys(("partitions", "waiting", "elsewhere"), ())
            none = unknown | dict.fromkeys(("generation", "places")) | {"lease": False}
            self._group = (self._group or none) | group

    def set_phase(self, phase: str) -> None:
        """Note the value of a `streamlda.service.machine.Phase`."""
        with self._lock:
            self._phase = phase

    def set_records(
        self, outcomes: Mapping[str, int], rejects: Mapping[str, int], snapshots: int
    ) -> None:
        """Note what became of all records so far, why some were rejected, and the snapshots made.

        They are of the state, so a checkpoint goes back to those that stand after it. A reason
        never holds document text.
        """
        with self._lock:
            self._documents, self._releases = dict(outcomes), snapshots
            self._rejects = {}
            for reason, n in rejects.items():
                _count(self._rejects, reason, n)
            self._add("documents", self._documents)
            self._add("rejects", self._rejects)
            self._add("releases", {"": snapshots})
            now = self._clock()
            if len(self._samples) > 1 and now - self._samples[-2][0] < SAMPLE_SECONDS:
                self._samples.pop()
            self._samples.append((now, sum(outcomes.values())))
            self._forget_samples(now)

    def count_failure(self, what: str, reason: str) -> None:
        """Count a failure of one of `FAILURES`, and the word for why."""
        with self._lock:
            self._failures[what] += 1
            _count(self._failure_reasons, f"{what} {reason}", 1)

    def count_dead_letter(self, reason: str) -> None:
        """Count a record that was written to the dead-letter topic."""
        with self._lock:
            _count(self._dead_letters, reason, 1)

    def count_bytes(self, n: int) -> None:
        """Add bytes read from the stream."""
        with self._lock:
            self._bytes += n

    def set_slots(self, done: int, left: int | None) -> None:
        """Note the record slots read in all, and those left until the next snapshot is due."""
        with self._lock:
            self._slots, self._slots_left = done, left

    def set_lag(
        self,
        lag: Mapping[int, int | None],
        unit: str = "records",
        *,
        waits_for: int | None = None,
    ) -> None:
        """Note what waits in each partition, records or bytes; None where it is not known.

        `waits_for` is the partition without a record for which those of the others wait.
        """
        with self._lock:
            self._lag, self._lag_unit = dict(sorted(lag.items())), unit
            self._waits_for = waits_for

    def set_newest(self, newest: Mapping[int, float]) -> None:
        """Note when the last records that were learned of partitions were made."""
        with self._lock:
            self._newest |= newest

    def count_inference(self, outcomes: Mapping[str, int], snapshot: int | None, lost: int) -> None:
        """Add records whose results are written, and note the snapshot that they are by.

        `lost` are records that were gone before they were read.
        """
        with self._lock:
            total = self._inferred or dict.fromkeys(outcomes, 0)
            self._inferred = {outcome: total[outcome] + n for outcome, n in outcomes.items()}
            self._inferred_by, self._infer_lost = snapshot, lost

    def set_inference_lag(self, lag: Mapping[int, int | None]) -> None:
        """Note what waits to be inferred in each partition held; None where it is not known."""
        with self._lock:
            self._infer_lag = dict(sorted(lag.items()))

    def set_queue(self, size_bytes: int) -> None:
        """Note the bytes that wait between reading and learning."""
        with self._lock:
            self._queue_bytes = size_bytes

    def set_memory(self, resident_bytes: int) -> None:
        """Note the resident memory of the process."""
        with self._lock:
            self._resident_bytes = resident_bytes

    def set_rounds(self, n: int) -> None:
        """Note the rounds finished, as `Pipeline.rounds` counts them."""
        with self._lock:
            self._rounds = n
            self._add("rounds", {"": n})

    def set_warmup(self, warmup: tuple[int, int] | None) -> None:
        """Note the documents that came and are needed for topics, as `Pipeline.warmup`."""
        with self._lock:
            self._warmup = warmup

    def set_in_no_bin(self, found: InNoBin | None) -> None:
        """Note documents in no time bin, as `Pipeline.in_no_bin`."""
        with self._lock:
            self._in_no_bin = found

    def set_account(self, account: Mapping[str, int] | None) -> None:
        """Note the records in the state and those that the source has passed; None if unknown."""
        with self._lock:
            self._account = None if account is None else dict(account)

    def set_lost(self, lost: Mapping[str, int]) -> None:
        """Note what the source could not read any more, by its unit."""
        with self._lock:
            self._lost = dict(lost)

    def checkpoint(self, seconds: float, size_bytes: int) -> None:
        """Note a finished checkpoint: the time it took and the bytes it wrote."""
        with self._lock:
            self._saved = (self._clock(), seconds, size_bytes)
            self._save_seconds += seconds
            for i, bound in enumerate(CHECKPOINT_SECONDS):
                self._save_buckets[i] += seconds <= bound

    def set_budget(
        self, epsilon_spent: float, epsilon_left: float, epsilon_total: float, delta: float
    ) -> None:
        """Note the privacy budget: of the units that spent most, and of those yet to come."""
        with self._lock:
            self._budget = {
                "epsilon_spent": epsilon_spent,
                "epsilon_left": epsilon_left,
                "epsilon_total": epsilon_total,
                "delta": delta,
            }

    def set_snapshot(self, newest: Summary | None) -> None:
        """Note when the newest snapshot was made, and the prevalence of its topics.

        In private mode, if it is private. Prevalence is so far and since the snapshot before;
        unknown shares have no sample.
        """
        if newest is None or (self._private and not newest.private):
            return
        recent = (newest.interval or {}).get("prevalence") or []
        shares = {"all": [topic.prevalence for topic in newest.topics], "interval": recent}
        found = [
            (str(topic.id), of, share)
            for of, values in shares.items()
            for topic, share in zip(newest.topics, values, strict=False)
            if topic.id is not None and share is not None
        ]
        with self._lock:
            self._topics, self._snapshot = found, newest.created

    def answered(self, seconds: float = 0.0) -> None:
        """Note how many seconds ago the source answered, with documents or not."""
        with self._lock:
            self._last_answer = time.time() - seconds

    def status(self) -> dict[str, Any]:
        """Return all of it as plain JSON values; what is not known yet is None."""
        with self._lock:
            now = self._clock()
            saved = self._saved
            known = [lag for lag in self._lag.values() if lag is not None]
            unknown = dict.fromkeys(("records", "bytes"))
            waiting = unknown | {self._lag_unit: sum(known) if known else None}
            ready, reason = self._is_ready()
            return {
                "stream": self._stream,
                "private": self._private,
                "phase": self._shown_phase(),
                "alive": self._is_alive(),
                "ready": ready,
                "reason": reason,
                "stalled": {
                    what: {"since": _iso(since), "reason": why}
                    for what, (since, why) in self._stalled.items()
                },
                "uptime_seconds": now - self._began,
                "documents": dict(self._documents),
                "documents_per_second": self._rate(now),
                "bytes": self._bytes,
                "rejects": dict(self._rejects),
                "dead_letters": dict(self._dead_letters),
                "failures": dict(self._failures),
                "failure_reasons": dict(self._failure_reasons),
                "places": self._slots,
                "places_left": self._slots_left,
                "account": self._account,
                "lag": {
                    **waiting,
                    "partitions": {str(number): lag for number, lag in self._lag.items()},
                    "waits_for": self._waits_for,
                    **self._ages(),
                },
                **dict(zip(InNoBin._fields, self._in_no_bin or (None,) * 3, strict=True)),
                "lost": self._lost,
                "warmup": self._warmup
                and dict(zip(("documents", "of"), self._warmup, strict=True)),
                "queue_bytes": self._queue_bytes,
                "memory": {
                    "resident_bytes": self._resident_bytes,
                    "limit_bytes": self._memory_limit_bytes,
                },
                "rounds": self._rounds,
                "releases": self._releases,
                "last_snapshot": self._snapshot,
                "checkpoint": saved
                and {
                    "age_seconds": now - saved[0],
                    "seconds": saved[1],
                    "size_bytes": saved[2],
                },
                "budget": self._budget and dict(self._budget),
                "last_answer": _iso(self._last_answer),
                "group": self._group and dict(self._group),
                "inference": self._inference(),
            }

    def _ages(self) -> dict[str, Any]:
        """Return when the newest learned record of each partition was made, and the largest age.

        Only partitions where records wait have an age; it is None where one is not known.
        """
        held = self._newest if self._group is None else self._group["partitions"]
        newest = {n: at for n, at in sorted(self._newest.items()) if n in held}
        behind = [newest.get(n) for n, lag in self._lag.items() if lag != 0]
        known = [at for at in behind if at is not None]
        seconds = max(0.0, time.time() - min(known, default=math.inf))
        is_known = self._lag and self._lag_unit == "records" and len(known) == len(behind)
        return {
            "seconds": seconds if is_known and None not in self._lag.values() else None,
            "newest": {str(n): _iso(at) for n, at in newest.items()},
        }

    def _inference(self) -> dict[str, Any] | None:
        if self._inferred is None:
            return None
        known = [lag for lag in self._infer_lag.values() if lag is not None]
        complete = known and len(known) == len(self._infer_lag)
        return {
            "records": dict(self._inferred),
            "snapshot": self._inferred_by,
            "lag": sum(known) if complete else None,
            "partitions": {str(number): lag for number, lag in self._infer_lag.items()},
            "lost": self._infer_lost,
        }

    def counted(self, name: str) -> dict[str, int]:
        """Return how much this process added to a counter of the state, by label."""
        with self._lock:
            return dict(self._counted.get(name, ({}, {}))[1])

    def _add(self, name: str, values: Mapping[str, int]) -> None:
        """Add what came to a counter of the state since it was last told; the first is no rise."""
        before, added = self._counted.get(name, (values, {}))
        for key, value in values.items():
            first = 0 if name in self._counted else value
            added[key] = added.get(key, 0) + max(0, value - before.get(key, first))
        self._counted[name] = dict(values), added

    def last_answer(self) -> float | None:
        """Return when the source answered last, by the clock on the wall."""
        with self._lock:
            return self._last_answer

    def shares(self) -> list[tuple[str, str, float]]:
        """Return number, what it is of, and prevalence, of each topic of the newest snapshot."""
        with self._lock:
            return self._topics

    def durations(self) -> tuple[list[int], float]:
        """Return how many checkpoints took each of `CHECKPOINT_SECONDS` at most, and all of it."""
        with self._lock:
            return list(self._save_buckets), self._save_seconds

    def _is_ready(self) -> tuple[bool, str]:
        why = [] if self._ready else [self._reason]
        for what, (since, reason) in self._stalled.items():
            why.append(f"{what} stalled since {_iso(since)}: {reason}")
        return not why, "; ".join(why)

    def _shown_phase(self) -> str:
        """Return the phase: learning is warm-up until the first round ends, or topics are shown."""
        has_topics = self._rounds > 0 or self._snapshot is not None
        return self._phase if self._phase != "learning" or has_topics else "warm-up"

    def _is_alive(self) -> bool:
        return self._clock() - self._beat < LIVE_SECONDS

    def _rate(self, now: float) -> float:
        self._forget_samples(now)
        since, total = self._samples[0] if self._samples else (now, 0)
        # Nothing came between a sample that is older and the time looked at; and over a very short
        # time one batch would look like a rate.
        seconds = min(max(now - since, 1.0), RATE_SECONDS)
        return (sum(self._documents.values()) - total) / seconds

    def _forget_samples(self, now: float) -> None:
        """Keep one sample from before the time looked at, so that the whole of it is covered."""
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.popleft()


def _count(table: dict[str, int], reason: str, n: int) -> None:
    known = reason in table or len(table) < MOST_REASONS
    key = reason if known else "other"
    table[key] = table.get(key, 0) + n


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
