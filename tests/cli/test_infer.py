"""``streamlda infer`` over files: formats, ids, and files that are there whole or not at all."""

import csv
import gzip
import io
import json
import re

import numpy as np
import openpyxl
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.model.topic_model import load
from streamlda.run.proportions import FORMATS, RowWriter
from streamlda.storage.snapshots import Snapshots
from streamlda.utils.exit_codes import DATA
from tests.cli.conftest import refused, run


@pytest.fixture
def records(folder, tmp_path):
    """Records with ids: one of them is no text, one has no id, one is of no known word."""
    texts = (folder / "held_out.txt").read_text("ascii").splitlines()[:3]
    lines = [{"text": text, "id": f"a\n,{n}"} for n, text in enumerate(texts)]
    lines[1:1] = [{"text": 7, "id": "no"}, {"text": "zebrafinch"}]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("top", [(), ("--top", 2)])
def test_formats_hold_the_same_rows(folder, records, tmp_path, top):
    found = {}
    for ending in ("txt", "csv", "parquet"):
        output = tmp_path / f"out.{ending}"
        given = ("infer", folder / "model", records, "--id-field", "id", *top, "-o", output)
        run(*given, "--most-lost", 0.2)
        found[ending] = output.read_bytes()
    rows = [json.loads(line) for line in found["txt"].splitlines()]
    # A row for each record, in order: the second is no text, the third of no known word.
    assert [row["record"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["id"] for row in rows] == ["a\n,0", None, None, "a\n,1", "a\n,2"]
    assert [row["reason"] for row in rows] == [None, "not-text", "no-known-word", None, None]
    assert [row["tokens"] for row in rows[1:3]] == [None, 0]
    assert rows[1]["topics"] is None
    table = parquet.read_table(io.BytesIO(found["parquet"])).to_pylist()
    if top:
        pairs = [row["topics"] and [[*pair.values()] for pair in row["topics"]] for row in table]
        table = [row | {"topics": own} for row, own in zip(table, pairs, strict=True)]
    assert table == rows
    header, *lines = csv.reader(io.StringIO(found["csv"].decode()))
    names = ["topic_1", "proportion_1", "topic_2", "proportion_2"]
    names = names if top else ["topic_0", "topic_1", "topic_2"]
    columns = ("record", "location", "id", "tokens", "reason")
    assert header == [*columns, *names]
    for line, row in zip(lines, rows, strict=True):
        assert line[:5] == ["" if row[name] is None else str(row[name]) for name in columns]
        shares = np.ravel([] if row["topics"] is None else row["topics"]).tolist()
        assert [float(value) for value in line[5:] if value] == shares


def test_more_rejects_than_allowed_end_with_65_and_all_rows(folder, records, tmp_path):
    given = ("infer", folder / "model", records, "-o", tmp_path / "out")
    assert "bytes lost, got lost=0.2 records=5" in run(*given, code=DATA).stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 5


def test_a_file_that_broke_off_counts_by_its_lost_bytes(folder, tmp_path):
    """As in a fit: most of its records are there."""
    lines = (folder / "a.jsonl").read_bytes()
    whole = gzip.compress(lines, mtime=0)
    stored = len(whole) * 2 // 3
    (tmp_path / "in.jsonl.gz").write_bytes(whole[:stored])
    given = "infer", folder / "model", tmp_path / "in.jsonl.gz", "-o", tmp_path / "out"
    said = run(*given, code=DATA).stderr
    lost = int(re.search(r" lost_bytes=(\d+)", said)[1])
    assert f" lost={round(lost / stored, 4)} " in said
    assert 0 < len((tmp_path / "out").read_text().splitlines()) < lines.count(b"\n")
    assert "broke off" in run(*given, "--most-lost", 1).stderr


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_appears_whole_or_not_at_all(folder, records, tmp_path, kind, monkeypatch):
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / f"rows.{kind}"
    output.write_text("before")

    def write(self, locations, found):
        written(self, locations, found)
        raise KeyboardInterrupt

    written = RowWriter.add
    monkeypatch.setattr(RowWriter, "add", write)
    given = ("infer", folder / "model", records, "-o", output)
    CliRunner().invoke(commands, [*map(str, given)])
    assert output.read_text() == "before"
    assert [*output.parent.iterdir()] == [output]


def test_a_folder_of_snapshots_stands_for_the_newest(folder, records, tmp_path):
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.folder.mkdir()
    assert "has no snapshot" in refused("infer", snapshots.folder, records, code=65)
    for number, name in enumerate(("truth", "model"), 1):
        snapshots.publish(number, load(folder / name))
    newest, model = (
        run("infer", path, records, "--most-lost", 0.2).stdout
        for path in (snapshots.folder, folder / "model")
    )
    assert newest == model


def test_files_of_a_folder_and_records_inside_an_object_are_chosen_by_flags(folder, tmp_path):
    text = (folder / "held_out.txt").read_text("ascii").splitlines()[0]
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"text": text}] * 2}))
    (tmp_path / "b.md").write_text(text)
    given = ("infer", folder / "model", tmp_path, "--include", "*.json")
    assert run(*given, "--records-field", "data").stdout.count("\n") == 2
    # Without it no document is found, and it is said why.
    assert "missing-field 1; there the fields are data" in run(*given, code=DATA).stderr


@pytest.mark.parametrize("ending", ["csv", "tsv", "xlsx"])
def test_topics_are_appended_to_the_columns_of_the_table(folder, tmp_path, ending):
    texts = (folder / "held_out.txt").read_text("ascii").splitlines()[:3]
    rows = [
        {"topic": 7, "note": 'a "b", c\n', "text": texts[0]},
        {"topic": 8, "note": "é", "text": None},
        {"topic": 9, "note": "", "text": "zebrafinch"},
        {"topic": 10, "note": "x", "text": texts[1]},
    ]
    source, delimiter = tmp_path / f"in.{ending}", {"tsv": "\t", "csv": ";"}.get(ending, ",")
    if ending == "xlsx":
        book = openpyxl.Workbook()
        for row in (rows[0], *(row.values() for row in rows)):
            book.active.append(list(row))
        book.save(source)
    else:
        with source.open("w", encoding="utf-16", newline="") as file:
            lines = csv.writer(file, delimiter=delimiter)
            lines.writerows([rows[0], *(row.values() for row in rows)])
    output = tmp_path / "out"
    run("infer", folder / "model", source, "--append", "-o", output)
    lines = io.StringIO(output.read_text("utf-8"))
    found = list(csv.DictReader(lines, delimiter=delimiter))
    assert output.read_text() == run("infer", folder / "model", source, "--append").stdout
    found = [{name: value or None for name, value in row.items()} for row in found]
    rows = [{name: str(value or "") or None for name, value in r.items()} for r in rows]
    names = ["label", "words", "proportion", "second_topic", "second_proportion", "reason"]
    assert list(found[0]) == ["topic", "note", "text", "streamlda_topic", *names]
    assert [{name: row[name] for name in rows[0]} for row in found] == rows
    assert [row["reason"] for row in found] == [None, "blank", "no-known-word", None]
    model = load(folder / "model")
    theta = model.transform(texts[:2])
    for row, own in zip((found[0], found[3]), theta, strict=True):
        topic = int(row["streamlda_topic"])
        assert topic == own.argmax()
        assert float(row["proportion"]) == round(own[topic], 6)
        assert row["words"].split() == [word for word, _ in model.top_words(5)[topic]]
    assert {found[1][name] for name in ("streamlda_topic", *names[:-1])} == {None}


def test_a_broken_row_is_appended_to_without_its_columns(folder, tmp_path):
    text = (folder / "held_out.txt").read_text("ascii").splitlines()[0]
    (tmp_path / "in.csv").write_text(f"id,text\n1,{text}\n\n2,a,b\n3,{text}\n")
    given = ("infer", folder / "model", tmp_path / "in.csv", "--append", "--most-lost", 0.5)
    rows = list(csv.DictReader(io.StringIO(run(*given).stdout)))
    assert [row["id"] for row in rows] == ["1", "", "", "3"]
    assert [row["reason"] for row in rows] == ["", "blank", "broken-csv", ""]
