"""Runs behind what is spent: files that grew, changed, or belong to a checkpoint."""

import json
import shutil
from contextlib import ExitStack, closing, nullcontext

import pytest

from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.ledger import Ledger
from streamlda.run.opening import open_pipeline
from streamlda.storage.store import Store
from tests.run.released import (
    MANY,
    OTHERS,
    SHUFFLED,
    TEXTS,
    WINDOW,
    jsonl,
    opened_ledger,
    ranges,
    release,
    settings_at,
)

# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")


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
    """Of many small files no more is kept than 24 bytes each; new ones may lie between them."""
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


def test_what_was_written_once_files_were_counted_is_for_the_next_run(tmp_path):
    data = tmp_path / "data"
    release(tmp_path, jsonl(tmp_path / "old.jsonl", TEXTS))
    jsonl(data / "b.jsonl", OTHERS[:350])

    def write():
        jsonl(data / "a.jsonl", SHUFFLED)
        jsonl(data / "b.jsonl", OTHERS[:350] + SHUFFLED)

    assert ranges(release(tmp_path, data, between=write)) == {"b.jsonl": (0, 300)}


def test_a_run_that_goes_on_leaves_out_what_others_had_released_before_it(tmp_path):
    """A checkpoint's run, behind its own releases and those that were there when it began."""
    release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS), store=False)
    source = jsonl(tmp_path / "a.jsonl", TEXTS + OTHERS[:500])
    # One release and no checkpoint: the next start makes up for it.
    assert ranges(release(tmp_path, source, store=True, most=1)) == {"a.jsonl": (300, 306)}
    settings = settings_at(tmp_path, [source])
    with ExitStack() as opened:
        store = opened.enter_context(Store.open(tmp_path / "kept"))
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
            store = opened.enter_context(Store.open(tmp_path / "kept"))
            ledger = opened_ledger(settings, opened)
            with pytest.raises(LedgerError, match="must begin") if refused else nullcontext():
                assert open_pipeline(settings, store, ledger).slots_to_skip == 6


def test_too_few_records_are_refused_as_before(tmp_path):
    with pytest.raises(InsufficientDataError, match="slots=150"):
        release(tmp_path, jsonl(tmp_path / "a.jsonl", TEXTS[:150]))


def test_a_bound_on_the_records_does_not_hide_what_is_spent(tmp_path):
    """Only as many are met as are read, but for those that may be spent."""
    bound = {"source.max_documents": WINDOW}
    source = jsonl(tmp_path / "a.jsonl", TEXTS + OTHERS)
    assert ranges(release(tmp_path, source, **bound)) == {"a.jsonl": (0, 300)}
    copy = jsonl(tmp_path / "b.jsonl", TEXTS + OTHERS)
    with pytest.raises(LedgerError, match="two releases"):
        release(tmp_path, copy, **bound)
    assert ranges(release(tmp_path, source, **bound)) == {"a.jsonl": (300, 600)}
    settings = settings_at(tmp_path, [source], **bound)
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        assert open_pipeline(settings, None, ledger).census.slots == WINDOW
