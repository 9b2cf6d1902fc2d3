"""``streamlda fit --epsilon``: words that documents choose, and public models and their words."""

import json
import re

import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from tests.cli.conftest import check_releases, refused, run, slots_of
from tests.cli.test_private_fit import EVERY, chosen_words, fit, folder, options

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("same_noise")


@pytest.mark.statistical
def test_words_that_one_document_has_are_never_published(folder, tmp_path):
    """Under other keys a word of one of 5,000 documents is kept in 5000 delta, 0.5 %, at most."""
    source = tmp_path / "u.txt"
    with (folder / "plain.jsonl").open(encoding="ascii") as file, source.open("w") as out:
        for i, line in enumerate(file):
            lone = "".join(chr(97 + int(digit)) for digit in f"{i:06d}")
            out.write(f"{json.loads(line)['text']} lone{lone}\n")
    given = options(folder, tmp_path, *chosen_words(50, 5000), words=False)
    done = run("fit", source, *given)
    model = load(tmp_path / "m")
    words = set(model.vocabulary.words)
    assert 20 < len(words) <= 50
    assert words <= set(load(folder / "truth").vocabulary.words)
    assert "words (private selection)" in done.stderr
    for path in [tmp_path / "m", *(tmp_path / "L.releases").iterdir(), tmp_path / "L"]:
        assert b"lone" not in path.read_bytes()
    # The same words are found by who looks for them without noise.
    learned = ("vocabulary.size=9000", "vocabulary.min_document_frequency=1")
    run("fit", source, "-k", 3, "-o", tmp_path / "open", *learned)
    assert b"lone" in (tmp_path / "open").read_bytes()
    check_statement(model.privacy)
    assert model.privacy["vocabulary"] == "private selection"
    assert model.privacy["delta"] == pytest.approx(1e-6, rel=1e-12)
    # Documents that chose the words are in no other release, and no others are in this one.
    report = check_releases(tmp_path)
    assert [each["description"] for each in report["snapshots"][:2]] == ["words", "norms"]
    slots = slots_of(report)
    assert slots[0] == [0, 5000]
    assert slots[1][0] == model.privacy["cohort"]["first"] == 5000
    assert report["budget"]["delta"] == 1e-6
    words, *others = (each["set_aside"] for each in report["snapshots"])
    assert model.vocabulary.selection["delta"] < words < 1e-6
    assert 0 < max(others) < 1e-9
    assert "must not be in two releases" in refused("fit", source, *given)


@pytest.mark.parametrize(
    ("slots", "wanted", "spent"),
    [
        (20, "must find a word", 1),
        (5201, "slots=9200 documents_per_snapshot=4000 vocabulary_documents=5201", 0),
    ],
)
def test_a_choice_of_words_that_cannot_be_made(folder, tmp_path, slots, wanted, spent):
    said = fit(folder, tmp_path, *chosen_words(60, slots), epsilon=1, words=False, code=65)
    assert wanted in said
    assert ("nothing was spent" in said) == (not spent)
    assert bool(re.search(r"spent: epsilon=[\d.]+ of 1 by releases=1 ", said)) == bool(spent)
    # What is expected, with a warning, stands before what is paid for.
    assert said.count("\n") == 1 + 3 * spent
    assert len(check_releases(tmp_path)["snapshots"]) == spent
    assert not (tmp_path / "m").exists()


def test_a_refused_run_may_be_corrected(folder, tmp_path):
    """With the same ledger: nothing was spent."""
    words = chosen_words(200, 4000)
    assert "room=5200" in fit(folder, tmp_path, *words, every=5201, words=False, code=65)
    fit(folder, tmp_path, *words, every=5200, words=False)
    report = check_releases(tmp_path)
    assert slots_of(report)[-1][1] == 9200


@pytest.mark.statistical
def test_a_wrong_name_of_a_field_costs_the_first_stage_and_no_window(folder, tmp_path):
    """Under one of a thousand keys, noise passes for documents and the window is read on."""
    field, records = ("--text-field", "body"), (folder / "a.jsonl").read_text("ascii")
    said = fit(folder, tmp_path, *field, code=65)
    assert "3 known words or more, and no record is one" in said
    assert "nothing was spent" in said
    # One record has the field.
    body = " ".join((folder / "words").read_text("ascii").split()[:3])
    (tmp_path / "b.jsonl").write_text(records + json.dumps({"body": body}) + "\n", "ascii")
    given = options(folder, tmp_path, *field)
    said = run("fit", tmp_path / "b.jsonl", *given, code=65).stderr
    assert "must show documents above the noise" in said
    assert "source.text_field" in said
    ((first, last),) = slots_of(check_releases(tmp_path))
    assert first == 0
    assert last <= EVERY // 10
    assert not (tmp_path / "m").exists()


def test_a_run_begins_with_a_public_model_and_its_words(folder, tmp_path):
    truth = folder / "truth"
    fit(folder, tmp_path, f"privacy.public_model={truth}", words=False, epsilon=1)
    model, public = load(tmp_path / "m"), load(truth)
    assert model.vocabulary.words == public.vocabulary.words
    check_statement(model.privacy)
    assert model.privacy["public_model"] == public.digest
    assert model.privacy["vocabulary"] == "public"
    assert matched_l1_error(public.components, model.components).mean < 0.1
    # Two windows of two stages.
    report = check_releases(tmp_path)
    assert [start for start, _ in slots_of(report)[::2]] == [0, EVERY]
    assert len(slots_of(report)) == 4
    said = run("topics", tmp_path / "m").stdout
    assert f"begun with  public model {public.digest}" in said


@pytest.mark.parametrize(
    ("given", "words", "code", "rule"),
    [
        (("missing",), False, 74, "No such file"),
        (("truth", "vocabulary.hash_bits=8"), False, 78, "must have its own words"),
        (("truth", "-k", 2), True, 78, "topics=3 n_components=2"),
    ],
)
def test_a_public_model_of_no_use_is_refused_and_spends_nothing(
    folder, tmp_path, given, words, code, rule
):
    name, *more = given
    more = (f"privacy.public_model={folder / name}", *more)
    said = fit(folder, tmp_path, *more, words=words, epsilon=1, code=code)
    assert rule in said
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]
