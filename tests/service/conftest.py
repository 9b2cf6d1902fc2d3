"""Fixtures that tests over HTTP share: a status, snapshots, a server; and shared partitions."""

import time
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace

import pytest

from streamlda.service.http import Server, make_app
from streamlda.service.lease import Lease, make_beginning
from streamlda.service.messages import CheckpointDone, CheckpointTaken, Learned
from streamlda.service.partitions import RETRY_SECONDS, Partitions, PartitionsWorker, SharedSource
from streamlda.service.status import Status
from streamlda.settings.load import load_settings
from streamlda.storage.merge import load_projection
from streamlda.storage.partitions import PROJECTION, open_shared_folder
from streamlda.storage.snapshots import Snapshots, Summary, Topic
from tests.kafka.topics import wait_until
from tests.service.daemon_process import texts
from tests.service.planted import budget, model, over_time, shifted, topics
from tests.service.sharing import Shared, Truth


@pytest.fixture
def status():
    """A status in which nothing is unknown, and which stays alive: its clock stands."""
    made = Status(private=False, stream="planted", memory_limit_bytes=2**30, clock=lambda: 0.0)
    made.note(
        not_ready="",
        places=10,
        places_left=5,
        account={"records": 10, "passed": 10},
        lag={0: 3, 1: None},
        newest={0: 1.8e9, 1: 1.8e9},
        lost={"records": 2},
        in_no_bin=(4, 0, 1),
        warmup=(1, 2),
        budget=budget(1.0, 1.0, 2.0, 1e-9),
        last_answer=time.time(),
    )
    made.note_checkpoint(0.1, 100)
    made.note_group(partitions=[0], waiting=[1], generation=3, lease=True, places=9)
    made.note_snapshot(Summary(1, "2026-11-22T12:00:00+00:00", 9, False, [Topic(1, 0.5, None)]))
    return made


@pytest.fixture
def snapshots(tmp_path):
    """Two snapshots, the second in the opposite order, and with all that is said of time."""
    made = Snapshots(tmp_path / "snapshots")
    made.publish(1, model(topics()))
    made.publish(2, model(shifted(topics(), 0.1)[::-1], **over_time()))
    return made


@pytest.fixture
def app_of(status, snapshots):
    def make(*, of=snapshots, private=False, token=None, **more):
        return make_app(status, of, private=private, token=token, **more)

    return make


@pytest.fixture
def serve(app_of):
    with ExitStack() as opened:

        def start(*, address=None, **settings):
            server = Server(app_of(**settings), **(address or {}))
            opened.callback(server.stop)
            return server

        yield start


@pytest.fixture
def shared(topics, topic, tmp_path):
    return Shared(tmp_path, topics.bootstrap, topic)


@pytest.fixture
def here(request, shared, topics, tmp_path):
    """Turns a source of two partitions of 1500 records until `enough`, as a group of one."""
    given = {"documents": 1500, **getattr(request, "param", {})}
    documents = given.pop("documents")
    given = shared.settings("here", **given)
    truth = Truth(topics, shared.topic, given)
    topics.make(shared.topic, 2)
    for number in (0, 1):
        truth.send(texts(documents, seed=number), number)
    settings = load_settings(environment={}, flags={n: str(v) for n, v in given.items()})
    folder, status = open_shared_folder(shared.path), Status(private=False, stream="s")
    snapshots = Snapshots(tmp_path / "snapshots")
    lease = Lease(settings, folder, status, snapshots)
    make_beginning(lease.settings, folder, status)
    beginning = load_projection(folder / PROJECTION).daemons
    partitions, events = Partitions(settings, folder, beginning, lease), SimpleQueue()
    seconds = 120.0
    worker = PartitionsWorker(partitions, status, events.put, lambda position, note: None)
    # Whether dead letters can be made durable.
    letters = SimpleNamespace(durable=True, on_rejected=None, begin=lambda position: None)
    letters.try_to_flush = lambda: "" if letters.durable else "Refused"
    source = SharedSource(settings, partitions, status, letters)

    def learn(batch):
        worker.learn([batch])
        assert isinstance(events.get(timeout=seconds), Learned)

    def turn(enough):
        def enough_by_now():
            learn(source.poll(200, 0.1))
            return enough()

        wait_until(enough_by_now, seconds)

    def give_up(numbers):
        """Let others have partitions; return what was polled of the rest meanwhile."""
        done = Event()
        source.member._handovers.put((numbers, done))
        rest = source.poll(200, 0.0)
        assert done.wait(seconds)
        return rest

    def save():
        worker.checkpoint()
        found = [type(events.get(timeout=seconds)) for _ in range(2)]
        assert found == [CheckpointTaken, CheckpointDone]

    def looks():
        """Poll for longer than a partition is left alone that could not be opened."""
        until = time.monotonic() + 3 * RETRY_SECONDS
        while time.monotonic() < until:
            learn(source.poll(200, 0.1))

    yield SimpleNamespace(**locals())
    source.close()
    assert worker.stop(seconds)
