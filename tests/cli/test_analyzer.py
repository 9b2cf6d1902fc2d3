"""Analyzers of users on the command line."""

import json

import pytest

from streamlda import load
from streamlda.errors import InvalidDocumentsError, VocabularyError
from streamlda.text import functions
from tests.cli.conftest import ALL_WORDS, refused, run
from tests.text.test_functions import NAME, by_letters

GIVEN = f"vocabulary.analyzer={NAME}"


@pytest.fixture
def corpus(tmp_path):
    texts = [f"ab-cd cd-ab {'ef' * (i % 3)} ab" if i % 2 else "gh-ij ij-gh gh" for i in range(60)]
    texts[7] = "bad ab cd"
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts))
    return path


def test_fit_and_infer_use_the_analyzer_and_say_what_it_failed_on(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(functions, "_ALLOWED", {})
    model = tmp_path / "m"
    made = run("fit", corpus, "-k", 2, "-o", model, *ALL_WORDS, GIVEN)
    assert "1 record skipped: analyzer 1" in made.stderr
    monkeypatch.setattr(functions, "_ALLOWED", {})
    assert load(model).vocabulary.words == ("ab", "cd", "ef", "efef", "gh", "ij")
    with pytest.raises(VocabularyError, match="must be given"):
        load(model).transform(["ab"])
    assert f"--set vocabulary.analyzer={NAME}" in refused("infer", model, corpus)
    assert f"--set vocabulary.analyzer={NAME}" in refused("evaluate", model, corpus)
    found = run("infer", model, corpus, GIVEN)
    assert "analyzer 1" in found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [row["record"] for row in rows] == [*range(1, 61)]
    assert {row["record"]: row["reason"] for row in rows if row["reason"]} == {8: "analyzer"}
    assert "1 record skipped: analyzer 1" in run("evaluate", model, corpus, GIVEN).stderr
    good = tmp_path / "good.txt"
    good.write_text(corpus.read_text().replace("bad ", ""))
    assert "skipped" not in run("evaluate", model, good, GIVEN).stderr
    all_bad = tmp_path / "bad.txt"
    all_bad.write_text("bad ab cd\nbad cd ab\n")
    told = refused("evaluate", model, all_bad, GIVEN, code=65)
    assert told.count("\n") == 1
    out = tmp_path / "rows.csv"
    told = refused("infer", model, all_bad, GIVEN, "-o", out, code=65)
    assert "rejects='analyzer 2'" in told
    assert not out.exists()
    monkeypatch.setattr(functions, "_ALLOWED", {})
    loaded = load(model, analyzer=by_letters)
    assert loaded.transform(["ab-cd"]).shape == (1, 2)
    with pytest.raises(InvalidDocumentsError, match="document=1"):
        loaded.transform(["ab", "bad"])
