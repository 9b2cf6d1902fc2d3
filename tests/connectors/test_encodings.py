"""Encodings of files and streams: equal tables give equal documents, however they are stored."""

from contextlib import closing
from zipfile import ZipFile

import openpyxl
import pytest

from streamlda.errors import SourceError
from streamlda_connectors.files import FileSource
from streamlda_connectors.stdin import StdinSource
from tests.connectors.test_files import reopen

GERMAN = "Das Paket kam später an; die Größe war falsch, schöne Grüße aus Köln."
FRENCH = "Le colis est arrivé très tard, le problème a été réglé après, ça va."
PORTUGUESE = "A encomenda não chegou; o coração é bom. Ação, São Paulo, você está aí?"
POLISH = "Paczka przyszła za późno, proszę o zwrot pieniędzy, dziękuję."
HUNGARIAN = "A csomag későn érkezett, kérem vissza a pénzt, az idő rövid, köszönöm."
JAPANESE = "荷物が遅れて届きました。お金を返してください。ありがとうございます。"
ENGLISH = "the parcel came late and we would like the money back please send it again\n" * 40
CAFES = f"{ENGLISH}the café was closed"
NAMES = f"{ENGLISH}a naïve résumé of Beyoncé, from the café of El Niño; déjà vu"
RUSSIAN = "Посылка пришла поздно, прошу вернуть деньги, спасибо большое."


def read(source, size=100):
    found, notes, rejects = [], [], []
    while True:
        batch = source.poll(size)
        found += zip((at.id for at in batch.locations), batch.texts, strict=True)
        notes += batch.notes
        rejects += [reject.reason for reject in batch.rejects]
        if batch.exhausted:
            source.close()
            return found, notes, rejects


def test_sheets_that_are_skipped_are_said_and_a_damaged_workbook_is_rejected(tmp_path):
    book = openpyxl.Workbook()
    for row in (["text"], ["one"]):
        book.active.append(row)
    book.create_sheet("more")
    book.save(tmp_path / "a.xlsx")
    _, (note,), _ = read(FileSource(tmp_path))
    assert note.endswith("is read from its first sheet; 1 more are skipped")
    stored = (tmp_path / "a.xlsx").read_bytes()
    with ZipFile(tmp_path / "a.xlsx", "w") as other:
        other.writestr("word.xml", "no workbook")
    damaged = [b"PK\x03\x04 and no more", (tmp_path / "a.xlsx").read_bytes()]
    for n in range(40, len(stored), 97):
        damaged += [stored[:n], stored[:n] + b"~~~" + stored[n + 3 :]]
    (tmp_path / "b.txt").write_text("words")
    for found in damaged:
        (tmp_path / "a.xlsx").write_bytes(found)
        texts, _, rejects = read(FileSource(tmp_path))
        # Bytes that no cell needs may be damaged.
        assert [text for _, text in texts] == [None if rejects else "one", "words"]
        assert rejects in ([], ["broken-workbook"])


def test_a_guess_is_said_and_used_if_nothing_else_fits(tmp_path):
    path = tmp_path / "a.txt"
    for text, stored, used, said in (
        (GERMAN, "cp1252", "cp1252", "is read as cp1252"),
        (RUSSIAN, "cp1251", "cp1251", "is read as cp1251"),
        (RUSSIAN, "koi8_r", "koi8_r", "is read as koi8_r"),
        (GERMAN, "utf-16-le", "utf-16-le", "is read as utf-16-le"),
        # Accents tell languages apart, and these encodings.
        (FRENCH, "cp1252", "cp1252", "is read as cp1252"),
        (PORTUGUESE, "cp1252", "cp1252", "is read as cp1252"),
        (POLISH, "cp1250", "cp1250", "is read as cp1250"),
        # Few signs beyond ASCII in a page of English.
        (CAFES, "cp1252", "cp1252", "is read as cp1252"),
        (NAMES, "cp1252", "cp1252", "is read as cp1252"),
        (NAMES, "cp850", "cp850", "is read as cp850"),
        (NAMES, "mac_roman", "mac_roman", "is read as mac_roman"),
        (f"{ENGLISH}“yes”, he said", "cp1252", "cp1252", "is read as cp1252"),
        (JAPANESE, "cp932", "cp932", "is read as cp932"),
        # Too much alike: nothing is read wrongly, and what it may be is said.
        (HUNGARIAN, "cp1250", None, "cp1250"),
    ):
        path.write_bytes(f"{text}\nplain\n".encode(stored))
        found, (note,), rejects = read(FileSource(path), 999)
        assert said in note
        assert "--encoding" in note or "utf" in note
        lines = [*text.split("\n"), "plain"]
        wanted = [line if used or line.isascii() else None for line in lines]
        assert [each for _, each in found] == wanted
        assert rejects == ([] if used else ["not-utf8"])
        assert read(FileSource(path, encoding=stored), 999)[0] == [(None, line) for line in lines]


def test_recoded_files_resume_where_they_stood(tmp_path):
    texts = ["the café", "größe; and | more", '"two" lines', "plain words"]
    (tmp_path / "a.txt").write_bytes("\r".join(texts).encode("utf-16"))
    source, seen = FileSource(tmp_path / "a.txt"), []
    while not (batch := source.poll(1)).exhausted:
        seen += batch.texts
        source = reopen(source, tmp_path / "a.txt")
    assert seen + batch.texts == texts


KINDS = {
    "zip": (b"PK\x03\x04rest", "zip://"),
    "pdf": (b"%PDF-1.7 rest", "pdftotext"),
    "dump": (b"--\n-- PostgreSQL database dump\n", "export the table as CSV"),
    "pickle": (b"\x80\x04\x95rest", "as Parquet"),
    "sqlite": (b"SQLite format 3\0rest", "sqlite3"),
    "gzip": (b"\x1f\x8brest", "end its name in .gz"),
    "parquet": (b"PAR1rest", "set the format to parquet"),
    "avro": (b"Obj\x01rest", "as Parquet"),
    "a.7z": (b"7z\xbc\xafrest", "unpack it"),
    "a.tar": (b"a.txt\0\0", "unpack it"),
    "a.tar.gz": (b"\x1f\x8brest", "unpack it"),
}


@pytest.mark.parametrize(("name", "head", "remedy"), [(name, *KINDS[name]) for name in KINDS])
def test_files_without_text_are_named_with_what_to_do(name, head, remedy, tmp_path):
    name = name if "." in name else "a.bin"
    (tmp_path / name).write_bytes(head)
    with pytest.raises(SourceError, match=remedy):
        FileSource(tmp_path / name)
    (tmp_path / "b.txt").write_text("words")
    (tmp_path / "c.tar.json").write_text('{"text": "more words"}')
    found, notes, rejects = read(FileSource(tmp_path))
    assert ([text for _, text in found], rejects) == (["words", "more words"], [])
    assert "1 as file, 1 as json" in notes[0]
    assert name in notes[1]


@pytest.mark.parametrize(("stored", "given"), [("utf-16", "auto"), ("cp1252", "cp1252")])
def test_standard_input_is_recoded(stored, given, tmp_path):
    (tmp_path / "a").write_bytes(f"{GERMAN}\nplain\n".encode(stored))
    with (tmp_path / "a").open("rb") as file:
        found = read(StdinSource(file, encoding=given))[0]
    assert [text for _, text in found] == [GERMAN, "plain"]


@pytest.mark.parametrize("ending", ["jsonl", "json", "txt"])
def test_no_record_of_a_private_run_decides_how_others_are_read(ending, tmp_path):
    path, others = tmp_path / f"a.{ending}", [b'{"text": "one"}', b'{"text": "two"}']
    for record in (b"", b"%PDF-1.4", b"PK\3\4", b"\xff\xfe", b"x\0" * 4000, b"\r", b"[", b'["a"]'):
        for n in (0, 2):
            path.write_bytes(b"\n".join([*others[:n], record, *others[n:], b""]))
            # A pattern skips files that hold no text.
            with closing(FileSource(tmp_path / "a.*", encoding=None)) as source:
                texts = source.poll(9).texts
            wanted = [each.decode() for each in others] if ending == "txt" else ["one", "two"]
            assert texts[:n] + texts[n + 1 :] == wanted
