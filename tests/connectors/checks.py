"""What every source must do, whatever it reads. Each check takes one `Case` and asserts.

A test module of a connector makes a `Case` and runs all of `SOURCE_CHECKS` on it::

    @pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
    def test_kafka_passes(check, case):
        check(case)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import Position, Progress, RecordBatch, Reject, Source

#: Longest time a check polls a source that brings nothing.
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Case:
    """A source over known records, at least three of them documents.

    Attributes
    ----------
    make : callable
        Opens the source at its start, over the same records.
    texts : list of str
        Its documents.
    rejects : list of Reject
        Its rejects.
    ends : bool
        Whether the source is exhausted after the last record.
    blank_lines : int
        Records that bring neither a document nor a reject.
    users : list of str or None
        Whose the documents are; empty if the source does not say.
    """

    make: Callable[[], Source]
    texts: list[str]
    rejects: list[Reject]
    ends: bool = True
    blank_lines: int = 0
    users: list[str | None] = field(default_factory=list)


@dataclass
class Reading:
    texts: list[str]
    rejects: list[Reject]
    positions: list[Position]
    progress: list[Progress]


def read(case: Case, source: Source, max_records: int, timeout_seconds: float = 1.0) -> Reading:
    """Poll to the end (of a source without one: until everything expected has come)."""
    seen = Reading([], [], [source.position()], [source.progress()])
    n_texts, n_rejects = len(case.texts), len(case.rejects)
    quiet_since = monotonic()
    while True:
        batch = source.poll(max_records, timeout_seconds)
        assert batch.n_records <= max_records
        seen.texts += batch.documents
        seen.rejects += batch.rejects
        seen.positions.append(source.position())
        seen.progress.append(source.progress())
        if batch.exhausted:
            return seen
        if not case.ends and len(seen.texts) >= n_texts and len(seen.rejects) >= n_rejects:
            return seen
        if batch.texts:
            quiet_since = monotonic()
        assert monotonic() - quiet_since < PATIENCE_SECONDS, "the source brings nothing more"


def records(case: Case, max_records: int) -> Iterator[RecordBatch]:
    """Yield polls, to the end or until all documents have come."""
    source, n_texts, ended = case.make(), 0, False
    while not ended and (case.ends or n_texts < len(case.texts)):
        batch = source.poll(max_records)
        batch.check(max_records)
        n_texts += batch.n_documents
        ended = batch.exhausted
        yield batch
    source.close()


def check_is_a_source(case: Case) -> None:
    source = case.make()
    assert isinstance(source, Source)
    source.close()


def check_brings_every_document_and_reject(case: Case) -> None:
    source = case.make()
    seen = read(case, source, 1000)
    source.close()
    assert seen.texts == case.texts
    assert seen.rejects == case.rejects


def check_locations_are_those_of_the_records(case: Case) -> None:
    """Batch by batch or all at once, a record has one location of its own, or none at all."""
    located = []
    for max_records in (1, 1000):
        locations, rejects, n_records = [], [], 0
        for batch in records(case, max_records):
            locations += batch.locations
            n_records += batch.n_records
            rejects += [(reject.location, reject.record) for reject in batch.rejects]
        assert len(locations) in (0, n_records)
        assert len(set(locations)) == len(locations)
        assert len(set(rejects)) == len(rejects)
        assert all(location.record >= 1 for location in locations)
        assert not locations or set(rejects) <= set(locations)
        located.append(locations if case.ends else locations[: len(case.texts)])
    assert located[0] == located[1]


def check_every_record_has_an_entry(case: Case) -> None:
    """One record a poll shows the order of all; larger polls must show the same."""
    streams = []
    for max_records in (1, 2, 5, 1000):
        batches = list(records(case, max_records))
        texts = [text for batch in batches for text in batch.texts]
        if case.ends:
            assert texts.count(None) == len(case.rejects) + case.blank_lines
            assert sum(batch.n_blanks for batch in batches) == case.blank_lines
        streams.append(texts if case.ends else texts[: len(case.texts)])
    assert all(stream == streams[0] for stream in streams)


def check_users_are_those_of_the_documents(case: Case) -> None:
    for max_records in (1, 2, 1000):
        users = []
        for batch in records(case, max_records):
            assert len(batch.users) == (batch.n_records if case.users else 0)
            named = zip(batch.texts, batch.users, strict=bool(case.users))
            users += [user for text, user in named if text is not None]
        assert users[: len(case.users)] == case.users


def check_batch_size_changes_nothing(case: Case) -> None:
    for max_records in (1, 2, 3, 7):
        source = case.make()
        seen = read(case, source, max_records)
        source.close()
        assert seen.texts == case.texts
        assert seen.rejects == case.rejects


def check_short_timeout_loses_nothing(case: Case) -> None:
    source = case.make()
    seen = read(case, source, 2, timeout_seconds=0.0)
    source.close()
    assert seen.texts == case.texts


def check_resumes_after_every_poll(case: Case) -> None:
    first = case.make()
    n_texts = n_rejects = 0
    while True:
        batch = first.poll(1)
        n_texts += batch.n_documents
        n_rejects += len(batch.rejects)
        second = case.make()
        second.seek(first.position())
        rest = Case(case.make, case.texts[n_texts:], case.rejects[n_rejects:], case.ends)
        seen = read(rest, second, 2) if case.ends or rest.texts else Reading([], [], [], [])
        second.close()
        assert seen.texts == rest.texts
        assert seen.rejects == rest.rejects or not case.ends
        if batch.exhausted or (not case.ends and n_texts == len(case.texts)):
            break
    first.close()


def check_position_survives_json(case: Case) -> None:
    first = case.make()
    while not (texts := first.poll(1).documents):
        pass
    position = first.position()
    stored = json.dumps(dict(position))
    first.poll(1)
    first.position()
    assert json.dumps(dict(position)) == stored, "a position must not change after it is given"
    first.close()
    second = case.make()
    second.seek(json.loads(stored))
    assert dict(second.position()) == json.loads(stored)
    assert read(case if case.ends else _rest(case, 1), second, 5).texts == case.texts[len(texts) :]
    second.close()


def _rest(case: Case, n_texts: int) -> Case:
    return Case(case.make, case.texts[n_texts:], [], case.ends)


def check_seek_rejects_what_is_no_position(case: Case) -> None:
    source = case.make()
    for key, value in dict(source.position()).items():
        for bad in ("no such thing", -1):
            if bad != value:
                with pytest.raises(SourceError):
                    source.seek({**source.position(), key: bad})
    with pytest.raises(SourceError):
        source.seek({})
    assert read(case, source, 1000).texts == case.texts, "a refused position must change nothing"
    source.close()


def check_poll_checks_its_arguments(case: Case) -> None:
    source = case.make()
    with pytest.raises(InvalidSettingError, match="max_records=0"):
        source.poll(0)
    with pytest.raises(InvalidSettingError, match="timeout_seconds"):
        source.poll(1, -1.0)
    source.close()


def check_poll_keeps_to_its_time(case: Case) -> None:
    source = case.make()
    read(case, source, 1000)
    start = monotonic()
    assert source.poll(5, 0.2).texts == []
    assert monotonic() - start < 2.0
    source.close()


def check_exhausted_stays_exhausted(case: Case) -> None:
    source = case.make()
    end = read(case, source, 1000).positions[-1]
    for _ in range(3):
        batch = source.poll(5, 0.01)
        assert batch.texts == []
        assert batch.exhausted == case.ends
        assert source.position() == end
    source.close()


def check_progress_never_falls(case: Case) -> None:
    source = case.make()
    progress = read(case, source, 1).progress
    source.close()
    done = [step.done for step in progress]
    assert done == sorted(done)
    assert len({(step.total, step.unit) for step in progress}) == 1 or not case.ends
    total = progress[-1].total
    assert progress[-1].unit in ("B", "documents")
    if case.ends and total is not None:
        assert progress[-1].done == total


def check_close_twice_then_poll_is_an_error(case: Case) -> None:
    source = case.make()
    source.poll(1)
    position = source.position()
    source.close()
    source.close()
    assert source.position() == position
    with pytest.raises(SourceError, match="open"):
        source.poll(1)


SOURCE_CHECKS: list[Callable[[Case], None]] = [
    check_is_a_source,
    check_brings_every_document_and_reject,
    check_locations_are_those_of_the_records,
    check_every_record_has_an_entry,
    check_users_are_those_of_the_documents,
    check_batch_size_changes_nothing,
    check_short_timeout_loses_nothing,
    check_resumes_after_every_poll,
    check_position_survives_json,
    check_seek_rejects_what_is_no_position,
    check_poll_checks_its_arguments,
    check_poll_keeps_to_its_time,
    check_exhausted_stays_exhausted,
    check_progress_never_falls,
    check_close_twice_then_poll_is_an_error,
]
