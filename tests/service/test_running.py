"""How ``streamlda run`` refuses to start, and with which exit code."""

import json
import subprocess

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from tests.service.daemon_process import (
    ROOT,
    arguments,
    changed,
    environment,
    settings_of,
    texts,
    write_documents,
)


@pytest.fixture
def source(tmp_path):
    return write_documents(tmp_path / "documents.jsonl", texts(100))


def run_here(*command, **variables):
    """Run what ends before anything is opened, in this process."""
    return CliRunner(env=variables).invoke(commands, ["run", *map(str, command)])


def test_settings_are_checked_and_nothing_touched(tmp_path, source):
    folder = tmp_path / "run"
    done = run_here(*arguments(settings_of(folder, source))[5:], "--check")
    assert (done.exit_code, done.output) == (0, "the settings are right\n")
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
