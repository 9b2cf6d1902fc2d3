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
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from streamlda.checks import one_of
from streamlda.errors import MissingExtraError

if TYPE_CHECKING:
    from prometheus_client import Metric

    from streamlda.storage.snapshots import Summary

#: The loop must go round within this time, in seconds, or the daemon is taken for dead.
LIVE_SECONDS = 30.0

#: Documents per second are taken over this time, in samples this far apart, in seconds.
RATE_SECONDS, SAMPLE_SECONDS = 10.0, 0.5

#: What became of a document.
OUTCOMES = ("learned", "short", "rejected", "blank")

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
        self._samples: deque[tuple[float, int]] = deque([(self._began, 0)])
        self._rejects: dict[str, int] = {}
        self._dead_letters: dict[str, int] = {}
        self._bytes = 0
        self._slots: int | None = None
        self._slots_left: int | None = None
        self._lag: dict[int, int | None] = {}
        self._lag_unit = "records"
        self._queue_bytes = 0
        self._resident_bytes: int | None = None
        self._memory_limit_bytes = memory_limit_bytes
        self._rounds = self._releases = 0
        self._saved: tuple[float, float, int] | None = None  # when, seconds it took, bytes
        self._save_seconds = 0.0
        self._save_buckets = [0] * len(CHECKPOINT_SECONDS)
        self._budget: dict[str, float] | None = None
        self._last_poll: float | None = None
        self._topics: list[tuple[str, str, float]] = []
        self._warmup: tuple[int, int] | None = None
        self._undated: int | None = None
        self._lost: dict[str, int] | None = None

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
            return self._ready, self._reason

    def set_phase(self, phase: str) -> None:
        """Note the value of a `streamlda.service.machine.Phase`."""
        with self._lock:
            self._phase = phase

    def count(self, outcome: str, n: int) -> None:
        """Add documents of one outcome."""
        one_of(OUTCOMES, outcome=outcome, remedy="correct the caller")
        with self._lock:
            self._documents[outcome] += n
            now = self._clock()
            if len(self._samples) > 1 and now - self._samples[-2][0] < SAMPLE_SECONDS:
                self._samples.pop()
            self._samples.append((now, sum(self._documents.values())))
            self._forget_samples(now)

    def count_reject(self, reason: str) -> None:
        """Count a document that could not be used; a reason never holds document text."""
        with self._lock:
            _count(self._rejects, reason)

    def count_dead_letter(self, reason: str) -> None:
        """Count a record that was written to the dead-letter topic."""
        with self._lock:
            _count(self._dead_letters, reason)

    def count_bytes(self, n: int) -> None:
        """Add bytes read from the stream."""
        with self._lock:
            self._bytes += n

    def set_slots(self, done: int, left: int | None) -> None:
        """Note the record slots read in all, and those left until the next snapshot is due."""
        with self._lock:
            self._slots, self._slots_left = done, left

    def set_lag(self, lag: Mapping[int, int | None], unit: str = "records") -> None:
        """Note what waits in each partition, records or bytes; None where it is not known."""
        with self._lock:
            self._lag, self._lag_unit = dict(sorted(lag.items())), unit

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

    def set_warmup(self, warmup: tuple[int, int] | None) -> None:
        """Note the documents that came and are needed for topics, as `Pipeline.warmup`."""
        with self._lock:
            self._warmup = warmup

    def set_undated(self, n: int | None) -> None:
        """Note documents without a time or before the first bin; None if no times are read."""
        with self._lock:
            self._undated = n

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

    def released(self) -> None:
        """Note a published snapshot."""
        with self._lock:
            self._releases += 1

    def set_budget(
        self, epsilon_spent: float, epsilon_left: float, epsilon_total: float, delta: float
    ) -> None:
        """Note the privacy budget: the most that a unit has spent, and what new ones have left."""
        with self._lock:
            self._budget = {
                "epsilon_spent": epsilon_spent,
                "epsilon_left": epsilon_left,
                "epsilon_total": epsilon_total,
                "delta": delta,
            }

    def set_snapshot(self, newest: Summary | None) -> None:
        """Note the prevalence of the topics of the newest snapshot; private mode, if it is private.

        So far and since the snapshot before; unknown shares have no sample.
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
            self._topics = found

    def polled(self) -> None:
        """Note that the source was asked, by the clock on the wall."""
        with self._lock:
            self._last_poll = time.time()

    def status(self) -> dict[str, Any]:
        """Return all of it as plain JSON values; what is not known yet is None."""
        with self._lock:
            now = self._clock()
            saved = self._saved
            known = [lag for lag in self._lag.values() if lag is not None]
            unknown = dict.fromkeys(("records", "bytes"))
            waiting = unknown | {self._lag_unit: sum(known) if known else None}
            polled = self._last_poll
            return {
                "stream": self._stream,
                "private": self._private,
                "phase": self._phase,
                "alive": self._is_alive(),
                "ready": self._ready,
                "reason": self._reason,
                "uptime_seconds": now - self._began,
                "documents": dict(self._documents),
                "documents_per_second": self._rate(now),
                "bytes": self._bytes,
                "rejects": dict(self._rejects),
                "dead_letters": dict(self._dead_letters),
                "places": self._slots,
                "places_left": self._slots_left,
                "lag": {
                    **waiting,
                    "partitions": {str(number): lag for number, lag in self._lag.items()},
                },
                "undated": self._undated,
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
                "checkpoint": saved
                and {
                    "age_seconds": now - saved[0],
                    "seconds": saved[1],
                    "size_bytes": saved[2],
                },
                "budget": self._budget and dict(self._budget),
                "last_poll": polled
                and datetime.fromtimestamp(polled, UTC).isoformat(timespec="seconds"),
            }

    def metrics(self) -> bytes:
        """Return all of it in the text format of Prometheus, version 0.0.4."""
        try:
            from prometheus_client import CollectorRegistry, generate_latest
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "http", "showing metrics") from error
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics: this makes a `Status` a collector of prometheus-client."""
        found = self.status()
        memory, saved, budget = found["memory"], found["checkpoint"], found["budget"]
        yield _counter("documents", "Documents read.", found["documents"], "outcome")
        yield _counter("rejects", "Documents not usable.", found["rejects"], "reason")
        yield _counter("dead_letters", "Records set aside.", found["dead_letters"], "reason")
        yield _counter("bytes", "Bytes read from the stream.", found["bytes"])
        yield _counter(
            "rounds",
            "Rounds finished; the start of a refinement, or a projection given, is one.",
            found["rounds"],
        )
        yield _counter("releases", "Snapshots published.", found["releases"])
        yield _gauge("places", "Record slots read since the stream began.", found["places"])
        yield _gauge("places_left", "Record slots until the next snapshot.", found["places_left"])
        shares = _gauge(
            "topic_prevalence", "Share of tokens: of all (of a private window), of the interval."
        )
        for topic, of, share in self._shares():
            shares.add_sample(shares.name, {"topic": topic, "of": of}, share)
        yield shares
        lag = {number: n for number, n in found["lag"]["partitions"].items() if n is not None}
        of_records = {} if found["lag"]["records"] is None else lag
        yield _gauge("kafka_lag_records", "Records that wait.", of_records, "partition")
        yield _gauge(
            "undated_documents",
            "Documents without an event time, or before the first bin.",
            found["undated"],
        )
        yield _gauge("lost", "What could not be read any more.", found["lost"], "unit")
        yield _gauge("queue_bytes", "Bytes between reading and learning.", found["queue_bytes"])
        yield _gauge("resident_memory_bytes", "Memory of the process.", memory["resident_bytes"])
        yield _gauge("memory_limit_bytes", "Memory promised.", memory["limit_bytes"])
        yield self._durations()
        age, size = (saved["age_seconds"], saved["size_bytes"]) if saved else (None, None)
        yield _gauge("checkpoint_age_seconds", "Time since the last checkpoint.", age)
        yield _gauge("checkpoint_bytes", "Size of the last checkpoint.", size)
        for name, text in (
            ("epsilon_spent", "The most that any unit has spent."),
            ("epsilon_left", "What units that were in no release have left; 0 ends releases."),
            ("epsilon_total", "Budget of a unit."),
            ("delta", "What epsilon leaves open."),
        ):
            yield _gauge(f"privacy_{name}", text, budget and budget[name])
        yield _gauge("last_poll_timestamp_seconds", "When the source was asked.", self._last_poll)
        yield _gauge("uptime_seconds", "Time since the start.", found["uptime_seconds"])
        yield _gauge("ready", "1 if the daemon does its work.", int(found["ready"]))
        yield _gauge("phase", "1 for the phase at hand.", {found["phase"]: 1}, "phase")
        build = _gauge("build_info", "Versions.")
        labels = {"version": version("streamlda"), "python": python_version()}
        build.add_sample(build.name, labels, 1)
        yield build

    def _shares(self) -> list[tuple[str, str, float]]:
        with self._lock:
            return self._topics

    def _durations(self) -> Metric:
        from prometheus_client.metrics_core import HistogramMetricFamily

        with self._lock:
            buckets = [
                ("+Inf" if bound == math.inf else str(bound), n)
                for bound, n in zip(CHECKPOINT_SECONDS, self._save_buckets, strict=True)
            ]
            return HistogramMetricFamily(
                "streamlda_checkpoint_duration_seconds",
                "Time that checkpoints took.",
                buckets=buckets,
                sum_value=self._save_seconds,
            )

    def _is_alive(self) -> bool:
        return self._clock() - self._beat < LIVE_SECONDS

    def _rate(self, now: float) -> float:
        self._forget_samples(now)
        since, total = self._samples[0]
        # Nothing came between a sample that is older and the time looked at; and over a very short
        # time one batch would look like a rate.
        seconds = min(max(now - since, 1.0), RATE_SECONDS)
        return (sum(self._documents.values()) - total) / seconds

    def _forget_samples(self, now: float) -> None:
        """Keep one sample from before the time looked at, so that the whole of it is covered."""
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.popleft()


def _count(table: dict[str, int], reason: str) -> None:
    known = reason in table or len(table) < MOST_REASONS
    key = reason if known else "other"
    table[key] = table.get(key, 0) + 1


def _metric(
    kind: str,
    name: str,
    text: str,
    values: float | dict[str, int] | None = None,
    label: str | None = None,
) -> Any:
    """Return a metric; one that is not known has no sample, rather than a wrong one."""
    from prometheus_client import metrics_core

    family: Any = getattr(metrics_core, f"{kind}MetricFamily")
    found = family(f"streamlda_{name}", text, labels=[label] if label else [])
    if values is not None:
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            found.add_metric([key], value)
    return found


_counter, _gauge = partial(_metric, "Counter"), partial(_metric, "Gauge")
