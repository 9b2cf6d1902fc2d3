"""The daemon as a process: signals, disks that are slow or full, what it serves, what it says."""

import json
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

from tests.kafka.broker import free_ports
from tests.service.daemon_process import (
    ROOT,
    Daemon,
    arguments,
    changed,
    environment,
    left_by,
    private_settings,
    run_to_end,
    settings_of,
    snapshots_in,
    texts,
    write_documents,
)
from tests.service.long_stream import answer_of, not_ready

#: Makes the daemon wait where a test wants it to, in seconds.
SLOW = """
import time
from streamlda.storage.store import Store
from streamlda.service.worker import Worker
def later(owner, name, seconds):
    inner = getattr(owner, name)
    def outer(*args, **options):
        time.sleep(seconds)
        return inner(*args, **options)
    setattr(owner, name, outer)
later(Store, "write", {checkpoint})
later(Worker, "_learn", {learn})
"""

#: The clock on the wall jumps ten years forward or back whenever it is read.
JUMPS = """
import itertools, time
now, turns = time.time, itertools.cycle([0, 1, -1])
time.time = lambda: now() + 3e8 * next(turns)
"""


def slow(settings, *, checkpoint=0, learn=0):
    return changed(settings, SLOW.format(checkpoint=checkpoint, learn=learn))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("source") / "documents.jsonl", texts(12_000))


@pytest.fixture(scope="module")
def twin(source, tmp_path_factory):
    """What an undisturbed run leaves, with a snapshot every 4000 records."""
    folder = tmp_path_factory.mktemp("twin")
    run_to_end(settings_of(folder, source, snapshots__every=4000))
    return left_by(folder)


@pytest.fixture
def every_4000(tmp_path, source):
    return settings_of(tmp_path, source, snapshots__every=4000)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_saves_and_ends_and_the_next_run_goes_on(tmp_path, every_4000, twin, number):
    settings = every_4000 | {"checkpoint.interval": "1 h"}
    with Daemon(settings, command=slow(settings, learn=0.3)) as daemon:
        daemon.wait_for("released")
        began = time.monotonic()
        assert daemon.stop(number) == 0
        assert time.monotonic() - began < 30
    assert daemon.lines[-2]["event"] == "exit"
    # In the middle of a window: what was learned is saved, though the clock did not ask for it.
    assert len(daemon.events("checkpoint")) >= 1
    assert snapshots_in(tmp_path).keys() < twin.snapshots.keys()
    assert len(run_to_end(every_4000).events("checkpoint-restored")) == 1
    assert left_by(tmp_path) == twin


@pytest.mark.parametrize("signals", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_disk_too_slow_to_save_ends_within_the_grace_or_at_a_second_signal(every_4000, signals):
    with Daemon(every_4000, command=slow(every_4000, checkpoint=30)) as daemon:
        daemon.wait_for("released")
        for _ in range(signals):
            daemon.process.send_signal(signal.SIGTERM)
            daemon.wait_for("signal")
        began = time.monotonic()
        assert daemon.end() == (75 if signals == 1 else 128 + signal.SIGTERM)
        # The grace is 9 seconds, the disk takes 30.
        assert time.monotonic() - began < (25 if signals == 1 else 8)
    assert len(daemon.events("grace-over")) == 2 - signals


#: A client that waits, within a poll or when it is closed, for brokers that do not answer.
WAITING = """
import signal, time
from streamlda.service.logs import log
from streamlda.run.opening import OpenedRun
really = OpenedRun.begin_source
def wait(*of):
    if NAME == "masked":
        # Another thread is given the signal: this one waits on, as in a library that does.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    log("info", "waiting")
    time.sleep(60)
def opened(*about):
    source, polls = really(*about), []
    def poll(*of, really=source.poll):
        polls.append(of)
        return wait() if len(polls) > 1 else really(*of)
    if NAME == "close":
        source.close = wait
    else:
        source.poll = poll
    return source
OpenedRun.begin_source = opened
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["poll", "masked", "close"])
def test_a_client_that_waits_for_brokers_does_not_hold_up_the_end(every_4000, twin, tmp_path, name):
    settings = every_4000 | {"checkpoint.interval": "1 h"}
    command = changed(settings, f"NAME = {name!r}{WAITING}")
    with Daemon(settings, command=command) as daemon:
        daemon.wait_for("released" if name == "close" else "waiting")
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 30
    assert len(daemon.events("waiting")) == 1
    assert len(daemon.events("checkpoint")) >= 1
    run_to_end(every_4000)
    assert left_by(tmp_path) == twin


@pytest.mark.long
def test_a_signal_while_starting_ends_with_0(tmp_path, source):
    settings = settings_of(tmp_path, source)
    with Daemon(settings) as daemon:
        daemon.wait_for("memory-plan")
        assert daemon.stop() == 0
    assert [line["number"] for line in daemon.events("signal")] == [signal.SIGTERM]
    run_to_end(settings)


@pytest.mark.long
def test_jumps_of_the_clock_change_nothing(tmp_path, every_4000, twin):
    ended = run_to_end(every_4000, command=changed(every_4000, JUMPS))
    assert len({line["time"][:4] for line in ended.lines}) > 1
    assert left_by(tmp_path) == twin


def test_warming_up_ends_when_topics_are_shown_though_the_warm_up_goes_on(tmp_path):
    source = write_documents(tmp_path / "documents.jsonl", texts(1500))
    (port,) = free_ports(1)
    more = {"source.kind": "follow", "http.port": port, "topics.warmup_documents": 20_000}
    settings = settings_of(tmp_path, source, more, snapshots__every=2000)
    with Daemon(settings) as daemon:
        daemon.wait_for("checkpoint")
        assert answer_of(port, "/status")["phase"] == "warm-up"
        append(source, texts(600, seed=2))
        daemon.wait_for("released")
        assert phases(port) == {"learning"}
        assert daemon.stop() == 0
    # And after a restart within the warm-up.
    append(source, texts(10, seed=3))
    with Daemon(settings) as daemon:
        daemon.wait_for("checkpoint")
        assert phases(port) == {"learning"}
        assert daemon.stop() == 0


def append(path, documents):
    with path.open("a") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents)


def phases(port):
    """Return the phases that `/status` and `/metrics` show, while the warm-up is not over."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        shown = re.findall(r'streamlda_phase{phase="(.*)"} 1', answer.read().decode())
    status = answer_of(port, "/status")
    assert status["last_snapshot"]
    assert status["warmup"]["documents"] < 20_000
    return {status["phase"], *shown}


@pytest.mark.long
@pytest.mark.parametrize("stopped", [False, True])
def test_a_full_disk_of_checkpoints_is_waited_for(tmp_path, every_4000, twin, stopped):
    (port,) = free_ports(1)
    settings = every_4000 | {"breaker.attempts": 1, "http.port": port}
    (tmp_path / "checkpoints").mkdir(mode=0o700)
    unlimited = resource.RLIM_INFINITY

    def full():
        # Larger than a model, the index and the log; smaller than a state.
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, unlimited))

    # The one file that grows is the log, which is a pipe. Compiled code is cached by the twin.
    with Daemon(settings, preexec_fn=full) as daemon:
        daemon.wait_for("checkpoint-failed", 3)
        assert re.fullmatch(r"checkpoint stalled since \S+: EFBIG", not_ready(port))
        assert answer_of(port, "/livez")["alive"]
        assert not list((tmp_path / "checkpoints").glob("*.tmp"))
        if stopped:
            assert daemon.stop() == 74
            assert not daemon.events("grace-over")
        else:
            limits = unlimited, unlimited
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
            assert daemon.end() == 0
            assert [line["what"] for line in daemon.events("recovered")] == ["checkpoint"]
    failures = daemon.events("checkpoint-failed")
    assert all("make room" in line["message"] for line in failures)
    if stopped:
        # What no checkpoint has is read again.
        run_to_end(settings)
    assert left_by(tmp_path) == twin


#: A byte is written for each search for garbage while the daemon is at work.
SEARCHES = """
import gc, os
from streamlda.service.daemon import Daemon
fd, really = os.open({path!r}, os.O_WRONLY | os.O_CREAT), Daemon.run
def run(self, started):
    gc.callbacks.append(lambda phase, about: phase == "start" and os.write(fd, b"."))
    return really(self, started)
Daemon.run = run
"""


@pytest.mark.long
def test_records_do_not_make_python_search_for_garbage(tmp_path, every_4000):
    path = tmp_path / "searches"
    with Daemon(every_4000, command=changed(every_4000, SEARCHES.format(path=str(path)))) as daemon:
        assert daemon.end() == 0
    # With the thresholds that Python has by default it is one for every 200 records, or so.
    assert path.stat().st_size < 12


@pytest.mark.long
@pytest.mark.parametrize("unit", [pytest.param("document", marks=pytest.mark.long), "user"])
def test_used_up_the_daemon_idles_and_serves_and_starts_again(tmp_path, unit):
    source = tmp_path / "documents.jsonl"
    rows = [{"text": text, "user": f"u{i}"} for i, text in enumerate(texts(900))]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (port,) = free_ports(1)
    settings = private_settings(tmp_path, source) | {"http.port": port, "snapshots.most": 1}
    if unit == "user":
        settings |= {"privacy.unit": "user", "source.user_field": "user"}
        settings |= {"privacy.documents_per_user": 1}
    address = f"http://127.0.0.1:{port}/snapshots"
    for _ in range(2):
        with Daemon(settings) as daemon:
            daemon.wait_for("no-release-left")
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert json.load(answer)["latest"] == 1
            assert daemon.process.poll() is None
            assert daemon.stop() == 0
    run_to_end(settings | {"snapshots.when_exhausted": "stop"})
    assert list(snapshots_in(tmp_path)) == [1]


@pytest.mark.long
def test_systemd_hears_of_a_start_of_life_and_of_an_end(tmp_path, every_4000):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environ = environment(NOTIFY_SOCKET=str(tmp_path / "notify"))
        with Daemon(every_4000 | {"source.kind": "follow"}, env=environ) as daemon:
            ready = f"READY=1\nMAINPID={daemon.process.pid}"
            assert [manager.recv(100).decode() for _ in range(4)] == [ready, *["WATCHDOG=1"] * 3]
            daemon.process.send_signal(signal.SIGTERM)
            while (said := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert daemon.end() == 0


CANARY = "zebracanary"


@pytest.mark.parametrize("style", ["json", pytest.param("console", marks=pytest.mark.long)])
def test_no_text_is_ever_logged(tmp_path, style):
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

    def said(folder, code, **more):
        folder.mkdir()
        command = arguments(settings_of(folder, source, flags, **more))
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True)
        assert (done.returncode, done.stdout) == (code, b"")
        assert CANARY.encode() not in done.stderr.lower()
        for line in done.stderr.splitlines():
            if style == "json":
                assert {"time", "level", "event"} <= json.loads(line).keys()
            else:
                assert re.match(rb"\d\d:\d\d:\d\d (debug|info|warning|error) +[a-z-]+", line)
        return done.stderr

    assert said(tmp_path / "good", 0).count(b"snapshot") >= 3
    # And when they are too many.
    broken = said(tmp_path / "bad", 65, breaker__records=100, breaker__share=0.2)
    assert re.search(rb"breaker\b.*rejects", broken)


@pytest.mark.long
def test_a_paused_daemon_keeps_following(tmp_path):
    """Records wait in a queue that is too small for two polls, for longer than the loop ticks."""
    source = write_documents(tmp_path / "documents.jsonl", texts(9000))
    more = {"source.kind": "follow", "memory.queue": "1 MiB"}
    settings = settings_of(tmp_path, source, more, snapshots__every=9000)
    with Daemon(settings, command=slow(settings, learn=1.5)) as daemon:
        daemon.wait_for("released")
        assert daemon.stop() == 0
    assert not daemon.events("poll-failed")
    assert not daemon.events("source-failed")


@pytest.mark.long
def test_a_source_that_goes_away_is_waited_for_and_its_state_is_shown(tmp_path):
    source = write_documents(tmp_path / "documents.jsonl", texts(4000))
    kept = source.rename(tmp_path / "kept")
    source.symlink_to(kept)
    (port,) = free_ports(1)
    more = {"source.kind": "follow", "breaker.attempts": 2, "http.port": port}
    with Daemon(settings_of(tmp_path, source, more, snapshots__every=2000)) as daemon:
        daemon.wait_for("released", 2)
        assert answer_of(port, "/readyz") == {"ready": True, "reason": ""}
        source.unlink()
        source.symlink_to(source)
        stalled = daemon.wait_for("stalled")
        assert (stalled["what"], stalled["reason"]) == ("source", "ELOOP")
        daemon.wait_for("open-failed", 3)
        assert answer_of(port, "/livez") == {"alive": True}
        assert re.fullmatch(r"source stalled since [-0-9T:+]+: ELOOP", not_ready(port))
        seen = answer_of(port, "/status")
        assert seen["stalled"]["source"]["reason"] == "ELOOP"
        assert seen["lag"]["bytes"] is None
        source.unlink()
        source.symlink_to(kept)
        append(kept, texts(2000, seed=2))
        daemon.wait_for("released", 3)
        assert answer_of(port, "/readyz")["ready"]
        assert daemon.stop() == 0
    (recovered,) = daemon.events("recovered")
    assert recovered["after_seconds"] > 1
