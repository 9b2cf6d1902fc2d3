"""Daemons killed at any moment: in the end everything is as if nobody had killed them."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.service.daemon_process import (
    ROOT,
    Daemon,
    environment,
    left_by,
    run_to_end,
    settings_of,
    texts,
    write_documents,
)


def crash_run(
    task: str, folder: Path, *values: object, module: str = "daemon_crash"
) -> Counter[str]:
    """Run a task of `tests.service.daemon_crash`, and return what it counted."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.service.{module}", task, str(folder), *map(str, values)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout))


def with_documents(folder: Path, n: int) -> Path:
    write_documents(folder / "documents.jsonl", texts(n))
    return folder


@pytest.mark.parametrize(
    ("n_documents", "kills"), [(30_000, 15), pytest.param(30_000, 200, marks=pytest.mark.soak)]
)
def test_kills_at_random_moments_change_nothing(
    tmp_path: Path, n_documents: int, kills: int
) -> None:
    found = crash_run("any-moment", with_documents(tmp_path, n_documents), kills, 1)
    assert found["killed"] >= kills
    assert found["same"] == found["streams"]


@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_at_any_step_changes_nothing(tmp_path: Path, stride: int) -> None:
    found = crash_run("steps", with_documents(tmp_path, 5500), stride, stride // 2)
    assert found["killed"] >= 60 // stride
    assert found["same"] == found["streams"] == found["killed"] + 1


def test_mistakes_are_found(tmp_path: Path) -> None:
    found = crash_run("mistakes", with_documents(tmp_path, 5500))
    assert found == {"right": 1, "save-what-is-read": 0, "forget-rows": 0, "publish-again": 0}


def test_the_command_itself_killed_changes_nothing(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "documents.jsonl", texts(40_000))
    twin, folder = tmp_path / "twin", tmp_path / "killed"
    for each in (twin, folder):
        each.mkdir()
    run_to_end(settings_of(twin, source, snapshots__every=4000))
    for n_checkpoints in (1, 2):
        with Daemon(settings_of(folder, source, snapshots__every=4000)) as daemon:
            daemon.wait_for("checkpoint", n_checkpoints)
            daemon.send(signal.SIGKILL)
            assert daemon.end() == -signal.SIGKILL
    ended = run_to_end(settings_of(folder, source, snapshots__every=4000))
    assert len(ended.events("checkpoint-restored")) == 1
    assert left_by(folder) == left_by(twin)


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_file_that_grows_is_followed_exactly_once(tmp_path: Path, kills: int) -> None:
    documents = texts(1500 * (kills + 2))
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in documents]
    whole = b"".join(lines)
    source, folder, twin = tmp_path / "growing.jsonl", tmp_path / "killed", tmp_path / "twin"
    for each in (folder, twin):
        each.mkdir()
    follow = {"source__kind": "follow", "snapshots__every": 1500}
    source.write_bytes(b"")
    written = 0
    for number in range(kills):
        # Up to the middle of a line, while the daemon reads.
        until = len(b"".join(lines[: 1500 * (number + 1)])) + 40
        with Daemon(settings_of(folder, source, **follow)) as daemon, source.open("ab") as file:
            while written < until:
                size = min(20_000, until - written)
                file.write(whole[written : written + size])
                file.flush()
                written += size
            daemon.wait_for("checkpoint")
            daemon.send(signal.SIGKILL)
            assert daemon.end() == -signal.SIGKILL
    with source.open("ab") as file:
        file.write(whole[written:])
    for each in (folder, twin):
        last = each / "snapshots" / f"snapshot-{kills + 2:06d}"
        with Daemon(settings_of(each, source, **follow)) as daemon:
            while not last.exists():
                daemon.wait_for("released", len(daemon.events("released")) + 1)
            assert daemon.stop() == 0
    found, wanted = left_by(folder), left_by(twin)
    assert found.snapshots == wanted.snapshots
    assert (found.state, found.rows, found.about) == (wanted.state, wanted.rows, wanted.about)
    assert source.stat().st_size == len(whole)
