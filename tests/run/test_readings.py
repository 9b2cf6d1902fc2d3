"""Private runs over files of which nothing can be read by these settings: nothing is spent."""

import re

import pytest

from streamlda.errors import InsufficientDataError
from tests.run.released import OTHERS, TEXTS, jsonl, ranges, release

# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")


def test_a_wrong_field_costs_nothing(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", TEXTS)
    wrong = {"source.text_field": "t"}
    with pytest.raises(InsufficientDataError, match=r"the text field.*nothing was spent"):
        release(tmp_path, source, **wrong)
    assert ranges(release(tmp_path, source))["a.jsonl"][0] == 0


@pytest.mark.parametrize(
    ("encoding", "many"),
    [("utf-16", False), ("utf-16-le", True)],
    ids=["lines", "a document a file"],
)
def test_text_that_cannot_be_read_costs_nothing(tmp_path, encoding, many):
    data = tmp_path / "data"
    data.mkdir()
    for name, lines in (
        ((f"{n}.txt", [text]) for n, text in enumerate(TEXTS)) if many else (("a.txt", TEXTS),)
    ):
        (data / name).write_text("\n".join(lines), encoding)
    source = data if many else data / "*.txt"
    with pytest.raises(InsufficientDataError, match="UTF-8") as refused:
        release(tmp_path, source)
    assert not set(" ".join(TEXTS).split()) & set(re.findall(r"[a-z]+", str(refused.value)))


def test_files_without_a_known_word_cost_nothing(tmp_path):
    listed = [word.upper() for word in sorted(set(" ".join(TEXTS).split()))]
    (tmp_path / "words").write_text("\n".join(listed))
    source = jsonl(tmp_path / "data" / "a.jsonl", TEXTS)
    given = {"vocabulary.kind": "given", "vocabulary.file": str(tmp_path / "words")}
    with pytest.raises(InsufficientDataError, match="3 known words or more, and no record is one"):
        release(tmp_path, source, **given)
    # One document is enough to be asked for with noise.
    (tmp_path / "words").write_text("\n".join({*listed, *TEXTS[-1].split()}))
    assert ranges(release(tmp_path, source, most=1, **given))["a.jsonl"][0] == 0


def test_another_format_is_no_other_reading(tmp_path):
    data = tmp_path / "data"
    release(tmp_path, jsonl(data / "a.jsonl", TEXTS).parent, **{"source.format": "jsonl"})
    found = release(tmp_path, jsonl(data / "b.jsonl", OTHERS[:300]).parent)
    assert ranges(found) == {"a.jsonl": (300, 400), "b.jsonl": (0, 200)}
