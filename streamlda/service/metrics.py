"""What `Status` knows, as metrics of Prometheus; what is not known has no sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from streamlda.errors import MissingExtraError
from streamlda.service.status import CHECKPOINT_SECONDS, STALLABLE, Status

if TYPE_CHECKING:
    from prometheus_client import Metric


def metrics(status: Status) -> bytes:
    """Return all of it in the text format of Prometheus, version 0.0.4."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise MissingExtraError("prometheus-client", "http", "showing metrics") from error
    registry = CollectorRegistry()
    registry.register(_Collector(status))
    return generate_latest(registry)


class _Collector:
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        found = self._status.status()
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
        for topic, of, share in self._status.shares():
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
        yield _durations(*self._status.durations())
        age, size = (saved["age_seconds"], saved["size_bytes"]) if saved else (None, None)
        yield _gauge("checkpoint_age_seconds", "Time since the last checkpoint.", age)
        yield _gauge("checkpoint_bytes", "Size of the last checkpoint.", size)
        for name, text in (
            ("epsilon_spent", "Budget of a unit, spent."),
            ("epsilon_total", "Budget of a unit."),
            ("delta", "What epsilon leaves open."),
        ):
            yield _gauge(f"privacy_{name}", text, budget and budget[name])
        yield _gauge(
            "source_last_answer_timestamp_seconds",
            "When the source answered last; of Kafka, when a fetch was completed.",
            self._status.last_answer(),
        )
        stalled = {what: int(what in found["stalled"]) for what in STALLABLE}
        yield _gauge("stalled", "1 while it cannot be reached, read or written.", stalled, "what")
        yield _failures(self._status.failures())
        yield _gauge("uptime_seconds", "Time since the start.", found["uptime_seconds"])
        yield _gauge("ready", "1 if the daemon does its work.", int(found["ready"]))
        yield _gauge("phase", "1 for the phase at hand.", {found["phase"]: 1}, "phase")
        build = _gauge("build_info", "Versions.")
        labels = {"version": version("streamlda"), "python": python_version()}
        build.add_sample(build.name, labels, 1)
        yield build


def _durations(buckets: list[int], seconds: float) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    bounds = ["+Inf" if bound == math.inf else str(bound) for bound in CHECKPOINT_SECONDS]
    return HistogramMetricFamily(
        "streamlda_checkpoint_duration_seconds",
        "Time that checkpoints took.",
        buckets=list(zip(bounds, buckets, strict=True)),
        sum_value=seconds,
    )


def _failures(counts: dict[tuple[str, str], int]) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    text = "What failed, and is tried again."
    family = CounterMetricFamily("streamlda_failures", text, labels=["what", "reason"])
    for labels, n in counts.items():
        family.add_metric(labels, n)
    return family


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
