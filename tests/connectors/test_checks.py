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
    """A right source that rejects what starts with t, and knows users, times and locations."""

    def poll(self, max_records, timeout_seconds=1.0):
        first = self.at + 1
        batch = super().poll(max_records, timeout_seconds)
        locations = [
            RecordLocation("list", first + i, text[::-1]) for i, text in enumerate(batch.texts)
        ]
        texts = [None if text.startswith("t") else text for text in batch.texts]
        pairs = zip(locations, texts, strict=True)
        rejects = [Reject(*location[:2], "no-t") for location, text in pairs if text is None]
        users = [text and text[0] for text in texts]
        times = [text and float(len(text)) for text in texts]
        return RecordBatch(texts, rejects, batch.exhausted, locations, users, times)


def wrong(base=ListSource, **methods):
    """Return a source with other methods; `batch` changes what a right poll returns."""
    if "batch" in methods:
        change = methods.pop("batch")

        def poll(self, max_records, timeout_seconds=1.0):
            return change(self, base.poll(self, max_records, timeout_seconds))

        methods["poll"] = poll
    return type("Wrong", (base,), methods)


def changing(**fields):
    """Return a picky source that changes these fields of its batches."""
    return wrong(
        PickySource,
        batch=lambda self, batch: replace(batch, **{k: new(batch) for k, new in fields.items()}),
    )


def half_and_rejects_twice(self, max_records, timeout_seconds=1.0):
    half = max(1, max_records // 2) if max_records > 0 else 0
    batch = PickySource.poll(self, half, timeout_seconds)
    return replace(
        batch, texts=batch.texts + [None] * len(batch.rejects), locations=[], users=[], times=[]
    )


def drop_at_batch_ends(self, batch):
    self.at = min(self.at + (batch.n_records == 2), len(self.texts))
    return batch


def shared_position(self):
    self.__dict__.setdefault("shared", {})["at"] = self.at
    return self.shared


def take_any_position(self, position):
    self.at = position["at"] if type(position.get("at")) is int else 0


def start_again(self, max_records, timeout_seconds=1.0):
    if self.at == len(self.texts) and not self.closed:
        self.at = 0
        return RecordBatch()
    return ListSource.poll(self, max_records, timeout_seconds)


def need_time(self, max_records, timeout_seconds=1.0):
    if timeout_seconds == 0:
        ListSource.poll(self, 1)
    return ListSource.poll(self, max_records, timeout_seconds)


WRONG = {
    "drops at batch ends": (wrong(batch=drop_at_batch_ends), "batch_size_and_timeout"),
    "locates each poll alike": (
        changing(
            locations=lambda b: [
                location._replace(record=1 + i) for i, location in enumerate(b.locations)
            ]
        ),
        "locations_are_those",
    ),
    "leaves rejects out": (
        changing(
            texts=lambda b: b.documents,
            locations=lambda b: [],
            users=lambda b: [],
            times=lambda b: [],
        ),
        "every_record_has_an_entry",
    ),
    "puts rejects first": (
        changing(texts=lambda b: sorted(b.texts, key=lambda t: t is not None)),
        "every_record_has_an_entry",
    ),
    "counts rejects twice": (
        wrong(PickySource, poll=half_and_rejects_twice),
        "every_record_has_an_entry",
    ),
    "names users backwards": (changing(users=lambda b: b.users[::-1]), "users_and_times"),
    "has times backwards": (changing(times=lambda b: b.times[::-1]), "users_and_times"),
    "has the ids of others": (
        changing(locations=lambda b: [location._replace(id="x") for location in b.locations]),
        "ids_are_those",
    ),
    "ignores the maximum": (
        wrong(poll=lambda self, n, timeout_seconds=1.0: ListSource.poll(self, 2 * n)),
        "batch_size_and_timeout",
    ),
    "resumes one back": (
        wrong(position=lambda self: {"at": max(0, self.at - 1)}),
        "resumes_after_every_poll",
    ),
    "shares its position": (wrong(position=shared_position), "position_survives_json"),
    "takes any position": (wrong(seek=take_any_position), "seek_rejects"),
    "starts again": (wrong(poll=start_again), "exhausted_stays_exhausted"),
    "counts down": (
        wrong(progress=lambda self: Progress(len(self.texts) - self.at, None, "documents")),
        "progress_never_falls",
    ),
    "reads when closed": (wrong(close=lambda self: None), "close_twice"),
    "needs time": (wrong(poll=need_time), "batch_size_and_timeout"),
}


def failures(kind):
    texts = ["one", "two", "three", "four", "five"]
    case = Case(lambda: kind(texts), texts, [], kind.ends)
    if issubclass(kind, PickySource):
        rejects = [Reject("list", at, "no-t") for at in (2, 3)]
        about = {"users": ["o", "f", "f"], "times": [3.0, 4.0, 4.0]}
        about["ids"] = ["eno", "ruof", "evif"]
        case = Case(case.make, ["one", "four", "five"], rejects, **about)
    failed = []
    for check in SOURCE_CHECKS:
        try:
            check(case)
        except (AssertionError, SourceError, pytest.fail.Exception):
            failed.append(check.__name__)
    return failed


@pytest.mark.parametrize("kind", [ListSource, PickySource, wrong(ends=False)])
def test_checks_accept_a_right_source(kind):
    assert failures(kind) == []


@pytest.mark.parametrize("kind", WRONG)
def test_checks_catch_a_wrong_source(kind):
    source, check = WRONG[kind]
    assert any(name.startswith(f"check_{check}") for name in failures(source))
