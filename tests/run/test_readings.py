"""Documents that are read by another field, format or encoding are the same documents."""

import csv
import json
import re

import pytest

from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.ledger import KnownDocuments
from streamlda.privacy.ledger.known import Reading
from tests.run.released import MANY, OTHERS, TEXTS, as_csv, jsonl, ranges, release
from tests.service.daemon_process import texts

# Of so few documents, noise ends a window once in 10,000 runs; here it is the same in all.
pytestmark = pytest.mark.usefixtures("same_noise")


def test_records_read_by_another_field_are_no_other_documents(tmp_path):
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
