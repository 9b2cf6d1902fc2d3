"""Private fits of files that are cut short: the same command resumes, and pays nothing twice."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamlda.errors import (
    BudgetExceededError,
    InsufficientDataError,
    InvalidSettingError,
    LedgerError,
    SourceError,
    StreamLDAError,
)
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda.privacy.statement import check_statement
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.released import released_model
from streamlda.run import fit, opening
from tests.run.cut_short import (
    KINDS,
    CutError,
    assert_same,
    cut_at,
    draw_known_noise,
    fitted,
    settings_at,
    two_files,
    undisturbed,
    write,
)
from tests.service.daemon_process import ROOT, environment, texts


@pytest.fixture
def data(tmp_path):
    return two_files(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_ends_at_any_release_resumes_and_is_paid_for_once(
    tmp_path, data, monkeypatch, kind
):
    """The model is that of a run that was not cut short, given the same noise."""
    model, drawn = undisturbed(data, tmp_path / "whole", kind, monkeypatch)
    spent = read_report(tmp_path / "whole" / "L")["spent"]
    settings, noise = settings_at(tmp_path / "cut", data, kind), []
    for cut in (*range(1, len(drawn) + 1), None):
        with monkeypatch.context() as patch:
            part = draw_known_noise(patch, cut)
            if cut is None:
                again, _ = fitted(settings)
            else:
                with pytest.raises(CutError):
                    fitted(settings)
        noise += part
    assert noise == drawn, "noise was drawn once for each release"
    assert_same(again, model)
    check_statement(again.privacy)
    assert read_report(settings.privacy.ledger)["spent"] == spent
    with pytest.raises(InsufficientDataError, match="nothing left to release"):
        fitted(settings)
    with pytest.raises((LedgerError, BudgetExceededError)):
        fitted(settings_at(tmp_path / "cut", data, kind, **{"checkpoint.folder": None}))


def test_noise_that_is_drawn_again_under_one_charge_would_show(tmp_path, data, monkeypatch):
    model, drawn = undisturbed(data, tmp_path / "whole", "hashed", monkeypatch)
    settings = settings_at(tmp_path / "again", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    stored = ReleaseManager.read_stored

    def drawn_again(self, intent):
        found = stored(self, intent)
        for array in found.arrays.values():
            if array.dtype == np.float64:
                array += 1e-6
        return found

    with monkeypatch.context() as patch:
        draw_known_noise(patch)
        patch.setattr(ReleaseManager, "read_stored", drawn_again)
        wrong, _ = fitted(settings)
    for other in (model, released_model(settings.privacy.ledger)):
        with pytest.raises(AssertionError):
            assert_same(wrong, other)
    assert len(drawn) == read_report(settings.privacy.ledger)["generation"]


def test_records_of_a_release_that_are_summed_again_would_be_refused(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "again", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    monkeypatch.setattr(opening.OpenedRun, "skip", lambda *_: None)
    with pytest.raises(StreamLDAError):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 2


@pytest.mark.parametrize("held", [None, b"", b"\xff" * 16, b'{"name": "f0205a"}'])
def test_a_run_without_its_name_is_refused(tmp_path, data, monkeypatch, held):
    settings = settings_at(tmp_path / "named", data, "windows")
    cut_at(settings, monkeypatch, 3)
    name = Path(settings.checkpoint.folder) / opening.RUN_FILE
    name.unlink()
    if held is not None:
        name.write_bytes(held)
    with pytest.raises(LedgerError, match="must have the file that names it"):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 3


def test_a_release_that_was_paid_and_never_stored_is_not_drawn_again(tmp_path, data, monkeypatch):
    """Its window is lost; the next one is made of the records behind, if there are enough."""
    settings = settings_at(tmp_path / "long", data, "windows")
    cut_at(settings, monkeypatch, 3, lost=True)
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, said = fitted(settings)
    assert any("lost" in line for line in said)
    assert min(number for number, *_ in drawn) == 4
    assert model.privacy["generation"] == read_report(settings.privacy.ledger)["generation"]
    settings = settings_at(tmp_path / "short", data, "hashed", **{"snapshots.every": 450})
    cut_at(settings, monkeypatch, 3, lost=True)
    with pytest.raises(InsufficientDataError, match="needs a whole window"):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 3


def in_front(data):
    write(data / "a.jsonl", texts(50, seed=5))


def altered(data):
    lines = (data / "b.jsonl").read_text().splitlines(keepends=True)
    (data / "b.jsonl").write_text("".join(["{}\n", *lines[1:]]))


@pytest.mark.parametrize(
    ("change", "error", "rule"),
    [
        (in_front, SourceError, "name the same files in the same order"),
        (altered, LedgerError, "must begin with the records that were released under its name"),
    ],
)
def test_files_that_are_not_as_they_were_are_refused(
    tmp_path, data, monkeypatch, change, error, rule
):
    settings = settings_at(tmp_path / "L", data, "hashed")
    cut_at(settings, monkeypatch, 3)
    cut_at(settings, monkeypatch, 4)
    change(data)
    with pytest.raises(error, match=rule):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 4


def test_other_settings_begin_another_run_with_what_is_unspent(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "L", data, "hashed", **{"snapshots.every": 120})
    cut_at(settings, monkeypatch, 2)
    first = read_report(settings.privacy.ledger)["snapshots"][0]["run"]
    changed = {"snapshots.every": 120, "topics.seed": 1}
    with pytest.raises(InvalidSettingError, match="must continue with the settings"):
        fitted(settings_at(tmp_path / "L", data, "hashed", **changed))
    changed["checkpoint.folder"] = str(tmp_path / "other")
    fitted(settings_at(tmp_path / "L", data, "hashed", **changed))
    runs = [each["run"] for each in read_report(settings.privacy.ledger)["snapshots"]]
    assert (runs[:2], first in runs[2:]) == ([first, first], False)


def test_a_command_that_is_refused_leaves_the_run_that_can_resume(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "L", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    with pytest.raises(InvalidSettingError, match="must continue with the settings"):
        fitted(settings_at(tmp_path / "L", data, "hashed", **{"snapshots.every": 9000}))
    changed = {"snapshots.every": 9000, "checkpoint.folder": str(tmp_path / "other")}
    with pytest.raises(LedgerError, match="too few of these were in none"):
        fitted(settings_at(tmp_path / "L", data, "hashed", **changed))
    fitted(settings)
    assert read_report(settings.privacy.ledger)["lost"] == []


#: A process that ends itself behind a release.
KILLED = """
import sys
from tests.run import test_resuming as tested
tested.die_behind(*sys.argv[1:])
"""


def die_behind(folder, data, number):
    import os

    release = ReleaseManager.release

    def ended(self, *about, **more):
        found = release(self, *about, **more)
        if self.ledger.generation == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    ReleaseManager.release = ended
    fit.fit(settings_at(Path(folder), Path(data), "hashed"))


@pytest.mark.long
def test_a_process_that_is_killed_behind_releases_pays_once(tmp_path, data):
    folder, stages = tmp_path / "killed", 5
    for number in (1, 4, stages + 1):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), str(data), str(number)],
            cwd=ROOT,
            env=environment(),
            stderr=subprocess.PIPE,
        )
        assert done.returncode == (-signal.SIGKILL if number <= stages else 0), done.stderr
        assert (folder / "m").exists() == (number > stages)
    report = read_report(folder / "L")
    assert (report["generation"], report["lost"]) == (stages, [])
    assert report["spent"]["epsilon"] <= 12.0
    assert_same(load(folder / "m"), released_model(folder / "L"))
