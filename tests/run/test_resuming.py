"""Private fits of files that are cut short: the same command resumes, and pays nothing twice."""

import json
import shutil
from pathlib import Path

import pytest

from streamlda.errors import (
    BudgetExceededError,
    InsufficientDataError,
    InvalidSettingError,
    LedgerError,
    SourceError,
)
from streamlda.guarantee.noise import SeededNoise
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda.privacy.statement import check_statement
from streamlda.private.release_manager import ReleaseManager
from streamlda.run import fit, opening
from streamlda.settings.load import load_settings
from tests.private.pipelines import published
from tests.service.daemon_process import texts

WINDOW = 300
KINDS = {
    "hashed": {"privacy.refinement_rounds": 1},
    "windows": {"snapshots.every": 120},
    "words": {"vocabulary.kind": "private", "vocabulary.size": 30, "vocabulary.documents": 150},
    "users": {
        "privacy.unit": "user",
        "privacy.documents_per_user": 3,
        "source.user_field": "by",
        "snapshots.most": 1,
    },
}


class CutError(BaseException):
    """The end of a process, for the test alone."""


def write(path, documents):
    rows = [{"text": text, "by": f"user {i % 97}"} for i, text in enumerate(documents)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def settings_at(folder, data, kind, **flags):
    folder.mkdir(exist_ok=True)
    given = {
        "source.files": [str(data)],
        "topics.count": 3,
        "topics.oversampling": 5,
        "privacy.epsilon": 12.0,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "L"),
        "snapshots.every": WINDOW,
        "output.file": str(folder / "m"),
        "privacy.publish_useless": True,
        "checkpoint.folder": str(folder / "kept"),
        **({} if kind == "words" else {"vocabulary.hash_bits": 5}),
        **KINDS[kind],
        **flags,
    }
    return load_settings(None, {}, given, "fit")


def run_fit(settings):
    said = []
    fit.fit(settings, warn=said.append)
    return load(settings.output.file), said


def draw_known_noise(patch, cut=None, *, lost=False):
    """Draw the same noise for the same release, and end at one of them; return what was drawn."""
    release, drawn = ReleaseManager.release, []

    def noted(self, name, first, last, event, draw, *about, **more):
        number = self.ledger.generation + 1

        def known(_):
            if lost and number == cut:
                raise CutError
            drawn.append((number, first, last))
            return draw(SeededNoise(number))

        found = release(self, name, first, last, event, known, *about, **more)
        if number == cut:
            raise CutError
        return found

    patch.setattr(ReleaseManager, "release", noted)
    return drawn


def cut_at(settings, monkeypatch, number, *, lost=False):
    with monkeypatch.context() as patch:
        draw_known_noise(patch, number, lost=lost)
        with pytest.raises(CutError):
            run_fit(settings)


@pytest.fixture
def data(tmp_path):
    documents = texts(460)
    write(tmp_path / "data" / "b.jsonl", documents[:200])
    write(tmp_path / "data" / "c.jsonl", documents[200:])
    return tmp_path / "data"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_ends_at_any_release_resumes_and_is_paid_for_once(
    tmp_path, data, monkeypatch, kind
):
    """The model is that of a run that was not cut short, given the same noise."""
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, _ = run_fit(settings_at(tmp_path / "whole", data, kind))
    spent = read_report(tmp_path / "whole" / "L")["spent"]
    settings, noise = settings_at(tmp_path / "cut", data, kind), []
    for cut in (*range(1, len(drawn) + 1), None):
        with monkeypatch.context() as patch:
            part = draw_known_noise(patch, cut)
            if cut is None:
                again, _ = run_fit(settings)
            else:
                with pytest.raises(CutError):
                    run_fit(settings)
        noise += part
    assert noise == drawn, "noise was drawn once for each release"
    assert published(again) == published(model)
    assert (again.settings, again.documents_seen) == (model.settings, model.documents_seen)
    check_statement(again.privacy)
    assert read_report(settings.privacy.ledger)["spent"] == spent
    with pytest.raises(InsufficientDataError, match="nothing left to release"):
        run_fit(settings)
    with pytest.raises((LedgerError, BudgetExceededError)):
        run_fit(settings_at(tmp_path / "cut", data, kind, **{"checkpoint.folder": None}))


@pytest.mark.parametrize("held", [None, b"", b"\xff" * 16, b'{"name": "f0205a"}'])
def test_a_run_without_its_name_is_refused(tmp_path, data, monkeypatch, held):
    settings = settings_at(tmp_path / "named", data, "windows")
    cut_at(settings, monkeypatch, 3)
    name = Path(settings.checkpoint.folder) / opening.RUN_FILE
    name.unlink()
    if held is not None:
        name.write_bytes(held)
    with pytest.raises(LedgerError, match="file that names the private run"):
        run_fit(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 3


def test_a_release_that_was_paid_and_never_stored_is_not_drawn_again(tmp_path, data, monkeypatch):
    """Its window is lost; the next one is made of the records behind, if there are enough."""
    settings = settings_at(tmp_path / "long", data, "windows")
    cut_at(settings, monkeypatch, 3, lost=True)
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, said = run_fit(settings)
    assert any("lost" in line for line in said)
    assert min(number for number, *_ in drawn) == 4
    assert model.privacy["generation"] == read_report(settings.privacy.ledger)["generation"]
    settings = settings_at(tmp_path / "short", data, "hashed", **{"snapshots.every": 450})
    cut_at(settings, monkeypatch, 3, lost=True)
    with pytest.raises(InsufficientDataError, match="make no whole window"):
        run_fit(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 3


def test_two_releases_without_a_checkpoint_are_refused(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "L", data, "hashed")
    kept = Path(settings.checkpoint.folder)
    cut_at(settings, monkeypatch, 1)
    shutil.copytree(kept, tmp_path / "before")
    cut_at(settings, monkeypatch, 2)
    shutil.rmtree(kept)
    (tmp_path / "before").rename(kept)
    with pytest.raises(LedgerError, match=r"releases=2 path=.*bring their folder back"):
        run_fit(settings)


def altered(data):
    lines = (data / "b.jsonl").read_text().splitlines(keepends=True)
    (data / "b.jsonl").write_text("".join(["{}\n", *lines[1:]]))


@pytest.mark.parametrize(
    ("change", "error", "rule"),
    [
        (
            lambda data: write(data / "a.jsonl", texts(50, seed=5)),
            *(SourceError, "name the same files in the same order"),
        ),
        (altered, LedgerError, "no longer begins with the records released"),
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
        run_fit(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 4


def test_other_settings_begin_another_run_with_what_is_unspent(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "L", data, "hashed", **{"snapshots.every": 120})
    cut_at(settings, monkeypatch, 2)
    first = read_report(settings.privacy.ledger)["snapshots"][0]["run"]
    for other in ({"topics.seeds": ("mine: orbit launch",)}, {"topics.seed": 1}):
        changed = {"snapshots.every": 120, **other}
        with pytest.raises(InvalidSettingError, match="made with other settings"):
            run_fit(settings_at(tmp_path / "L", data, "hashed", **changed))
    changed["checkpoint.folder"] = str(tmp_path / "other")
    run_fit(settings_at(tmp_path / "L", data, "hashed", **changed))
    runs = [each["run"] for each in read_report(settings.privacy.ledger)["snapshots"]]
    assert (runs[:2], first in runs[2:]) == ([first, first], False)


def test_a_command_that_is_refused_leaves_the_run_that_can_resume(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "L", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    with pytest.raises(InvalidSettingError, match="made with other settings"):
        run_fit(settings_at(tmp_path / "L", data, "hashed", **{"snapshots.every": 9000}))
    changed = {"snapshots.every": 9000, "checkpoint.folder": str(tmp_path / "other")}
    with pytest.raises(LedgerError, match="too few are new"):
        run_fit(settings_at(tmp_path / "L", data, "hashed", **changed))
    run_fit(settings)
    assert read_report(settings.privacy.ledger)["lost"] == []
