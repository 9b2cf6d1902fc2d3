"""How ``streamlda run`` refuses to start, and with which exit code."""

import json
import re
import subprocess

import pytest

from tests.service.daemon_process import (
    ROOT,
    STREAMLDA,
    Daemon,
    arguments,
    changed,
    environment,
    private_settings,
    settings_of,
    texts,
    write_documents,
)


def run(command, **more):
    return subprocess.run(
        command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=120
    )


def refusal(done, code=78):
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    refused = code in (65, 78)
    return done.stderr[done.stderr.index("streamlda: error: ") :] if refused else done.stderr


def refused(settings, *more, code=78):
    return refusal(run([*arguments(settings), *more]), code)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("source") / "documents.jsonl", texts(2500))


def private(folder, source, **flags):
    return private_settings(folder, source, **{"snapshots.every": 1000, **flags})


def test_wrong_settings_are_all_named_and_so_is_a_missing_file(tmp_path):
    config = tmp_path / "streamlda.toml"
    command = [*STREAMLDA, "run", "--config", str(config)]
    assert "the settings file must be readable" in refusal(run(command))
    config.write_text('[topics]\ncuont = 5\n[vocabulary]\nhash_bits = 99\n[other]\nkey = "value"\n')
    message = refusal(run(command, STREAMLDA_HTTP_PROT="80"))
    assert "problems=4" in message
    for part in (
        "topics.cuont is no known setting; did you mean topics.count?",
        "vocabulary.hash_bits must be >= 1",
        "other.key is no known setting",
        "STREAMLDA_HTTP_PROT is no known variable; did you mean STREAMLDA_HTTP_PORT?",
    ):
        assert part in message


@pytest.mark.long
def test_the_memory_plan_is_printed_or_refused_and_nothing_touched(tmp_path, source):
    done = run([*arguments(settings_of(tmp_path, source)), "--check"])
    assert (done.returncode, done.stderr) == (0, "")
    *parts, total = done.stdout.splitlines()
    assert re.search(r"MiB  in all(, of [\d,]+ MiB allowed)?$", total)
    sizes = [float(line.split()[0].replace(",", "")) for line in [*parts, total]]
    assert sizes[-1] == pytest.approx(sum(sizes[:-1]), abs=len(parts))
    message = refused(settings_of(tmp_path, source, memory__limit="100 MiB"))
    assert "memory.limit=100 MiB planned=" in message
    assert "\n- interpreter, libraries and kernels: " in message
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_checkpoints_of_other_settings_or_in_use_are_78(tmp_path, source):
    settings = settings_of(tmp_path, source, source__kind="follow")
    with Daemon(settings) as daemon:
        daemon.wait_for("checkpoint")
        assert "another process holds the lock on checkpoint.folder" in refused(settings)
        assert daemon.stop() == 0
    assert "n_components=4 (saved: 3)" in refused({**settings, "topics.count": 4})
    # Nor does a private run go on from them.
    assert "a private checkpoint" in refused(private(tmp_path, source))
    with Daemon(settings) as daemon:
        daemon.wait_for("checkpoint-restored")
        assert daemon.stop() == 0


def test_a_source_that_is_not_there_is_74(tmp_path):
    message = refused(settings_of(tmp_path, tmp_path / "none.jsonl"), code=74)
    last = json.loads(message.splitlines()[-1])
    assert last["event"] == "not-started"
    assert "none.jsonl" in last["message"]


#: A fault of the program, which quotes a document.
FAULT = """
from streamlda.stream.source import RecordBatch
def check(self, max_records):
    raise ValueError(self.texts[0])
RecordBatch.check = check
"""


def test_an_error_of_its_own_is_70_and_quotes_nothing(tmp_path, source):
    message = refusal(run(changed(settings_of(tmp_path, source), FAULT)), 70)
    last = json.loads(message.splitlines()[-1])
    assert (last["event"], last["error"]) == ("crashed", "ValueError")
    assert "message" not in last
    assert json.loads(source.read_text("utf-8").splitlines()[0])["text"] not in message
