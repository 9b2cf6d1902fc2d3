"""Orders of messages: in each, the saved state has every record before its position once.

Orders are tried exhaustively up to a bound, and at random beyond. A planted fault of each kind is
found. The loop, the machine, the worker and the pipeline are real; the source counts records. All
tasks run in one thread without waiting: queues replace threads, and a test runs one task at a
time. Brokers, disk, output and dead letters may fail.
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

#: Number of records in the stream, and in a poll. Every seventh record is no document.
N_RECORDS, POLL_RECORDS = 14, 2
NAMES = words(N_RECORDS)
WORDS = Vocabulary.given(NAMES)

#: Two batches fill the queue, and a release follows every third batch.
RULES = Rules(queue_bytes=900, poll_records=3, checkpoint_seconds=0.4, grace_seconds=5.0)
EVERY = 6

#: Upper bounds of the turns of a run, each with a tick, and of the bytes of a batch.
MOST_TURNS, BATCH_BYTES = 300, 550

#: Faults of a run. Each occurs once at most, and two at most in all.
FAULTS, MOST_FAULTS = ("away", "disk", "output", "letters"), 2

#: Probability that a step of a walk is a fault or a signal.
RARE_SHARE = 0.05

TOPICS = TopicModel(
    components=np.full((1, N_RECORDS), 1 / N_RECORDS),
    alpha=np.ones(1),
    background=np.full(N_RECORDS, 1 / N_RECORDS),
)


def is_reject(number):
    return number % 7 == 3


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
    put = deque.append

    def step(self):
        self.popleft()()

    def join(self, seconds):
        while self:
            self.step()
        return True


class CountingSource:
    def __init__(self, at, fault, letters):
        self.at, self.paused, self._fault, self._letters = at, False, fault, letters

    def poll(self, max_records, timeout_seconds=1.0):
        first = self.at
        if not self.paused:
            self.at = min(N_RECORDS, first + min(max_records, POLL_RECORDS))
        if (error := self._fault(max_records)) is not None:
            raise error
        numbers = range(first, self.at)
        bad = [number for number in numbers if is_reject(number)]
        self._letters.update(bad)
        texts = [None if is_reject(n) else " ".join([NAMES[n]] * 3) for n in numbers]
        rejects = [Reject("s", number + 1, "not-json") for number in bad]
        locations = [RecordLocation("s", number + 1) for number in numbers]
        return RecordBatch(texts, rejects, self.at == N_RECORDS, locations)

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


class NumberLearner(Learner):
    def __init__(self, numbers=()):
        self.numbers = [*numbers]

    def add(self, batch, users=None, /):
        self.numbers += batch.word_ids.tolist()
        return batch.n_documents

    def release(self, vocabulary=None, settings=None):
        return replace(TOPICS, settings=settings)


class MemoryStore:
    def __init__(self, fails):
        self.saved, self.published, self.broken, self._fails = None, [], "", fails
        #: Whether the last release is in no checkpoint, and whether one is being written.
        self._unsaved = self._writing = False

    def capture(self, learner, position, vocabulary, about, rows, beside):
        if self._unsaved and about["places"] != self.published[-1]:
            self.broken = "the daemon learned between a release and its checkpoint"
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
            self.broken = "a release was made during a checkpoint, or two before one"
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


WORK = ("open", "engine", "writer")


class SteppedDaemon:
    def __init__(self):
        self.steps, self.store = Steps(), MemoryStore(self._fails)
        self.status = Status(private=False, stream="s", clock=self.steps.now)
        self.source, self.fault, self.signalled_at, self.queued = None, None, None, 0
        #: Faults that were planted, and those of them that have not occurred yet.
        self.faults, self.coming = set(), set()
        #: Rejected records in dead letters, and those of them that are durable there.
        self.letters, self.durable = set(), set()
        self.daemon = Daemon(*(RULES, self._run, self.status), flush=self.flush, threads=self.steps)
        self.daemon.begin(self._run())

    def _run(self):
        learner, saved = NumberLearner(), self.store.saved
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
        """Return a key that differs between moments with different futures."""
        machine = {name: repr(value) for name, value in vars(self.daemon._machine).items()}
        lanes = [len(lane) for lane in self.steps.lanes.values()]
        source = None if self.source is None else (self.source.at, self.source.paused)
        saved = None if self.store.saved is None else self.store.saved.position["at"]
        daemon = self.daemon._asked, [*self.daemon._batches], self.daemon._events.qsize()
        faults = sorted(self.faults), sorted(self.coming), self.signalled_at is None
        return repr((machine, lanes, len(self.steps.opening), source, saved, daemon, faults))

    def finish(self):
        for turn in count():
            if self.daemon.code is not None:
                break
            if turn > MOST_TURNS:
                return "the daemon never ends"
            while work := [action for action in self.actions() if action in WORK]:
                self.do(work[0])
            self.do("tick")
        if self.daemon.code == OK and any(self.steps.lanes.values()):
            return "the daemon ended before it saved"
        for lane in self.steps.lanes.values():
            lane.join(0.0)
        return self.find_fault()

    def find_fault(self):
        """Return the first fault in the end of the daemon or in its saved state, or ""."""
        ended, signalled = self.steps.time, self.signalled_at is not None
        if self.daemon.code not in ((OK, UNFINISHED, IO) if signalled else (OK,)):
            return f"the daemon ended with {self.daemon.code}"
        if signalled and ended > self.signalled_at + RULES.grace_seconds + 1.0:
            return f"the daemon ended after {ended - self.signalled_at} s"
        if self.queued >= RULES.queue_bytes + BATCH_BYTES:
            return f"{self.queued} bytes waited"
        if refused := self.status.status()["failures"]["account"]:
            return f"the account was refused {refused} times"
        return self.store.broken or self.find_fault_of_state()

    def find_fault_of_state(self):
        """Return a fault of the saved state, which has each document before its position once."""
        saved, released = self.store.saved, self.store.published
        at = 0 if saved is None else saved.position["at"]
        if self.signalled_at is None and at != N_RECORDS:
            return f"the daemon stopped at {at}"
        due = [*range(EVERY, N_RECORDS, EVERY)]
        if released != due[: len(released)] or len(released) < sum(place < at for place in due):
            return f"the releases at {at} are {released}"
        if lost := {*filter(is_reject, range(at))} - self.durable:
            return f"at {at} the letters of {lost} may be lost"
        found = ([], 0) if saved is None else (saved.numbers, saved.about["places"])
        if found != ([number for number in range(at) if not is_reject(number)], at):
            return f"the state at {at} has {found}"
        return ""


def walk(seed, steps=100):
    """Take possible steps at random, rarely faults and signals; return the first fault found."""
    draw, daemon = random.Random(seed), SteppedDaemon()
    for _ in range(steps):
        if not (actions := daemon.actions()):
            break
        rare = [action for action in actions if action in ("signal", *FAULTS)]
        usual = [action for action in actions if action not in rare]
        daemon.do(draw.choice(rare if rare and draw.random() < RARE_SHARE else usual))
    return daemon.finish()


def explore(most):
    """Try orders of possible steps, shorter ones first, up to a number of moments.

    Returns the first fault and the actions before it, or "" and the number of moments.
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
    """Ask a paused source for one record, which it returns where it was resumed meanwhile."""

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
        # After the loss of its first or last batch a run would read the records again.
        if next(calls) % 5 != 2:
            add(self, batch)

    patch.setattr(Pipeline, "add", dropped)


def learn_twice(patch):
    learn = Worker._learn
    patch.setattr(Worker, "_learn", lambda self, given: learn(self, [given[0], *given]))


def save_the_position_early(patch):
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
