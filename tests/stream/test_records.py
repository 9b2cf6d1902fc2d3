"""A batch of records: what it counts, and when it is refused; secrets, that no error shows."""

from sys import getsizeof

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.credentials import read_secret
from streamlda.stream.source import RecordBatch, RecordLocation, Reject

REJECTS = [Reject("file", 2, "not-utf8")]
LOCATIONS = [RecordLocation("file", 1 + i) for i in range(4)]
USERS = ["ann", None, None, None]
BATCH = RecordBatch(["apple", None, "", None], REJECTS, False, LOCATIONS, USERS)


def test_a_batch_counts_its_records_and_what_they_take():
    assert BATCH.documents == ["apple", ""]
    assert (BATCH.n_records, BATCH.n_documents) == (4, 2)
    assert BATCH.get_locations(7) == LOCATIONS
    assert RecordBatch([None, "a"]).get_locations(7) == [("stream", 7, None), ("stream", 8, None)]
    short, long = (RecordBatch(["x" * n]).size_bytes for n in (10, 10_010))
    assert long - short == getsizeof("x" * 10_010) - getsizeof("x" * 10)
    assert RecordBatch([None] * 50).size_bytes == 50 * RecordBatch([None]).size_bytes > 0
    BATCH.check(4)
    RecordBatch(["one", None]).check(2)
    RecordBatch().check(0)


def test_a_batch_that_breaks_a_rule_is_refused_unseen():
    for batch, message in (
        (BATCH, r"sizes=\[4, 4, 4, 0\] rejects=1 max_records=3"),
        (RecordBatch(["apple"], REJECTS), r"sizes=\[1, 0, 0, 0\] rejects=1"),
        (RecordBatch(["apple"] * 2, users=["ann"]), r"sizes=\[2, 0, 1, 0\]"),
        (RecordBatch(["apple"] * 2, times=[1.0]), r"sizes=\[2, 0, 0, 1\]"),
        (RecordBatch(["apple"] * 2, locations=LOCATIONS), r"sizes=\[2, 4, 0, 0\]"),
    ):
        with pytest.raises(SourceError, match=message) as caught:
            batch.check(3)
        assert "ann" not in str(caught.value)
        assert "apple" not in str(caught.value)


def test_the_first_line_of_a_file_or_a_variable_is_read_and_never_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_SECRET", "other")
    for data in (b"secr\xc3\xa9t", b"secr\xc3\xa9t\n", b"secr\xc3\xa9t\r\na comment\n"):
        (tmp_path / "file").write_bytes(data)
        assert read_secret(str(tmp_path / "file"), "TEST_SECRET") == "secrét"
    assert read_secret(None, "TEST_SECRET") == "other"
    # No error holds any of a secret.
    for data, message in (
        (b"secret\xff", "cannot be read, or is empty, got file=.*UnicodeDecodeError"),
        (b"\nsecret", "is empty, got file="),
        (None, "cannot be read, or is empty, got file=.*FileNotFoundError"),
    ):
        (tmp_path / "file").unlink()
        if data is not None:
            (tmp_path / "file").write_bytes(data)
        with pytest.raises(InvalidSettingError, match=message) as caught:
            read_secret(str(tmp_path / "file"), "TEST_SECRET")
        assert "secret" not in str(caught.value).replace("the secret", "")
        assert caught.value.__cause__ is caught.value.__context__ is None
    monkeypatch.setenv("TEST_SECRET", "")
    with pytest.raises(InvalidSettingError, match="got variable='TEST_SECRET'"):
        read_secret(None, "TEST_SECRET")
