"""How ``streamlda run`` refuses to start, and with which exit code."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemon_process import (
    ROOT,
    STREAMLDA,
    Daemon,
    arguments,
    changed,
    environment,
    run_to_end,
    settings_of,
    texts,
    write_documents,
)


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=120
    )


def run_with(settings: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    return run(*arguments(settings), *more)


def refusal(done: subprocess.CompletedProcess[str], code: int = 78) -> str:
    """Return the message of a daemon that did not start."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    refused = code in (65, 78)
    return done.stderr[done.stderr.index("streamlda: error: ") :] if refused else done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("source") / "documents.jsonl", texts(2500))


def private(folder: Path, source: Path, **more: Any) -> dict[str, Any]:
    flags = {
        "vocabulary.hash_bits": 5,
        "privacy.epsilon": 12.0,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "ledger"),
        "snapshots.every": 1000,
        "source.stream": "trial",
    }
    return settings_of(folder, source, flags | more)


def test_wrong_settings_are_all_named_with_78(tmp_path: Path) -> None:
    config = tmp_path / "streamlda.toml"
    config.write_text('[topics]\ncuont = 5\n[vocabulary]\nhash_bits = 99\n[other]\nkey = "value"\n')
    done = run(*STREAMLDA, "run", "--config", str(config), STREAMLDA_HTTP_PROT="80")
    message = refusal(done)
    assert "problems=4" in message
    for part in (
        "topics.cuont is no known setting; did you mean topics.count?",
        "vocabulary.hash_bits must be >= 1",
        "other.key is no known setting",
        "STREAMLDA_HTTP_PROT is no known variable; did you mean STREAMLDA_HTTP_PORT?",
    ):
        assert part in message


def test_a_missing_settings_file_is_78(tmp_path: Path) -> None:
    done = run(*STREAMLDA, "run", "--config", str(tmp_path / "none.toml"))
    assert "the settings file must be readable" in refusal(done)


def test_check_prints_the_plan_and_touches_nothing(tmp_path: Path, source: Path) -> None:
    done = run_with(settings_of(tmp_path, source), "--check")
    assert (done.returncode, done.stderr) == (0, "")
    *parts, total = done.stdout.splitlines()
    assert total.endswith("MiB  in all")
    sizes = [float(line.split()[0].replace(",", "")) for line in [*parts, total]]
    assert sizes[-1] == pytest.approx(sum(sizes[:-1]), abs=len(parts))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("check", [["--check"], []])
def test_memory_that_cannot_be_kept_is_78_with_the_plan(
    tmp_path: Path, source: Path, check: list[str]
) -> None:
    settings = settings_of(tmp_path, source, memory__limit="100 MiB")
    message = refusal(run_with(settings, *check))
    assert "memory.limit=100 MiB planned=" in message
    assert "\n- interpreter, libraries and kernels: " in message
    assert not list(tmp_path.iterdir())


def test_checkpoints_of_other_settings_are_78(tmp_path: Path, source: Path) -> None:
    run_to_end(settings_of(tmp_path, source))
    message = refusal(run_with(settings_of(tmp_path, source, topics__count=4)))
    assert "n_components=4 (saved: 3)" in message
    message = refusal(run_with(settings_of(tmp_path, source, vocabulary__hash_bits=9)))
    assert "words=" in message
    # Nor does a private run go on from them.
    assert "a private checkpoint" in refusal(run_with(private(tmp_path, source)))
    run_to_end(settings_of(tmp_path, source))


def test_a_ledger_that_refuses_is_78(tmp_path: Path, source: Path) -> None:
    settings = private(tmp_path, source)
    run_to_end(settings)
    terms = refusal(run_with({**settings, "privacy.epsilon": 3.0}))
    assert "epsilon" in terms
    # Without its checkpoints the documents would be released again.
    elsewhere = {**settings, "checkpoint.folder": str(tmp_path / "empty")}
    assert "bring the folder back" in refusal(run_with(elsewhere))
    # Under another name the same ledger takes other documents.
    other = {**elsewhere, "source.stream": "other", "output.folder": str(tmp_path / "more")}
    run_to_end(other)


def test_a_choice_of_words_that_finds_none_is_65_when_started_again(tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_text(
        "".join(json.dumps({"text": f"w{chr(97 + i % 26)}"}) + "\n" for i in range(900))
    )
    words = {"vocabulary.kind": "private", "vocabulary.documents": 300}
    settings = private(tmp_path, source, **words, **{"privacy.epsilon": 0.1})
    del settings["vocabulary.hash_bits"]
    with Daemon(settings) as daemon:
        assert daemon.end() == 70
    assert "a private choice must find a word" in daemon.events("release-failed")[0]["message"]
    assert "choose another ledger" in refusal(run_with(settings), 65)


def test_two_daemons_in_one_folder_are_78(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path, source, source__kind="follow")
    with Daemon(settings) as daemon:
        daemon.wait_for("checkpoint")
        assert "one daemon" in refusal(run_with(settings))
        assert daemon.stop() == 0


def test_a_source_that_is_not_there_is_74(tmp_path: Path) -> None:
    done = run_with(settings_of(tmp_path, tmp_path / "none.jsonl"))
    lines = [json.loads(line) for line in refusal(done, 74).splitlines()]
    assert [line["event"] for line in lines[-1:]] == ["not-started"]
    assert "none.jsonl" in lines[-1]["message"]


def test_an_error_of_its_own_is_70_and_quotes_nothing(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path, source)
    lines = """
import json
from streamlda.stream.source import RecordBatch
def check(self, max_records):
    raise ValueError(self.texts[0])
RecordBatch.check = check
"""
    done = run(*changed(settings, lines))
    *_, last = [json.loads(line) for line in refusal(done, 70).splitlines()]
    assert (last["event"], last["error"]) == ("crashed", "ValueError")
    assert "message" not in last
    assert json.loads(source.read_text("utf-8").splitlines()[0])["text"] not in done.stderr


def test_too_many_rejects_are_65_and_read_again(tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    good = "".join(json.dumps({"text": text}) + "\n" for text in texts(2000))
    source.write_text(good + 3000 * "{broken\n")
    settings = settings_of(tmp_path, source, snapshots__every=2000, breaker__records=500)
    with Daemon(settings) as daemon:
        assert daemon.end() == 65
    assert daemon.events("breaker")[0]["share"] > 0.5
    # With other settings the same records are read again.
    ended = run_to_end({**settings, "breaker.share": 1.0})
    assert ended.events("released")
