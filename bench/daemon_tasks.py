"""Tasks of the scenarios of the daemon, in a child process: it reads a topic, starts and saves.

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.kinds import Json

if TYPE_CHECKING:
    from bench.measure import Meter

TOPIC = "documents"
#: Documents that are made at once; a topic without planted topics has them over and over.
DISTINCT = 20_000
TOKENS = 100
#: How often the daemon is asked how it fares, in seconds; it answers 30 times a second at most.
SAMPLE_SECONDS = 0.05
#: Longest wait for whatever a daemon should do.
PATIENCE_SECONDS = 300.0


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
    return as_json(rows)


def topical_values(n_words: int, n_topics: int, n_documents: int, seed: int) -> list[bytes]:
    """Return such records with planted topics, each of which ranks the words in its own way.

    No two are alike: a model that has learned a document predicts it better than others.
    """
    rng = np.random.default_rng(seed)
    running = np.cumsum(1 / np.arange(1.0, n_words + 1))
    ranking = np.stack([rng.permutation(n_words) for _ in range(n_topics)])
    known, made = np.array(words(n_words), dtype=object), []
    for start in range(0, n_documents, DISTINCT):
        shape = min(DISTINCT, n_documents - start), TOKENS
        ranks = np.searchsorted(running, rng.random(shape) * running[-1])
        proportions = np.cumsum(rng.dirichlet(np.full(n_topics, 0.1), shape[0]), axis=1)
        above = rng.random(shape)[:, :, None] > proportions[:, None, :]
        topics = np.minimum(above.sum(axis=2), n_topics - 1)
        made += as_json(known[ranking[topics, np.minimum(ranks, n_words - 1)]])
    return made


def as_json(rows: Any) -> list[bytes]:
    return [json.dumps({"id": i, "text": " ".join(row)}).encode() for i, row in enumerate(rows)]


@contextmanager
def filled_topic(
    made: list[bytes], n_records: int, n_partitions: int = 1, compression: str | None = None
) -> Iterator[str]:
    """Run a broker whose one topic has N records, taken in turns; yield its address."""
    from kafka import KafkaProducer

    from tests.kafka.broker import broker_in
    from tests.kafka.topics import Topics

    with (
        tempfile.TemporaryDirectory(prefix="streamlda-bench-") as folder,
        broker_in(Path(folder)) as broker,
    ):
        topics = Topics(broker.bootstrap)
        topics.make(TOPIC, n_partitions)
        topics.close()
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            batch_size=2**18,
            linger_ms=20,
            compression_type=compression,
        )
        for number in range(n_records):
            producer.send(TOPIC, made[number % len(made)], partition=number % n_partitions)
        producer.flush(PATIENCE_SECONDS)
        producer.close()
        yield broker.bootstrap


class Sample(NamedTuple):
    """Figures of a daemon at a time."""

    at: float
    slots: int
    bytes: int
    documents: int


class Daemon:
    """``streamlda run`` in a process of its own, and what it says over HTTP."""

    def __init__(self, folder: Path, bootstrap: str, settings: Mapping[str, Any]) -> None:
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
            command += ["--set", f"{name}={value}"]
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
        self, n_records: int, seconds: float = SAMPLE_SECONDS, *, counted: str = "slots"
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

    def cpu_seconds(self) -> float:
        """Return the processor time that it took so far, over all threads."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

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
        code = self.process.wait(PATIENCE_SECONDS)
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
    first = next(sample for sample in samples if sample.slots)
    last = samples[-1]
    return (last.slots - first.slots) / (last.at - first.at)


def daemon_throughput(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let the daemon and a bare loop read the same topic, in turns."""
    n_records, K = parameters["records"], parameters["n_components"]
    rates: dict[str, list[float]] = {"daemon": [], "bare": []}
    with (
        filled_topic(values(parameters["n_words"], seed), n_records) as bootstrap,
        tempfile.TemporaryDirectory() as made,
    ):
        meter.started()
        with meter.timed():
            for turn in range(parameters["turns"]):
                rates["bare"].append(bare_loop(bootstrap, n_records))
                folder = Path(made) / str(turn)
                folder.mkdir()
                settings = {
                    "topics.count": K,
                    "vocabulary.hash_bits": 14,
                    "snapshots.every": 10 * n_records,
                }
                with Daemon(folder, bootstrap, settings) as daemon:
                    rates["daemon"].append(rate(daemon.samples(n_records, 0.2)))
    return {"documents": n_records, **rates}


def large(folder: Path, parameters: Json) -> Json:
    """Return the settings of a large engine, whose words are given."""
    listed = folder / "words"
    listed.write_text("\n".join(words(parameters["n_words"])))
    return {
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
        filled_topic(values(parameters["n_words"], seed), n_records) as bootstrap,
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
        filled_topic(values(parameters["n_words"], seed), n_records) as bootstrap,
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
            "longest_learning_gap_seconds": longest_gap(samples, "slots"),
        }


def longest_gap(samples: list[Sample], what: str) -> float:
    """Return the longest time in which slots or bytes did not grow, after they first did."""
    changes = [
        after.at
        for before, after in itertools.pairwise(samples)
        if getattr(after, what) > getattr(before, what)
    ]
    return max(b - a for a, b in itertools.pairwise(changes))


def daemon_memory(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let a daemon read, save and publish, and note its most memory."""
    n_records = parameters["records"]
    with (
        filled_topic(values(parameters["n_words"], seed), n_records) as bootstrap,
        tempfile.TemporaryDirectory() as made,
    ):
        folder = Path(made)
        settings = large(folder, parameters) | {"snapshots.every": n_records // 5}
        meter.started()
        with meter.timed(), Daemon(folder, bootstrap, settings) as daemon:
            daemon.samples(n_records)
            peak = daemon.peak_bytes()
        snapshots = len(daemon.events("snapshot"))
    return {
        "documents": n_records,
        "daemon_peak_bytes": peak,
        "snapshots": snapshots,
    }


DAEMON_TASKS = (daemon_throughput, daemon_restart, daemon_checkpoint, daemon_memory)
