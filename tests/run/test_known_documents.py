"""Private runs know documents by names, numbers and content, however a source is stored."""

import csv
import gzip
import json
import random
import re
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

import pytest

from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.ledger import read_report
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.cli.conftest import refused, run
from tests.service.daemon_process import private_settings, texts, write_documents

#: Records of a window, and of a file that is one window and some.
WINDOW, RECORDS = 300, 400
TEXTS, OTHERS, MANY = texts(RECORDS), texts(1000, seed=2), texts(5000, seed=4)
SHUFFLED = random.Random(3).sample(TEXTS, RECORDS)


def settings_at(folder, sources, **flags):
    more = {"snapshots.every": WINDOW, "source.files": [str(source) for source in sources]}
    given = private_settings(folder, "", **{**more, **flags})
    del given["source.stream"]
    return load_settings(environment={}, flags={**given, **flags})


def opened_ledger(settings, opened):
    output = opened.enter_context(Store.open(private=True))
    return open_ledger(settings, opened, output, print)


def release(folder, *sources, store=False, most=99, warn=print, between=lambda: None, **flags):
    """Make all releases of a run that its files suffice for; return the documents of each.

    `between` is called when files were counted, before they are read.
    """
    settings = settings_at(folder, sources, **flags)
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        before = ledger.generation
        kept = opened.enter_context(Store.open(folder / "kept")) if store else None
        run = open_pipeline(settings, kept, ledger, warn=warn)
        between()
        source = opened.enter_context(closing(run.open_source()))
        pipeline, ended = run.pipeline, False
        while not ended and ledger.generation < before + most:
            if pipeline.learner.private.least_missing > run.census.slots - pipeline.records:
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


def as_csv(folder):
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["number", "text"], *enumerate(TEXTS)])
    return [folder / "a.csv"]


# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")

WHOLE = {"snapshots.every": RECORDS}
AGAIN, BEGIN, TWICE = "two releases", "no longer begins with the records rel", "two files of"
LEFT_OUT = ["records=300 were in earlier releases, and are left out"]
HEAD = [f"this is line {number} of what all of these begin with" for number in range(20)]
UPPER = [word.upper() for word in sorted(set(" ".join(TEXTS).split()))]


def repeat_texts(distinct, n):
    rng, words = random.Random(distinct), ["apple", "bread", "cheese", "dough", "eggs", "flour"]
    few = [" ".join(rng.choices(words[:3] if i % 2 else words[3:], k=8)) for i in range(distinct)]
    return rng.choices(few, k=n)


def play(folder, steps):
    """Make runs one after the other, each over files that are written before.

    A run has its sources (names in the folder, or a function that makes them), documents by name,
    settings, and what comes of it: ranges of documents, True for some, or the rule that refuses it.
    """
    for sources, written, flags, wanted in steps:
        for name, documents in written.items():
            write_documents(folder / name, documents)
        paths = sources(folder) if callable(sources) else [folder / each for each in sources]
        if not isinstance(wanted, str):
            found = ranges(release(folder, *paths, **flags))
            assert found if wanted is True else found == wanted
            continue
        before = (folder / "ledger").read_bytes() if (folder / "ledger").exists() else None
        with pytest.raises((LedgerError, InsufficientDataError), match=wanted) as refused:
            release(folder, *paths, **flags)
        assert re.search("nothing was spent|were in none|nothing was", str(refused.value))
        assert before is None or (folder / "ledger").read_bytes() == before


def write_as(name, data):
    def make(folder, _=None):
        (folder / name).write_bytes(data)
        return [folder / name]

    return make


def in_folder(folder, documents):
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(documents):
        words = text.split()
        lines = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
        (folder / f"{number:03d}.txt").write_text("\n".join(lines), "utf-8")
    return [folder]


def in_days(folder):
    """Write files that begin alike, some of which are equal."""
    for day in range(20):
        more = [] if day % 4 == 0 else MANY[80 * day : 80 * day + 80]
        write_documents(folder / "days" / f"{day:02d}.jsonl", HEAD + more)
    return [folder / "days"]


A, B, D = "a.jsonl", "b.jsonl", ("d/a.jsonl", "d/b.jsonl", "d/c.jsonl")
STEPS = {
    # Files continue after what is spent.
    "a file that grew": [
        ([A], {A: TEXTS}, {}, {A: (0, 300)}),
        ([A], {A: TEXTS + OTHERS[:200]}, {}, {A: (300, 600)}),
    ],
    "two files, in another order": [
        ([A, B], {A: TEXTS[:150], B: OTHERS[:150]}, {}, True),
        ([B, A], {B: OTHERS[:300], A: TEXTS[:300]}, {}, {B: (150, 300), A: (150, 300)}),
    ],
    "a folder with another file": [
        ([D[0], D[2]], {D[0]: TEXTS[:150], D[2]: OTHERS[:150]}, {}, True),
        (["d"], {D[1]: OTHERS[300:600]}, {}, {B: (0, 300)}),
    ],
    "another format": [
        (["d"], {D[0]: TEXTS}, {"source.format": "jsonl"}, True),
        (["d"], {D[1]: OTHERS[:300]}, {}, {A: (300, 400), B: (0, 200)}),
    ],
    "equal days": [(in_days, {}, {}, True)],
    # Texts that come again and again are different documents of a run, and known to others.
    "texts again and again": [
        ([A], {A: repeat_texts(20, 300)}, {}, {A: (0, 300)}),
        ([B], {B: repeat_texts(20, 300)[::-1]}, {}, AGAIN),
    ],
    "a file of texts that come again grows": [
        ([A], {A: repeat_texts(40, 600)[:300]}, {}, {A: (0, 300)}),
        ([A], {A: repeat_texts(40, 600)}, {}, {A: (300, 600)}),
    ],
    **{
        f"{name}, and more": [
            ([A], {A: TEXTS}, WHOLE, {A: (0, RECORDS)}),
            ([B], {B: OTHERS[-WINDOW:]}, {}, True),
            ([B], {B: OTHERS[-WINDOW:] + OTHERS[:WINDOW]}, {}, True),
            ([B], {B: documents}, {}, BEGIN),
        ]
        for name, documents in {
            "first altered": ["?", *TEXTS[1:]],
            "cut": TEXTS[:399],
        }.items()
    },
    **{
        name: [
            (make, {}, {}, True),
            (lambda to, make=make: [*make(to), to / "m"], {"m/b.jsonl": OTHERS}, then, BEGIN),
            (lambda to, make=make: [*make(to), to / "m"], {}, {}, True),
        ]
        for name, (make, then) in {
            "lines of whole files": (
                lambda to: in_folder(to / "data", TEXTS[:WINDOW]), {"source.format": "text"}
            ),
            "another column": (as_csv, {"source.text_field": "number"}),
        }.items()
    },
    "its own records appended": [
        ([A], {A: TEXTS}, WHOLE, True), ([A], {A: TEXTS + SHUFFLED}, {}, AGAIN)
    ],
    "equal files in one run": [
        (["a", "b"], {f"{folder}/{n}.jsonl": TEXTS[n : n + 40]
                      for folder in "ab" for n in range(0, RECORDS, 40)},
         {"snapshots.every": 100}, TWICE)
    ],
    "too few records": [([A], {A: TEXTS[:150]}, {}, "slots=150")],
    "a wrong field": [
        ([A], {A: TEXTS}, {"source.text_field": "t"}, "the text field"),
        ([A], {}, {}, {A: (0, 300)}),
    ],
    "UTF-16": [(write_as("a.txt", "\n".join(TEXTS).encode("utf-16")), {}, {}, "UTF-8")],
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_documents_are_released_once(tmp_path, name):
    play(tmp_path, STEPS[name])


@pytest.fixture(scope="module")
def spent(tmp_path_factory):
    """A folder with a file of which all was released, and the ledger that says so."""
    folder = tmp_path_factory.mktemp("spent")
    play(folder, [(["data/a.jsonl"], {"data/a.jsonl": TEXTS}, WHOLE, {"a.jsonl": (0, RECORDS)})])
    return folder


def linked(folder, data):
    (folder / "b.jsonl").symlink_to(data)
    return [folder / "b.jsonl"]


def rows(*parts):
    return lambda folder, _: [
        write_documents(folder / f"{n}.jsonl", each) for n, each in enumerate(parts)
    ]


LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
DISGUISES = {
    "its folder": lambda folder, data: [data.parent],
    "a URL": lambda folder, data: [f"file://{data}"],
    "a symbolic link": linked,
    "gzip": write_as("a.jsonl.gz", gzip.compress(LINES)),
    "lines of text": write_as("a.txt", "\n".join(TEXTS).encode()),
    "CSV": lambda folder, data: as_csv(folder),
    "another order": rows(SHUFFLED),
    "two halves": rows(TEXTS[:200], TEXTS[200:]),
    "one record less": rows(TEXTS[1:]),
    "a sample": rows(SHUFFLED[:60] + OTHERS[:60]),
    "among others": rows(random.Random(1).sample(SHUFFLED + OTHERS[:RECORDS], 2 * RECORDS)),
    "a folder of a file a record": lambda folder, data: in_folder(folder / "texts", TEXTS),
}


@pytest.mark.parametrize("how", DISGUISES)
def test_documents_of_a_release_are_refused(spent, tmp_path, how):
    sources = DISGUISES[how](tmp_path, spent / "data" / "a.jsonl")
    play(spent, [(lambda _: sources, {}, {"source.stream": "another"}, "nothing was spent|none")])


@pytest.mark.parametrize("again", [16, 260])
def test_what_a_run_leaves_out_follows_from_names_and_numbers_alone(tmp_path, again):
    """Of neighbours, one of which holds a document twice, slots are the same, or it is refused."""
    for number, first in enumerate((TEXTS[:WINDOW], [*TEXTS[:3], "", *TEXTS[4:WINDOW]])):
        then = (["b.jsonl"], {"b.jsonl": TEXTS[:again] + OTHERS[:500]}, {})
        (tmp_path / str(number)).mkdir()
        wanted = AGAIN if again == 260 else {"b.jsonl": (0, WINDOW)}
        play(tmp_path / str(number), [(["a.jsonl"], {"a.jsonl": first}, {}, True), (*then, wanted)])


def test_files_without_a_known_word_cost_nothing(tmp_path):
    flags = {"vocabulary.kind": "given", "vocabulary.file": str(tmp_path / "words")}
    # One document is enough to be asked for with noise.
    for words, wanted in (
        (UPPER, "no record is a document of 3 known"),
        ([*UPPER, *TEXTS[-1].split()], True),
    ):
        (tmp_path / "words").write_text("\n".join({*words}))
        play(tmp_path, [(["a.jsonl"], {"a.jsonl": TEXTS}, flags, wanted)])


def test_what_was_written_once_files_were_counted_is_for_the_next_run(tmp_path):
    data = tmp_path / "data"
    release(tmp_path, write_documents(tmp_path / "old.jsonl", TEXTS))
    write_documents(data / "b.jsonl", OTHERS[:350])

    def write():
        write_documents(data / "a.jsonl", SHUFFLED)
        write_documents(data / "b.jsonl", OTHERS[:350] + SHUFFLED)

    assert ranges(release(tmp_path, data, between=write)) == {"b.jsonl": (0, 300)}


def test_a_run_that_resumes_leaves_out_what_others_had_released_before_it(tmp_path):
    """A checkpoint's run, behind its own releases and those that were there when it began."""
    release(tmp_path, write_documents(tmp_path / "a.jsonl", TEXTS), store=False)
    source, said = write_documents(tmp_path / "a.jsonl", TEXTS + OTHERS[:500]), []
    # One release and no checkpoint: the next start makes up for it.
    found = release(tmp_path, source, store=True, most=1, warn=said.append)
    assert (ranges(found), said) == ({"a.jsonl": (300, 306)}, LEFT_OUT)
    settings = settings_at(tmp_path, [source])
    with ExitStack() as opened:
        store = opened.enter_context(Store.open(tmp_path / "kept"))
        run = open_pipeline(settings, store, opened_ledger(settings, opened))
        assert (run.slots_to_skip, run.pipeline.records, run.census.slots) == (6, 6, 600)
        with closing(run.open_source()) as polled:
            while not (batch := polled.poll(2)).n_records:
                pass
            assert [at.record for at in batch.locations] == [301, 302]


@pytest.mark.parametrize("documents", [OTHERS[::-1], OTHERS[:5]], ids=["another order", "cut"])
def test_a_run_resumes_in_the_files_that_it_began_with(tmp_path, documents):
    """Its own releases are no others to it: documents that moved would be in two of them."""
    source = write_documents(tmp_path / "a.jsonl", OTHERS)
    assert ranges(release(tmp_path, source, store=True, most=1)) == {"a.jsonl": (0, 6)}
    settings = settings_at(tmp_path, [source])
    for now, is_refused in ((documents, True), (OTHERS + MANY, False)):
        write_documents(source, now)
        with ExitStack() as opened:
            store = opened.enter_context(Store.open(tmp_path / "kept"))
            ledger = opened_ledger(settings, opened)
            with pytest.raises(LedgerError, match="no longer") if is_refused else nullcontext():
                assert open_pipeline(settings, store, ledger).slots_to_skip == 6


def test_standard_input_is_charged_by_document_under_any_name(tmp_path):
    """It cannot be known before it is paid for: what was in a release is charged, never refused."""
    # The first stage of a window has 18 records.
    window, documents = 1200, texts(2400)
    words = sorted({word for text in documents for word in text.split() if word.isalpha()})
    (tmp_path / "words").write_text("\n".join(words), "ascii")
    fit = ("--format", "jsonl", "-k", 2, "-o", tmp_path / "m", "--epsilon", 12, "--delta", "1e-3")
    fit += ("--ledger", tmp_path / "L", "--vocabulary", tmp_path / "words")
    fit += ("--snapshot-every", window)
    first = write_documents(tmp_path / "a.jsonl", documents[:window])
    run("fit", "-", *fit, given=first.read_bytes())
    assert "in two releases" in refused("fit", first, *fit)
    # Ten lines of a day before, of 1,200, and all of them in another order.
    overlapping = [*documents[window:-10], *documents[20:30]]
    for name, sent in (("other", overlapping), ("third", documents[:window][::-1])):
        given = write_documents(tmp_path / name, sent).read_bytes()
        shown = run("fit", "-", *fit, f"source.stream={name}", given=given)
        assert ("charged for each: repeated=" in shown.stderr) == (name == "third")
        assert "nothing was spent" not in shown.stderr
    report = read_report(tmp_path / "L")
    origins = {origin for each in report["snapshots"] for origin, *_ in each["documents"]}
    assert origins == {"stdin", "other", "third"}
    assert report["documents"]["most"] == 3
