"""The shared checks accept a right source and catch each of these wrong ones."""

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import Place, Poll, Progress, Reject
from tests.connectors.checks import SOURCE_CHECKS, Case


class ListSource:
    """A right source over a list; subclasses break one rule each."""

    ends = True

    def __init__(self, texts):
        self.texts = texts
        self.at = 0
        self.closed = False

    def poll(self, max_documents, timeout_seconds=1.0):
        if self.closed:
            raise SourceError("a source must be open")
        if max_documents < 1 or timeout_seconds < 0:
            raise InvalidSettingError(f"{max_documents=} {timeout_seconds=}")
        texts = self.texts[self.at : self.at + max_documents]
        self.at += len(texts)
        return Poll(texts, [], self.ends and self.at == len(self.texts))

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
    """A right source that rejects what starts with t, and knows the users of the rest."""

    def poll(self, max_documents, timeout_seconds=1.0):
        first = self.at
        records = super().poll(max_documents, timeout_seconds)
        texts, rejects, gaps = [], [], []
        for i, text in enumerate(records.texts):
            if text.startswith("t"):
                rejects.append(Reject("list", first + i + 1, "no-t"))
                gaps.append(len(texts))
            else:
                texts.append(text)
        return self.made(texts, rejects, records.exhausted, gaps)

    def made(self, texts, rejects, exhausted, gaps):
        return Poll(texts, rejects, exhausted, users=[text[0] for text in texts], gaps=gaps)


class CountsNoGaps(PickySource):
    def made(self, texts, rejects, exhausted, gaps):
        return super().made(texts, rejects, exhausted, [])


class PutsGapsFirst(PickySource):
    def made(self, texts, rejects, exhausted, gaps):
        return super().made(texts, rejects, exhausted, [0] * len(gaps))


class CountsGapsTwice(PickySource):
    def poll(self, max_documents, timeout_seconds=1.0):
        return super().poll(max(1, max_documents // 2) if max_documents > 0 else 0, timeout_seconds)

    def made(self, texts, rejects, exhausted, gaps):
        return super().made(texts, rejects, exhausted, sorted(gaps * 2))


class NamesUsersBackwards(PickySource):
    def made(self, texts, rejects, exhausted, gaps):
        users = [text[0] for text in reversed(texts)]
        return Poll(texts, rejects, exhausted, users=users, gaps=gaps)


class EndlessSource(ListSource):
    ends = False


class DropsAtBatchEnds(ListSource):
    def poll(self, max_documents, timeout_seconds=1.0):
        poll = super().poll(max_documents, timeout_seconds)
        self.at = min(self.at + (len(poll.texts) == 2), len(self.texts))
        return poll


class NumbersEachPollAnew(ListSource):
    def poll(self, max_documents, timeout_seconds=1.0):
        poll = super().poll(max_documents, timeout_seconds)
        places = [Place("list", 1 + i) for i in range(len(poll.texts))]
        return Poll(poll.texts, [], poll.exhausted, places)


class IgnoresMaximum(ListSource):
    def poll(self, max_documents, timeout_seconds=1.0):
        return super().poll(max_documents * 2, timeout_seconds)


class ResumesOneBack(ListSource):
    def position(self):
        return {"at": max(0, self.at - 1)}


class SharesItsPosition(ListSource):
    def __init__(self, texts):
        super().__init__(texts)
        self.shared = {}

    def position(self):
        self.shared["at"] = self.at
        return self.shared


class TakesAnyPosition(ListSource):
    def seek(self, position):
        self.at = position["at"] if type(position.get("at")) is int else 0


class StartsAgain(ListSource):
    def poll(self, max_documents, timeout_seconds=1.0):
        poll = super().poll(max_documents, timeout_seconds)
        if not poll.texts:
            self.at = 0
        return poll


class CountsDown(ListSource):
    def progress(self):
        return Progress(len(self.texts) - self.at, None, "documents")


class ReadsWhenClosed(ListSource):
    def close(self):
        pass


class NeedsTime(ListSource):
    def poll(self, max_documents, timeout_seconds=1.0):
        if timeout_seconds == 0:
            super().poll(1)
        return super().poll(max_documents, timeout_seconds)


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
        (DropsAtBatchEnds, "check_batch_size_changes_nothing"),
        (NumbersEachPollAnew, "check_places_number_the_documents"),
        (CountsNoGaps, "check_gaps_number_every_record"),
        (PutsGapsFirst, "check_gaps_number_every_record"),
        (CountsGapsTwice, "check_gaps_number_every_record"),
        (NamesUsersBackwards, "check_users_are_those_of_the_documents"),
        (IgnoresMaximum, "check_batch_size_changes_nothing"),
        (ResumesOneBack, "check_resumes_after_every_poll"),
        (SharesItsPosition, "check_position_survives_json"),
        (TakesAnyPosition, "check_seek_rejects_what_is_no_position"),
        (StartsAgain, "check_exhausted_stays_exhausted"),
        (CountsDown, "check_progress_never_falls"),
        (ReadsWhenClosed, "check_close_twice_then_poll_is_an_error"),
        (NeedsTime, "check_short_timeout_loses_nothing"),
    ],
)
def test_checks_catch_a_wrong_source(kind, check):
    assert check in failures(kind)
