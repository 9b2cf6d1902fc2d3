"""Secrets are read from the first line of a file or a variable, and stand in no error."""

import pytest

from streamlda.errors import InvalidSettingError
from streamlda.stream.credentials import read_secret


def test_a_secret_is_the_first_line_of_its_file_or_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_SECRET", "other")
    for data in (b"secr\xc3\xa9t", b"secr\xc3\xa9t\n", b"secr\xc3\xa9t\r\na comment\n"):
        (tmp_path / "file").write_bytes(data)
        assert read_secret(str(tmp_path / "file"), "TEST_SECRET") == "secrét"
    assert read_secret(None, "TEST_SECRET") == "other"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "must be readable, got file=.*FileNotFoundError"),
        (b"secret\xff", "must be readable, got file=.*UnicodeDecodeError"),
        (b"\nsecret", "must not be empty"),
        ("", "must not be empty, got file=None variable='TEST_SECRET'"),
    ],
)
def test_no_error_holds_any_of_a_secret(data, message, tmp_path, monkeypatch):
    file = None if data == "" else str(tmp_path / "file")
    monkeypatch.setenv("TEST_SECRET", "" if file is None else "secret")
    if isinstance(data, bytes):
        (tmp_path / "file").write_bytes(data)
    with pytest.raises(InvalidSettingError, match=message) as caught:
        read_secret(file, "TEST_SECRET")
    assert "secret" not in str(caught.value).replace("a secret", "")
    assert caught.value.__cause__ is caught.value.__context__ is None
