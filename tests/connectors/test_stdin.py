"""StdinSource on real pipes: it waits as long as its timeout, and no longer."""

import os
import threading
from contextlib import contextmanager
from time import monotonic

import pytest

from streamlda.errors import SourceError
from streamlda.stream.source import Progress, RecordBatch, Reject
from streamlda_connectors.stdin import StdinSource


@contextmanager
def pipe():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as writer:
        yield stream, writer


def test_quiet_pipe_is_waited_for_no_longer_than_its_timeout():
    with pipe() as (stream, writer):
        source = StdinSource(stream)
        for timeout in (0.0, 0.1):
            start = monotonic()
            assert source.poll(10, timeout) == RecordBatch()
            assert timeout * 0.9 <= monotonic() - start < timeout + 10.0
        late = threading.Timer(0.05, writer.write, [b"late\n"])
        late.start()
        start = monotonic()
        assert source.poll(10, 60.0).documents == ["late"]
        assert monotonic() - start < 30.0
        late.join()


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
        with pytest.raises(SourceError, match="record=1 records_read=5"):
            source.seek({"record": 1})
    with path.open("rb") as stream:
        source = StdinSource(stream)
        source.seek({"record": 6})
        with pytest.raises(SourceError, match="records=5 records_of_position=6"):
            source.poll(10)


def test_what_cannot_be_read_is_an_error(tmp_path):
    with (tmp_path / "out").open("wb") as stream:
        source = StdinSource(stream)
        with pytest.raises(SourceError, match="must be readable"):
            source.poll(1)
