"""The daemon as a process: signals, disks that are slow or full, what it serves, what it says."""

import json
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon_process import (
    ROOT,
    Daemon,
    arguments,
    changed,
    environment,
    left_by,
    run_to_end,
    settings_of,
    snapshots_in,
    texts,
    write_documents,
)

#: Makes the daemon wait where a test wants it to, in seconds.
SLOW = """
import time
from streamlda.storage.checkpoint import Checkpoints
from streamlda.service.worker import Worker
def later(owner, name, seconds):
    inner = getattr(owner, name)
    def outer(*args, **options):
        time.sleep(seconds)
        return inner(*args, **options)
    setattr(owner, name, outer)
later(Checkpoints, "write", {checkpoint})
later(Worker, "_learn", {learn})
"""

#: The clock on the wall jumps ten years forward or back whenever it is read.
JUMPS = """
import itertools, time
now, turns = time.time, itertools.cycle([0, 1, -1])
time.time = lambda: now() + 3e8 * next(turns)
"""


def slow(settings: dict[str, Any], checkpoint: float, learn: float) -> list[str]:
    """Return the command of a daemon whose checkpoints and batches take longer."""
    return changed(settings, SLOW.format(checkpoint=checkpoint, learn=learn))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("source") / "documents.jsonl", texts(12_000))


@pytest.fixture(scope="module")
def twin(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed run leaves, with a snapshot every 4000 records."""
    folder = tmp_path_factory.mktemp("twin")
    run_to_end(settings_of(folder, source, snapshots__every=4000))
    return folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_and_the_next_run_goes_on(
    tmp_path: Path, source: Path, twin: Path, number: int
) -> None:
    settings = settings_of(tmp_path, source, snapshots__every=4000, checkpoint__interval="1 h")
    with Daemon(settings, command=slow(settings, 0, 0.3)) as daemon:
        daemon.wait_for("released")
        began = time.monotonic()
        assert daemon.stop(number) == 0
        assert time.monotonic() - began < 10
    assert daemon.lines[-2]["event"] == "exit"
    # In the middle of a window: what was learned is saved, though the clock did not ask for it.
    assert len(daemon.events("checkpoint")) >= 1
    assert snapshots_in(tmp_path).keys() < snapshots_in(twin).keys()
    ended = run_to_end(settings_of(tmp_path, source, snapshots__every=4000))
    assert len(ended.events("checkpoint-restored")) == 1
    assert left_by(tmp_path) == left_by(twin)


def test_a_second_signal_ends_at_once(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path, source, snapshots__every=4000)
    with Daemon(settings, command=slow(settings, 8, 0)) as daemon:
        daemon.wait_for("released")
        daemon.send(signal.SIGTERM)
        daemon.wait_for("signal")
        began = time.monotonic()
        daemon.send(signal.SIGTERM)
        assert daemon.end() == 128 + signal.SIGTERM
        assert time.monotonic() - began < 3


def test_a_disk_too_slow_to_save_ends_within_the_grace(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path, source, snapshots__every=4000)
    with Daemon(settings, command=slow(settings, 30, 0)) as daemon:
        daemon.wait_for("released")
        began = time.monotonic()
        assert daemon.stop() == 75
        assert time.monotonic() - began < 10
    assert daemon.events("grace-over")


def test_a_signal_while_starting_ends_with_0(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path, source)
    with Daemon(settings) as daemon:
        daemon.wait_for("memory-plan")
        daemon.send(signal.SIGTERM)
        assert daemon.end() == 0
    assert [line["number"] for line in daemon.events("signal")] == [signal.SIGTERM]
    run_to_end(settings)


def test_learning_goes_on_while_a_slow_disk_writes(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path, source, snapshots__every=12_000)
    # Polls bring at most 4096 records: three batches, and a checkpoint behind the first.
    with Daemon(settings, command=slow(settings, 2.5, 0.6)) as daemon:
        saved = daemon.wait_for("checkpoint")
        assert daemon.end() == 0
    snapshot = daemon.wait_for("snapshot")
    # A release waits for the checkpoint, what is learned before it does not.
    waited = _seconds(snapshot) - _seconds(saved)
    assert 0 <= waited < 1.0, "two batches, of 0.6 seconds each, were learned before it was written"
    assert saved["stalled_seconds"] < 0.5


def _seconds(line: dict[str, Any]) -> float:
    hours, minutes, seconds = line["time"][11:-1].split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def test_jumps_of_the_clock_change_nothing(tmp_path: Path, source: Path, twin: Path) -> None:
    settings = settings_of(tmp_path, source, snapshots__every=4000)
    with Daemon(settings, command=changed(settings, JUMPS)) as daemon:
        assert daemon.end() == 0
    years = {line["time"][:4] for line in daemon.lines}
    assert len(years) > 1
    assert left_by(tmp_path) == left_by(twin)


def test_a_full_disk_is_tried_again_and_then_ends_with_74(
    tmp_path: Path, source: Path, twin: Path
) -> None:
    settings = settings_of(tmp_path, source, snapshots__every=4000, breaker__attempts=2)
    (tmp_path / "checkpoints").mkdir(mode=0o700)

    def full() -> None:
        # Larger than a model, the index and the log; smaller than a state.
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    # The one file that grows is the log, which is a pipe. Compiled code is cached by the twin.
    with Daemon(settings, preexec_fn=full) as daemon:
        assert daemon.end() == 74
    failures = daemon.events("checkpoint-failed")
    assert len(failures) == 2
    assert all("make room" in line["message"] for line in failures)
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))
    assert run_to_end(settings).events("checkpoint")
    assert left_by(tmp_path) == left_by(twin)


@pytest.mark.parametrize("unit", ["document", "user"])
def test_used_up_the_daemon_idles_and_serves_and_starts_again(tmp_path: Path, unit: str) -> None:
    source = tmp_path / "documents.jsonl"
    rows = [{"text": text, "user": f"u{i}"} for i, text in enumerate(texts(900))]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = private(tmp_path, source) | {"http.port": free_port(), "snapshots.most": 1}
    if unit == "user":
        settings |= {"privacy.unit": "user", "source.user_field": "user"}
        settings |= {"privacy.documents_per_user": 1}
    address = f"http://127.0.0.1:{settings['http.port']}/snapshots"
    for _ in range(2):
        with Daemon(settings) as daemon:
            daemon.wait_for("no-release-left")
            served = json.loads(urllib.request.urlopen(address, timeout=20).read())
            assert "1" in json.dumps(served)
            assert daemon.process.poll() is None
            assert daemon.stop() == 0
    with Daemon({**settings, "snapshots.when_exhausted": "stop"}) as daemon:
        assert daemon.end() == 0
    assert not daemon.events("signal")
    assert list(snapshots_in(tmp_path)) == [1]


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


def private(folder: Path, source: Path) -> dict[str, Any]:
    flags = {
        "vocabulary.hash_bits": 5,
        "privacy.epsilon": 12.0,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "ledger"),
        "snapshots.every": 500,
    }
    return settings_of(folder, source, flags)


def test_systemd_is_told(tmp_path: Path, source: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        settings = settings_of(tmp_path, source, source__kind="follow", snapshots__every=4000)
        environ = environment(NOTIFY_SOCKET=str(tmp_path / "notify"))
        with Daemon(settings, env=environ) as daemon:
            assert manager.recv(100).decode().split("\n") == [
                "READY=1",
                f"MAINPID={daemon.process.pid}",
            ]
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            daemon.send(signal.SIGTERM)
            said = manager.recv(100)
            while said == b"WATCHDOG=1":
                said = manager.recv(100)
            assert said == b"STOPPING=1"
            assert daemon.end() == 0


CANARY = "zebracanary"


@pytest.mark.parametrize("style", ["json", "console"])
def test_no_text_is_ever_logged(tmp_path: Path, style: str) -> None:
    source = tmp_path / "documents.jsonl"
    good = [json.dumps({"text": f"{CANARY} {text}"}).encode() for text in texts(3000)]
    poison = [
        f'{{"text": "{CANARY}'.encode(),
        b'{"text": "' + CANARY.encode() + b'\xff"}',
        json.dumps({"other": CANARY}).encode(),
        json.dumps({"text": [CANARY]}).encode(),
        json.dumps({"text": CANARY * 1000}).encode(),
        f'{{"text": "{CANARY} \\ud800"}}'.encode(),
        CANARY.encode(),
    ]
    lines = [line for i, line in enumerate(good) for line in (line, poison[i % len(poison)])]
    source.write_bytes(b"\n".join(lines) + b"\n")
    flags = {"log.format": style, "vocabulary.kind": "learned", "vocabulary.documents": 1000}
    flags |= {"snapshots.every": 2000, "source.max_record": "1 KiB"}
    settings = settings_of(tmp_path, source, flags)
    done = subprocess.run(arguments(settings), cwd=ROOT, env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert done.stderr.count(b"snapshot") >= 3
    # And when they are too many.
    bad: dict[str, Any] = {"breaker.records": 100, "breaker.share": 0.2}
    for each in ("checkpoint", "output"):
        bad[f"{each}.folder"] = str(tmp_path / f"other-{each}")
    broken = subprocess.run(
        arguments({**settings, **bad}), cwd=ROOT, env=environment(), capture_output=True
    )
    assert broken.returncode == 65
    assert re.search(rb"breaker\b.*rejects", broken.stderr)
    for said in (done.stderr, broken.stderr):
        assert CANARY.encode() not in said.lower()
        for line in said.splitlines():
            if style == "json":
                assert {"time", "level", "event"} <= json.loads(line).keys()
            else:
                assert re.match(rb"\d\d:\d\d:\d\d (debug|info|warning|error) +[a-z-]+", line)


def test_a_paused_daemon_keeps_following(tmp_path: Path) -> None:
    """Records wait in a queue that is too small for two polls, for longer than the loop ticks."""
    source = write_documents(tmp_path / "documents.jsonl", texts(9000))
    settings = settings_of(tmp_path, source, source__kind="follow", snapshots__every=9000)
    settings["memory.queue"] = "1 MiB"
    with Daemon(settings, command=slow(settings, 0, 1.5)) as daemon:
        daemon.wait_for("released")
        assert daemon.stop() == 0
    assert not daemon.events("poll-failed")
    assert not daemon.events("source-failed")


def test_a_source_that_goes_away_ends_with_74(tmp_path: Path) -> None:
    documents = texts(4000)
    source = write_documents(tmp_path / "documents.jsonl", documents)
    settings = settings_of(tmp_path, source, source__kind="follow", snapshots__every=2000)
    settings["breaker.attempts"] = 3
    with Daemon(settings) as daemon:
        daemon.wait_for("released", 2)
        source.unlink()
        source.symlink_to(source)
        assert daemon.end() == 74
    failed = daemon.events("source-failed")
    assert [line["failures"] for line in failed] == [1, 2, 3]
    # A source that cannot be opened again is not polled in between.
    failures = ("poll-failed", "rebuild-failed")
    how = [line["event"] for line in daemon.lines if line["event"] in failures]
    assert how == ["poll-failed", "rebuild-failed", "rebuild-failed"]
    assert daemon.lines[-2] | {"time": ""} == {
        "time": "",
        "level": "info",
        "event": "exit",
        "code": 74,
    }
