"""The two threads: every task is answered, in order, and what fails says so."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from streamlda.errors import BudgetExceededError, SourceError
from streamlda.service.messages import (
    BudgetExhausted,
    CheckpointDone,
    CheckpointTaken,
    Event,
    Failed,
    Learned,
    ReleaseDone,
)
from streamlda.service.status import Status
from streamlda.service.worker import Worker
from streamlda.storage.checkpoint import Checkpoints, PendingCheckpoint
from streamlda.storage.publishing import Publisher
from streamlda.storage.snapshots import Snapshots
from streamlda.stream.pipeline import Pipeline, Released
from streamlda.stream.source import Position, RecordBatch
from tests.run.opened import ROWS, new_pipeline


class Bench:
    """A worker with all that is around it."""

    def __init__(self, folder: Path, pipeline: Pipeline[Any], **parts: Any) -> None:
        self.pipeline = pipeline
        self.store: Checkpoints = parts.pop("store", None) or Checkpoints.open(folder / "c")
        self.publisher = Publisher(Snapshots(folder / "s"), parts.pop("sink", None))
        self.status = Status(private=False, stream="s")
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.committed: list[Position] = []
        self.worker = Worker(
            *(pipeline, self.store, self.publisher, self.status),
            *(self.events.put, self.committed.append),
        )

    def next(self) -> Event:
        return self.events.get(timeout=60)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(kind: str, **parts: Any) -> Bench:
        pipeline = new_pipeline(kind, tmp_path / "run")
        made.append(Bench(tmp_path, pipeline, **parts))
        return made[-1]

    yield make
    for each in made:
        assert each.worker.stop(60)
        each.store.close()


def test_a_batch_a_release_and_a_checkpoint_are_answered(bench: Callable[..., Bench]) -> None:
    found = bench("hashed")
    found.worker.learn([RecordBatch(ROWS[:200])])
    learned = found.next()
    assert isinstance(learned, Learned)
    found.worker.release()
    released = found.next()
    assert isinstance(released, ReleaseDone)
    assert (released.snapshot, released.slots_left) == (True, 200)
    assert found.publisher.snapshots.numbers() == [1]
    found.worker.checkpoint({"at": 200})
    taken, done = found.next(), found.next()
    assert isinstance(taken, CheckpointTaken)
    assert isinstance(done, CheckpointDone)
    assert learned.time <= released.time <= taken.time <= done.time
    assert found.committed == [{"at": 200}]
    saved = found.store.newest()
    assert saved is not None
    assert saved.position == {"at": 200}
    told = found.status.status()
    blank = ROWS[:200].count(None)
    outcomes = {"learned": 200 - blank, "short": 0, "rejected": 0, "blank": blank}
    assert told["documents"] == outcomes
    assert (told["places"], told["places_left"], told["releases"]) == (200, 200, 1)
    assert told["checkpoint"]["size_bytes"] > 0


def test_before_the_words_are_known_a_checkpoint_is_done_without_a_write(
    bench: Callable[..., Bench],
) -> None:
    found = bench("learned")
    found.worker.learn([RecordBatch(ROWS[:100])])
    found.worker.checkpoint({"at": 100})
    assert [type(found.next()) for _ in range(3)] == [Learned, CheckpointTaken, CheckpointDone]
    assert found.store.newest() is None
    assert found.committed == []


def test_learning_goes_on_while_a_checkpoint_is_written(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    class Slow(Checkpoints):
        def write(self, captured: PendingCheckpoint) -> int:
            time.sleep(1.0)
            return super().write(captured)

    found = bench("hashed", store=Slow.open(tmp_path / "slow"))
    found.worker.learn([RecordBatch(ROWS[:100])])
    found.worker.checkpoint({"at": 100})
    found.worker.learn([RecordBatch(ROWS[100:150])])
    assert [type(found.next()) for _ in range(4)] == [
        Learned,
        CheckpointTaken,
        Learned,
        CheckpointDone,
    ]
    # What is written is of the moment at which it was taken.
    saved = found.store.newest()
    assert saved is not None
    assert (saved.position, saved.about["places"]) == ({"at": 100}, 100)
    rows = saved.rows()
    assert rows is not None
    assert rows.n_documents == 100 - ROWS[:100].count(None)


@pytest.mark.parametrize("what", ["learn", "release", "checkpoint", "publish"])
def test_what_fails_is_answered_and_the_next_task_is_done(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, what: str
) -> None:
    class Away:
        def publish(self, key: str, value: bytes, headers: object) -> None:
            raise SourceError("a topic must be there, got none; make it")

        def close(self) -> None:
            pass

    found = bench("hashed", sink=Away())
    found.worker.learn([RecordBatch(ROWS[:150])])
    assert isinstance(found.next(), Learned)
    if what == "learn":
        rows: list[Any] = ["text", 5]
        found.worker.learn([RecordBatch(rows)])
    elif what == "release":
        found.publisher.snapshots.folder.rmdir()
        found.worker.release()
    elif what == "checkpoint":
        found.store.close()
        found.worker.checkpoint({})
        assert isinstance(found.next(), CheckpointTaken)
    else:
        found.worker.release()
        assert isinstance(found.next(), ReleaseDone)
        found.worker.publish()
    failed = found.next()
    assert isinstance(failed, Failed)
    assert failed.what == what
    assert [record.getMessage() for record in caplog.records] == [f"{what}-failed"]
    found.worker.learn([RecordBatch(ROWS[150:190])])
    assert isinstance(found.next(), Learned)


def test_a_budget_that_does_not_cover_a_release_is_no_failure(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    class Spent(Pipeline[Any]):
        def release(self) -> Released:
            cost = {"spent": 1.0, "remaining": 0.0, "requested": 1.0}
            raise BudgetExceededError("a release must fit, got left=0; stop", **cost)

    found = bench("hashed")
    found.pipeline.__class__ = Spent
    found.worker.release()
    assert isinstance(found.next(), BudgetExhausted)
    assert [record.getMessage() for record in caplog.records] == ["budget-exhausted"]
