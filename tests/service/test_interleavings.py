"""Every order in which messages can come, up to a bound, and random ones beyond: the state that is
saved has each record before its position once. Planted faults of each kind are found.

The loop, the machine, the worker and the pipeline are the real ones, over a source that counts.
Everything runs in one thread, without waiting: queues of tasks replace threads, and a test runs one
task at a time. Brokers, disk, output and dead letters may fail.
"""

import logging
import random
from collections import deque
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from streamlda.errors import SourceAwayError
from streamlda.learner import Learner
from streamlda.model.topic_model import TopicModel
from streamlda.service import daemon as loop
from streamlda.service import messages as m
from streamlda.service.daemon import Daemon, PollEndedError, Run
from streamlda.service.rules import Rules
from streamlda.service.status import Status
from streamlda.service.worker import Threads, Worker
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import WHOLE, Progress, RecordBatch, RecordLocation, Reject, stand
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.exit_codes import IO, OK, UNFINISHED
from tests.service.daemon_process import few_or
from tests.service.planted import words

#: Records of the stream, and how many a poll brings; each seventh is no document.
N_RECORDS, A_POLL = 14, 2
NAMES = words(N_RECORDS)
WORDS = Vocabulary.given(NAMES)

#: With these two batches fill the queue, and each third one is followed by a release.
RULES = Rules(queue_bytes=900, poll_records=3, checkpoint_seconds=0.4, grace_seconds=5.0)
EVERY = 6

#: More turns than any run takes, with a tick each, and the bytes of a batch at most.
MOST_TURNS, BATCH_BYTES = 300, 550

#: Faults of one run: of each at most one, and so many in all.
FAULTS, MOST_FAULTS = ("away", "disk", "output", "letters"), 2

#: Share of the steps of a walk that are a fault or a signal.
RARELY = 0.05

TOPICS = TopicModel(
    components=np.full((1, N_RECORDS), 1 / N_RECORDS),
    alpha=np.ones(1),
    background=np.full(N_RECORDS, 1 / N_RECORDS),
)


class Steps(Threads):
    """Queues of tasks in place of threads."""

    def __init__(self):
        self.time, self.lanes, self.opening = 0.0, {}, deque()

    def now(self):
        return self.time

    def lane(self, name):
        self.lanes[name] = TaskQueue()
        return self.lanes[name]

    def start(self, work, name):
        self.opening.append(work)

    def wait(self, queue, seconds):
        return queue.get_nowait()


class TaskQueue(deque):
    def put(self, task):
        self.append(task)

    def step(self):
        self.popleft()()

    def join(self, seconds):
        while self:
            self.step()
        return True


class CountingSource:
    """Hands out records by their number; what it is told to do next may go wrong."""

    def __init__(self, at, fault, letters):
        self.at, self.paused, self._fault, self._letters = at, False, fault, letters

    def poll(self, max_records, timeout_seconds=1.0):
        first = self.at
        if not self.paused:
            self.at = min(N_RECORDS, first + min(max_records, A_POLL))
        if (error := self._fault(max_records)) is not None:
            raise error
        texts, rejects = [], []
        for number in range(first, self.at):
            bad = number % 7 == 3
            texts.append(None if bad else " ".join([NAMES[number]] * 3))
            if bad:
                rejects.append(Reject("s", number + 1, "not-json"))
                self._letters.add(number)
        at = [RecordLocation("s", number + 1) for number in range(first, self.at)]
        return RecordBatch(texts, rejects, self.at == N_RECORDS, at)

    def position(self):
        return {"at": self.at}

    def passed(self):
        return {WHOLE: self.at}

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False

    def seek(self, position):
        self.at = position["at"]

    def progress(self):
        return Progress(self.at, N_RECORDS, "documents")

    def close(self):
        pass


class Numbers(Learner):
    """Learns the numbers of documents, in order."""

    def __init__(self, numbers=()):
        self.numbers = [*numbers]

    def add(self, batch, users=None, /):
        self.numbers += batch.word_ids.tolist()
        return batch.n_documents

    def release(self, vocabulary=None, settings=None):
        return replace(TOPICS, settings=settings)


class MemoryStore:
    """The newest checkpoint: documents by number, position, and what is beside it; and releases."""

    def __init__(self, fails):
        self.saved, self.published, self.broken, self._fails = None, [], "", fails
        #: A release is out that no checkpoint knows of; a checkpoint is being written.
        self._unsaved = self._writing = False

    def capture(self, learner, position, vocabulary, about, rows, beside):
        if self._unsaved and about["places"] != self.published[-1]:
            self.broken = "it learned on before a checkpoint of its release"
        self._writing = True
        waiting = [] if rows is None else rows.word_ids.tolist()
        return Captured([*learner.numbers, *waiting], dict(position), about)

    def write(self, captured):
        self._writing = False
        self._fail("disk")
        self.saved, self._unsaved = captured, False
        return 1

    def publish(self, model):
        self._fail("output")
        if self._unsaved or self._writing:
            self.broken = "a release was made beside a checkpoint, or two without one"
        self.published.append(model.settings["places"])
        self._unsaved = True
        return len(self.published)

    def _fail(self, what):
        if self._fails(what):
            raise OSError(28, "No space left")

    def newest_summary(self):
        return None


class Captured:
    size_bytes = 1

    def __init__(self, numbers, position, about):
        self.numbers, self.position, self.about = numbers, position, about
        self.metadata = {"position": position, "run": None}


#: What threads would do.
WORK = ("open", "engine", "writer")


class SteppedDaemon:
    """A daemon that takes the steps that a test chooses, and what may happen to it meanwhile."""

    def __init__(self):
        self.steps, self.store = Steps(), MemoryStore(self._fails)
        self.status = Status(private=False, stream="s", clock=self.steps.now)
        self.source, self.fault, self.signalled_at, self.queued = None, None, None, 0
        #: Faults that were planted, and those that are still to come.
        self.faults, self.coming = set(), set()
        #: Records that are no documents: written to dead letters, and durable there.
        self.letters, self.durable = set(), set()
        self.daemon = Daemon(*(RULES, self._run, self.status), flush=self.flush, threads=self.steps)
        self.daemon.begin(self._run())

    def _run(self):
        learner, saved = Numbers(), self.store.saved
        pipeline = Pipeline(WORDS, lambda *_: learner, every=EVERY)
        if saved is not None:
            learner.numbers += saved.numbers
            pipeline.restore(WORDS, learner, saved.about)

        def open_source(position):
            self.source = CountingSource(0, self._fail, self.letters)
            where = position or (saved and saved.position)
            if where is not None:
                self.source.seek(where)
            if position is None:
                pipeline.begin_at(stand(self.source))
            return self.source

        def make_worker(tell):
            return Worker(pipeline, self.store, self.status, tell, threads=self.steps)

        started = m.StartDone(self.steps.now(), pipeline.due, since_release=pipeline.since_release)
        return Run(open_source, make_worker, started)

    def _fails(self, what):
        fails = what in self.coming
        self.coming.discard(what)
        return fails

    def flush(self):
        if self._fails("letters"):
            return "Refused"
        self.durable |= self.letters
        return ""

    def _fail(self, max_records):
        error, self.fault = self.fault, None
        return error

    def actions(self):
        """Return what can happen now."""
        if self.daemon.code is not None:
            return []
        lanes, found = self.steps.lanes, ["turn", "tick"]
        found += [name for name in ("engine", "writer") if lanes[name]]
        found += ["open"] * bool(self.steps.opening)
        polls = self.daemon._asked is not None
        if len(self.faults) < MOST_FAULTS:
            known = self.faults if polls else self.faults | {"away"}
            found += [fault for fault in FAULTS if fault not in known]
        found += ["signal"] * (self.signalled_at is None)
        return found

    def do(self, action):
        if action in ("engine", "writer"):
            self.steps.lanes[action].step()
        elif action == "open":
            self.steps.opening.popleft()()
        elif action == "away":
            # The answer of the poll is lost, the position has moved.
            self.faults.add(action)
            self.fault = SourceAwayError("away")
            self.daemon.turn()
        elif action in FAULTS:
            self.faults.add(action)
            self.coming.add(action)
        elif action == "signal":
            self.signalled_at = self.steps.time
            self.daemon._events.put(m.SignalReceived(self.steps.time, 15))
            if self.daemon._asked is not None:
                self.fault = PollEndedError()
        else:
            self.steps.time += 0.5 * (action == "tick")
            self.daemon.turn()
        self.queued = max(self.queued, self.daemon._machine.queued_bytes)

    def key(self):
        """Return what tells moments apart after which other things may happen."""
        machine = {name: repr(value) for name, value in vars(self.daemon._machine).items()}
        lanes = [len(lane) for lane in self.steps.lanes.values()]
        source = None if self.source is None else (self.source.at, self.source.paused)
        saved = None if self.store.saved is None else self.store.saved.position["at"]
        daemon = self.daemon._asked, [*self.daemon._batches], self.daemon._events.qsize()
        faults = sorted(self.faults), sorted(self.coming), self.signalled_at is None
        return repr((machine, lanes, len(self.steps.opening), source, saved, daemon, faults))

    def finish(self):
        """Take all steps in turn until the daemon ends; return what is wrong, if anything is."""
        for turn in count():
            if self.daemon.code is not None:
                break
            if turn > MOST_TURNS:
                return "it never ends"
            while work := [action for action in self.actions() if action in WORK]:
                self.do(work[0])
            self.do("tick")
        if self.daemon.code == OK and any(self.steps.lanes.values()):
            return "it ended before it had saved"
        for lane in self.steps.lanes.values():
            lane.join(0.0)
        return self.wrong()

    def wrong(self):
        """Return what is wrong with the end of the daemon, and with what it saved."""
        ended, signalled = self.steps.time, self.signalled_at is not None
        if self.daemon.code not in ((OK, UNFINISHED, IO) if signalled else (OK,)):
            return f"it ended with {self.daemon.code}"
        if signalled and ended > self.signalled_at + RULES.grace_seconds + 1.0:
            return f"it ended after {ended - self.signalled_at} s"
        if self.queued >= RULES.queue_bytes + BATCH_BYTES:
            return f"{self.queued} bytes waited"
        if refused := self.status.status()["failures"]["account"]:
            return f"its account was refused {refused} times"
        return self.store.broken or self.wrong_state()

    def wrong_state(self):
        """Return what is wrong with what was saved: each document before its position, once."""
        saved, out = self.store.saved, self.store.published
        at = 0 if saved is None else saved.position["at"]
        if self.signalled_at is None and at != N_RECORDS:
            return f"it stopped at {at}"
        due = [*range(EVERY, N_RECORDS, EVERY)]
        if out != due[: len(out)] or len(out) < sum(place < at for place in due):
            return f"at {at} it released {out}"
        bad = {number for number in range(at) if number % 7 == 3}
        if lost := bad - self.durable:
            return f"at {at} the letters of {lost} may be lost"
        wanted = [number for number in range(at) if number not in bad]
        found = [] if saved is None else saved.numbers
        places = 0 if saved is None else saved.about["places"]
        if found != wanted or places != at:
            return f"at {at} it has {found}, and {places} places"
        return ""


def walk(seed, steps=100):
    """Take possible steps at random, faults and signals rarely; return what was wrong."""
    draw, daemon = random.Random(seed), SteppedDaemon()
    for _ in range(steps):
        if not (actions := daemon.actions()):
            break
        rare = [action for action in actions if action in ("signal", *FAULTS)]
        usual = [action for action in actions if action not in rare]
        daemon.do(draw.choice(rare if rare and draw.random() < RARELY else usual))
    return daemon.finish()


def explore(most):
    """Try orders of possible steps, shorter ones first, up to so many moments.

    Return what was wrong first, and after which actions, or "" and how many moments there were.
    """
    known, waiting, tried = set(), deque([()]), 0
    while waiting and tried < most:
        path = waiting.popleft()
        daemon = SteppedDaemon()
        for action in path:
            daemon.do(action)
        if (key := daemon.key()) in known:
            continue
        known.add(key)
        tried += 1
        waiting.extend((*path, action) for action in daemon.actions())
        if wrong := daemon.finish():
            return wrong, path
    return "", tried


#: Moments that are tried, with each way in which they can be reached.
MOMENTS = 300


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_order_of_messages_saves_each_record_once():
    wrong, tried = explore(MOMENTS)
    assert (wrong, tried) == ("", MOMENTS)


def drop_the_answer_of_a_poll_for_none(patch):
    """Ask a paused source for one record, though it may have been resumed meanwhile."""

    def polled(source, max_records, timeout_seconds):
        if max_records:
            return poll(source, max_records, timeout_seconds)
        source.poll(1, timeout_seconds)
        return poll(source, 0, timeout_seconds)

    poll = loop.poll
    patch.setattr(loop, "poll", polled)


def drop_a_batch(patch):
    add, calls = Pipeline.add, count()

    def dropped(self, batch):
        # A run would read the places of its first and its last batch again.
        if next(calls) % 5 != 2:
            add(self, batch)

    patch.setattr(Pipeline, "add", dropped)


def learn_twice(patch):
    learn = Worker._learn
    patch.setattr(Worker, "_learn", lambda self, given: learn(self, [given[0], *given]))


def save_the_position_early(patch):
    """Take the position of the source, which is ahead of the records that were learned."""
    check = Pipeline.check_account

    def early(self):
        source = SOURCES[-1]
        if source is not None:
            self.behind = stand(source)
        check(self)

    def note(self, found):
        SOURCES.append(found if hasattr(found, "poll") else None)
        take(self, found)

    SOURCES, take = [None], Daemon._take
    patch.setattr(Daemon, "_take", note)
    patch.setattr(Pipeline, "check_account", early)


def lose_a_resume(patch):
    ask = Daemon._ask
    patch.setattr(Daemon, "_ask", lambda self, name, *of: name != "resume" and ask(self, name, *of))


def save_before_letters(patch):
    patch.setattr(SteppedDaemon, "flush", lambda self: "")


PLANTED = [
    drop_the_answer_of_a_poll_for_none,
    drop_a_batch,
    learn_twice,
    save_the_position_early,
    lose_a_resume,
    save_before_letters,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, monkeypatch):
    plant(monkeypatch)
    wrong, _ = explore(MOMENTS)
    assert wrong


@pytest.mark.parametrize("seeds", few_or(200, 50_000))
def test_random_orders_far_beyond_save_each_record_once(seeds):
    for seed in range(seeds):
        assert (seed, walk(seed)) == (seed, "")
