"""Sources and sinks that a test opens on a broker, closed at its end."""

from contextlib import ExitStack, closing
from functools import partial

import pytest

from streamlda_connectors.kafka import DeadLetters, KafkaSource, SnapshotTopic


@pytest.fixture
def opened():
    """Open a source or a sink of a kind on a topic."""
    with ExitStack() as stack:

        def opened(kind, topics, topic, **options):
            made = kind(topic, **{"bootstrap_servers": topics.bootstrap, **options})
            return stack.enter_context(closing(made))

        yield opened


@pytest.fixture
def source_of(opened):
    """Open a source, of text unless another format is named."""

    def source_of(topics, topic, **options):
        return opened(KafkaSource, topics, topic, **{"format": "text", **options})

    return source_of


@pytest.fixture
def letters_to(opened):
    return partial(opened, DeadLetters)


@pytest.fixture
def snapshots_to(opened):
    return partial(opened, SnapshotTopic)
