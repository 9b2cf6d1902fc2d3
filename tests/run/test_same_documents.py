"""Private runs know documents by what they are, however the source is spelled or stored."""

import bz2
import csv
import gzip
import json
import random
import re
import shutil
import unicodedata
import zipfile
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

import pytest

from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.ledger import KnownDocuments, Ledger
from streamlda.privacy.ledger.known import Reading
from streamlda.private.release_manager import ReleaseManager
from streamlda.run import copies, parts
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.run.private_terms import PrivateTerms
from streamlda.settings.load import load_settings
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.publishing import Publisher
from tests.service.daemon_process import private_settings, texts

#: Records of a window, and of a file that is one window and some.
# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")

WINDOW, RECORDS = 300, 400
TEXTS, OTHERS, MANY = texts(RECORDS), texts(1000, seed=2), texts(5000, seed=4)


def jsonl(path, documents, field="text"):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in documents), "utf-8")
    return path


def settings_at(folder, sources, **flags):
    more = {"snapshots.every": WINDOW, "source.files": [str(source) for source in sources]}
    given = private_settings(folder, "", **{**more, **flags})
    del given["source.stream"]
    return load_settings(environment={}, flags={**given, **flags})


def opened_ledger(settings, opened):
    publisher = opened.enter_context(Publisher(None, None, private=True))
    return open_ledger(settings, opened, print, publisher)


def release(folder, *sources, store=False, most=99, warn=print, between=lambda: None, **flags):
    """Make all releases of a run that its files suffice for; return the documents of each.

    `between` is called when files were counted, before they are read.
    """
    settings = settings_at(folder, sources, **flags)
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        before = ledger.generation
        kept = opened.enter_context(Checkpoints.open(folder / "kept")) if store else None
        run = open_pipeline(settings, kept, ledger, warn=warn)
        between()
        source = opened.enter_context(closing(run.open_source(settings)))
        pipeline, ended = run.pipeline, False
        while not ended and ledger.generation < before + most:
            if pipeline.learner.least_missing > run.census.slots - pipeline.records:
                break
            batch = source.poll(min(pipeline.due, 97))
            pipeline.add(batch)
            ended = batch.exhausted
            if pipeline.due == 0:
                pipeline.release()
        shots = ledger.report()["snapshots"][before:]
    return [[tuple(part) for part in shot["documents"]] for shot in shots]


def ranges(releases):
    """Return the documents of releases in a row: of each origin, from where to where."""
    found = {}
    for documents in releases:
        for origin, start, stop in documents:
            name = Path(origin).name
            first, last = found.get(name, (start, start))
            assert start == last, "ranges leave nothing out"
            found[name] = (first, stop)
    return found


@pytest.fixture(scope="module")
def spent(tmp_path_factory):
    """A folder with a file of which all was released, and the ledger that says so."""
    folder = tmp_path_factory.mktemp("spent")
    source = jsonl(folder / "data" / "a.jsonl", TEXTS)
    found = release(folder, source, **{"snapshots.every": RECORDS})
    assert ranges(found) == {"a.jsonl": (0, RECORDS)}
    return folder


def as_csv(folder, delimiter=","):
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([["number", "text"], *enumerate(TEXTS)])
    return [folder / "a.csv"]


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
SHUFFLED = random.Random(3).sample(TEXTS, RECORDS)
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


def test_a_ledger_of_before_knows_folders_as_lines(tmp_path):
    data = in_folder(tmp_path / "data", TEXTS[:WINDOW])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "FOLDERS", "auto")
        release(tmp_path, *sorted(data.iterdir()))
    with pytest.raises(LedgerError, match="must be read as the same records"):
        release(tmp_path, data)


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


def grown(folder, name, documents):
    return jsonl(folder / name, documents)


GROWN = {
    "a file": (
        {"a.jsonl": TEXTS},
        lambda folder: [jsonl(folder / "a.jsonl", TEXTS + OTHERS[:200])],
        {"a.jsonl": (300, 600)},
    ),
    "two files, in another order": (
        {"a.jsonl": TEXTS[:150], "b.jsonl": OTHERS[:150]},
        lambda folder: [
            jsonl(folder / "b.jsonl", OTHERS[:300]),
            jsonl(folder / "a.jsonl", TEXTS[:300]),
        ],
        {"b.jsonl": (150, 300), "a.jsonl": (150, 300)},
    ),
    "a folder with another file": (
        {"a.jsonl": TEXTS[:150], "c.jsonl": OTHERS[:150]},
        lambda folder: [jsonl(folder / "b.jsonl", OTHERS[300:600]).parent],
        {"b.jsonl": (0, 300)},
    ),
    "what was read and not released": (
        {"a.jsonl": TEXTS[:350]},
        lambda folder: [jsonl(folder / "a.jsonl", TEXTS[:350] + OTHERS[:250])],
        {"a.jsonl": (300, 600)},
    ),
}


@pytest.mark.parametrize("case", GROWN)
def test_a_run_goes_on_behind_what_is_spent(tmp_path, case):
    first, grow, wanted = GROWN[case]
    data = tmp_path / "data"
    sources = [jsonl(data / name, documents) for name, documents in first.items()]
    release(tmp_path, *sources)
    said = []
    assert ranges(release(tmp_path, *grow(data), warn=said.append)) == wanted
    assert said == ["records=300 were in earlier releases, and are left out"]


@pytest.mark.long
def test_thousands_of_files_are_known_again_in_bounded_space(tmp_path):
    """Of many small files no more is kept than 16 bytes each; new ones may lie between them."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(WINDOW):
        (data / f"{2 * number:04d}.txt").write_text(TEXTS[number], "utf-8")
    found = release(tmp_path, data)
    assert max(map(len, found)) <= 33
    with Ledger.open(tmp_path / "ledger") as ledger:
        sizes = [len(json.dumps(row.body)) for row in ledger._file.rows() if row.kind == "intent"]
    assert max(sizes) < 20_000
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, data / "*.txt")
    for number in range(WINDOW):
        (data / f"{2 * number + 1:04d}.txt").write_text(OTHERS[number], "utf-8")
    said = []
    found = release(tmp_path, data, warn=said.append)
    assert said == ["records=300 were in earlier releases, and are left out"]
    assert sum(stop - start for part in found for _, start, stop in part) == WINDOW
    # A few of them, under other names and by themselves.
    few = [
        shutil.copy(data / f"{number:04d}.txt", tmp_path / f"x{number}.txt")
        for number in range(100, 160)
    ]
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, *few)


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


@pytest.mark.parametrize("tail", [TEXTS, SHUFFLED], ids=["itself", "another order"])
def test_a_file_to_which_its_own_records_were_appended_is_refused(tmp_path, tail):
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS), **{"snapshots.every": RECORDS})
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS + tail))


def test_records_read_by_another_field_are_no_other_documents(spent, tmp_path):
    both, title = tmp_path / "b.jsonl", {"source.text_field": "title"}
    titles = texts(800, seed=9)

    def write(path, n):
        records = zip(OTHERS[:n], titles[:n], strict=True)
        lines = [json.dumps({"text": text, "title": title}) for text, title in records]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return path

    release(tmp_path, write(both, 400))
    for name in (both, tmp_path / "*.jsonl"):
        with pytest.raises(LedgerError, match="too few of these were in none"):
            release(tmp_path, name, **title)
    with pytest.raises(LedgerError, match="under another name"):
        release(tmp_path, write(tmp_path / "c.jsonl", 400), **title)
    (tmp_path / "c.jsonl").unlink()
    # A file that grew goes on, by whatever field, and then by the first one.
    assert ranges(release(tmp_path, write(both, 600), **title)) == {"b.jsonl": (300, 600)}
    with pytest.raises(LedgerError, match="too few of these were in none"):
        release(tmp_path, both)
    # One that cannot be read as it was is known by its name alone.
    release(tmp_path, as_csv(tmp_path)[0], **{"source.text_field": "text"})
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["title"], *[[text] for text in MANY]])
    with pytest.raises(LedgerError, match="read by other settings"):
        release(tmp_path, tmp_path / "a.csv", **title)


def test_a_wrong_field_costs_the_slots_that_were_paid_for_and_no_file(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", TEXTS)
    wrong = {"source.text_field": "t"}
    with pytest.raises(InsufficientDataError, match=r"the text field.*nothing was spent"):
        release(tmp_path, source, **wrong)
    # One record has it.
    first, *lines = source.read_text("utf-8").splitlines(keepends=True)
    first = json.dumps({**json.loads(first), "t": TEXTS[0]})
    source.write_text("".join([first + "\n", *lines]))
    assert ranges(release(tmp_path, source, most=1, **wrong))["a.jsonl"][0] == 0
    (begin, _), *_ = ranges(release(tmp_path, source)).values()
    assert begin > 0


@pytest.mark.parametrize("many", [False, True], ids=["lines", "a document a file"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
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


@pytest.mark.parametrize("words", ["CAPITALS", "of another language"])
def test_files_without_a_known_word_cost_nothing(tmp_path, words):
    known = sorted(set(" ".join(TEXTS).split()))
    listed = [word.upper() for word in known] if words == "CAPITALS" else [*"abcdefgh"]
    (tmp_path / "words").write_text("\n".join(listed))
    source = jsonl(tmp_path / "data" / "a.jsonl", TEXTS)
    given = {"vocabulary.kind": "given", "vocabulary.file": str(tmp_path / "words")}
    with pytest.raises(InsufficientDataError, match="3 known words or more, and no record is one"):
        release(tmp_path, source, **given)
    # One document is enough to be asked for with noise.
    (tmp_path / "words").write_text("\n".join({*listed, *TEXTS[-1].split()}))
    assert ranges(release(tmp_path, source, most=1, **given))["a.jsonl"][0] == 0


@pytest.mark.long
def test_files_that_were_once_read_by_a_field_of_few_values_can_be_read_by_another(tmp_path):
    def labelled(path, documents):
        records = [{"text": text, "lang": TEXTS[number % 30]} for number, text in documents]
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
        return path

    one, other = (
        labelled(tmp_path / f"{n}.jsonl", enumerate(d)) for n, d in enumerate((TEXTS, MANY))
    )
    release(tmp_path, one, **{"source.text_field": "lang"})
    assert release(tmp_path, other)


@pytest.mark.long
@pytest.mark.parametrize("stored", ["registry", "parquet", "csv", "text"])
def test_readings_that_files_do_not_have_are_left_out(tmp_path, monkeypatch, stored):
    """A ledger may hold documents of topics, or of files of other kinds."""
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS))
    other = Reading(stored, "body", 1000)
    monkeypatch.setattr(KnownDocuments, "readings", {other})
    assert release(tmp_path, jsonl(tmp_path / "b.jsonl", OTHERS))
    with pytest.raises(LedgerError, match="under another name"):
        release(tmp_path, jsonl(tmp_path / "c.jsonl", TEXTS))


def test_another_format_is_no_other_reading(tmp_path):
    data = tmp_path / "data"
    release(tmp_path, jsonl(data / "a.jsonl", TEXTS).parent, **{"source.format": "jsonl"})
    found = release(tmp_path, jsonl(data / "b.jsonl", OTHERS[:300]).parent)
    assert ranges(found) == {"a.jsonl": (300, 400), "b.jsonl": (0, 200)}


CHANGED = {
    "other documents": lambda data: jsonl(
        data / "a.jsonl", random.Random(1).sample(TEXTS, RECORDS)
    ),
    "one record more, first": lambda data: jsonl(data / "a.jsonl", OTHERS[-1:] + OTHERS[:700]),
    "the end altered": lambda data: jsonl(data / "a.jsonl", OTHERS[:699] + TEXTS[:1]),
}


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("case", CHANGED)
def test_files_that_change_once_they_were_counted_are_refused(tmp_path, case, grown):
    """What they hold then was never compared with what was released."""
    data, half = tmp_path / "data", {"snapshots.every": 350}
    release(tmp_path, jsonl(tmp_path / "old.jsonl", TEXTS))
    if grown:
        release(tmp_path, jsonl(data / "a.jsonl", OTHERS[:350]), **half)
    jsonl(data / "a.jsonl", OTHERS[:700])
    with pytest.raises(LedgerError, match="must stay as they are"):
        release(tmp_path, data, between=lambda: CHANGED[case](data), **half)


def test_what_was_written_once_files_were_counted_is_for_the_next_run(tmp_path):
    data = tmp_path / "data"
    release(tmp_path, jsonl(tmp_path / "old.jsonl", TEXTS))
    jsonl(data / "b.jsonl", OTHERS[:350])

    def write():
        jsonl(data / "a.jsonl", SHUFFLED)
        jsonl(data / "b.jsonl", OTHERS[:350] + SHUFFLED)

    assert ranges(release(tmp_path, data, between=write)) == {"b.jsonl": (0, 300)}


@pytest.mark.parametrize("again", ["a.jsonl", "data", "*.jsonl", "b.jsonl a.jsonl"])
@pytest.mark.parametrize("before", ["a.jsonl", "data", "*.jsonl", "a.jsonl b.jsonl"])
def test_a_ledger_of_an_earlier_version_knows_sources_by_their_names(tmp_path, before, again):
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
        # As earlier versions did: no fingerprints, slots of the source as it was spelled.
        stream = " ".join(map(str, spelled(before)))
        manager = ReleaseManager(ledger=ledger, stream=stream)
        manager.release("norms", 0, 100, asked.event, lambda noise: {}, {})
    with pytest.raises(LedgerError, match="earlier version"):
        release(tmp_path, *spelled(again))
    # Documents that lie elsewhere can be taken.
    assert release(tmp_path, jsonl(tmp_path / "new" / "a.jsonl", OTHERS[300:600]))


def test_a_run_that_goes_on_leaves_out_what_others_had_released_before_it(tmp_path):
    """A checkpoint's run, behind its own releases and those that were there when it began."""
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS), store=False)
    source = jsonl(tmp_path / "a.jsonl", TEXTS + OTHERS[:500])
    # One release and no checkpoint: the next start makes up for it.
    assert ranges(release(tmp_path, source, store=True, most=1)) == {"a.jsonl": (300, 306)}
    settings = settings_at(tmp_path, [source])
    with ExitStack() as opened:
        store = opened.enter_context(Checkpoints.open(tmp_path / "kept"))
        ledger = opened_ledger(settings, opened)
        run = open_pipeline(settings, store, ledger)
        assert (run.slots_to_skip, run.pipeline.records) == (6, 6)
        assert run.census.slots == 600
        with closing(run.open_source(settings)) as polled:
            while not (batch := polled.poll(2)).n_records:
                pass
            assert [at.record for at in batch.locations] == [301, 302]


@pytest.mark.parametrize(
    "documents",
    [OTHERS[::-1], OTHERS[:5] + MANY, OTHERS[6:], OTHERS[:5]],
    ids=["another order", "others", "cut at the front", "cut"],
)
def test_a_run_goes_on_in_the_files_that_it_began_with(tmp_path, documents):
    """Its own releases are no others to it: documents that moved would be in two of them."""
    source = jsonl(tmp_path / "a.jsonl", OTHERS)
    assert ranges(release(tmp_path, source, store=True, most=1)) == {"a.jsonl": (0, 6)}
    settings = settings_at(tmp_path, [source])
    for now, refused in ((documents, True), (OTHERS + MANY, False)):
        jsonl(source, now)
        with ExitStack() as opened:
            store = opened.enter_context(Checkpoints.open(tmp_path / "kept"))
            ledger = opened_ledger(settings, opened)
            with pytest.raises(LedgerError, match="must begin") if refused else nullcontext():
                assert open_pipeline(settings, store, ledger).slots_to_skip == 6


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


def test_too_few_records_are_refused_as_before(tmp_path):
    with pytest.raises(InsufficientDataError, match="slots=150"):
        release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS[:150]))


def test_a_bound_on_the_records_does_not_hide_what_is_spent(tmp_path):
    """Only as many are met as are read, but for those that may be spent."""
    bound = {"source.max_documents": WINDOW}
    source = jsonl(tmp_path / "a.jsonl", TEXTS + OTHERS)
    assert ranges(release(tmp_path, source, **bound)) == {"a.jsonl": (0, 300)}
    copy = jsonl(tmp_path / "b.jsonl", TEXTS + OTHERS)
    with pytest.raises(LedgerError, match="under another name"):
        release(tmp_path, copy, **bound)
    assert ranges(release(tmp_path, source, **bound)) == {"a.jsonl": (300, 600)}
    settings = settings_at(tmp_path, [source], **bound)
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        assert open_pipeline(settings, None, ledger).census.slots == WINDOW
