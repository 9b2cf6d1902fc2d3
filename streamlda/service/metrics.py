"""What the daemon shows Prometheus: the figures of its `Status`, as metrics.

Counters are of the stream, not of the process: none begins at 0 once more (`ShownCounters`). Those
of daemons that share partitions, and of ``streamlda infer``, are of the process, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from streamlda.errors import MissingExtraError
from streamlda.service.status import CHECKPOINT_SECONDS, STALLABLE

if TYPE_CHECKING:
    from prometheus_client import Metric

    from streamlda.service.counters import ShownCounters
    from streamlda.service.status import Status


class Metrics:
    """A collector of prometheus-client."""

    def __init__(self, status: Status, shown: ShownCounters | None) -> None:
        self._status, self._shown = status, shown

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus, version 0.0.4."""
        try:
            from prometheus_client import CollectorRegistry, generate_latest
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "http", "showing metrics") from error
        registry = CollectorRegistry()
        registry.register(self)
        text = generate_latest(registry)
        if self._shown is not None:
            self._shown.save()
        return text

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        found = self._status.status()
        memory, saved, budget = found["memory"], found["checkpoint"], found["budget"]
        documents, rejects, letters = (found[n] for n in ("documents", "rejects", "dead_letters"))
        yield self._counter("documents", "Records read, by outcome.", documents, "outcome")
        yield self._counter("rejects", "Records that cannot be used.", rejects, "reason")
        yield self._counter(
            "dead_letters",
            "Dead letters; a record that is read again counts twice.",
            letters,
            "reason",
        )
        yield self._counter("lost", "What could no longer be read.", found["lost"], "unit")
        yield self._counter("failures", "Failures.", found["failures"], "what")
        yield self._reasons(found["failure_reasons"])
        yield self._counter("bytes", "UTF-8 bytes of the documents read.", found["bytes"])
        yield self._counter(
            "rounds",
            "Rounds finished; the start of a refinement counts, and so does a given projection.",
            found["rounds"],
        )
        yield self._counter("releases", "Snapshots made.", found["releases"])
        newest = found["last_snapshot"]
        yield _gauge(
            "last_snapshot_timestamp_seconds",
            "When the newest snapshot was made.",
            newest and datetime.fromisoformat(newest).timestamp(),
        )
        yield _gauge("places", "Record slots read since the stream began.", found["places"])
        yield _gauge("places_left", "Record slots until the next snapshot.", found["places_left"])
        shares = _gauge(
            "topic_prevalence", "Share of tokens: in all (or a private window), in the interval."
        )
        for topic, of, share in self._status.shares():
            shares.add_sample(shares.name, {"topic": topic, "of": of}, share)
        yield shares
        lag = {number: n for number, n in found["lag"]["partitions"].items() if n is not None}
        of_records = {} if found["lag"]["records"] is None else lag
        yield _gauge("kafka_lag_records", "Records that wait.", of_records, "partition")
        inference = found["inference"]
        yield _metric(
            "Counter",
            "inference",
            "Records read for inference, by outcome. Of this process, from 0 on.",
            inference and inference["records"],
            "outcome",
        )
        parts = inference["partitions"] if inference else {}
        waiting = {number: n for number, n in parts.items() if n is not None}
        yield _gauge("inference_lag_records", "Records to infer.", waiting, "partition")
        yield _gauge(
            "undated_documents",
            "Documents without an event time, or before the first bin.",
            found["undated"],
        )
        yield _gauge("late_documents", "Documents older than the time bins kept.", found["late"])
        yield _gauge("queue_bytes", "Bytes between reading and learning.", found["queue_bytes"])
        yield _gauge("resident_memory_bytes", "Memory of the process.", memory["resident_bytes"])
        yield _gauge("memory_limit_bytes", "Memory promised.", memory["limit_bytes"])
        yield self._durations()
        age, size = (saved["age_seconds"], saved["size_bytes"]) if saved else (None, None)
        yield _gauge("checkpoint_age_seconds", "Time since the last checkpoint.", age)
        yield _gauge("checkpoint_bytes", "Size of the last checkpoint.", size)
        for name, text in (
            ("epsilon_spent", "Epsilon of a unit, spent by those that spent most."),
            ("epsilon_left", "Epsilon of a unit, left for those that were in no release."),
            ("epsilon_total", "Epsilon of a unit."),
            ("delta", "Probability with which epsilon may fail."),
        ):
            yield _gauge(f"privacy_{name}", text, budget and budget[name])
        yield _gauge(
            "source_last_answer_timestamp_seconds",
            "When the source last answered; for Kafka, when a fetch was completed.",
            self._status.last_answer(),
        )
        stalled = {what: int(what in found["stalled"]) for what in STALLABLE}
        yield _gauge("stalled", "1 while this cannot be reached, read or written.", stalled, "what")
        yield _gauge("uptime_seconds", "Time since the start.", found["uptime_seconds"])
        yield _gauge("ready", "1 if the daemon is working.", int(found["ready"]))
        yield _gauge("phase", "1 for the current phase.", {found["phase"]: 1}, "phase")
        if (group := found["group"]) is not None:
            held = dict.fromkeys(map(str, group["partitions"]), 1)
            held |= dict.fromkeys(map(str, group["waiting"]), 0)
            name = "1 if the partition is learned here, 0 if it will be."
            yield _gauge("partition", name, held, "partition")
            yield _gauge(
                "group_generation", "Generation of the consumer group.", group["generation"]
            )
            yield _gauge("lease", "1 if snapshots are made here.", int(group["lease"]))
        build = _gauge("build_info", "Versions.")
        labels = {"version": version("streamlda"), "python": python_version()}
        build.add_sample(build.name, labels, 1)
        yield build

    def _counter(
        self, name: str, text: str, values: int | Mapping[str, int] | None, label: str | None = None
    ) -> Any:
        if values is not None and self._shown is not None:
            table = values if isinstance(values, Mapping) else {"": values}
            raised = self._shown.raised(name, table)
            values = raised if label else raised[""]
        return _metric("Counter", name, self._text(text), values, label)

    def _text(self, text: str) -> str:
        return text if self._shown is not None else f"{text} Of this process, from 0 on."

    def _reasons(self, values: Mapping[str, int]) -> Any:
        from prometheus_client.metrics_core import CounterMetricFamily

        name, text = "failure_reasons", self._text("Failures, by reason.")
        family = CounterMetricFamily(f"streamlda_{name}", text, labels=["what", "reason"])
        shown = values if self._shown is None else self._shown.raised(name, values)
        for key, n in shown.items():
            what, _, reason = key.partition(" ")
            family.add_metric([what, reason], n)
        return family

    def _durations(self) -> Metric:
        from prometheus_client.metrics_core import HistogramMetricFamily

        found, seconds = self._status.durations()
        buckets = [
            ("+Inf" if bound == math.inf else str(bound), n)
            for bound, n in zip(CHECKPOINT_SECONDS, found, strict=True)
        ]
        return HistogramMetricFamily(
            "streamlda_checkpoint_duration_seconds",
            "Time that checkpoints took.",
            buckets=buckets,
            sum_value=seconds,
        )


def _metric(
    kind: str,
    name: str,
    text: str,
    values: float | Mapping[str, int] | None = None,
    label: str | None = None,
) -> Any:
    """Return a metric; one that is not known has no sample, rather than a wrong one."""
    from prometheus_client import metrics_core

    family: Any = getattr(metrics_core, f"{kind}MetricFamily")
    found = family(f"streamlda_{name}", text, labels=[label] if label else [])
    if values is not None:
        for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
            found.add_metric([key], value)
    return found


_gauge = partial(_metric, "Gauge")
