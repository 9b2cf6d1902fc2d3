"""The two threads: every task is answered, in order, and what fails says so."""

from queue import SimpleQueue
from threading import Event

import pytest

from streamlda.errors import BudgetExceededError
from streamlda.service import messages as m
from streamlda.service.status import Status
from streamlda.service.worker import Worker
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import WHOLE, Behind, RecordBatch
from tests.run.test_opening import ROWS, new_pipeline


def batch(start, stop):
    return RecordBatch(ROWS[start:stop], behind=Behind({"at": stop}, {WHOLE: stop}))


class Bench:
    def __init__(self, folder, kind, store=Store):
        self.pipeline = new_pipeline(kind, folder / "run")
        self.store = store.open(folder / "c", output=folder / "s")
        self.status = Status(private=False, stream="s")
        self.events = SimpleQueue()
        self.worker = Worker(self.pipeline, self.store, self.status, self.events.put)

    def next(self, *kinds):
        found = [self.events.get(timeout=60) for _ in kinds]
        assert [type(event) for event in found] == [*kinds]
        return found


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(kind, **parts):
        made.append(Bench(tmp_path, kind, **parts))
        return made[-1], made[-1].worker

    yield make
    for each in made:
        assert each.worker.stop(60)
        each.store.close()


def test_a_batch_a_release_and_a_checkpoint_are_answered(bench):
    found, worker = bench("hashed")
    worker.learn([batch(0, 200)])
    worker.release()
    learned, released = found.next(m.LearnDone, m.ReleaseDone)
    assert (released.snapshot, released.slots_left) == (True, 200)
    assert found.store.snapshots.numbers() == [1]
    worker.checkpoint()
    taken, done = found.next(m.CheckpointTaken, m.CheckpointDone)
    assert learned.time <= released.time <= taken.time <= done.time
    assert (done.position, done.note) == ({"at": 200}, "")
    assert found.store.newest().position == {"at": 200}
    told = found.status.status()
    blank = ROWS[:200].count(None)
    outcomes = {"learned": 200 - blank, "short": 0, "rejected": 0, "blank": blank, "skipped": 0}
    assert told["documents"] == outcomes
    assert (told["places"], told["places_left"], told["releases"]) == (200, 200, 1)
    assert told["checkpoint"]["size_bytes"] > 0
    account = found.store.snapshots.model(1).diagnostics["account"]
    assert account == told["account"] == {"records": 200, "passed": 200}


def test_learning_continues_while_a_checkpoint_is_written(bench):
    begun, allowed = Event(), Event()

    class Slow(Store):
        def write(self, captured):
            begun.set()
            assert allowed.wait(60)
            return super().write(captured)

    found, worker = bench("hashed", store=Slow)
    worker.learn([batch(0, 100)])
    worker.checkpoint()
    worker.learn([batch(100, 150)])
    found.next(m.LearnDone, m.CheckpointTaken, m.LearnDone)
    assert begun.wait(60)
    allowed.set()
    found.next(m.CheckpointDone)
    # What is written is of the moment at which it was taken.
    saved = found.store.newest()
    assert (saved.position, saved.about["places"]) == ({"at": 100}, 100)
    assert saved.rows.n_documents == 100 - ROWS[:100].count(None)


@pytest.mark.parametrize("what", ["learn", "release", "checkpoint"])
def test_what_fails_is_answered_and_the_next_task_is_done(bench, caplog, what):
    found, worker = bench("hashed")
    worker.learn([batch(0, 150)])
    found.next(m.LearnDone)
    if what == "learn":
        worker.learn([RecordBatch(["text", 5])])
    elif what == "release":
        found.pipeline.snapshots = None
        worker.release()
    else:
        found.store.close()
        worker.checkpoint()
        found.next(m.CheckpointTaken)
    (failed,) = found.next(m.WorkFailed)
    assert failed.what == what
    assert [record.getMessage() for record in caplog.records] == [f"{what}-failed"]
    found.pipeline.snapshots = 0
    worker.learn([batch(150, 190)])
    found.next(m.LearnDone)


def test_a_budget_that_does_not_cover_a_release_is_no_failure(bench, caplog):
    class Spent(Pipeline):
        def release(self, *, last):
            cost = {"spent": 1.0, "remaining": 0.0, "requested": 1.0}
            raise BudgetExceededError("a release must fit, got left=0; stop", **cost)

    found, worker = bench("hashed")
    found.pipeline.__class__ = Spent
    worker.release()
    found.next(m.BudgetExhausted)
    assert [record.getMessage() for record in caplog.records] == ["budget-exhausted"]


def test_a_release_that_cannot_be_stored_is_made_once_and_stored_later(bench, caplog):
    found, worker = bench("hashed")
    worker.learn([batch(0, 150)])
    found.next(m.LearnDone)
    folder = found.store.snapshots.folder
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("in the way")
    for _ in range(2):
        worker.release()
        (failed,) = found.next(m.WorkFailed)
        assert (failed.what, failed.reason) == ("output", "ENOTDIR")
    made = found.pipeline.snapshots
    folder.unlink()
    aside.rename(folder)
    worker.release()
    (released,) = found.next(m.ReleaseDone)
    assert (released.snapshot, found.store.snapshots.numbers()) == (True, [1])
    assert found.pipeline.snapshots == made == 1
    assert found.status.status()["failure_reasons"] == {"output ENOTDIR": 2}
