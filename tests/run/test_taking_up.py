"""Private runs that are cut short without checkpoints: the same command takes up what was paid."""

import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.errors import BudgetExceededError, InsufficientDataError, LedgerError
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, read_report
from streamlda.privacy.statement import check_statement
from streamlda.private.budget import ledger_terms
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.released import released_model
from streamlda.run import fit, opening
from streamlda.run.private_terms import PrivateTerms
from tests.run.cut_short import (
    KINDS,
    WINDOW,
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

pytestmark = pytest.mark.long


@pytest.fixture
def data(tmp_path):
    return two_files(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_ends_at_any_release_is_taken_up_and_paid_for_once(
    tmp_path, data, monkeypatch, kind
):
    """The model is that of a run that was not cut short, given the same noise."""
    model, drawn = undisturbed(data, tmp_path / "whole", kind, monkeypatch)
    spent = read_report(tmp_path / "whole" / "L")["spent"]
    for cut in range(1, len(drawn) + 1):
        settings, noise = settings_at(tmp_path / f"{cut}", data, kind), []
        for end in (cut, None):
            with monkeypatch.context() as patch:
                part = draw_known_noise(patch, end)
                if end is None:
                    again, said = fitted(settings)
                else:
                    with pytest.raises(CutError):
                        fitted(settings)
                noise += part
        assert f"releases={cut} are taken up, not paid again" in said[0]
        assert noise == drawn, "noise was drawn once for each release"
        assert_same(again, model)
        check_statement(again.privacy)
        assert_same(again, released_model(settings.privacy.ledger))
        assert read_report(settings.privacy.ledger)["spent"] == spent
        with pytest.raises((LedgerError, BudgetExceededError)):
            fitted(settings)


def test_noise_that_is_drawn_again_under_one_charge_would_show(tmp_path, data, monkeypatch):
    model, drawn = undisturbed(data, tmp_path / "whole", "hashed", monkeypatch)
    settings = settings_at(tmp_path / "again", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    stored = ReleaseManager.stored

    def drawn_again(self, intent):
        found = stored(self, intent)
        for array in found.arrays.values():
            if array.dtype == np.float64:
                array += 1e-6
        return found

    with monkeypatch.context() as patch:
        draw_known_noise(patch)
        patch.setattr(ReleaseManager, "stored", drawn_again)
        wrong, _ = fitted(settings)
    for other in (model, released_model(settings.privacy.ledger)):
        with pytest.raises(AssertionError):
            assert_same(wrong, other)
    assert len(drawn) == read_report(settings.privacy.ledger)["generation"]


def test_records_of_a_release_that_are_summed_again_would_be_refused(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "again", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    monkeypatch.setattr(opening.OpenedRun, "skip", lambda *_: None)
    with pytest.raises(LedgerError, match="documents must not be in two releases"):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 2


def test_a_release_that_was_paid_and_never_stored_is_not_drawn_again(tmp_path, data, monkeypatch):
    """Its window is lost; the next one is made of the records behind, if there are enough."""
    settings = settings_at(tmp_path / "long", data, "windows")
    cut_at(settings, monkeypatch, 3, lost=True)
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, said = fitted(settings)
    assert "lost" in said[0]
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
    ("change", "rule"),
    [
        (in_front, "over the records of its releases, as they were"),
        (altered, "must begin with the records that were released under its name"),
    ],
)
def test_files_that_are_not_as_they_were_are_refused(tmp_path, data, monkeypatch, change, rule):
    settings = settings_at(tmp_path / "L", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    change(data)
    with pytest.raises(LedgerError, match=rule):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 2


def test_records_behind_those_of_the_releases_may_come_meanwhile(tmp_path, data, monkeypatch):
    settings = settings_at(tmp_path / "L", data, "hashed")
    cut_at(settings, monkeypatch, 2)
    write(data / "d.jsonl", texts(50, seed=5))
    model, _ = fitted(settings)
    assert model.documents_seen == WINDOW


@pytest.mark.parametrize(
    "change",
    [
        {"source.stream": "another"},
        {"topics.seed": 1},
        {"vocabulary.ngrams": "1..2"},
        {"snapshots.every": 150},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_settings_begin_another_run_with_what_is_unspent(tmp_path, data, monkeypatch, change):
    settings = settings_at(tmp_path / "L", data, "hashed", **{"snapshots.every": 120})
    cut_at(settings, monkeypatch, 2)
    first = read_report(settings.privacy.ledger)["snapshots"][0]["run"]
    changed = settings_at(tmp_path / "L", data, "hashed", **{"snapshots.every": 120, **change})
    _, said = fitted(changed)
    assert "are taken up" not in "".join(said)
    runs = [each["run"] for each in read_report(settings.privacy.ledger)["snapshots"]]
    assert (runs[:2], first in runs[2:]) == ([first, first], False)


#: A process that ends itself behind a release.
KILLED = """
import sys
from tests.run import test_taking_up as tested
tested.die_behind(*sys.argv[1:])
"""


def die_behind(folder, data, number):
    from pathlib import Path

    def die(*_):
        import os

        os.kill(os.getpid(), signal.SIGKILL)

    release = ReleaseManager.release

    def ended(self, *about, **more):
        found = release(self, *about, **more)
        if self.ledger.generation == int(number):
            die()
        return found

    ReleaseManager.release = ended
    fit.fit(settings_at(Path(folder), Path(data), "hashed"))


def test_a_process_that_is_killed_behind_each_release_in_turn_pays_once(tmp_path, data):
    folder, stages = tmp_path / "killed", 6
    for number in range(1, stages + 2):
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


def test_a_model_of_what_was_released_does_not_end_a_run(tmp_path, monkeypatch):
    """The attack on a budget: the advice that a failed run gives made its window lost."""
    settings = settings_at(tmp_path / "run", two_files(tmp_path), "hashed")
    cut_at(settings, monkeypatch, 5)
    published = ["budget", settings.privacy.ledger, "--publish", settings.output.file]
    assert CliRunner().invoke(commands, published).exit_code == 0
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        model, said = fitted(settings)
    assert "releases=5 are taken up" in said[0]
    assert [number for number, *_ in drawn] == [6]
    assert "missing_stages" not in model.privacy


def test_a_file_of_stop_words_that_has_changed_begins_a_new_run(tmp_path, monkeypatch):
    """The attack: topics whose statement names other stop words than their words were chosen by."""
    data, stop = two_files(tmp_path), tmp_path / "stop.txt"
    stop.write_text("zzz\n", "utf-8")
    flags = {"vocabulary.stop_words": str(stop)}
    cut_at(settings_at(tmp_path / "run", data, "words", **flags), monkeypatch, 2)
    stop.write_text("other\n", "utf-8")
    with pytest.raises(LedgerError, match="too few of these were in none"):
        fitted(settings_at(tmp_path / "run", data, "words", **flags))


def test_a_choice_that_found_no_words_is_taken_up_where_there_are_public_ones(
    tmp_path, monkeypatch
):
    flags = {"vocabulary.token_pattern": "zz[a-z]+", "topics.seeds": ["a: zzebra zzoo zzap zzip"]}
    data = two_files(tmp_path)
    # One document, whose words are too rare to be chosen.
    write(data / "c.jsonl", [*texts(460)[200:-1], "zza zzb zzc"])
    settings = settings_at(tmp_path / "run", data, "words", **flags)
    cut_at(settings, monkeypatch, 1)
    assert run_of_words(settings, monkeypatch)[0] == (2, 150)


def run_of_words(settings, monkeypatch):
    """Go on with a run that has no topics in it; return number and first slot of its releases."""
    with monkeypatch.context() as patch:
        drawn = draw_known_noise(patch)
        with suppress(InsufficientDataError):
            fitted(settings)
    return [(number, first) for number, first, _ in drawn]


def test_documents_that_version_0_1_released_are_refused_to_a_run_that_is_taken_up(
    tmp_path, monkeypatch
):
    """The attack: a file that an unmarked release held comes back between the tries."""
    data, documents = tmp_path / "data", texts(900)
    for name, part in {"b": (0, 200), "c": (200, 280), "e": (640, 900)}.items():
        write(data / f"{name}.jsonl", documents[slice(*part)])
    settings = settings_at(tmp_path / "run", data, "hashed")
    asked = PrivateTerms.of(settings).settings
    held = DocumentRange(str(data.resolve() / "d*.jsonl"), 0, 360)
    with Ledger.open(settings.privacy.ledger, ledger_terms(asked), create=True) as ledger:
        ledger.begin(Cohort("x", (held,), 0), asked.event, description="norms")
        ledger.recover()
    cut_at(settings, monkeypatch, 3)
    (data / "e.jsonl").unlink()
    write(data / "d.jsonl", documents[280:640])
    with pytest.raises(LedgerError, match="documents must not be in two releases"):
        fitted(settings)
    assert read_report(settings.privacy.ledger)["generation"] == 3
