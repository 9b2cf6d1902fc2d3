"""StdinSource on real pipes: it waits as long as its timeout, and no longer."""

import io
import os
import threading
from contextlib import contextmanager
from time import monotonic, sleep

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import Progress, Reject
from streamlda_connectors.stdin import StdinSource


@contextmanager
def pipe():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as writer:
        yield stream, writer


@pytest.mark.parametrize("timeout", [0.0, 0.1])
def test_quiet_pipe_is_waited_for_no_longer_than_its_timeout(timeout):
    with pipe() as (stream, _):
        source = StdinSource(stream)
        start = monotonic()
        poll = source.poll(10, timeout)
        assert timeout * 0.9 <= monotonic() - start < timeout + 10.0
        assert poll.documents == []
        assert not poll.exhausted


def test_unfinished_line_is_kept_for_later():
    with pipe() as (stream, writer):
        source = StdinSource(stream)
        writer.write(b"one\nhalf of ")
        assert source.poll(10, 5.0).documents == ["one"]
        assert source.poll(10, 0.05).documents == []
        writer.write(b"two\n")
        assert source.poll(10, 5.0).documents == ["half of two"]
        writer.write(b"three")
        writer.close()
        last = source.poll(10, 5.0)
        assert last.documents + source.poll(10, 5.0).documents == ["three"]
        assert source.poll(10, 5.0).exhausted


def test_poll_returns_when_a_document_comes():
    with pipe() as (stream, writer):
        source = StdinSource(stream)
        late = threading.Thread(target=lambda: (sleep(0.05), writer.write(b"late\n")))
        late.start()
        start = monotonic()
        assert source.poll(10, 60.0).documents == ["late"]
        assert monotonic() - start < 30.0
        late.join()


def test_endless_line_does_not_hold_a_poll_up():
    with pipe() as (stream, writer):
        source = StdinSource(stream, max_document_bytes=1000)
        stop = threading.Event()

        def babble():
            while not stop.is_set():
                writer.write(b"x" * 4096)

        writing = threading.Thread(target=babble)
        writing.start()
        start = monotonic()
        assert source.poll(10, 0.1).documents == []
        assert monotonic() - start < 10.0
        stop.set()
        while writing.is_alive():
            source.poll(10, 0.05)
        writing.join()
        writer.write(b"\nshort\n")
        seen = source.poll(10, 5.0)
        assert seen.documents == ["short"]
        assert seen.rejects == [Reject("stdin", 1, "too-long")]


def test_resume_skips_what_was_read(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"\xef\xbb\xbfone\n\n\xff\ntwo\nthree\n")
    with path.open("rb") as stream:
        source = StdinSource(stream)
        poll = source.poll(4)
        assert poll.texts == ["one", None, None, "two"]
        position = source.position()
    assert position == {"record": 4}
    with path.open("rb") as stream:
        source = StdinSource(stream)
        source.seek(position)
        poll = source.poll(10)
        assert (poll.documents, poll.rejects) == (["three"], [])
        assert source.progress() == Progress(20, 20, "B")
        with pytest.raises(SourceError, match="replayed from its start to go back"):
            source.seek({"record": 1})


def test_replay_that_is_too_short_is_an_error(tmp_path):
    (tmp_path / "input").write_bytes(b"one\n")
    with (tmp_path / "input").open("rb") as stream:
        source = StdinSource(stream)
        source.seek({"record": 5})
        with pytest.raises(SourceError, match="records=1 records_of_position=5"):
            source.poll(10)


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(InvalidSettingError, match="format='csv'"):
        StdinSource(format="csv")
    with pytest.raises(InvalidSettingError, match="max_document_bytes=0"):
        StdinSource(max_document_bytes=0)
    with pytest.raises(InvalidSettingError, match="format with fields"):
        StdinSource(user_field="id")
    with (tmp_path / "out").open("wb") as stream:
        source = StdinSource(stream)
        with pytest.raises(SourceError, match="must be readable"):
            source.poll(1)
    with pytest.raises(SourceError, match="stream='BytesIO'"):
        StdinSource(io.BytesIO(b"one\n"))
