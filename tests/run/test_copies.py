"""Files of one run that hold the same documents, and files that only look alike."""

import random

import pytest

from streamlda.errors import LedgerError
from streamlda.run import copies
from tests.run.released import MANY, OTHERS, RECORDS, SHUFFLED, TEXTS, jsonl, ranges, release

# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")


def in_files(documents, size):
    def make(folder):
        for number, begin in enumerate(range(0, len(documents), size)):
            jsonl(folder / f"{number:03d}.jsonl", documents[begin : begin + size])
        return folder

    return make


def in_one(documents):
    return lambda folder: jsonl(folder / "all.jsonl", documents)


def shuffled(documents, size):
    """Return documents, those of each file of `size` in another order."""
    parts = [documents[begin : begin + size] for begin in range(0, len(documents), size)]
    return [text for part in parts for text in random.Random(4).sample(part, len(part))]


#: Nearly all texts of it come several times.
ALIKE = random.Random(5).choices(TEXTS[:100], k=RECORDS)
TWICE = {
    "a copy": (in_one(TEXTS), in_one(TEXTS)),
    "a copy that grew": (in_one(TEXTS[:300]), in_one(TEXTS)),
    "a part": (in_one(TEXTS), in_one(TEXTS[:300])),
    "another order": (in_one(TEXTS), in_one(SHUFFLED)),
    "a small part, in another order": (in_one(OTHERS), in_one(shuffled(OTHERS, 1000)[:100])),
    "few texts, in another order": (in_one(ALIKE), in_one(shuffled(ALIKE, RECORDS))),
    "small files": (in_files(TEXTS, 4), in_files(TEXTS, 4)),
    "small files, each in another order": (in_files(TEXTS, 40), in_files(shuffled(TEXTS, 40), 40)),
    "all of small files": (in_files(TEXTS, 40), in_one(SHUFFLED)),
    "a file in parts": (in_one(TEXTS), in_files(TEXTS, 10)),
}


#: More documents than there are values to compare them by.
FEW_VALUES = {"a copy", "another order", "a small part, in another order", "all of small files"}


@pytest.mark.parametrize(
    ("case", "values"),
    [
        *((case, copies.MOST_VALUES) for case in TWICE),
        *((case, 512) for case in sorted(FEW_VALUES)),
    ],
)
def test_the_same_documents_twice_in_one_run_are_refused(tmp_path, monkeypatch, case, values):
    monkeypatch.setattr(copies, "MOST_VALUES", values)
    for make, name in zip(TWICE[case], "ab", strict=True):
        (tmp_path / name).mkdir()
        make(tmp_path / name)
    with pytest.raises(LedgerError, match="two files of a run"):
        release(tmp_path, tmp_path / "a", tmp_path / "b", **{"snapshots.every": 100})


HEAD = [f"this is line {number} of what all of these begin with" for number in range(20)]
ALIKE_BY_NATURE = {
    "the same lines first": (HEAD + TEXTS, HEAD + OTHERS[:400]),
    "blanks first": ([""] * 300 + TEXTS, [""] * 300 + OTHERS[:400]),
    "the same lines between": tuple(
        [text for pair in zip(texts, HEAD * 20, strict=True) for text in pair]
        for texts in (TEXTS, OTHERS[:400])
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        "the same lines first",
        pytest.param("blanks first", marks=pytest.mark.long),
        pytest.param("the same lines between", marks=pytest.mark.long),
    ],
)
def test_files_that_have_lines_in_common_are_other_documents(tmp_path, case):
    one, two = ALIKE_BY_NATURE[case]
    first, second = jsonl(tmp_path / "a.jsonl", one), jsonl(tmp_path / "b.jsonl", two)
    assert ranges(release(tmp_path, first))["a.jsonl"][0] == 0
    assert ranges(release(tmp_path, second))["b.jsonl"][0] == 0
    together = tmp_path / "together"
    together.mkdir()
    assert ranges(release(together, first, second))["a.jsonl"][0] == 0


@pytest.mark.long
def test_some_days_on_which_nothing_else_happened_are_no_copies(tmp_path):
    """Of small files, a few may be equal, and one may be what another begins with."""
    for day in range(20):
        more = [] if day % 4 == 0 else MANY[80 * day : 80 * day + 80]
        jsonl(tmp_path / "days" / f"{day:02d}.jsonl", HEAD + more)
    assert release(tmp_path, tmp_path / "days")
