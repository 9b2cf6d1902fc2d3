"""Fixtures that tests over HTTP share: a status, snapshots, a server; and shared partitions."""

import time
from contextlib import ExitStack

import pytest

from streamlda.service.http import Server, make_app
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots, Summary, Topic
from tests.service.planted import budget, model, over_time, shifted, topics


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
