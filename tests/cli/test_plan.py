"""`streamlda plan`, and what a private fit says before it pays."""

import json

from streamlda import load
from tests.cli.conftest import run

PRIVATE = ("--epsilon", "1", "--delta", "1e-6")


def test_a_plan_is_shown_in_words_and_as_json(folder):
    planned = run("plan", "--records", 60_000, *PRIVATE, "-k", 20, "--vocabulary-size", 8000)
    assert (
        "1 window of 60,000 record slots; the number of records is not hidden\n" in planned.stdout
    )
    assert "about 10 of 20 topics of text shown" in planned.stdout
    assert "noise hides topics" in planned.stderr
    shown = run("plan", "--records", 60_000, *PRIVATE, "-k", 20, "--json")
    found = json.loads(shown.stdout)
    assert found["n_features"] == 8000
    assert round(found["topics_shown"]) == 10
    assert not shown.stderr
    truth = load(folder / "truth")
    asked = (*PRIVATE, "-k", 5, f"privacy.public_model={folder / 'truth'}")
    found = json.loads(run("plan", "--records", 20_000, *asked, "--json").stdout)
    assert (found["public_model"], found["n_features"]) == (truth.digest, truth.n_features)


def test_a_private_choice_of_words_takes_its_records_first():
    for more in ((), ("vocabulary.documents=5000",)):
        given = ("--records", 25_000, *PRIVATE, "--vocabulary-kind", "private", "--json", *more)
        found = json.loads(run("plan", *given).stdout)
        assert (found["words_records"], found["documents_per_snapshot"]) == (5000, 20_000)
    assert (found["windows"], found["delta"]) == (1, 1e-6)
    assert 200 < found["words_chosen"] < 500


def test_a_private_fit_says_what_is_expected_and_a_refused_one_does_not(folder, tmp_path):
    to = ("-o", tmp_path / "m", "--ledger", tmp_path / "L", "--vocabulary", folder / "words")
    fit = ("fit", folder / "a.jsonl", "-k", 3, *to, "--epsilon", 8, "--delta", "1e-6")
    assert "expected:" not in run(*fit, "--snapshot-every", 90_000, code=65).stderr
    assert run(*fit, "--snapshot-every", 6000).stderr.startswith("expected: about 3 of 3 topics")
    assert "expected:" not in run(*fit, "--snapshot-every", 6000, code=78).stderr
