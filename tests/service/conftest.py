"""What tests over HTTP share: a status, snapshots, and a function that serves both."""

from contextlib import ExitStack

import pytest

from streamlda.service.http import Server, make_app
from streamlda.service.status import Status
from streamlda.storage.identity import Topic
from streamlda.storage.snapshots import Snapshots, Summary
from tests.service.planted import model, over_time, shifted, topics
from tests.service.web import PLENTY


@pytest.fixture
def status():
    """A status in which nothing is unknown, and which stays alive: its clock stands."""
    made = Status(private=False, stream="planted", memory_limit_bytes=2**30, clock=lambda: 0.0)
    made.set_ready(True)
    made.set_slots(10, 5)
    made.set_lag({0: 3, 1: None})
    made.checkpoint(0.1, 100)
    made.set_lost({"records": 2})
    made.set_in_no_bin(4, 1)
    made.count_inference({"inferred": 6, "rejected": 1}, 1, 0)
    made.set_inference_lag({0: 2, 1: None})
    made.set_warmup((1, 2))
    made.set_budget(1.0, 1.0, 2.0, 1e-9)
    made.set_snapshot(Summary(1, "2026-11-22T12:00:00+00:00", 9, False, [Topic(1, 0.5, None)]))
    made.answered()
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
    def make(*, of=snapshots, private=False, token=None, limits=PLENTY, **more):
        return make_app(status, of, private=private, token=token, limits=limits, **more)

    return make


@pytest.fixture
def serve(app_of):
    with ExitStack() as opened:

        def start(*, address=None, **settings):
            server = Server(app_of(**settings), **(address or {}))
            opened.callback(server.stop)
            return server

        yield start
