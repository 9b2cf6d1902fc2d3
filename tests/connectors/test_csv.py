"""CSV by any delimiter: found by the header, or given; quoting kept."""

import csv
import io
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda_connectors.files import FileSource

DELIMITERS = [",", "\t", ";", "|"]


def polled(path, **options):
    with closing(FileSource(path, **options)) as source:
        batch = source.poll(100)
        return batch.texts, [reject.reason for reject in batch.rejects]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "a.csv"


CELLS = st.text(st.sampled_from('ab,;|\t" \n^'), max_size=6)


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4), st.sampled_from([*DELIMITERS, "^"])
)
def test_what_the_standard_library_writes_is_read(path, rows, delimiter):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("n, m; o", "text"), *rows])
    path.write_text(out.getvalue(), "ascii")
    texts = [text for _, text in rows]
    if delimiter in DELIMITERS:
        assert polled(path) == (texts, [])
    assert polled(path, delimiter=delimiter) == (texts, [])


def test_a_resumed_file_keeps_its_delimiter(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id;text\n1;one, two\n2;"three; four"\n3;five;six\n', "ascii")
    with closing(FileSource(path, id_field="id")) as source:
        first = source.poll(1)
        position = source.position()
    assert first.texts == ["one, two"]
    with closing(FileSource(path, id_field="id")) as again:
        again.seek(position)
        rest = again.poll(9)
    assert rest.texts == ["three; four", None]
    assert [each.id for each in first.locations + rest.locations] == ["1", "2", None]
    assert [each.reason for each in rest.rejects] == ["broken-csv"]


@pytest.mark.parametrize(
    ("name", "lines", "text"),
    [
        ("a.csv", "text,x;text\n1,2;3\n", "1"),
        ("a.csv", "x\ttext\ty;z\n1\t2,5;6\t7\n", "2,5;6"),
        ("a.tsv", "text,x\ttext\n1,2\t3\n", "3"),
        ("a.csv", "x;y|text\n1;2|3\n", "3"),
    ],
    ids=["comma", "tab", "tab of tsv", "bar"],
)
def test_the_first_delimiter_that_has_the_text_is_taken(tmp_path, name, lines, text):
    (tmp_path / name).write_text(lines, "ascii")
    assert polled(tmp_path / name) == ([text], [])
