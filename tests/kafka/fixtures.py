"""Broker fixtures for all tests (a plugin of tests/conftest.py), and who cannot run without one.

A test that takes `topics` runs on whatever broker there is. A test that takes `broker`, to stop or
damage it, and a test marked `real_broker` need Apache Kafka. Where there is only kfake they are
deselected, and the head and the end of the run say so.

Each worker of pytest-xdist that gets such tests has a broker of its own, which costs 5 s of one
processor and 350 MB, and no test is in the way of another.
"""

import gc
import os
import time
import uuid
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from tests.kafka.choice import Choice, NotReadyError, choose
from tests.kafka.jars import BrokerUnavailable

# kafka-python is imported in the fixtures: most runs are of tests that have no use for it.

CHOICE = pytest.StashKey[Choice]()
REPORT = pytest.StashKey[str]()

#: kafka-python leaves sockets that were refused, or failed in TLS, to the garbage collector.
SOCKETS_LEFT = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <(socket.socket|ssl.SSLSocket)"
)


def takes(item, *fixtures):
    return not set(fixtures).isdisjoint(getattr(item, "fixturenames", ()))


def takes_broker(item):
    return takes(item, "broker", "own_topics", "topics")


def needs_real(item):
    return takes(item, "broker") or item.get_closest_marker("real_broker") is not None


def is_kafka(item):
    return takes_broker(item) or Path(__file__).parent in item.path.parents


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "real_broker: needs Apache Kafka; deselected where there is only kfake"
    )


def pytest_report_header():
    try:
        return f"kafka broker: {choose(fetch=False)}"
    except NotReadyError:
        return "kafka broker: not fetched yet, which the first run of tests that take one does"
    except BrokerUnavailable as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    for item in filter(is_kafka, items):
        item.add_marker(SOCKETS_LEFT)
    yield
    takers = [item for item in items if takes_broker(item) or needs_real(item)]
    if not takers or config.option.collectonly:
        return
    choice = config.stash[CHOICE] = choose(fetch=True)
    out = [
        item
        for item in takers
        if not choice.runs(needs_real=needs_real(item), needs_own=takes(item, "broker"))
    ]
    if out:
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)
    left_out = f"{len(out) or 'none'} of the {len(takers)} tests for it left out"
    config.stash[REPORT] = f"{choice}; {left_out}"
    if hasattr(config, "workeroutput"):
        config.workeroutput["kafka"] = config.stash[REPORT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    if report := getattr(node, "workeroutput", {}).get("kafka"):
        node.config.stash[REPORT] = report


def pytest_terminal_summary(terminalreporter, config):
    if report := config.stash.get(REPORT, None):
        terminalreporter.write_line(f"kafka broker: {report}")


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
def broker(pytestconfig, tmp_path_factory):
    """A broker of our own, which a test may stop or damage as long as it mends it."""
    from tests.kafka.broker import broker_of

    choice = pytestconfig.stash.get(CHOICE, None) or choose(fetch=True)
    with broker_of(choice, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def own_topics(broker):
    """Topics on our own broker."""
    from tests.kafka.topics import Topics

    with closing(Topics(broker.bootstrap)) as topics:
        yield topics


@pytest.fixture(scope="session")
def topics(request):
    """Topics on the broker named by STREAMLDA_KAFKA_BOOTSTRAP, or on our own."""
    from tests.kafka.topics import Topics

    bootstrap = os.environ.get("STREAMLDA_KAFKA_BOOTSTRAP")
    if not bootstrap:
        # By name, so that a test that takes `topics` does not count as one that takes `broker`.
        yield request.getfixturevalue("own_topics")
        return
    with closing(Topics(bootstrap)) as topics:
        yield topics


@pytest.fixture
def topic():
    """Return a name that no other topic has."""
    return f"streamlda-test-{uuid.uuid4().hex[:12]}"
