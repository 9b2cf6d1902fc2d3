"""Scenarios of the daemon: how fast it reads a topic, starts and saves, and what memory it takes.

A broker of its own runs for each measurement on the same machine, and takes its share of it; so it
does in the loop that the daemon is compared with.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most, series

if TYPE_CHECKING:
    from bench.measure import Meter

TOPIC = "documents"
#: Documents that are made; the topic has them over and over.
DISTINCT = 20_000
TOKENS = 100
#: How often the daemon is asked how it fares, in seconds; it answers 30 times a second at most.
SAMPLE_SECONDS = 0.05
#: Longest wait for whatever a daemon should do.
PATIENCE_SECONDS = 300.0


# What is done in the child process


def words(n: int) -> list[str]:
    """Return n words of letters, none of them a stop word."""
    letters = "bcdfghklmnprstvz"
    return [
        "".join(four) + "e" for four in itertools.islice(itertools.product(letters, repeat=4), n)
    ]


def values(n_words: int, seed: int) -> list[bytes]:
    """Return JSON records of 100 tokens each, words as frequent as in text (p ~ 1/rank)."""
    rng = np.random.default_rng(seed)
    running = np.cumsum(1 / np.arange(1.0, n_words + 1))
    ranks = np.searchsorted(running, rng.random((DISTINCT, TOKENS)) * running[-1])
    known = rng.permutation(np.array(words(n_words), dtype=object))
    rows = known[np.minimum(ranks, n_words - 1)]
    return [json.dumps({"id": i, "text": " ".join(row)}).encode() for i, row in enumerate(rows)]


@contextmanager
def filled_topic(n_words: int, n_records: int, seed: int) -> Iterator[str]:
    """Run a broker whose one topic has one partition with N records; yield its address."""
    from kafka import KafkaProducer

    from tests.kafka.broker import Apache
    from tests.kafka.topics import Topics

    with tempfile.TemporaryDirectory(prefix="streamlda-bench-") as folder:
        broker = Apache(Path(folder))
        try:
            broker.start()
            topics = Topics(broker.bootstrap)
            topics.make(TOPIC)
            topics.close()
            producer = KafkaProducer(
                bootstrap_servers=broker.bootstrap, batch_size=2**18, linger_ms=20
            )
            made = values(n_words, seed)
            for number in range(n_records):
                producer.send(TOPIC, made[number % DISTINCT], partition=0)
            producer.flush(PATIENCE_SECONDS)
            producer.close()
            yield broker.bootstrap
        finally:
            broker.remove()


class Sample(NamedTuple):
    """What a daemon said at a time."""

    at: float
    places: int
    bytes: int
    documents: int


class Daemon:
    """``streamlda run`` in a process of its own, and what it says over HTTP."""

    def __init__(self, folder: Path, bootstrap: str, settings: Mapping[str, Any]) -> None:
        from streamlda.settings.table import SETTINGS
        from tests.kafka.broker import free_ports

        (port,) = free_ports(1)
        self._address = f"http://127.0.0.1:{port}/status"
        flags = {
            "kafka.bootstrap": bootstrap,
            "kafka.topic": TOPIC,
            "checkpoint.folder": folder / "checkpoints",
            "output.folder": folder / "snapshots",
            "http.port": port,
            "log.format": "json",
            "log.level": "debug",
            **settings,
        }
        command = [sys.executable, "-m", "streamlda", "run"]
        for name, value in flags.items():
            command += [SETTINGS[name].flag, str(value)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("STREAMLDA_")}
        self._log = folder / "log"
        self.began = time.monotonic()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=clean, stderr=log)

    def status(self) -> Json | None:
        """Return what it says, None while it does not answer yet."""
        code = self.process.poll()
        if code is not None:
            raise RuntimeError(f"a daemon must run, got code={code}: {self._log.read_text()}")
        try:
            with urllib.request.urlopen(self._address, timeout=10) as answer:
                found: Json = json.load(answer)
        except OSError:
            return None
        return found

    def samples(
        self, n_records: int, seconds: float = SAMPLE_SECONDS, *, counted: str = "places"
    ) -> list[Sample]:
        """Sample what it says until N records were learned, or counted by this process."""
        found: list[Sample] = []
        until = time.monotonic() + PATIENCE_SECONDS
        while not found or getattr(found[-1], counted) < n_records:
            if time.monotonic() > until:
                raise RuntimeError(f"a daemon must learn {n_records} records, got {found[-1:]}")
            said = self.status()
            if said is not None:
                documents = sum(said["documents"].values())
                at = time.monotonic()
                found.append(Sample(at, said["places"] or 0, said["bytes"], documents))
            time.sleep(seconds)
        return found

    def peak_bytes(self) -> int:
        """Return the most memory that was resident so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (row for row in status.splitlines() if row.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def events(self, name: str) -> list[Json]:
        """Return the log lines of one event."""
        lines = map(json.loads, self._log.read_text().splitlines())
        return [line for line in lines if line["event"] == name]

    def stop(self) -> None:
        """End it with a checkpoint."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        if code:
            raise RuntimeError(f"a daemon must end well, got code={code}: {self._log.read_text()}")

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


def bare_loop(bootstrap: str, n_records: int) -> float:
    """Return records a second of a loop that reads the topic and only decodes its JSON."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    part = TopicPartition(TOPIC, 0)
    consumer.assign([part])
    consumer.seek(part, 0)
    n_read, began = 0, None
    while n_read < n_records:
        rows = consumer.poll(1000, max_records=1000).get(part, [])
        if began is None and rows:
            # As for the daemon: from the first records on, which do not count.
            began = time.perf_counter()
            n_first = len(rows)
        for row in rows:
            json.loads(row.value)
        n_read += len(rows)
    assert began is not None
    seconds = time.perf_counter() - began
    consumer.close()
    return (n_read - n_first) / seconds


def rate(samples: list[Sample]) -> float:
    """Return records a second from the first that were learned to the last."""
    first = next(sample for sample in samples if sample.places)
    last = samples[-1]
    return (last.places - first.places) / (last.at - first.at)


def daemon_throughput(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let the daemon and a bare loop read the same topic, in turns."""
    n_records, K = parameters["records"], parameters["n_components"]
    rates: dict[str, list[float]] = {"daemon": [], "bare": []}
    with (
        filled_topic(parameters["n_words"], n_records, seed) as bootstrap,
        tempfile.TemporaryDirectory() as made,
    ):
        meter.started()
        with meter.timed():
            for turn in range(parameters["turns"]):
                rates["bare"].append(bare_loop(bootstrap, n_records))
                folder = Path(made) / str(turn)
                folder.mkdir()
                settings = {"topics.count": K, "snapshots.every": 10 * n_records}
                with Daemon(folder, bootstrap, settings) as daemon:
                    rates["daemon"].append(rate(daemon.samples(n_records, 0.2)))
    return {"documents": n_records, **rates}


def large(folder: Path, parameters: Json) -> Json:
    """Return the settings of a large engine, whose words are given."""
    listed = folder / "words"
    listed.write_text("\n".join(words(parameters["n_words"])))
    return {
        "vocabulary.kind": "given",
        "vocabulary.file": listed,
        "topics.count": parameters["n_components"],
        "topics.warmup_documents": parameters["warmup"],
        "checkpoint.interval": parameters["interval"],
        "snapshots.every": parameters["records"],
    }


def daemon_restart(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Stop a daemon with a large state on its way, and time its next start."""
    n_records = parameters["records"]
    with (
        filled_topic(parameters["n_words"], n_records, seed) as bootstrap,
        tempfile.TemporaryDirectory() as made,
    ):
        folder = Path(made)
        settings = large(folder, parameters)
        with Daemon(folder, bootstrap, settings) as daemon:
            daemon.samples(n_records // 3)
            daemon.stop()
        starts: dict[str, list[float]] = {"polled": [], "learned": []}
        meter.started()
        with meter.timed():
            for _ in range(parameters["turns"]):
                with Daemon(folder, bootstrap, settings) as daemon:
                    samples = daemon.samples(1, counted="documents")
                    polled = next(sample.at for sample in samples if sample.bytes)
                    starts["polled"].append(polled - daemon.began)
                    starts["learned"].append(samples[-1].at - daemon.began)
                    # Killed: the next start is from the same checkpoint.
        (state, *_) = (folder / "checkpoints").glob("state-*")
        return {"documents": n_records, "state_bytes": state.stat().st_size, **starts}


def daemon_checkpoint(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let a daemon with a large state save often; how long each held up learning and reading."""
    n_records = parameters["records"]
    with (
        filled_topic(parameters["n_words"], n_records, seed) as bootstrap,
        tempfile.TemporaryDirectory() as made,
    ):
        folder = Path(made)
        settings = large(folder, parameters) | {"snapshots.every": 10 * n_records}
        meter.started()
        with meter.timed(), Daemon(folder, bootstrap, settings) as daemon:
            samples = daemon.samples(n_records)
            peak = daemon.peak_bytes()
        saved = daemon.events("checkpoint")
        # The warm-up is saved as documents; a state is several times as large.
        largest = max(line["bytes"] for line in saved)
        whole = [line for line in saved if line["bytes"] > 0.9 * largest]
        return {
            "documents": n_records,
            "state_bytes": largest,
            "daemon_peak_bytes": peak,
            "rate": rate(samples),
            "stalled_seconds": [line["stalled_seconds"] for line in whole],
            "write_seconds": [line["seconds"] for line in whole],
            "longest_gap_seconds": longest_gap(samples, "bytes"),
            "longest_learning_gap_seconds": longest_gap(samples, "places"),
        }


def longest_gap(samples: list[Sample], what: str) -> float:
    """Return the longest time in which places or bytes did not grow, after they first did."""
    changes = [
        after.at
        for before, after in itertools.pairwise(samples)
        if getattr(after, what) > getattr(before, what)
    ]
    return max(b - a for a, b in itertools.pairwise(changes))


def daemon_memory(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let a daemon read, save and publish under the limit that its own plan asks for."""
    from streamlda.service.running import check
    from streamlda.settings.load import load_settings

    n_records = parameters["records"]
    with (
        filled_topic(parameters["n_words"], n_records, seed) as bootstrap,
        tempfile.TemporaryDirectory() as made,
    ):
        folder = Path(made)
        settings = large(folder, parameters) | {"snapshots.every": n_records // 5}
        required = {"kafka.bootstrap": bootstrap, "kafka.topic": TOPIC}
        named = {name: str(value) for name, value in {**required, **settings}.items()}
        limit = sum(size for _, size in check(load_settings(environment={}, flags=named)))
        meter.started()
        with (
            meter.timed(),
            Daemon(folder, bootstrap, {**settings, "memory.limit": limit}) as daemon,
        ):
            daemon.samples(n_records)
            peak = daemon.peak_bytes()
        snapshots = len(daemon.events("snapshot"))
        short = len(daemon.events("memory-short"))
    return {
        "documents": n_records,
        "limit_bytes": limit,
        "daemon_peak_bytes": peak,
        "snapshots": snapshots,
        "short": short,
    }


# What is drawn from it


def throughput_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    sizes = {"n_words": 50_000, "records": 20_000 if quick else 400_000, "turns": 1 if quick else 3}
    return [
        Case(f"K = {K}", "daemon_throughput", {**sizes, "n_components": K})
        for K in ([20] if quick else [20, 50])
    ]


def gathered(result: Json, case: str, key: str) -> list[float]:
    """Return the values of all repeats of a case, each of which has a list."""
    lists: list[Any] = list(series(result, case, key))
    return [float(value) for values in lists for value in values]


def throughput_figures(result: Json) -> list[Figure]:
    found = []
    for label in result["cases"]:
        daemon, bare = (gathered(result, label, key) for key in ("daemon", "bare"))
        # Turn by turn: what else the machine did hit both.
        share = median(a / b for a, b in zip(daemon, bare, strict=True))
        name = f"documents/s of {TOKENS} tokens, hash bits 14, {label}"
        shown = at_least(name, median(daemon), 15_000, "{:,.0f}")
        ratio = at_least(f"over those of a bare loop, {label}", share, 0.5, "{:.2f}")
        if label != "K = 20":
            shown, ratio = (f._replace(target="-", met=None) for f in (shown, ratio))
        found += [
            shown,
            ratio,
            Figure(f"documents/s of a bare loop, {label}", f"{median(bare):,.0f}"),
        ]
    return found


def large_parameters(quick: bool, records: int, interval: str) -> Json:
    return {
        "n_words": 5000 if quick else 50_000,
        "n_components": 10 if quick else 50,
        "warmup": 2000 if quick else 10_000,
        "records": 20_000 if quick else records,
        "interval": interval,
    }


def restart_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    # No checkpoint by the clock, so that each start is from the same one.
    parameters = large_parameters(quick, 100_000, "1 h")
    return [Case("large", "daemon_restart", {**parameters, "turns": 2 if quick else 5})]


def restart_figures(result: Json) -> list[Figure]:
    sizes = result["cases"]["large"]["parameters"]
    named = f"V = {sizes['n_words']:,}, K = {sizes['n_components']}"
    learned, polled = (gathered(result, "large", key) for key in ("learned", "polled"))
    state = median(series(result, "large", "state_bytes"))
    return [
        at_most(f"seconds from start to the first batch, {named}", median(learned), 3.0, "{:.2f}"),
        Figure("the slowest start", f"{max(learned):.2f}"),
        Figure("seconds to its first record", f"{median(polled):.2f}"),
        Figure("state in MB", f"{state / 1e6:,.0f}"),
    ]


def checkpoint_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    parameters = large_parameters(quick, 300_000, "0.3 s" if quick else "3 s")
    return [Case("large", "daemon_checkpoint", parameters)]


def checkpoint_figures(result: Json) -> list[Figure]:
    sizes = result["cases"]["large"]["parameters"]
    named = f"V = {sizes['n_words']:,}, K = {sizes['n_components']}"
    stalls, writes = (
        gathered(result, "large", key) for key in ("stalled_seconds", "write_seconds")
    )
    reading, learning, speed, state = (
        series(result, "large", key)
        for key in ("longest_gap_seconds", "longest_learning_gap_seconds", "rate", "state_bytes")
    )
    return [
        at_most(
            f"longest stall of {len(stalls)} checkpoints in seconds, {named}",
            *(max(stalls), 0.2, "{:.3f}"),
        ),
        Figure("median stall in seconds", f"{median(stalls):.3f}"),
        Figure("median seconds to write one, beside learning", f"{median(writes):.2f}"),
        Figure("longest time without a batch read, in seconds", f"{max(reading):.2f}"),
        Figure("longest time without a batch learned, in seconds", f"{max(learning):.2f}"),
        Figure("documents/s meanwhile", f"{median(speed):,.0f}"),
        Figure("state in MB", f"{median(state) / 1e6:,.0f}"),
    ]


def memory_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = [Case("large", "daemon_memory", large_parameters(quick, 200_000, "3 s"))]
    if not quick:
        small = {"n_words": 10_000, "n_components": 20}
        found.append(Case("small", "daemon_memory", found[0].parameters | small))
    return found


def memory_figures(result: Json) -> list[Figure]:
    found = []
    for label, case in result["cases"].items():
        named = f"V = {case['parameters']['n_words']:,}, K = {case['parameters']['n_components']}"
        peaks, limits = (series(result, label, key) for key in ("daemon_peak_bytes", "limit_bytes"))
        share = max(peak / limit for peak, limit in zip(peaks, limits, strict=True))
        found += [
            at_most(f"most resident memory over its limit, {named}", share, 1.0, "{:.3f}"),
            Figure(f"limit that the plan asks for in MB, {named}", f"{max(limits) / 1e6:,.0f}"),
            Figure(f"snapshots published, {named}", f"{min(series(result, label, 'snapshots'))}"),
        ]
    return found


DAEMON_TASKS = (daemon_throughput, daemon_restart, daemon_checkpoint, daemon_memory)

DAEMON = [
    Scenario(
        "daemon-throughput",
        "How many documents a second does the daemon learn from one partition of a real broker?",
        1,
        throughput_cases,
        throughput_figures,
    ),
    Scenario(
        "daemon-restart",
        "How long does a daemon with a large state take to go on?",
        1,
        restart_cases,
        restart_figures,
    ),
    Scenario(
        "daemon-checkpoint",
        "How long does saving a large state hold up the stream?",
        1,
        checkpoint_cases,
        checkpoint_figures,
    ),
    Scenario(
        "daemon-memory",
        "Does the daemon stay under the limit that its plan asks for?",
        1,
        memory_cases,
        memory_figures,
    ),
]
