"""The shared checks accept a right source and catch each of these wrong ones."""

from dataclasses import replace

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import Progress, RecordBatch, RecordLocation, Reject
from tests.connectors.checks import SOURCE_CHECKS, Case


class ListSource:
    """A right source over a list; subclasses break one rule each."""

    ends = True

    def __init__(self, texts):
        self.texts = texts
        self.at = 0
        self.closed = False

    def poll(self, max_records, timeout_seconds=1.0):
        if self.closed:
            raise SourceError("a source must be open")
        if max_records < 1 or timeout_seconds < 0:
            raise InvalidSettingError(f"{max_records=} {timeout_seconds=}")
        texts = self.texts[self.at : self.at + max_records]
        self.at += len(texts)
        return RecordBatch(texts, [], self.ends and self.at == len(self.texts))

    def position(self):
        return {"at": self.at}

    def seek(self, position):
        if type(position.get("at")) is not int or position["at"] < 0:
            raise SourceError("a position must be one of this source")
        self.at = position["at"]

    def progress(self):
        return Progress(self.at, len(self.texts) if self.ends else None, "documents")

    def close(self):
        self.closed = True


class PickySource(ListSource):
    """A right source that rejects what starts with t, and knows users and locations."""

    def poll(self, max_records, timeout_seconds=1.0):
        first = self.at + 1
        texts = super().poll(max_records, timeout_seconds).texts
        ended = self.at == len(self.texts)
        locations = [RecordLocation("list", first + i) for i in range(len(texts))]
        rejected = [text.startswith("t") for text in texts]
        rejects = [
            Reject(*location, "no-t")
            for location, bad in zip(locations, rejected, strict=True)
            if bad
        ]
        texts = [None if bad else text for text, bad in zip(texts, rejected, strict=True)]
        users = [text and text[0] for text in texts]
        return RecordBatch(texts, rejects, ended, locations, users)


class CountsRejectsTwice(PickySource):
    def poll(self, max_records, timeout_seconds=1.0):
        half = max(1, max_records // 2) if max_records > 0 else 0
        batch = super().poll(half, timeout_seconds)
        extra = [None] * len(batch.rejects)
        return replace(batch, texts=batch.texts + extra, locations=[], users=[])


def changing(**fields):
    """Return a picky source that changes these fields of its batches."""

    class Changing(PickySource):
        def poll(self, max_records, timeout_seconds=1.0):
            batch = super().poll(max_records, timeout_seconds)
            return replace(batch, **{name: change(batch) for name, change in fields.items()})

    return Changing


LeavesRejectsOut = changing(
    texts=lambda batch: batch.documents, locations=lambda batch: [], users=lambda batch: []
)
PutsRejectsFirst = changing(texts=lambda batch: sorted(batch.texts, key=lambda t: t is not None))
NamesUsersBackwards = changing(users=lambda batch: batch.users[::-1])
LocatesEachPollAlike = changing(
    locations=lambda batch: [RecordLocation("list", 1 + i) for i in range(batch.n_records)]
)


class EndlessSource(ListSource):
    ends = False


class DropsAtBatchEnds(ListSource):
    def poll(self, max_records, timeout_seconds=1.0):
        batch = super().poll(max_records, timeout_seconds)
        self.at = min(self.at + (batch.n_records == 2), len(self.texts))
        return batch


class IgnoresMaximum(ListSource):
    def poll(self, max_records, timeout_seconds=1.0):
        return super().poll(max_records * 2, timeout_seconds)


class ResumesOneBack(ListSource):
    def position(self):
        return {"at": max(0, self.at - 1)}


class SharesItsPosition(ListSource):
    def position(self):
        self.__dict__.setdefault("shared", {})["at"] = self.at
        return self.shared


class TakesAnyPosition(ListSource):
    def seek(self, position):
        self.at = position["at"] if type(position.get("at")) is int else 0


class StartsAgain(ListSource):
    def poll(self, max_records, timeout_seconds=1.0):
        if self.at == len(self.texts) and not self.closed:
            self.at = 0
            return RecordBatch()
        return super().poll(max_records, timeout_seconds)


class CountsDown(ListSource):
    def progress(self):
        return Progress(len(self.texts) - self.at, None, "documents")


class ReadsWhenClosed(ListSource):
    def close(self):
        pass


class NeedsTime(ListSource):
    def poll(self, max_records, timeout_seconds=1.0):
        if timeout_seconds == 0:
            super().poll(1)
        return super().poll(max_records, timeout_seconds)


def failures(kind):
    texts = ["one", "two", "three", "four", "five"]
    case = Case(lambda: kind(texts), texts, [], kind.ends)
    if issubclass(kind, PickySource):
        rejects = [Reject("list", 2, "no-t"), Reject("list", 3, "no-t")]
        texts_left = ["one", "four", "five"]
        case = Case(lambda: kind(texts), texts_left, rejects, users=["o", "f", "f"])
    failed = []
    for check in SOURCE_CHECKS:
        try:
            check(case)
        except (AssertionError, SourceError, pytest.fail.Exception):
            failed.append(check.__name__)
    return failed


@pytest.mark.parametrize("kind", [ListSource, PickySource, EndlessSource])
def test_checks_accept_a_right_source(kind):
    assert failures(kind) == []


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (DropsAtBatchEnds, "check_batch_size_and_timeout_change_nothing"),
        (LocatesEachPollAlike, "check_locations_are_those_of_the_records"),
        (LeavesRejectsOut, "check_every_record_has_an_entry"),
        (PutsRejectsFirst, "check_every_record_has_an_entry"),
        (CountsRejectsTwice, "check_every_record_has_an_entry"),
        (NamesUsersBackwards, "check_users_are_those_of_the_documents"),
        (IgnoresMaximum, "check_batch_size_and_timeout_change_nothing"),
        (ResumesOneBack, "check_resumes_after_every_poll"),
        (SharesItsPosition, "check_position_survives_json"),
        (TakesAnyPosition, "check_seek_rejects_what_is_no_position"),
        (StartsAgain, "check_exhausted_stays_exhausted_and_polls_keep_to_their_time"),
        (CountsDown, "check_progress_never_falls"),
        (ReadsWhenClosed, "check_close_twice_then_poll_is_an_error"),
        (NeedsTime, "check_batch_size_and_timeout_change_nothing"),
    ],
)
def test_checks_catch_a_wrong_source(kind, check):
    assert check in failures(kind)
