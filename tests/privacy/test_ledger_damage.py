"""A ledger that is cut, edited, swapped, older or foreign gives no budget."""

import os
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, LedgerError
from streamlda.privacy.ledger import Ledger, LedgerReader
from tests.privacy.ledger_cases import PRICE, TERMS, finished


def refuse(path, match):
    """Assert that nobody can open the ledger, and that no fresh one takes its place."""
    attempts = [
        lambda: Ledger.open(path, TERMS),
        lambda: Ledger.open(path, TERMS, create=True),
        lambda: LedgerReader(path, TERMS),
    ]
    for attempt in attempts:
        with pytest.raises(LedgerError, match=match) as caught:
            attempt()
        assert "counts as used up" in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 50, 100, 512, 4096, 5000, 8192])
def test_cut_file_is_no_fresh_budget(folder, size):
    path = finished(folder)
    os.truncate(path, size)
    refuse(path, "whole")


def test_missing_file_is_no_fresh_budget(folder):
    path = finished(folder)
    path.unlink()
    refuse(path, "must not go missing")


def test_missing_file_is_found_without_marker_when_it_must_be_there(folder):
    with pytest.raises(LedgerError, match="must not go missing"):
        Ledger.open(folder / "ledger", TERMS)
    assert not (folder / "ledger").exists()
    with pytest.raises(InvalidSettingError, match="must have terms"):
        Ledger.open(folder / "ledger", create=True)
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.open(folder / "nowhere" / "ledger", TERMS, create=True)


def test_missing_marker_is_found_once_anything_was_spent(folder):
    path = folder / "ledger"
    Ledger.open(path, TERMS, create=True).close()
    (folder / "ledger.marker").unlink()
    finished(folder)
    (folder / "ledger.marker").unlink()
    refuse(path, "marker")


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"check":1}', "[" * 100_000])
def test_damaged_marker_is_found(folder, text):
    path = finished(folder)
    (folder / "ledger.marker").write_text(text)
    refuse(path, "marker file is damaged")


def test_older_copy_of_the_file_alone_is_found(folder):
    path = folder / "ledger"
    with Ledger.open(path, TERMS, create=True):
        kept = path.read_bytes()
    finished(folder)
    path.write_bytes(kept)
    refuse(path, "marker")


def test_marker_of_another_ledger_is_refused(folder):
    path = finished(folder)
    (folder / "b").mkdir()
    other = finished(folder / "b")
    shutil.copy(other.with_name("ledger.marker"), path.with_name("ledger.marker"))
    refuse(path, "marker")


def sql(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def test_rows_cannot_be_changed_or_removed(folder):
    path = finished(folder)
    for statement in ("DELETE FROM entries", "UPDATE entries SET body = '{}' WHERE seq = 2"):
        with pytest.raises(sqlite3.IntegrityError, match="a ledger only grows"):
            sql(path, statement)
    assert LedgerReader(path).spent == 2 * PRICE


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM entries WHERE seq = 5",
        "DELETE FROM entries WHERE seq = 3",
        "DELETE FROM entries",
        "UPDATE entries SET body = replace(body, '0.01', '0.00') WHERE seq = 2",
        "UPDATE entries SET kind = 'lost' WHERE seq = 4",
        "UPDATE entries SET subject = '1' WHERE seq = 4",
        "UPDATE entries SET seq = 9 WHERE seq = 5",
        "UPDATE entries SET body = x'00' WHERE seq = 5",
        "INSERT INTO entries SELECT 6, kind, subject, body, chain FROM entries WHERE seq = 3",
    ],
)
def test_edited_rows_are_found_even_with_triggers_put_back(folder, edit):
    path = finished(folder)
    with closing(sqlite3.connect(path)) as database:
        triggers = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        ).fetchall()
    drops = [f"DROP TRIGGER {name}" for name, _ in triggers]
    sql(path, *drops, edit, *[text for _, text in triggers])
    refuse(path, "chain of checksums|marker|damaged")


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA application_id=1", "another program"),
        ("PRAGMA user_version=2", "format_version=2"),
        ("PRAGMA user_version=0", "format_version=0"),
        ("PRAGMA journal_mode=WAL", "journal mode"),
        ("CREATE TABLE other (a)", "tables"),
        ("DROP TRIGGER entries_keep", "tables"),
        ("DROP INDEX entries_by_subject", "tables"),
    ],
)
def test_foreign_and_later_files_are_refused(folder, statement, match):
    path = finished(folder)
    sql(path, statement)
    refuse(path, match)


def amounts(path):
    reader = LedgerReader(path)
    report = reader.report()
    return (reader.terms, reader.spent, reader.remaining, reader.generation, report)


def flip(folder, name, positions, rng):
    """Change one byte at a time; each change must be found or be without effect."""
    before = amounts(folder / "ledger")
    content = (folder / name).read_bytes()
    found = 0
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        (folder / name).write_bytes(damaged)
        try:
            after = amounts(folder / "ledger")
        except LedgerError:
            found += 1
        else:
            assert after == before, position
    (folder / name).write_bytes(content)
    return found


@pytest.mark.parametrize("name", ["ledger", "ledger.marker"])
def test_flipped_byte_gives_no_budget(folder, name):
    size = finished(folder).with_name(name).stat().st_size
    rng = np.random.default_rng(20261121)
    positions = range(size) if name == "ledger.marker" else rng.integers(size, size=150)
    found = flip(folder, name, positions, rng)
    assert found > (20 if name == "ledger" else size - 3)


@pytest.mark.soak
@pytest.mark.fuzz
def test_any_flipped_byte_gives_no_budget(folder):
    size = finished(folder).stat().st_size
    assert flip(folder, "ledger", range(size), np.random.default_rng(1)) > 2000


@pytest.mark.fuzz
def test_scrambled_block_gives_no_budget(folder):
    path = finished(folder)
    before, content = amounts(path), path.read_bytes()
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(80):
        damaged = bytearray(content)
        start, length = int(rng.integers(len(content))), int(rng.integers(1, 600))
        match rng.integers(4):
            case 0:
                damaged[start : start + length] = bytes(length)
            case 1:
                damaged[start : start + length] = rng.bytes(length)
            case 2:
                del damaged[start:]
            case _:
                other = int(rng.integers(len(content)))
                damaged[start : start + length] = content[other : other + length]
        path.write_bytes(damaged)
        try:
            assert amounts(path) == before
        except LedgerError:
            found += 1
    assert found > 25
