"""The daemon as a process: signals, full disks, what it says and refuses, and its letters."""

import json
import re
import resource
import signal
import subprocess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.service.letters import Letters
from streamlda.service.status import Status
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from streamlda.utils.exit_codes import DATA
from streamlda.utils.process import get_memory_limit
from tests.kafka.broker import free_ports
from tests.kafka.topics import wait_until
from tests.service.daemon_process import (
    PATIENT,
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


def test_a_signal_saves_and_ends_and_the_next_run_continues(tmp_path, every_4000, twin):
    settings = every_4000 | {"checkpoint.interval": "1 h"}
    with Daemon(settings, command=changed(settings, PATIENT + SLOW)) as daemon:
        daemon.wait_for("release")
        assert daemon.stop(signal.SIGINT) == 0
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
        # The next attempt may be under way.
        wait_until(lambda: not list((tmp_path / "checkpoints").glob("*.tmp")))
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
    assert b'"event": "source-note"' in good
    broken = said(tmp_path / "bad", 65, breaker__records=100, breaker__share=0.2)
    assert re.search(rb"breaker\b.*rejects", broken)


def test_settings_are_checked_and_nothing_touched(tmp_path, source):
    folder = tmp_path / "run"
    flags = map(str, arguments(settings_of(folder, source))[5:])
    done = CliRunner(env={}).invoke(commands, ["run", *flags, "--check"])
    assert done.exit_code == 0
    assert re.fullmatch(r"the settings are right; it takes up to \d+ MiB\n", done.output)
    assert not folder.exists()


#: A fault of the program, which quotes a document.
FAULT = """
from streamlda.stream.source import RecordBatch
def check(self, max_records):
    raise ValueError(self.texts[0])
RecordBatch.check = check
"""


def test_an_error_of_its_own_is_70_and_quotes_nothing(tmp_path, source):
    command = changed(settings_of(tmp_path, source), FAULT)
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (70, "")
    assert "Traceback" not in done.stderr
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["event"], last["error"]) == ("crash", "ValueError")
    assert "message" not in last
    first, *_ = source.read_text("utf-8").splitlines()
    assert json.loads(first)["text"] not in json.dumps(last)


def test_a_daemon_that_waits_after_a_refusal_says_why(tmp_path):
    (port,) = free_ports(1)
    more = {"breaker.records": 1000, "breaker.then": "wait", "http.port": port}
    source = tmp_path / "documents.jsonl"
    source.write_text("no JSON\n" * 3000)
    command = arguments(settings_of(tmp_path, source, more))
    with Daemon(None, command=command) as daemon:
        assert daemon.wait_for("waits-after-refusal")["code"] == DATA
        daemon.wait_for("http", 2)
        assert "exit code 65" in not_ready(port)
        # Who asks has no token, and no settings say that none is needed.
        assert answer_of(port, "/livez") == {"alive": True}
        assert daemon.stop() == DATA


@pytest.mark.parametrize(
    ("own", "files", "allowed"),
    [
        # A container sees its own group as the root, or is named a path that only the host has.
        ("0::/", {"memory.max": 2**31}, 2**31),
        ("0::/docker/c0ffee", {"memory.max": 2**31}, 2**31),
        # Of a unit its own limit counts, or that of its slice.
        ("0::/a.slice/b", {"a.slice/memory.max": 5, "a.slice/b/memory.max": "max"}, 5),
        ("0::/a.slice/b", {"a.slice/memory.max": 5, "a.slice/b/memory.max": 3}, 3),
        ("0::/a.slice/b", {"a.slice/memory.max": "max"}, None),
        (None, {"memory.max": 2**31}, None),
    ],
)
def test_a_limit_of_a_control_group_is_found_wherever_it_is_set(tmp_path, own, files, allowed):
    for name, value in files.items():
        file = tmp_path / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    if own is not None:
        (tmp_path / "own").write_text(f"{own}\n")
    assert get_memory_limit(tmp_path / "own", tmp_path / "sys") == allowed


class Written(list):
    def put(self, record, reason):
        self.append((record.offset, reason))

    def flush(self, seconds):
        pass


def test_letters_are_written_again_only_with_other_settings(tmp_path):
    def written(reason="not-json", up_to=3, **changes):
        flags = {"kafka.bootstrap": "b", "kafka.topic": "t", "dead_letters.topic": "d", **changes}
        status, sink = Status(private=False, stream="s"), Written()
        letters = Letters(sink, status, load_settings(environment={}, flags=flags))
        with Store.open(tmp_path) as store:
            letters.read_note(store)
            letters.begin({"cluster": "c", "topic": "t", "topic_id": "i"})
            for offset in range(up_to):
                record = SimpleNamespace(topic="t", partition=0, offset=offset)
                letters.on_rejected(record, reason)
            letters.keep_note()
        assert status.status()["dead_letters"] == ({reason: len(sink)} if sink else {})
        return [offset for offset, _ in sink]

    assert written() == [0, 1, 2]
    assert written() == []
    assert written(up_to=5) == [3, 4]
    # With the field of the text corrected it is another matter what is wrong with records.
    assert written("not-text", **{"source.text_field": "no"}) == [0, 1, 2]
