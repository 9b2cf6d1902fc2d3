"""Refusals of ``streamlda run``: exit codes, waiting, and dead letters."""

import json
import re
import subprocess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.service.opening import Letters
from streamlda.service.status import Status
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from streamlda.utils.exit_codes import DATA
from streamlda.utils.process import allowed_bytes
from tests.kafka.broker import free_ports
from tests.service.daemon_process import (
    ROOT,
    Daemon,
    arguments,
    changed,
    environment,
    settings_of,
    texts,
    write_documents,
)
from tests.service.long_stream import answer_of, not_ready


@pytest.fixture
def source(tmp_path):
    return write_documents(tmp_path / "documents.jsonl", texts(100))


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
    assert (last["event"], last["error"]) == ("crashed", "ValueError")
    assert "message" not in last
    assert json.loads(source.read_text("utf-8").splitlines()[0])["text"] not in json.dumps(last)


def test_it_waits_after_a_refusal(tmp_path):
    """Alive, not ready, and it says why."""
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
    assert allowed_bytes(tmp_path / "own", tmp_path / "sys") == allowed


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
