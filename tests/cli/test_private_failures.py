"""``streamlda fit --epsilon``: what is left of runs that end early, and which models it gives."""

import re

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from tests.cli.conftest import check_releases, refused, run
from tests.cli.test_fit import fail_behind
from tests.cli.test_private_fit import EVERY, SLOTS, fit, folder, options

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


def test_a_stream_that_ends_in_a_round_has_a_model(folder, tmp_path):
    records = b"".join((folder / "a.jsonl").read_bytes().splitlines(keepends=True)[: EVERY - 40])
    more = ("privacy.refinement_rounds=1", "--format", "jsonl")
    arguments = ("fit", "-", *options(folder, tmp_path, *more), "source.stream=piped")
    assert "(incomplete, without choice)" in run(*arguments, given=records, code=65).stderr
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run("budget", tmp_path / "L", "--publish", tmp_path / "model")
    assert {path: path.read_bytes() for path in before} == before
    model = load(tmp_path / "model")
    assert model.privacy["missing_stages"] == ["choice"]
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35


def test_topics_without_use_are_written_only_where_that_is_asked(tmp_path):
    """Each of 1,100 words is as likely in all documents."""
    letters = "abcdefghijk"
    words = [f"w{a}{b}{c}" for a in letters for b in letters[:10] for c in letters[:10]]
    (tmp_path / "words").write_text("\n".join(words), "ascii")
    drawn = np.random.default_rng(1).integers(0, len(words), (3000, 30))
    texts = "".join(" ".join(words[i] for i in row) + "\n" for row in drawn.tolist())
    (tmp_path / "a.txt").write_text(texts, "ascii")
    asked = "fit", tmp_path / "a.txt"
    said = run(*asked, *options(tmp_path, tmp_path, every=3000), code=65).stderr
    assert "topics should predict documents better than their word frequencies do" in said
    assert "privacy.publish_useless" in said
    assert not (tmp_path / "m").exists()
    run("budget", tmp_path / "L", "--publish", tmp_path / "paid")
    notes = load(tmp_path / "paid").diagnostics
    assert notes["perplexity_over_frequencies"]["expected"] >= 1
    assert any("better than their word frequencies do" in each for each in notes["warnings"])
    again = options(tmp_path, tmp_path, "privacy.publish_useless=true", every=3000, ledger="L2")
    assert "better than their word frequencies do" in run(*asked, *again).stderr
    assert (tmp_path / "m").exists()
