"""Daemons on a topic: their settings, what they answer, and kills until they end."""

import json
import os
import time
import urllib.error
import urllib.request

from tests.service.daemon_process import Daemon, settings_of

#: For how long brokers are away in a long run, in seconds.
AWAY_SECONDS = float(os.environ.get("STREAMLDA_TEST_AWAY_SECONDS", 600))


def topic_settings(folder, bootstrap, topic, **more):
    """Return settings by name: JSON records of a topic, a small engine, outputs in a folder."""
    folder.mkdir(exist_ok=True)
    flags = {"source.kind": "kafka", "kafka.bootstrap": bootstrap, "kafka.topic": topic}
    found = settings_of(folder, folder, flags, **more)
    del found["source.files"]
    return found


def ending(n_records, snapshots=1):
    """Return settings with which a daemon ends by itself behind N records."""
    every, rest = divmod(n_records, snapshots)
    assert rest == 0, "snapshots must share the records evenly"
    return {
        "snapshots.every": every,
        "snapshots.most": snapshots,
        "snapshots.when_exhausted": "stop",
    }


def as_json(documents):
    return [json.dumps({"text": text}).encode() for text in documents]


def answer_of(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return json.load(answer)


def not_ready(port):
    """Return why a daemon is not ready; empty if it is."""
    try:
        return answer_of(port, "/readyz")["reason"]
    except urllib.error.HTTPError as refused:
        with refused as answer:
            assert answer.code == 503
            return json.load(answer)["reason"]


def wait_for_slots(daemon, port, n_records):
    # Of a source that was away for long, ten seconds may pass until it is tried.
    until = time.monotonic() + 300
    while ((slots := answer_of(port, "/status")["places"]) or 0) < n_records:
        said = b"".join(daemon.raw[-50:]).decode()
        assert time.monotonic() < until, f"places={slots}\n{said}"
        time.sleep(0.05)


def run_killed(settings, moments, kills, command=None):
    """Run a daemon to its end, killing it up to N times on the way; return how many."""
    killed = 0
    while True:
        with Daemon(settings, command) as daemon:
            if killed < kills:
                kill_at_random(daemon, moments)
            code = daemon.end()
        if code == 0:
            return killed
        assert code == -9, b"".join(daemon.raw).decode()
        killed += 1


def kill_at_random(daemon, moments):
    """Kill a daemon anywhere, its start included, or soon after a checkpoint, while it learns.

    Only those after a checkpoint bring it further, so that there is an end.
    """
    anywhere = moments.random() < 0.3
    until = time.monotonic() + 60
    while not anywhere and daemon.process.poll() is None:
        assert time.monotonic() < until, b"".join(daemon.raw).decode()
        if daemon.events("checkpoint"):
            break
        time.sleep(0.003)
    time.sleep(moments.uniform(0.0, 2.0 if anywhere else 0.2))
    daemon.process.kill()
