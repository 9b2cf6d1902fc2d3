"""Private runs know documents by what they are, however the source is spelled or stored."""

import gzip
import json
import random
import shutil
from contextlib import nullcontext

import pytest

from streamlda.errors import LedgerError
from tests.run.released import (
    MANY,
    OTHERS,
    RECORDS,
    SHUFFLED,
    TEXTS,
    WINDOW,
    as_csv,
    jsonl,
    ranges,
    release,
)

# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")


@pytest.fixture(scope="module")
def spent(tmp_path_factory):
    """A folder with a file of which all was released, and the ledger that says so."""
    folder = tmp_path_factory.mktemp("spent")
    source = jsonl(folder / "data" / "a.jsonl", TEXTS)
    found = release(folder, source, **{"snapshots.every": RECORDS})
    assert ranges(found) == {"a.jsonl": (0, RECORDS)}
    return folder


def stored(name, data):
    def make(folder):
        (folder / name).write_bytes(data)
        return [folder / name]

    return make


def linked(how):
    def make(folder, data):
        how(data, folder / "b.jsonl")
        return [folder / "b.jsonl"]

    return make


def rows(name, documents):
    return lambda folder: [jsonl(folder / name, documents)]


def in_folder(folder, documents):
    """Write a file a document, in two lines each."""
    folder.mkdir()
    for number, text in enumerate(documents):
        words = text.split()
        half = len(words) // 2
        lines = " ".join(words[:half]), " ".join(words[half:])
        (folder / f"{number:03d}.txt").write_text("\n".join(lines), "utf-8")
    return folder


LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
AGAIN = {
    "its folder": lambda folder, data: [data.parent],
    "a URL": lambda folder, data: [f"file://{data}"],
    "a symbolic link": linked(lambda data, to: to.symlink_to(data)),
    "gzip": lambda folder, data: stored("a.jsonl.gz", gzip.compress(LINES))(folder),
    "lines of text": lambda folder, data: stored("a.txt", "\n".join(TEXTS).encode())(folder),
    "CSV": lambda folder, data: as_csv(folder),
    "another order": lambda folder, data: rows("b.jsonl", SHUFFLED)(folder),
    "two halves": lambda folder, data: [
        *rows("b.jsonl", TEXTS[:200])(folder),
        *rows("c.jsonl", TEXTS[200:])(folder),
    ],
    "one record less": lambda folder, data: rows("b.jsonl", TEXTS[1:])(folder),
    "a sample": lambda folder, data: rows("b.jsonl", SHUFFLED[:60] + OTHERS[:60])(folder),
    "among others": lambda folder, data: rows(
        "b.jsonl", random.Random(1).sample(SHUFFLED + OTHERS[:RECORDS], 2 * RECORDS)
    )(folder),
    "a folder of a file a record": lambda folder, data: [in_folder(folder / "texts", TEXTS)],
}


@pytest.mark.parametrize("how", AGAIN)
def test_documents_of_a_release_are_refused(spent, tmp_path, how):
    before = (spent / "ledger").read_bytes()
    sources = AGAIN[how](tmp_path, spent / "data" / "a.jsonl")
    with pytest.raises(LedgerError, match=r"nothing was spent|were in none"):
        release(spent, *sources, **{"source.stream": "another"})
    assert (spent / "ledger").read_bytes() == before


@pytest.mark.parametrize(
    "documents",
    [["?", *TEXTS[1:]], [*TEXTS[:399], "?"], TEXTS[:399]],
    ids=["first altered", "last altered", "cut"],
)
def test_a_file_must_begin_with_what_was_released_under_its_name(spent, tmp_path, documents):
    shutil.copytree(spent, tmp_path / "moved")
    folder = tmp_path / "moved"
    data = (folder / "data").rename(tmp_path / "data")
    release(tmp_path, jsonl(data / "b.jsonl", OTHERS[-WINDOW:]))
    release(tmp_path, jsonl(data / "b.jsonl", OTHERS[-WINDOW:] + OTHERS[:WINDOW]))
    with pytest.raises(LedgerError, match="begin with the records that were released"):
        release(tmp_path, jsonl(data / "b.jsonl", documents))


@pytest.mark.parametrize(
    ("make", "first", "then"),
    [
        (lambda to: in_folder(to / "data", TEXTS[:WINDOW]), {}, {"source.format": "text"}),
        (
            lambda to: as_csv(to, "^")[0],
            {"source.delimiter": "^"},
            {"source.format": "text"},
        ),
        (lambda to: as_csv(to)[0], {}, {"source.text_field": "number"}),
    ],
    ids=["lines of whole files", "columns as lines", "another column"],
)
def test_a_file_of_a_release_is_not_read_as_other_records(tmp_path, make, first, then):
    data = make(tmp_path)
    release(tmp_path, data, **first)
    before = (tmp_path / "ledger").read_bytes()
    jsonl(tmp_path / "more" / "b.jsonl", OTHERS)
    with pytest.raises(LedgerError, match="must begin with the records that were released"):
        release(tmp_path, data, tmp_path / "more", **then)
    assert (tmp_path / "ledger").read_bytes() == before
    assert ranges(release(tmp_path, data, tmp_path / "more", **first))


@pytest.mark.parametrize("again", [16, 260])
def test_what_a_run_leaves_out_follows_from_names_and_numbers_alone(tmp_path, again):
    """Of neighbours, one of which holds a document twice, slots are the same, or it is refused."""
    for number, first in enumerate((TEXTS[:WINDOW], [*TEXTS[:3], "", *TEXTS[4:WINDOW]])):
        folder = tmp_path / str(number)
        folder.mkdir()
        release(folder, jsonl(folder / "a.jsonl", first))
        with pytest.raises(LedgerError) if again == 260 else nullcontext():
            found = release(folder, jsonl(folder / "b.jsonl", TEXTS[:again] + OTHERS[:500]))
            assert ranges(found) == {"b.jsonl": (0, WINDOW)}


@pytest.mark.parametrize("tail", [TEXTS, SHUFFLED], ids=["itself", "another order"])
def test_a_file_to_which_its_own_records_were_appended_is_refused(tmp_path, tail):
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS), **{"snapshots.every": RECORDS})
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS + tail))


@pytest.mark.parametrize("size", [RECORDS, 40])
def test_the_same_files_twice_in_one_run_are_refused(tmp_path, size):
    for folder in "ab":
        for begin in range(0, RECORDS, size):
            jsonl(tmp_path / folder / f"{begin}.jsonl", TEXTS[begin : begin + size])
    with pytest.raises(LedgerError, match="two files of a run"):
        release(tmp_path, tmp_path / "a", tmp_path / "b", **{"snapshots.every": 100})


def test_files_that_have_lines_in_common_are_other_documents(tmp_path):
    """Equal days among others, and files of two releases that begin alike."""
    head = [f"this is line {number} of what all of these begin with" for number in range(20)]
    for day in range(20):
        more = [] if day % 4 == 0 else MANY[80 * day : 80 * day + 80]
        jsonl(tmp_path / "days" / f"{day:02d}.jsonl", head + more)
    assert release(tmp_path, tmp_path / "days")
    two = tmp_path / "two"
    two.mkdir()
    for name, documents in (("a.jsonl", TEXTS), ("b.jsonl", OTHERS[:400])):
        assert release(two, jsonl(two / name, head + documents))


def test_a_ledger_is_of_no_use_without_its_key(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", TEXTS)
    release(tmp_path, source)
    key = tmp_path / "ledger.key"
    secret = key.read_text()
    assert key.stat().st_mode & 0o777 == 0o600
    for text, message in ((None, "found=None"), ("0" * 64, "another key"), ("0", "be whole")):
        key.unlink(missing_ok=True)
        if text is not None:
            key.write_text(text)
        with pytest.raises(LedgerError, match=message):
            release(tmp_path, source)
        assert key.exists() == (text is not None)
    key.write_text(secret)
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, source)
