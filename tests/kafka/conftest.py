"""The broker of the Kafka tests (`make soak`; needs Java and Maven), on demand."""

import gc
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.topics import Topics


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # kafka-python leaves sockets that were refused, or failed in TLS, to the garbage collector.
    left = "ignore:Exception ignored in. <(socket.socket|ssl.SSLSocket)"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(left))
            # A real broker needs Java and Maven, which `make test` does not install.
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Let no such socket be found in the tests of others."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def broker(tmp_path_factory) -> Iterator[Broker]:
    """A broker of our own, which a test may stop or damage as long as it mends it."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture(scope="session")
def own_topics(broker) -> Iterator[Topics]:
    """Topics on our own broker."""
    topics = Topics(broker.bootstrap)
    yield topics
    topics.close()


@pytest.fixture(scope="session")
def topics(request) -> Iterator[Topics]:
    """Topics on the broker named by STREAMLDA_KAFKA_BOOTSTRAP, or on our own."""
    bootstrap = os.environ.get("STREAMLDA_KAFKA_BOOTSTRAP")
    if not bootstrap:
        yield request.getfixturevalue("own_topics")
        return
    topics = Topics(bootstrap)
    yield topics
    topics.close()


@pytest.fixture
def topic() -> str:
    return f"streamlda-test-{uuid.uuid4().hex[:12]}"
