"""The figures of `Status` as Prometheus metrics; `METRICS` declares each once.

Counters are of the process, from 0 on: Prometheus notices that they start again.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.metadata import version
from platform import python_version
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest, metrics_core

from streamlda.service.status import STALLABLE, Status


class StatusMetric(NamedTuple):
    """A metric: its help, the member of `/status` that it shows, by path, and its labels.

    Labels of a mapping are in its keys, separated by spaces. `counted` is a counter of the state,
    of which the part of this process is shown.
    """

    kind: str
    name: str
    text: str
    path: str
    labels: str = ""
    counted: bool = False


# fmt: off
METRICS = tuple(StatusMetric(*row) for row in (
    ("Counter", "documents", "Records read, by outcome.", "documents", "outcome", True),
    ("Counter", "rejects", "Records that cannot be used.", "rejects", "reason", True),
    ("Counter", "dead_letters", "Dead letters written.", "dead_letters", "reason"),
    ("Counter", "lost", "What could no longer be read, of the stream.", "lost", "unit"),
    ("Counter", "failures", "Failures.", "failures", "what"),
    ("Counter", "failure_reasons", "Failures, by reason.", "failure_reasons", "what reason"),
    ("Counter", "bytes", "UTF-8 bytes of the documents read.", "bytes"),
    ("Counter", "rounds", "Rounds finished.", "rounds", "", True),
    ("Counter", "releases", "Snapshots made.", "releases", "", True),
    ("Gauge", "last_snapshot_timestamp_seconds", "Time of the newest snapshot.", "last_snapshot"),
    ("Gauge", "places", "Record slots read since the stream began.", "places"),
    ("Gauge", "places_left", "Record slots until the next snapshot.", "places_left"),
    ("Gauge", "account_records", "Records in the state, and passed.", "account", "of"),
    ("Gauge", "kafka_lag_records", "Records that wait.", "lag.partitions", "partition"),
    ("Gauge", "source_record_timestamp_seconds",
     "When the newest record that was learned was made.", "lag.newest", "partition"),
    ("Gauge", "undated_documents", "Documents without a time, or before all bins.", "undated"),
    ("Gauge", "ahead_documents", "Documents from later than the clock allows.", "ahead"),
    ("Gauge", "late_documents", "Documents far from the time bins kept.", "late"),
    ("Gauge", "queue_bytes", "Bytes between reading and learning.", "queue_bytes"),
    ("Gauge", "resident_memory_bytes", "Memory of the process.", "memory.resident_bytes"),
    ("Gauge", "memory_limit_bytes", "Memory that the control group allows.", "memory.limit_bytes"),
    ("Gauge", "checkpoint_age_seconds", "Since the last checkpoint.", "checkpoint.age_seconds"),
    ("Gauge", "checkpoint_seconds", "Time of the last checkpoint.", "checkpoint.seconds"),
    ("Gauge", "checkpoint_bytes", "Size of the last checkpoint.", "checkpoint.size_bytes"),
    ("Gauge", "privacy_epsilon_spent",
     "Epsilon of a unit, spent by those that spent most.", "budget.epsilon_spent"),
    ("Gauge", "privacy_epsilon_left",
     "Epsilon of a unit, left for those that were in no release.", "budget.epsilon_left"),
    ("Gauge", "privacy_epsilon_total", "Epsilon of a unit.", "budget.epsilon_total"),
    ("Gauge", "privacy_delta", "Probability with which epsilon may fail.", "budget.delta"),
    ("Gauge", "source_last_answer_timestamp_seconds",
     "When the source last answered; for Kafka, when a broker did.", "last_answer"),
    ("Gauge", "uptime_seconds", "Time since the start.", "uptime_seconds"),
    ("Gauge", "ready", "1 if the daemon is working.", "ready"),
    ("Gauge", "group_generation", "Generation of the consumer group.", "group.generation"),
    ("Gauge", "group_places", "Record slots saved of all partitions.", "group.places"),
    ("Gauge", "lease", "1 if snapshots are made here.", "group.lease"),
))
# fmt: on


class Metrics:
    """A collector of prometheus-client."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus, version 0.0.4."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        found = self._status.status()
        if found["lag"]["records"] is None:
            found["lag"]["partitions"] = {}
        for kind, name, text, path, labels, counted in METRICS:
            values = self._status.count_added(name) if counted else _member(found, path)
            yield _metric(kind, name, text, values, labels)
        yield _metric(
            "Gauge",
            "topic_prevalence",
            "Share of tokens: in all (or a private window), in the interval.",
            self._status.topics,
            "topic of",
        )
        stalled = {what: what in found["stalled"] for what in STALLABLE}
        text = "1 while this cannot be reached, read or written."
        yield _metric("Gauge", "stalled", text, stalled, "what")
        yield _metric("Gauge", "phase", "1 for the current phase.", {found["phase"]: 1}, "phase")
        if (group := found["group"]) is not None:
            held = dict.fromkeys(map(str, group["partitions"]), 1)
            held |= dict.fromkeys(map(str, [*group["waiting"], *group["elsewhere"]]), 0)
            text = "1 if the partition is learned here, 0 if not."
            yield _metric("Gauge", "partition", text, held, "partition")
        versions = {f"{version('streamlda')} {python_version()}": 1}
        yield _metric("Gauge", "build_info", "Versions.", versions, "version python")


def _member(found: Any, path: str) -> Any:
    for key in path.split("."):
        found = found and found[key]
    return found


def _metric(kind: str, name: str, text: str, values: Any, labels: str) -> Any:
    """Return a metric; an unknown value has no sample."""
    family = getattr(metrics_core, f"{kind}MetricFamily")
    made = family(f"streamlda_{name}", text, labels=labels.split())
    for key, value in (values if isinstance(values, Mapping) else {"": values}).items():
        if isinstance(value, str):
            value = datetime.fromisoformat(value).timestamp()
        if value is not None:
            made.add_metric(key.split(" ", labels.count(" ")) if labels else [], value)
    return made
