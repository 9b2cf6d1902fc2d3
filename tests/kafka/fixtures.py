"""Broker fixtures for all tests (a plugin of tests/conftest.py).

Each worker of pytest-xdist that gets such tests has a broker of its own, which costs 5 s of one
processor and 350 MB, and no test is in the way of another.
"""

import gc
import time
import uuid
import warnings
from contextlib import closing
from pathlib import Path

import pytest

# kafka-python is imported in the fixtures: most runs are of tests that have no use for it.

#: kafka-python leaves sockets that were refused, or failed in TLS, to the garbage collector.
SOCKETS_LEFT = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <(socket.socket|ssl.SSLSocket)"
)


FIXTURES = {"broker", "topics"}


def is_kafka(item):
    takes_broker = not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    return takes_broker or Path(__file__).parent in item.path.parents


def pytest_collection_modifyitems(items):
    for item in filter(is_kafka, items):
        item.add_marker(SOCKETS_LEFT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    # No socket that a Kafka test left behind is to be found in the tests of others. By now nothing
    # holds on to what the test had: neither its fixtures nor the records of its log.
    done = yield
    if is_kafka(item) and (nextitem is None or not is_kafka(nextitem)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            collect()
        # What a thread of a client collected meanwhile, pytest tells the next test.
        if nextitem is not None:
            nextitem.add_marker(SOCKETS_LEFT)
    return done


def collect():
    """Collect garbage; where another thread does, that does nothing, so wait until it is done."""
    done = []

    def note(phase, info):
        if phase == "stop" and info["generation"] == 2:
            done.append(phase)

    gc.callbacks.append(note)
    while not done:
        gc.collect()
        time.sleep(0.01)
    gc.callbacks.remove(note)


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A broker of our own, which a test may stop or damage as long as it mends it."""
    from tests.kafka.broker import broker_in

    with broker_in(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def topics(broker):
    from tests.kafka.topics import Topics

    with closing(Topics(broker.bootstrap)) as topics:
        yield topics


@pytest.fixture
def topic():
    return f"streamlda-test-{uuid.uuid4().hex[:12]}"
