"""StdinSource on real pipes: it waits as long as its timeout, and no longer."""

import os
import threading
from contextlib import contextmanager
from time import monotonic

import pytest

from streamlda.stream.source import RecordBatch, Reject
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
            assert timeout * 0.9 <= monotonic() - start < timeout + 30.0
        late = threading.Timer(0.05, writer.write, [b"late\n"])
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
        assert monotonic() - start < 30.0
        stop.set()
        while writing.is_alive():
            source.poll(10, 0.05)
        writing.join()
        writer.write(b"\nshort\n")
        seen = source.poll(10, 60.0)
        assert seen.documents == ["short"]
        assert seen.rejects == [Reject("stdin", 1, "too-long")]


PRETTY = '[\n  {\n    "text": "one"\n  }\n]\n'


@pytest.mark.parametrize(
    ("format", "sent", "said"),
    [
        ("text", PRETTY, "no object on a line of its own"),
        ("jsonl", PRETTY, "no object on a line of its own"),
        ("text", '[{"text": "one"}]\n', "no object on a line of its own"),
        ("text", '{"text": "one"}\n', "read as lines of text"),
        ("text", "id,text\n1,one\n", "read as lines of text"),
        ("jsonl", '{"text": "one"}\n', None),
        ("text", "[intro] a text, of course\n{and more}\n", None),
    ],
)
@pytest.mark.parametrize("encoding", ["auto", "utf-16", None])
def test_a_stream_that_is_not_what_its_format_says_is_named_once(format, sent, said, encoding):
    with pipe() as (stream, writer):
        source = StdinSource(stream, format=format, encoding=encoding)
        writer.write(sent.encode(encoding if encoding == "utf-16" else "utf-8"))
        notes = source.poll(10, 1.0).notes
        writer.write(sent.encode("utf-16-le" if encoding == "utf-16" else "utf-8"))
        assert source.poll(10, 1.0).notes == ()
    # A private stream is read alike, whatever its first record is.
    expected = said if encoding is not None else None
    assert notes == () if expected is None else (len(notes) == 1 and expected in notes[0])
