"""The daemon as a process: signals, disks that are slow or full, what it serves, what it says."""

import json
import re
import resource
import signal
import subprocess
import time

import pytest

from tests.kafka.broker import free_ports
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
from tests.service.long_stream import answer_of, not_ready

#: Lets batches be learned slowly.
SLOW = """
import time
from streamlda.service.worker import Worker
learn = Worker._learn
Worker._learn = lambda *given: (time.sleep(0.3), learn(*given))
"""


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


def test_a_signal_saves_and_ends_and_the_next_run_goes_on(tmp_path, every_4000, twin):
    settings = every_4000 | {"checkpoint.interval": "1 h"}
    with Daemon(settings, command=changed(settings, SLOW)) as daemon:
        daemon.wait_for("released")
        began = time.monotonic()
        assert daemon.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < 30
    assert daemon.lines[-2]["event"] == "exit"
    # In the middle of a window: what was learned is saved, though the clock did not ask for it.
    assert len(daemon.events("checkpoint")) >= 1
    assert snapshots_in(tmp_path).keys() < twin.snapshots.keys()
    assert len(run_to_end(every_4000).events("checkpoint-restored")) == 1
    assert left_by(tmp_path) == twin


#: A client that waits within a poll for brokers that do not answer.
WAITING = """
import signal, time
from streamlda.service.logs import log
from streamlda.run.opening import OpenedRun
really = OpenedRun.begin_source
def opened(*about):
    source, polls = really(*about), []
    def poll(*of, really=source.poll):
        polls.append(of)
        if len(polls) <= 1:
            return really(*of)
        # Another thread is given the signal: this one waits on, as in a library that does.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        log("info", "waiting")
        time.sleep(600)
    source.poll = poll
    return source
OpenedRun.begin_source = opened
"""


@pytest.mark.long
def test_a_client_that_waits_for_brokers_does_not_hold_up_the_end(every_4000, twin, tmp_path):
    settings = every_4000 | {"checkpoint.interval": "1 h"}
    with Daemon(settings, command=changed(settings, WAITING)) as daemon:
        daemon.wait_for("waiting")
        # On a busy machine a checkpoint may take longer than the grace.
        assert daemon.stop() in (0, 75)
    assert len(daemon.events("waiting")) == 1
    run_to_end(every_4000)
    assert left_by(tmp_path) == twin


@pytest.mark.long
def test_a_signal_while_starting_ends_with_0(tmp_path, source):
    settings = settings_of(tmp_path, source)
    with Daemon(settings) as daemon:
        daemon.wait_for("settings-checked")
        assert daemon.stop() == 0
    assert [line["number"] for line in daemon.events("signal")] == [signal.SIGTERM]


@pytest.mark.long
def test_a_full_disk_of_checkpoints_is_waited_for_at_the_start_and_later(
    tmp_path, every_4000, twin
):
    (port,) = free_ports(1)
    settings = every_4000 | {"breaker.attempts": 1, "http.port": port}
    unlimited = resource.RLIM_INFINITY

    def make_room(size):
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, unlimited))

    def limit():
        # Room for a lock, and not for an index.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited))

    # The one file that grows is the log, which is a pipe. Compiled code is cached by the twin.
    with Daemon(settings, preexec_fn=limit) as daemon:
        daemon.wait_for("open-failed", 2)
        assert answer_of(port, "/livez")["alive"]
        assert re.search(r"\bcheckpoint stalled since \S+: (SQLITE|E)\w+", not_ready(port))
        # Larger than a model, the index and the log; smaller than a state.
        make_room(30_000)
        daemon.wait_for("checkpoint-failed", 3)
        assert re.fullmatch(r"checkpoint stalled since \S+: EFBIG", not_ready(port))
        assert not list((tmp_path / "checkpoints").glob("*.tmp"))
        make_room(unlimited)
        assert daemon.end() == 0
        assert [line["what"] for line in daemon.events("recovered")] == ["checkpoint"] * 2
    assert all("make room" in line["message"] for line in daemon.events("checkpoint-failed"))
    assert left_by(tmp_path) == twin


CANARY = "zebracanary"


def test_no_text_is_ever_logged(tmp_path):
    source = tmp_path / "documents.jsonl"
    dated = ({"text": f"{CANARY} {text}", "when": f"{CANARY} 1"} for text in texts(3000))
    good = [json.dumps(record).encode() for record in dated]
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
    flags = {"vocabulary.kind": "learned", "vocabulary.documents": 1000}
    flags |= {"snapshots.every": 2000, "source.max_record": "1 KiB"}
    flags["source.time_field"] = "when"

    def said(folder, code, **more):
        folder.mkdir()
        command = arguments(settings_of(folder, source, flags, **more))
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True)
        assert (done.returncode, done.stdout) == (code, b"")
        assert CANARY.encode() not in done.stderr.lower()
        for line in done.stderr.splitlines():
            assert {"time", "level", "event"} <= json.loads(line).keys()
        return done.stderr

    good = said(tmp_path / "good", 0)
    assert good.count(b"snapshot") >= 3
    # Times that were not read are named by their pattern.
    assert b'"event": "reading"' in good
    # And when they are too many.
    broken = said(tmp_path / "bad", 65, breaker__records=100, breaker__share=0.2)
    assert re.search(rb"breaker\b.*rejects", broken)
