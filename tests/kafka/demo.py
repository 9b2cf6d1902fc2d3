"""The whole loop on this machine: broker, producer, daemon, page. `make demo-kafka`.

``python -m tests.kafka.demo [--seconds N]`` goes on until Ctrl-C, or for N seconds.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from streamlda.cli.demo import COMMON
from streamlda_connectors.docstrings import DocstringSource
from tests.kafka.broker import Apache, Kfake, free_ports
from tests.kafka.choice import Choice, choose
from tests.kafka.jars import BrokerUnavailable
from tests.kafka.topics import Topics

TOPIC = "documents"
#: A pass over the documents is a snapshot, some six seconds.
DOCUMENTS_PER_SECOND = 4000
SETTINGS = {
    "kafka-topic": TOPIC,
    "kafka-group": "streamlda-demo",
    "topics": 14,
    "alpha-0": 0.3,
    "warmup-documents": 5000,
    "vocabulary-size": 2000,
    "vocabulary-documents": 5000,
    "snapshot-every": 25_000,
    "checkpoint-interval": "5 s",
}


def documents() -> Iterator[str]:
    """Yield paragraphs of the documentation on this machine, as words, over and over."""
    common = set(COMMON.split())
    while True:
        source = DocstringSource()
        exhausted = False
        while not exhausted:
            poll = source.poll(1000)
            exhausted = poll.exhausted
            for text in poll.documents:
                words = re.findall(r"[^\W\d_]+", text)
                yield " ".join(word for word in words if word.lower() not in common)
        source.close()


class Producer(threading.Thread):
    """Sends documents as JSON, at a steady rate, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="producer", daemon=True)
        self._servers = bootstrap
        self._stopping = threading.Event()
        self.n_sent = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        texts = documents()
        producer = KafkaProducer(bootstrap_servers=self._servers, linger_ms=5)
        try:
            while not self._stopping.wait(0.1):
                for text in islice(texts, DOCUMENTS_PER_SECOND // 10):
                    producer.send(TOPIC, json.dumps({"text": text}).encode())
                producer.flush(30)
                self.n_sent += DOCUMENTS_PER_SECOND // 10
        except Exception as error:
            self.error = error
        finally:
            producer.close(timeout=5)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


class Daemon:
    """``streamlda run`` as a process, and its snapshots by HTTP."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        port = free_ports(1)[0]
        self.address = f"http://127.0.0.1:{port}/"
        settings = {**SETTINGS, "kafka-bootstrap": bootstrap, "http-port": port}
        flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        # These settings, whatever the environment says.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMLDA_")}
        command = [sys.executable, "-m", "streamlda", "run", *flags]
        # A session of its own, so that Ctrl-C does not reach it besides `stop`.
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True
        )

    def check(self) -> None:
        if (code := self._process.poll()) is not None:
            sys.exit(f"the daemon must run, got rc={code}; see above what it said")

    def latest(self) -> dict[str, Any] | None:
        """Return the newest snapshot, None if there is none yet."""
        try:
            with urllib.request.urlopen(f"{self.address}snapshots/latest", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None
        except OSError:
            # It is still starting; `check` tells if it is not.
            return None
        return found

    def stop(self) -> int:
        """End it as a service manager does; returns its exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait(30)


def show(snapshot: dict[str, Any], n_sent: int) -> None:
    print(f"\nSnapshot {snapshot['number']}, {n_sent} documents sent so far:")
    for topic in snapshot["topics"]:
        words = " ".join(word for word, _ in topic["words"][:8])
        print(f"  {topic['id']!s:>3} {topic['prevalence']:6.1%}  {words}", flush=True)


def follow(daemon: Daemon, producer: Producer, end: float) -> int:
    """Print the snapshots as they come; returns how many."""
    seen = 0
    last = None
    while time.monotonic() < end:
        daemon.check()
        if producer.error is not None:
            raise producer.error
        snapshot = daemon.latest()
        if snapshot is not None and snapshot["number"] != last:
            last = snapshot["number"]
            seen += 1
            show(snapshot, producer.n_sent)
        time.sleep(0.5)
    return seen


def loop(folder: Path, choice: Choice, end: float) -> int:
    """Run everything until `end` or Ctrl-C; returns the exit status of the daemon."""
    daemon = None
    with ExitStack() as stack:
        broker = (Apache if choice.kind == "apache" else Kfake)(folder)
        stack.callback(broker.remove)
        try:
            broker.start()
            topics = Topics(broker.bootstrap)
            stack.callback(topics.close)
            topics.make(TOPIC)
            producer = Producer(broker.bootstrap)
            producer.start()
            stack.callback(producer.stop)
            daemon = Daemon(folder, broker.bootstrap)
            print(f"The page of the daemon: {daemon.address} (Ctrl-C ends all)", flush=True)
            print(f"{follow(daemon, producer, end)} snapshots came.", flush=True)
        except KeyboardInterrupt:
            print("\nEnding ...", flush=True)
        finally:
            code = daemon.stop() if daemon else 0
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description="Broker, producer, daemon and page, together.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="default: no end")
    end = time.monotonic() + parser.parse_args().seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    choice = choose(fetch=True)
    if choice.kind is None:
        raise BrokerUnavailable(f"the demo needs a broker, got none: {choice.why}")
    print(f"Starting a broker ({choice}) ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="streamlda-kafka-demo-") as made:
        code = loop(Path(made), choice, end)
    print(f"The daemon ended with exit status {code}.")
    return code


if __name__ == "__main__":
    sys.exit(main())
