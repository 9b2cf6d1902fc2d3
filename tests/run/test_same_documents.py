"""Private runs know documents by what they are, however the source is spelled or stored."""

import bz2
import csv
import gzip
import json
import random
import shutil
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

import pytest

from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.ledger import Ledger
from streamlda.private.release_manager import ReleaseManager
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.run.private_terms import PrivateTerms
from streamlda.settings.load import load_settings
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.publishing import Publisher
from tests.service.daemon_process import private_settings, texts

#: Records of a window, and of a file that is one window and some.
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


def release(folder, *sources, store=False, most=99, warn=print, **flags):
    """Make all releases of a run that its files suffice for; return the documents of each."""
    settings = settings_at(folder, sources, **flags)
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        before = ledger.generation
        kept = opened.enter_context(Checkpoints.open(folder / "kept")) if store else None
        run = open_pipeline(settings, kept, ledger, warn=warn)
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


def as_csv(folder):
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["number", "text"], *enumerate(TEXTS)])
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


def test_what_a_run_leaves_out_follows_from_names_and_numbers_alone(tmp_path):
    """Of neighbours, one of which holds a document twice, slots are the same, or one is refused."""
    for number, first in enumerate((TEXTS[:WINDOW], [*TEXTS[:3], "", *TEXTS[4:WINDOW]])):
        folder = tmp_path / str(number)
        folder.mkdir()
        release(folder, jsonl(folder / "a.jsonl", first))
        with pytest.raises(LedgerError) if number == 0 else nullcontext():
            found = release(folder, jsonl(folder / "b.jsonl", TEXTS[:16] + OTHERS[:500]))
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
    assert said == ["records=300 were in releases before, and are left out"]


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
    assert said == ["records=300 were in releases before, and are left out"]
    assert sum(stop - start for part in found for _, start, stop in part) == WINDOW
    # A few of them, under other names and by themselves.
    few = [
        shutil.copy(data / f"{number:04d}.txt", tmp_path / f"x{number}.txt")
        for number in range(100, 160)
    ]
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, *few)


TWICE = {
    "a copy": (TEXTS, TEXTS),
    "a copy that grew": (TEXTS[:300], TEXTS),
    "a part": (TEXTS, TEXTS[:300]),
    "another order": (TEXTS, SHUFFLED),
}


@pytest.mark.parametrize("case", TWICE)
def test_the_same_documents_twice_in_one_run_are_refused(tmp_path, case):
    one, two = TWICE[case]
    sources = [jsonl(tmp_path / "a.jsonl", one), jsonl(tmp_path / "b.jsonl", two)]
    with pytest.raises(LedgerError, match="two files of a run"):
        release(tmp_path, *sources)


def test_a_folder_of_small_files_and_its_copy_are_refused(tmp_path):
    for number in range(100):
        jsonl(tmp_path / "a" / f"{number}.jsonl", TEXTS[4 * number : 4 * number + 4])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(LedgerError, match="two files of a run"):
        release(tmp_path, tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("tail", [TEXTS, SHUFFLED], ids=["itself", "another order"])
def test_a_file_to_which_its_own_records_were_appended_is_refused(tmp_path, tail):
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS), **{"snapshots.every": RECORDS})
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS + tail))


def test_records_read_by_another_field_are_no_other_documents(spent, tmp_path):
    both = tmp_path / "b.jsonl"
    both.write_text(
        "".join(
            json.dumps({"text": text, "title": title}) + "\n"
            for text, title in zip(OTHERS[:400], texts(400, seed=9), strict=True)
        ),
        "utf-8",
    )
    release(tmp_path, both)
    for name in (both, tmp_path / "*.jsonl"):
        with pytest.raises(LedgerError, match="read by other settings"):
            release(tmp_path, name, **{"source.text_field": "title"})


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
