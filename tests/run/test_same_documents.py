"""Private runs know documents by what they are, however the source is spelled or stored."""

import bz2
import gzip
import json
import random
import shutil
import unicodedata
import zipfile
from contextlib import ExitStack, nullcontext

import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger.known import Reading
from streamlda.private.release_manager import ReleaseManager
from streamlda.run.private_terms import PrivateTerms
from tests.run.released import (
    MANY,
    OTHERS,
    RECORDS,
    SHUFFLED,
    TEXTS,
    WINDOW,
    as_csv,
    jsonl,
    opened_ledger,
    ranges,
    release,
    settings_at,
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


def in_archive(folder, data):
    """Put the file into an archive; return the URL of it there."""
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.write(data, "b.jsonl")
    return [f"zip://b.jsonl::file://{folder / 'a.zip'}"]


LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
AGAIN = {
    "the same path": lambda folder, data: [data],
    "a longer path": lambda folder, data: [data.parent / "." / data.name],
    "its folder": lambda folder, data: [data.parent],
    "a pattern": lambda folder, data: [data.parent / "*.jsonl"],
    "a URL": lambda folder, data: [f"file://{data}"],
    "a symbolic link": linked(lambda data, to: to.symlink_to(data)),
    "a hard link": linked(lambda data, to: to.hardlink_to(data)),
    "a copy": linked(shutil.copy),
    "gzip": lambda folder, data: stored("a.jsonl.gz", gzip.compress(LINES))(folder),
    "bz2": lambda folder, data: stored("b.json.bz2", bz2.compress(LINES))(folder),
    "lines of text": lambda folder, data: stored("a.txt", "\n".join(TEXTS).encode())(folder),
    "other line ends": lambda folder, data: stored("a.txt", " \r\n".join(TEXTS).encode())(folder),
    "CSV": lambda folder, data: as_csv(folder),
    "CSV of semicolons": lambda folder, data: as_csv(folder, ";"),
    "another order": lambda folder, data: rows("b.jsonl", SHUFFLED)(folder),
    "the other end first": lambda folder, data: rows("b.jsonl", TEXTS[::-1])(folder),
    "the first records": lambda folder, data: rows("b.jsonl", TEXTS[:350])(folder),
    "the last records": lambda folder, data: rows("b.jsonl", TEXTS[60:])(folder),
    "two halves": lambda folder, data: [
        *rows("b.jsonl", TEXTS[:200])(folder),
        *rows("c.jsonl", TEXTS[200:])(folder),
    ],
    "a small part beside others": lambda folder, data: [
        *rows("b.jsonl", TEXTS[:30])(folder),
        *rows("c.jsonl", OTHERS[:400])(folder),
    ],
    "behind others": lambda folder, data: rows("b.jsonl", OTHERS[:200] + TEXTS)(folder),
    "between others": lambda folder, data: rows(
        "b.jsonl", [text for pair in zip(TEXTS, OTHERS, strict=False) for text in pair]
    )(folder),
    "one record altered": lambda folder, data: rows("b.jsonl", ["?", *TEXTS[1:]])(folder),
    "one record less": lambda folder, data: rows("b.jsonl", TEXTS[1:])(folder),
    "renamed, compressed and grown": lambda folder, data: stored(
        "b.txt.gz", gzip.compress("\n".join(TEXTS + OTHERS).encode())
    )(folder),
    "a sample": lambda folder, data: rows("b.jsonl", SHUFFLED[:60] + OTHERS[:60])(folder),
    "capitals and marks": lambda folder, data: rows(
        "b.jsonl", [f" {text.title().replace(' ', ', ')}." for text in SHUFFLED]
    )(folder),
    "among many others": lambda folder, data: rows(
        "b.jsonl", random.Random(1).sample(SHUFFLED + MANY, RECORDS + len(MANY))
    )(folder),
    "accents and hidden marks": lambda folder, data: rows(
        "b.jsonl",
        [unicodedata.normalize("NFD", f"\ufeff{t[:2]}\u00ad{t[2:]}\u0301") for t in TEXTS],
    )(folder),
    "an archive": in_archive,
    "HTML": lambda folder, data: rows(
        "b.jsonl", [f"<p class='a'>{t.replace(' ', '&nbsp;<br/>')}</p>" for t in SHUFFLED]
    )(folder),
    "lines that are JSON": lambda folder, data: stored("b.txt", LINES)(folder),
    "a folder of a file a record": lambda folder, data: [in_folder(folder / "texts", TEXTS)],
    "one file a record": lambda folder, data: [
        stored(f"{number:03d}.txt", text.encode())(folder)[0] for number, text in enumerate(TEXTS)
    ],
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
    [OTHERS[:WINDOW], ["?", *TEXTS[1:]], [*TEXTS[:399], "?"], TEXTS[:399], TEXTS[:200] + OTHERS],
    ids=["others", "first altered", "last altered", "cut", "going on otherwise"],
)
def test_a_file_must_begin_with_what_was_released_under_its_name(spent, tmp_path, documents):
    shutil.copytree(spent, tmp_path / "moved")
    folder = tmp_path / "moved"
    data = (folder / "data").rename(tmp_path / "data")
    release(tmp_path, jsonl(data / "b.jsonl", OTHERS[-WINDOW:]))
    release(tmp_path, jsonl(data / "b.jsonl", OTHERS[-WINDOW:] + OTHERS[:WINDOW]))
    with pytest.raises(LedgerError, match="begin with the records that were released"):
        release(tmp_path, jsonl(data / "b.jsonl", documents))


MORE_READINGS = [("text", "auto"), ("file", "text"), ("text", "file")]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("auto", "text"),
        *(pytest.param(*case, marks=pytest.mark.long) for case in MORE_READINGS),
    ],
)
def test_files_of_a_release_are_not_read_as_other_records(tmp_path, first, then):
    data = in_folder(tmp_path / "data", TEXTS[:WINDOW])
    release(tmp_path, data, **{"source.format": first})
    before = (tmp_path / "ledger").read_bytes()
    copy = shutil.copytree(data, tmp_path / "copy")
    for folder in (data, copy):
        for number, text in enumerate(OTHERS):
            (folder / f"x{number:03d}.txt").write_text(text, "utf-8")
        with pytest.raises(LedgerError, match=r"nothing was spent|were in none"):
            release(tmp_path, folder, **{"source.format": then})
    assert (tmp_path / "ledger").read_bytes() == before
    assert ranges(release(tmp_path, data, **{"source.format": first}))


def test_columns_of_a_release_are_not_read_as_lines(tmp_path):
    path = as_csv(tmp_path, "^")[0]
    release(tmp_path, path, **{"source.delimiter": "^"})
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{number}^{text}\n" for number, text in enumerate(OTHERS))
    with pytest.raises(LedgerError, match="must be read as the same records"):
        release(tmp_path, path, **{"source.format": "text"})
    assert ranges(release(tmp_path, path, **{"source.delimiter": "^"}))


@pytest.mark.parametrize("delimiter", [None, "^", ":", "tab", "\t"])
def test_a_reading_is_what_its_text_says(delimiter):
    reading = Reading("csv", "a b", 7, delimiter)
    assert Reading.of(str(reading)) == reading


@pytest.mark.parametrize("again", [16, 120])
def test_what_a_run_leaves_out_follows_from_names_and_numbers_alone(tmp_path, again):
    """Of neighbours, one of which holds a document twice, slots are the same, or it is refused."""
    for number, first in enumerate((TEXTS[:WINDOW], [*TEXTS[:3], "", *TEXTS[4:WINDOW]])):
        folder = tmp_path / str(number)
        folder.mkdir()
        release(folder, jsonl(folder / "a.jsonl", first))
        with pytest.raises(LedgerError) if again > WINDOW / 3 else nullcontext():
            found = release(folder, jsonl(folder / "b.jsonl", TEXTS[:again] + OTHERS[:500]))
            assert ranges(found) == {"b.jsonl": (0, WINDOW)}


@pytest.mark.parametrize("tail", [TEXTS, SHUFFLED], ids=["itself", "another order"])
def test_a_file_to_which_its_own_records_were_appended_is_refused(tmp_path, tail):
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS), **{"snapshots.every": RECORDS})
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS + tail))


@pytest.mark.parametrize("again", ["a.jsonl", "data", "*.jsonl", "b.jsonl a.jsonl"])
@pytest.mark.parametrize("before", ["a.jsonl", "data", "*.jsonl", "a.jsonl b.jsonl"])
def test_releases_without_fingerprints_are_known_by_name(tmp_path, before, again):
    data = tmp_path / "data"
    jsonl(data / "b.jsonl", OTHERS[:WINDOW])
    source = jsonl(data / "a.jsonl", TEXTS)

    def spelled(names):
        places = {"data": data}
        return [places.get(name, data / name) for name in names.split(" ")]

    settings = settings_at(tmp_path, [source])
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        asked = PrivateTerms.of(settings).settings
        # As a fit on a cluster releases rows: no fingerprints, slots of the source as spelled.
        stream = " ".join(map(str, spelled(before)))
        manager = ReleaseManager(ledger=ledger, stream=stream)
        manager.release("norms", 0, 100, asked.event, lambda noise: {}, {})
    with pytest.raises(LedgerError, match=r"kept nothing that|other settings of text"):
        release(tmp_path, *spelled(again))
    # Documents that lie elsewhere can be taken.
    assert release(tmp_path, jsonl(tmp_path / "new" / "a.jsonl", OTHERS[300:600]))


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
