"""Opening a ledger: its terms, its one writer, its readers."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Ledger, LedgerReader
from tests.privacy.ledger_cases import EVENT, TERMS, cohort_of, reading_only, release


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 2.0),
        ("delta", 1e-5),
        ("privacy_unit", "user"),
        ("neighboring_relation", "replace-one"),
        ("config_hash", "beef"),
    ],
)
def test_other_terms_are_refused_by_name(ledger, name, value):
    ledger.close()
    other = replace(TERMS, **{name: value})
    for attempt in (Ledger.open, LedgerReader):
        with pytest.raises(LedgerError, match=rf"{name}={value!r} \(ledger: "):
            attempt(ledger.path, other)
    Ledger.open(ledger.path, TERMS).close()


def test_second_writer_is_told_who_holds_the_ledger(ledger, folder):
    (folder / "other").symlink_to(folder / "ledger")
    for name in ("ledger", "other"):
        with pytest.raises(LedgerError, match=f"one writer.*pid={os.getpid()};"):
            Ledger.open(folder / name, TERMS)
    assert LedgerReader(folder / "other").spent == 0
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="open for writing"):
        ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    Ledger.open(folder / "ledger", TERMS).close()


def test_writers_that_race_take_turns(folder, crashes):
    assert crashes.run("many-writers", folder)["refused"] > 0


def test_forked_child_neither_writes_nor_holds_the_lock(folder, crashes):
    assert crashes.run("forked-writer", folder)["status"] == -9


def test_lost_lock_file_stops_the_writer(ledger, folder):
    (folder / "ledger.lock").unlink()
    with (
        Ledger.open(folder / "ledger", TERMS) as other,
        pytest.raises(LedgerError, match="another lock file"),
    ):
        release(ledger, 0, 10)
    assert other.spent == 0


def test_replaced_file_is_noticed_by_the_writer(ledger, folder):
    kept = (folder / "ledger").read_bytes()
    release(ledger, 0, 10)
    (folder / "ledger").write_bytes(kept)
    with pytest.raises(LedgerError, match="changed or replaced"):
        release(ledger, 10, 20)


def test_files_are_for_their_owner_only(ledger, folder):
    release(ledger, 0, 10)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("ledger*")}
    assert modes == dict.fromkeys(["ledger", "ledger.marker", "ledger.lock"], 0o600)


def test_reader_needs_no_right_to_write(folder):
    with Ledger.open(folder / "ledger", TERMS, create=True) as ledger:
        release(ledger, 0, 10)
        ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with reading_only(folder):
        assert LedgerReader(folder / "ledger", TERMS).report()["pending"] == [2]
        for name in ("ledger", "new"):
            with pytest.raises(LedgerError, match=r"lockable.*Permission denied"):
                Ledger.open(folder / name, TERMS, create=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_right_to_write_lost_while_open_is_reported(ledger, folder):
    with reading_only(folder), pytest.raises(LedgerError, match="readonly database"):
        ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    assert LedgerReader(folder / "ledger").spent == 0


def test_half_written_transaction_is_undone_by_a_writer_only(ledger, folder):
    release(ledger, 0, 10)
    ledger.close()
    (folder / "crashed").mkdir()
    with closing(sqlite3.connect(folder / "ledger", isolation_level=None)) as database:
        database.execute("PRAGMA cache_size=1")
        database.execute("BEGIN IMMEDIATE")
        for seq in range(5, 200):
            row = (seq, "intent", '""', "x" * 3000, "y")
            database.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
        for path in folder.glob("ledger*"):
            shutil.copy(path, folder / "crashed" / path.name)
        database.execute("ROLLBACK")
    path = folder / "crashed" / "ledger"
    assert path.stat().st_size > 2 * (folder / "ledger").stat().st_size
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="nothing may be released"):
        LedgerReader(path)
    assert path.read_bytes() == before
    with Ledger.open(path, TERMS) as recovered:
        assert recovered.report() == LedgerReader(folder / "ledger").report()
