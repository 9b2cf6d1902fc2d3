"""``streamlda fit --epsilon``: what is left of runs that end early, and which models it gives."""

import re

import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from tests.cli.conftest import check_releases, refused, run
from tests.cli.test_fit import fail_behind
from tests.cli.test_private_fit import EVERY, SLOTS, fit, folder

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
    assert "error: a source must continue answering" in said
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
        # In the last stage, of 1.5 % of the window; the slots were counted before.
        fail_behind(patch, SLOTS + EVERY - 20)
        said = fit(folder, tmp_path, "privacy.refinement_rounds=1", "snapshots.most=1", code=74)
    command = re.search(r"streamlda (budget \S+) --publish MODEL$", said, re.MULTILINE)
    assert "(incomplete, without choice)" in said
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    model_file = tmp_path / "model"
    done = run(*command[1].split(), "--publish", model_file)
    assert "incomplete  without choice" in done.stderr
    assert "privacy     private: epsilon 8, delta 1e-06" in done.stderr
    assert {path: path.read_bytes() for path in before} == before
    model = load(model_file)
    check_statement(model.privacy)
    assert model.vocabulary.words == load(folder / "truth").vocabulary.words
    assert model.settings["stream"].startswith("a.jsonl, ")
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35
    shown = run("topics", model_file).stdout
    assert "incomplete  without choice" in shown
    assert "must not replace a file" in refused(*command[1].split(), "--publish", model_file)
    # What a second run is refused by leads there, too.
    again = fit(folder, tmp_path, every=7000, code=78)
    assert f"streamlda budget {tmp_path / 'L'}" in again
