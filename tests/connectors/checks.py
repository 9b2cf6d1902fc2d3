"""Duties of every source, whatever it reads. Each check takes one `Case` and asserts.

A test module of a connector makes a `Case` and runs all of `SOURCE_CHECKS` on it::

    @pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
    def test_kafka_passes(check, case):
        check(case)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from time import monotonic

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import RecordBatch, Reject, Source

#: Longest time a check polls a source that brings nothing.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Case:
    """A source over known records, at least three of them documents.

    `make` opens the source at its start, over the same records. `ends`: whether it is exhausted
    after the last one. `blank_lines`: records that bring neither a document nor a reject. `users`:
    whose the documents are; empty if the source does not say. `times` and `ids`: so too.
    """

    make: Callable[[], Source]
    texts: list[str]
    rejects: list[Reject]
    ends: bool = True
    blank_lines: int = 0
    users: list[str | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)


def read(case, source, max_records, timeout_seconds=1.0):
    """Poll to the end (of a source without one: until everything expected has come).

    Returns the documents, the rejects, and the progress after each poll.
    """
    texts, rejects, progress = [], [], [source.progress()]
    quiet_since = monotonic()
    while True:
        batch = source.poll(max_records, timeout_seconds)
        assert batch.n_records <= max_records
        texts += batch.documents
        rejects += batch.rejects
        progress.append(source.progress())
        complete = len(texts) >= len(case.texts) and len(rejects) >= len(case.rejects)
        if batch.exhausted or (complete and not case.ends):
            return texts, rejects, progress
        if batch.texts:
            quiet_since = monotonic()
        assert monotonic() - quiet_since < PATIENCE_SECONDS, "the source brings nothing more"


def records(case, max_records):
    n_texts, ended = 0, False
    with closing(case.make()) as source:
        while not ended and (case.ends or n_texts < len(case.texts)):
            batch = source.poll(max_records)
            batch.check(max_records)
            n_texts += batch.n_documents
            ended = batch.exhausted
            yield source.position(), batch


def check_every_record_has_its_own_entries(case):
    """Polls of one record show the order of all; larger ones show the same of each column."""
    streams = []
    for max_records in (1, 2, 5, 1000):
        rows, rejects, n_located = [], [], 0
        for _, batch in records(case, max_records):
            for column, wanted in ((batch.users, case.users), (batch.times, case.times)):
                assert len(column) == (batch.n_records if wanted else 0)
            n_located += len(batch.locations)
            columns = (batch.texts, batch.locations, batch.users, batch.times)
            rows += zip_longest(*columns)
            rejects += [(reject.location, reject.record) for reject in batch.rejects]
        locations = [row[1] for row in rows if row[1] is not None]
        assert len(set(locations)) == len(locations) == n_located in (0, len(rows))
        assert len(set(rejects)) == len(rejects)
        assert all(location.record >= 1 for location in locations)
        assert not locations or set(rejects) <= {location[:2] for location in locations}
        if case.ends:
            assert len(rows) == len(case.texts) + len(case.rejects) + case.blank_lines
        documents = [row for row in rows if row[0] is not None][: len(case.texts)]
        streams.append((rows if case.ends else documents, documents))
        for at, wanted in ((2, case.users), (3, case.times)):
            assert not wanted or [row[at] for row in documents] == wanted
        ids = [row[1] and row[1].id for row in documents]
        assert ids == (case.ids or [None] * len(ids))
    assert all(stream == streams[0] for stream in streams)


def check_batch_size_and_timeout_change_nothing(case):
    for max_records, timeout in ((1, 1.0), (2, 0.0), (3, 1.0), (7, 0.0), (1000, 1.0)):
        with closing(case.make()) as source:
            assert isinstance(source, Source)
            assert read(case, source, max_records, timeout)[:2] == (case.texts, case.rejects)


def check_resumes_after_every_poll(case):
    n_texts = n_rejects = 0
    for position, batch in records(case, 1):
        n_texts += batch.n_documents
        n_rejects += len(batch.rejects)
        rest = Case(case.make, case.texts[n_texts:], case.rejects[n_rejects:], case.ends)
        if case.ends or rest.texts:
            with closing(case.make()) as source:
                source.seek(position)
                assert read(rest, source, 2)[:2] == (rest.texts, rest.rejects)


def check_position_survives_json(case):
    with closing(case.make()) as first:
        while not (texts := first.poll(1).documents):
            pass
        position = first.position()
        stored = json.dumps(dict(position))
        first.poll(1)
        first.position()
    assert json.dumps(dict(position)) == stored, "a position must not change after it is given"
    with closing(case.make()) as second:
        second.seek(json.loads(stored))
        assert dict(second.position()) == json.loads(stored)
        rest = case if case.ends else Case(case.make, case.texts[1:], [], case.ends)
        assert read(rest, second, 5)[0] == case.texts[len(texts) :]


def check_seek_rejects_what_is_no_position(case):
    with closing(case.make()) as source:
        for key, value in dict(source.position()).items():
            for bad in ("no such thing", -1):
                if bad != value:
                    with pytest.raises(SourceError):
                        source.seek({**source.position(), key: bad})
        with pytest.raises(SourceError):
            source.seek({})
        texts, _, _ = read(case, source, 1000)
    assert texts == case.texts, "a refused position must change nothing"


def check_poll_checks_its_arguments(case):
    with closing(case.make()) as source:
        if hasattr(source, "pause"):
            # Asked while it was paused, it may be resumed by now.
            before = source.position()
            assert source.poll(0, 0.0) == RecordBatch()
            assert source.position() == before
        else:
            with pytest.raises(InvalidSettingError, match="max_records=0"):
                source.poll(0)
        with pytest.raises(InvalidSettingError, match="timeout_seconds"):
            source.poll(1, -1.0)


def check_exhausted_stays_exhausted_and_polls_keep_to_their_time(case):
    with closing(case.make()) as source:
        read(case, source, 1000)
        start, end = monotonic(), source.position()
        for _ in range(3):
            assert source.poll(5, 0.05) == RecordBatch(exhausted=case.ends)
            assert source.position() == end
        # A poll that waits without end would take longer on any machine.
        assert monotonic() - start < PATIENCE_SECONDS


def check_progress_never_falls(case):
    with closing(case.make()) as source:
        _, _, progress = read(case, source, 1)
    done = [step.done for step in progress]
    assert done == sorted(done)
    assert len({(step.total, step.unit) for step in progress}) == 1 or not case.ends
    assert progress[-1].unit in ("B", "documents")
    assert not case.ends or progress[-1].total in (None, progress[-1].done)


def check_close_twice_then_poll_is_an_error(case):
    source = case.make()
    source.poll(1)
    position = source.position()
    source.close()
    source.close()
    assert source.position() == position
    with pytest.raises(SourceError, match="open"):
        source.poll(1)


#: All that begin with ``check_``.
SOURCE_CHECKS = [check for name, check in list(globals().items()) if name.startswith("check_")]
