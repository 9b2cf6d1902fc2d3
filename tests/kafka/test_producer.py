"""Dead letters on a real broker: durable, bounded, and read back whole."""

import hashlib
import json
import logging
from contextlib import suppress

import pytest
from kafka.errors import KafkaTimeoutError

from streamlda.errors import SinkAwayError, SourceError
from streamlda_connectors.kafka import Record
from tests.kafka.topics import read, wait_until

pytestmark = pytest.mark.long

SECRET = b"words that nobody may see"


def record(offset, value=SECRET, topic="source"):
    return Record(topic, 3, offset, 1_700_000_000_000 + offset, b"key", value)


def put_letters(letters, *records):
    for each in records:
        letters.put(each, "not-json")
    letters.flush(60)


def offsets(rows):
    return [int(dict(row.headers)["__connect.errors.offset"]) for row in rows]


def test_a_letter_refers_to_the_record_and_has_its_time_but_no_text(topics, topic, letters_to):
    # The records are old: a broker that looks for such would remove them before they are read.
    topics.make(topic, **{"retention.ms": "-1"})
    letters = letters_to(topics, topic)
    put_letters(letters, record(7), record(8, None))
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


def test_an_answer_right_behind_the_time_out_is_no_refusal(topics, topic, letters_to, monkeypatch):
    letters = letters_to(topics, topic)
    letters.put(record(1), "not-json")
    ((_, future),) = letters._pending
    producer, get = letters._producer, future.get

    def late(seconds):
        get(60)
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
            letters.flush(60)
    topics.change(topic, **{"max.message.bytes": "2000"})

    def is_flushed():
        with suppress(SourceError):
            letters.flush(60)
            return True
        return False

    wait_until(is_flushed)
    assert offsets(topics.read(topic)) == [1]


def test_letters_wait_for_their_topic_and_not_the_source(topics, topic, letters_to):
    letters = letters_to(topics, topic)
    topics.remove(topic)
    letters._drop_producer()
    with pytest.raises(SinkAwayError, match="problem='topic-missing'"):
        letters.put(record(1), "not-json")
    topics.make(topic)
    wait_until(lambda: not letters.put(record(1), "not-json"))
    letters.flush(60)
    assert offsets(topics.read(topic)) == [1]


def test_text_is_in_no_log_at_any_level(topics, topic, caplog, source_of, letters_to):
    caplog.set_level(logging.DEBUG)
    letters = letters_to(topics, f"{topic}-dead")
    topics.fill(topic, [b"{" + SECRET, b'{"text": "%s"}' % SECRET])
    source = source_of(topics, topic, format="jsonl", on_reject=letters.put)
    assert read(source, 2)[0] == [SECRET.decode()]
    letters.flush(60)
    assert SECRET.decode() not in caplog.text
