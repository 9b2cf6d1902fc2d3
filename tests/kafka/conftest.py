"""Sources and sinks that a test opens on a broker, closed at its end."""

from contextlib import ExitStack, closing

import pytest

from streamlda_connectors.kafka import DeadLetters, KafkaSource


@pytest.fixture
def opened():
    with ExitStack() as stack:

        def opened(kind, topics, topic, **options):
            made = kind(topic, **{"bootstrap_servers": topics.bootstrap, **options})
            return stack.enter_context(closing(made))

        yield opened


@pytest.fixture
def source_of(opened):
    def source_of(topics, topic, **options):
        return opened(KafkaSource, topics, topic, **{"format": "text", **options})

    return source_of


@pytest.fixture
def letters_to(opened):
    """Open a sink of dead letters, on a topic that is made if it is missing."""

    def made(topics, topic, **options):
        if topic not in topics.admin.list_topics():
            topics.make(topic)
        return opened(DeadLetters, topics, topic, **options)

    return made
