"""``streamlda fit --epsilon``: what is left of runs that end early, and which models it gives."""

import re
import signal
import subprocess
import sys

import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from tests.cli.conftest import check_releases, refused, run, spelled
from tests.cli.test_fit import fail_behind
from tests.cli.test_private_fit import EVERY, SLOTS, fit, folder, options
from tests.cli.test_process import wait_until

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("same_noise")


@pytest.mark.parametrize(("every", "made"), [(2000, True), (4200, False)])
def test_a_source_that_fails_ends_a_run_without_a_last_snapshot(
    folder, tmp_path, monkeypatch, every, made
):
    """Slots up to the failure are read; with 4200, most of the last stage."""
    # They were counted before.
    fail_behind(monkeypatch, SLOTS + 4096)
    said = fit(folder, tmp_path, every=every, code=74)
    assert "error: a source must go on answering" in said
    assert (tmp_path / "m").exists() == made
    assert ("no snapshot was made" in said) != made
    assert ("spent: epsilon=8 of 8 by releases=3" in said) != made
    assert check_releases(tmp_path)["generation"] == (9 if made else 3)
    offered = "released='norms, pairs, triple norms' missing='triples'" not in said
    assert offered == made


def test_a_run_that_fails_in_a_round_names_the_command_that_gives_its_model(
    folder, tmp_path, monkeypatch
):
    """It is private, says what is missing, costs nothing, and replaces nothing."""
    with monkeypatch.context() as patch:
        # In the last tenth of the window, which is a round; the slots were counted before.
        fail_behind(patch, SLOTS + EVERY - 100)
        said = fit(folder, tmp_path, "privacy.refinement_rounds=2", "snapshots.most=1", code=74)
    command = re.search(r"streamlda (budget \S+) --publish MODEL$", said, re.MULTILINE)
    assert "(incomplete, without refine 2)" in said
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    model_file = tmp_path / "model"
    done = run(*command[1].split(), "--publish", model_file)
    assert "incomplete  without refine 2" in done.stderr
    assert "privacy     private: epsilon 8, delta 1e-06" in done.stderr
    assert {path: path.read_bytes() for path in before} == before
    model = load(model_file)
    check_statement(model.privacy)
    assert model.vocabulary.words == load(folder / "truth").vocabulary.words
    assert model.settings["stream"].startswith("a.jsonl, ")
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35
    shown = run("topics", model_file).stdout
    assert "incomplete  without refine 2" in shown
    assert "must not replace a file" in refused(*command[1].split(), "--publish", model_file)
    # What a second run is refused by leads there, too.
    again = fit(folder, tmp_path, every=7000, code=78)
    assert f"streamlda budget {tmp_path / 'L'}" in again


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda process: process.kill(), -signal.SIGKILL),
        (lambda process: process.send_signal(signal.SIGINT), 130),
        (lambda process: process.stdin.close(), 65),
    ],
    ids=["killed", "interrupted", "at the end of the stream"],
)
def test_a_process_that_ended_in_a_round_has_a_model(folder, tmp_path, end, code):
    records = (folder / "a.jsonl").read_bytes().splitlines(keepends=True)[: EVERY - 700]
    more = ("privacy.refinement_rounds=2", "--format", "jsonl", "source.stream=piped")
    arguments = spelled("fit", "-", *options(folder, tmp_path, *more))
    command = [sys.executable, "-m", "streamlda", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            process.stdin.write(b"".join(records))
            process.stdin.flush()
            released = tmp_path / "L.releases"
            wait_until(lambda: [*released.glob("*-refine-1.safetensors")], "no round was released")
            end(process)
            said = process.stderr.read().decode()
        finally:
            process.kill()
    assert process.returncode == code, said
    assert ("(incomplete, without refine 2)" in said) == (code > 0)
    # Undoes the row that a kill may have cut short.
    run("budget", tmp_path / "L")
    # Another run of these is known when it reads; what was spent before is not its own.
    command[command.index("source.stream=piped")] = "source.stream=other"
    again = subprocess.run(command, input=b"".join(records), stderr=subprocess.PIPE)
    assert (again.returncode, b"spent: " in again.stderr) == (78, False), again.stderr
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run("budget", tmp_path / "L", "--publish", tmp_path / "model")
    assert {path: path.read_bytes() for path in before} == before
    model = load(tmp_path / "model")
    assert model.privacy["missing_stages"] == ["refine 2"]
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35
