"""Values in a topic that is read back: to its end, in time, no part taken for the whole."""

import hashlib

import pytest
from kafka import KafkaProducer

from streamlda.errors import SourceError
from streamlda_connectors.kafka import ShareTopic
from tests.kafka.broker import free_ports


@pytest.fixture
def shares_of(opened):
    return lambda topics, topic: opened(ShareTopic, topics, topic)


def rows(found):
    return [(row.key, row.value) for row in found]


def test_what_was_published_is_read_back_from_the_beginning(topics, topic, shares_of):
    shares = shares_of(topics, topic)
    large = hashlib.shake_256(b"large").digest(20 * 2**20)
    written = [("north/1", b"\x00one"), ("south/1", large), ("north/1", b"\x00one")]
    for key, value in written:
        shares.publish(key, value, {"streamlda.round": "1"})
    expected = [(key.encode(), value) for key, value in written]
    # A topic that is made here takes what the broker's own limit would not, and keeps it.
    assert rows(shares.read()) == expected
    assert rows(shares.read()) == expected
    assert next(shares.read()).headers == (("streamlda.round", b"1"),)
    shares.close()
    with pytest.raises(SourceError, match="a topic of shares must be open, got closed=True"):
        shares.publish("north/1", b"x", {})


def test_all_partitions_are_read_and_those_without_records_end_too(topics, topic, shares_of):
    topics.make(topic, n_partitions=4)
    shares = shares_of(topics, topic)
    assert rows(shares.read()) == []
    topics.send(topic, [b"a", None], partition=1, key=b"k")
    topics.send(topic, [b"%d" % i for i in range(1000)], partition=3, key=b"l")
    assert sorted(rows(shares.read()), key=str) == sorted(
        [(b"k", b"a"), (b"k", None), *((b"l", b"%d" % i) for i in range(1000))], key=str
    )


def test_records_that_were_removed_are_no_part_of_a_topic(topics, topic, shares_of):
    topics.fill(topic, [b"old", b"new"], key=b"k")
    topics.remove_before(topic, 1)
    assert rows(shares_of(topics, topic).read()) == [(b"k", b"new")]


@pytest.mark.real_broker
def test_a_log_that_ends_with_marks_of_transactions_ends(topics, topic, shares_of):
    topics.make(topic)
    producer = KafkaProducer(bootstrap_servers=topics.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"not", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.send(topic, value, key=b"k")
        producer.flush(10)
        end()
    producer.close(timeout=5)
    assert rows(shares_of(topics, topic).read()) == [(b"k", b"kept")]


def test_a_topic_that_would_hide_the_older_of_two_is_refused(topics, topic, shares_of):
    topics.make(topic, **{"cleanup.policy": "compact"})
    with pytest.raises(SourceError, match=r"must keep all of them, got .*cleanup.policy='compact'"):
        shares_of(topics, topic).connect()


def test_a_missing_topic_is_an_error_to_read_and_is_not_made(topics, topic, shares_of):
    for _ in range(2):
        with pytest.raises(SourceError, match="a topic must exist and be readable"):
            list(shares_of(topics, topic).read())


def test_brokers_that_are_away_are_an_error_in_time(topic):
    shares = ShareTopic(
        topic, bootstrap_servers=f"127.0.0.1:{free_ports(1)[0]}", request_timeout_seconds=0.3
    )
    for call in (
        shares.connect,
        lambda: shares.publish("k", b"v", {}),
        lambda: list(shares.read()),
    ):
        with pytest.raises(SourceError, match="must be reachable"):
            call()
