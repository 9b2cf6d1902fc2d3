"""Records without the field of the text name the fields that they have."""

import json
from contextlib import closing

import pytest

from streamlda_connectors.files import FileSource
from streamlda_connectors.records import MOST_FIELDS

LONG = ("<41 characters>", "<15 characters>")


@pytest.mark.parametrize(
    ("records", "fields"),
    [
        ([{"text": "one"}], ()),
        ([{"text": 7, "a": 1}], ()),
        ([{"body": "secret", "Über uns": 1}, {"other": "secret"}], ("body", "Über uns")),
        ([{}, {"body": "secret", "text": None}], ()),
        ([{"long " * 9: 1, "a\nb": 1}], ("<45 characters>", "<3 characters>")),
        (
            [{f"f{i}": 1 for i in range(MOST_FIELDS + 1)}],
            (*(f"f{i}" for i in range(MOST_FIELDS)), "..."),
        ),
        ([{"x" * 40: 1, "x" * 41: 1, "see you at nine": 1}], ("x" * 40, *LONG)),
    ],
    ids=["there", "not-text", "first", "null", "long", "many", "longest"],
)
def test_fields_of_the_first_record_without_text_are_named(tmp_path, records, fields):
    data = "\n".join(map(json.dumps, records))
    (tmp_path / "a.jsonl").write_text(data, "ascii")
    with closing(FileSource(tmp_path)) as source:
        assert source.poll(10).fields == fields
