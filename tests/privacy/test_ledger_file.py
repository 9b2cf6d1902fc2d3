"""The file of a ledger: its one writer, and that damage of any kind gives no budget."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Ledger, LedgerReader, read_report
from tests.privacy.ledger_cases import (
    EVENT,
    PRICE,
    TERMS,
    cohort_of,
    create,
    finished,
    reading_only,
    release,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epsilon", 2.0), ("delta", 1e-5), ("privacy_unit", "user")),
        ("neighboring_relation", "replace-one"),
    ],
)
def test_other_terms_are_refused_by_name(ledger, name, value):
    ledger.close()
    for attempt in (Ledger.open, LedgerReader):
        with pytest.raises(LedgerError, match=rf"{name}={value!r} \(ledger: "):
            attempt(ledger.path, replace(TERMS, **{name: value}))


def test_second_writer_is_told_who_holds_the_ledger(ledger, folder):
    (folder / "other").symlink_to(folder / "ledger")
    for name in ("ledger", "other"):
        with pytest.raises(LedgerError, match=f"another writer.*pid={os.getpid()};"):
            Ledger.open(folder / name, TERMS)
    assert LedgerReader(folder / "other").loss.mu_squared == 0
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="open for writing"):
        ledger.begin(cohort_of(0, 10), EVENT)
    Ledger.open(folder / "ledger", TERMS).close()


def test_children_do_not_write(folder, crashes):
    assert crashes.run("forked-writer", folder)["status"] == -9


def test_writer_notices_what_others_do_to_its_files(ledger, folder):
    (folder / "ledger.lock").unlink()
    with Ledger.open(folder / "ledger", TERMS) as other:
        with pytest.raises(LedgerError, match="lock file is gone"):
            release(ledger, 0, 10)
        kept = (folder / "ledger").read_bytes()
        release(other, 0, 10)
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("ledger*")}
        assert modes == dict.fromkeys(["ledger", "ledger.lock", "ledger.documents"], 0o600)
        (folder / "ledger").write_bytes(kept)
        with pytest.raises(LedgerError, match="changed or replaced"):
            release(other, 10, 20)


def test_rights_to_the_folder(ledger, folder):
    release(ledger, 0, 10)
    ledger.begin(cohort_of(10, 20), EVENT)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with reading_only(folder):
        assert LedgerReader(folder / "ledger", TERMS).report()["pending"] == [2]
        for name in ("ledger", "new"):
            with pytest.raises(LedgerError, match="Permission denied"):
                Ledger.open(folder / name, TERMS, create=True)
        with pytest.raises(LedgerError, match="Permission denied"):
            ledger.recover()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("length", [1, 40, -1])
def test_a_row_cut_short_is_dropped_and_its_writer_had_not_returned(ledger, folder, length):
    """Its first bytes are on the disk, and no documents were kept."""
    release(ledger, 0, 10)
    report, kept = ledger.report(), documents(ledger.path).read_bytes()
    whole = (folder / "ledger").stat().st_size
    ledger.begin(cohort_of(10, 20), EVENT)
    ledger.close()
    row = (folder / "ledger").read_bytes()[whole:]
    os.truncate(folder / "ledger", whole + len(row[:length]))
    # Of a release whose documents were kept nothing may be missing.
    with pytest.raises(LedgerError, match="counts as used up"):
        read_report(folder / "ledger")
    documents(ledger.path).write_bytes(kept)
    assert read_report(folder / "ledger") == report
    with Ledger.open(folder / "ledger", TERMS) as again:
        assert again.report() == report
        release(again, 10, 20)
    assert read_report(folder / "ledger")["generation"] == 2


def refuse(path, match):
    """Assert that nobody can open the ledger, and that no fresh one takes its place."""
    for attempt in (Ledger.open, partial(Ledger.open, create=True), LedgerReader):
        with pytest.raises(LedgerError, match=match) as caught:
            attempt(path, TERMS)
        assert "counts as used up" in str(caught.value)


def documents(path):
    return path.with_name(path.name + ".documents")


def of_a_later_format(path):
    for each in path.parent.glob("ledger*"):
        each.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlda.privacy.ledger.file.FORMAT_VERSION", 4)
        Ledger.open(path, TERMS, create=True).close()


def database(version):
    """Return the header of a ledger of 0.1.0 and 0.2.0."""
    header = b"SQLite format 3\0".ljust(60, b"\0") + version.to_bytes(4, "big")
    return lambda path: path.write_bytes(header)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        *((partial(os.truncate, length=size), "whole|older") for size in (0, 99, 500)),
        (Path.unlink, "it is gone|beside what another one left"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "no regular file"),
        (lambda path: documents(path).unlink(), "its own .documents file"),
        *(
            (lambda path, data=data: documents(path).write_bytes(data), "its own .documents file")
            for data in (b"", bytes(31), bytes(32))
        ),
        (of_a_later_format, "format_version=4"),
        *((database(version), f"format_version={version}") for version in (1, 2)),
        (lambda path: path.write_text("a document\n"), "not a whole ledger file"),
    ],
)
def test_damaged_or_foreign_files_are_no_fresh_budget(folder, damage, match):
    path = finished(folder)
    damage(path)
    refuse(path, match)


def test_older_copy_and_documents_of_another_ledger_are_found(folder):
    path = folder / "ledger"
    create(folder).close()
    # The creation of a ledger may have been cut short after its key.
    path.unlink()
    create(folder).close()
    kept = path.read_bytes()
    with create(folder) as ledger:
        release(ledger, 0, 10)
        one, older = path.read_bytes(), documents(path).read_bytes()
        release(ledger, 10, 20)
    newest, own = path.read_bytes(), documents(path).read_bytes()
    documents(path).write_bytes(older)
    with pytest.raises(LedgerError, match=r"its own \.documents file"):
        Ledger.open(path, TERMS)
    documents(path).write_bytes(own)
    for older in (kept, one):
        path.write_bytes(older)
        refuse(path, "is older than")
    path.write_bytes(newest)
    (folder / "b").mkdir()
    shutil.copy(documents(finished(folder / "b")), documents(path))
    refuse(path, "its own .documents file")
    documents(path).write_bytes(own)
    assert LedgerReader(path).loss.mu_squared == PRICE
    ledger.folder.mkdir()
    (ledger.folder / "000003-norms.safetensors").touch()
    with pytest.raises(LedgerError, match="is older than"):
        Ledger.open(path, TERMS)


def test_a_ledger_is_made_only_where_asked_for(folder):
    with pytest.raises(LedgerError, match="no ledger of that name"):
        Ledger.open(folder / "ledger", TERMS)
    assert not (folder / "ledger").exists()
    with pytest.raises(LedgerError, match="No such file"):
        create(folder / "nowhere")


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[:1],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [*lines[:3], lines[4], lines[3]],
        lambda lines: [lines[0], lines[1].replace(b'squared":0.01', b'squared":0.00'), *lines[2:]],
        lambda lines: [*lines[:3], lines[3].replace(b'"committed"', b'"lost"'), *lines[4:]],
        lambda lines: [*lines[:4], lines[4].replace(b'":', b'": ')],
    ],
)
def test_edited_rows_are_found(folder, edit):
    path = finished(folder)
    before = path.read_bytes()
    path.write_bytes(b"".join(edit(before.splitlines(keepends=True))))
    assert path.read_bytes() != before
    refuse(path, "chain of checksums|older|whole")


def test_flipped_byte_gives_no_budget(folder):
    path = finished(folder)
    content, rng = path.read_bytes(), np.random.default_rng(20261121)
    for position in rng.integers(len(content), size=150):
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with pytest.raises(LedgerError):
            LedgerReader(path).report()
