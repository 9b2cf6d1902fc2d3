"""Dead letters, snapshots and shares on a real broker: durable, bounded, and read back whole."""

import hashlib
import json
import logging
from contextlib import closing, suppress

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from streamlda.errors import SinkAwayError, SourceAwayError, SourceError
from streamlda_connectors.kafka import Record, SnapshotTopic
from tests.kafka.topics import read, wait_until

pytestmark = pytest.mark.long

SECRET = b"words that nobody may see"


def record(offset, value=SECRET, topic="source"):
    return Record(topic, 3, offset, 1_700_000_000_000 + offset, b"key", value)


def put(letters, *records):
    for each in records:
        letters.put(each, "not-json")
    letters.flush(10)


def offsets(rows):
    return [int(dict(row.headers)["__connect.errors.offset"]) for row in rows]


def pairs(rows):
    return [(row.key, row.value) for row in rows]


def test_a_letter_refers_to_the_record_and_has_its_time_but_no_text(topics, topic, letters_to):
    # The records are old: a broker that looks for such would remove them before they are read.
    topics.make(topic, **{"retention.ms": "-1"})
    letters = letters_to(topics, topic)
    put(letters, record(7), record(8, None))
    rows = topics.read(topic)
    assert [row.key for row in rows] == [b"source/3/7", b"source/3/8"]
    digest = hashlib.sha256(SECRET).hexdigest()
    assert json.loads(rows[0].value) == {
        "topic": "source",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 1_700_000_000_007,
        "reason": "not-json",
        "bytes": len(SECRET),
        "sha256": digest,
    }
    assert rows[0].headers == [
        ("__connect.errors.topic", b"source"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"7"),
        ("__connect.errors.exception.message", b"not-json"),
        ("streamlda.sha256", digest.encode()),
    ]
    # Brokers refuse times far ahead of their clock, which they took of the record.
    assert rows[0].timestamp == 1_700_000_000_007
    assert all(SECRET not in repr(row).encode() for row in rows)


def test_a_letter_after_one_that_could_not_be_sent_is_waited_for(
    topics, topic, letters_to, monkeypatch
):
    topics.make(topic)
    letters = letters_to(topics, topic)

    def fail(*_, **__):
        raise KafkaTimeoutError("no metadata")

    monkeypatch.setattr(letters._producer, "send", fail)
    with pytest.raises(SourceError, match="pending=0"):
        letters.put(record(1), "not-json")
    # It is sent by another producer.
    letters.put(record(1), "not-json")
    assert len(letters._pending) == 1
    letters.flush(10)
    assert offsets(topics.read(topic)) == [1]


def test_an_answer_right_behind_the_time_out_is_no_refusal(topics, topic, letters_to, monkeypatch):
    letters = letters_to(topics, topic)
    letters.put(record(1), "not-json")
    ((_, future),) = letters._pending
    producer, get = letters._producer, future.get

    def late(seconds):
        get(10)
        raise KafkaTimeoutError("no answer yet")

    monkeypatch.setattr(type(future), "get", lambda self, seconds: late(seconds))
    letters.flush(0)
    assert letters._producer is producer
    assert offsets(topics.read(topic)) == [1]


def test_a_refused_letter_is_an_error_and_stays(topics, topic, letters_to):
    topics.make(topic, **{"max.message.bytes": "200"})
    letters = letters_to(topics, topic)
    letters.put(record(1), "not-json")
    for _ in range(2):
        with pytest.raises(SourceError, match=r"pending=1.*max.message.bytes"):
            letters.flush(10)
    topics.change(topic, **{"max.message.bytes": "2000"})

    def is_flushed():
        with suppress(SourceError):
            letters.flush(10)
            return True
        return False

    wait_until(is_flushed, 60)
    assert offsets(topics.read(topic)) == [1]


def test_letters_wait_for_their_topic_and_not_the_source(topics, topic, letters_to):
    letters = letters_to(topics, topic)
    topics.remove(topic)
    letters._drop_producer()
    with pytest.raises(SinkAwayError, match="problem='topic-missing'"):
        letters.put(record(1), "not-json")
    topics.make(topic)
    wait_until(lambda: not letters.put(record(1), "not-json"))
    letters.flush(10)
    assert offsets(topics.read(topic)) == [1]


def test_text_is_in_no_log_at_any_level(topics, topic, caplog, source_of, letters_to):
    caplog.set_level(logging.DEBUG)
    letters = letters_to(topics, f"{topic}-dead")
    topics.fill(topic, [b"{" + SECRET, b'{"text": "%s"}' % SECRET])
    source = source_of(topics, topic, format="jsonl", on_reject=letters.put)
    assert read(source, 2)[0] == [SECRET.decode()]
    letters.flush(10)
    assert SECRET.decode() not in caplog.text


def test_snapshots_are_compacted_and_published_again_as_they_were(topics, topic, snapshots_to):
    snapshots = snapshots_to(topics, topic)
    for _ in range(2):
        snapshots.publish("000001", b"\x00one", {"epsilon": "0.5", "name": "caf\u00e9"})
    snapshots.publish("000002", b"two", {})
    again = snapshots_to(topics, topic)
    again.publish("000002", b"two", {})
    again.close()
    rows = topics.read(topic)
    assert pairs(rows) == [(b"000001", b"\x00one")] * 2 + [(b"000002", b"two")] * 2
    headers = [("epsilon", b"0.5"), ("name", "caf\u00e9".encode())]
    assert rows[0].headers == rows[1].headers == headers
    with pytest.raises(SourceError, match="closed=True"):
        again.publish("000003", b"three", {})
    with pytest.raises(SourceAwayError, match="a topic must exist"):
        SnapshotTopic(f"{topic}-missing", bootstrap_servers=topics.bootstrap)


def test_the_newest_snapshot_of_a_key_is_found_behind_those_of_others(topics, topic, snapshots_to):
    topics.make(topic, 2, **{"cleanup.policy": "compact"})
    snapshots = snapshots_to(topics, topic)
    assert snapshots.newest("mine") is None
    for value in (b"older", b"newest"):
        snapshots.publish("mine", value, {})
    for number in range(48):
        snapshots.publish(f"other {number % 5}", b"%d" % number, {})
    assert snapshots.newest("mine") == b"newest"
    assert snapshots.newest("other 2") == b"47"
    assert snapshots.newest("min") is None
    # The clock of who writes may go back.
    with closing(KafkaProducer(bootstrap_servers=topics.bootstrap)) as producer:
        for value, time in ((b"before", 1_700_000_002_000), (b"after", 1_700_000_001_000)):
            producer.send(topic, value, key=b"clock", timestamp_ms=time)
        producer.flush(10)
    assert snapshots.newest("clock") == b"after"


def test_a_snapshot_too_large_names_the_limits_and_the_next_one_goes_through(
    topics, topic, snapshots_to
):
    topics.make(topic, **{"max.message.bytes": "5000", "cleanup.policy": "compact"})
    snapshots = snapshots_to(topics, topic)
    with pytest.raises(SourceError, match=r"bytes=6000 .*; raise max.message.bytes"):
        snapshots.publish("1", b"x" * 6000, {})
    snapshots.publish("1", b"x" * 4000, {})
    snapshots.publish("3", b"x" * 100, {})
    assert [row.key for row in topics.read(topic)] == [b"1", b"3"]
