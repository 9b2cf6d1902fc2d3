"""The whole loop on this machine: broker, producer, daemon, page. `make demo-kafka`.

``python -m tests.kafka.demo [--seconds N]`` continues until Ctrl-C, or for N seconds.
"""

import argparse
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from kafka import KafkaProducer

from streamlda.utils import exit_codes
from streamlda_connectors.docstrings import DocstringSource
from tests.kafka.broker import broker_in, free_ports
from tests.kafka.topics import Topics
from tests.service.daemon_process import arguments, environment

TOPIC = "documents"
#: A pass over the documents is a snapshot, some six seconds.
DOCUMENTS_PER_SECOND = 4000
SETTINGS = {
    "kafka.topic": TOPIC,
    "kafka.group": "streamlda-demo",
    "topics.count": 14,
    "topics.alpha_0": 0.3,
    "topics.warmup_documents": 5000,
    "vocabulary.size": 2000,
    "vocabulary.documents": 5000,
    "snapshots.every": 25_000,
    "checkpoint.interval": "5 s",
}


def documents():
    while True:
        with closing(DocstringSource()) as source:
            while (batch := source.poll(1000)).documents:
                yield from batch.documents


@contextmanager
def daemon_of(folder, bootstrap):
    """Run the daemon; yield its process and address, and end it as a service manager does."""
    port = free_ports(1)[0]
    settings = {**SETTINGS, "kafka.bootstrap": bootstrap, "http.port": port}
    # A session of its own, so that Ctrl-C does not reach it besides its signal.
    process = subprocess.Popen(
        arguments(settings), cwd=folder, env=environment(), start_new_session=True
    )
    try:
        yield process, f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait(30)


def ask(address):
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None


def show_snapshots(process, address, bootstrap, seconds):
    """Send documents, and print the snapshots that come within `seconds` of ready."""
    producer, texts = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5), documents()
    n_sent, n_seen, last, end = 0, 0, None, math.inf
    while time.monotonic() < end:
        began = time.monotonic()
        for text in islice(texts, DOCUMENTS_PER_SECOND // 2):
            producer.send(TOPIC, json.dumps({"text": text}).encode())
            n_sent += 1
        producer.flush(30)
        if end == math.inf and ask(f"{address}readyz") is not None:
            end = time.monotonic() + seconds
        if (code := process.poll()) is not None:
            sys.exit(f"the daemon must run, got rc={code}; see above what it said")
        snapshot = ask(f"{address}snapshots/latest")
        if snapshot is not None and snapshot["number"] != last:
            last, n_seen = snapshot["number"], n_seen + 1
            print(f"\nSnapshot {last}, {n_sent} documents sent so far:")
            for topic in snapshot["topics"]:
                words = " ".join(word for word, _ in topic["words"][:8])
                print(f"  {topic['id']!s:>3} {topic['prevalence']:6.1%}  {words}", flush=True)
        time.sleep(max(0.0, began + 0.5 - time.monotonic()))
    producer.close(timeout=5)
    print(f"{n_seen} snapshots came.", flush=True)


def loop(folder, seconds):
    """Run everything for some time or until Ctrl-C; return the exit status of the daemon."""
    process = None
    try:
        with broker_in(folder) as broker, closing(Topics(broker.bootstrap)) as topics:
            topics.make(TOPIC)
            with daemon_of(folder, broker.bootstrap) as (process, address):
                print(f"The page of the daemon: {address} (Ctrl-C ends all)", flush=True)
                show_snapshots(process, address, broker.bootstrap, seconds)
    except KeyboardInterrupt:
        print("\nEnded.", flush=True)
    return process.returncode if process else 0


def main():
    parser = argparse.ArgumentParser(description="Broker, producer, daemon and page, together.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="default: no end")
    seconds = parser.parse_args().seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("Starting a broker ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="streamlda-kafka-demo-") as made:
        code = loop(Path(made), seconds)
    print(f"The daemon ended with exit status {code}.")
    # Told to end, it may need longer than it takes a daemon on an idle machine.
    return 0 if code == exit_codes.UNFINISHED else code


if __name__ == "__main__":
    sys.exit(main())
