"""A broker that goes away and comes back: calls end in time, and nothing is lost by it."""

import json
import re
import subprocess
import sys
import time
from collections import Counter, deque

import pytest

from streamlda.errors import SourceError
from streamlda_connectors.kafka import ShareTopic
from tests.kafka.test_producer import SECRET, offsets, record
from tests.kafka.test_recovery import numbers, texts_from
from tests.kafka.topics import read


@pytest.mark.parametrize("seconds", [1.5, pytest.param(30.0, marks=pytest.mark.soak)])
def test_broker_stopped_while_streaming(seconds, broker, own_topics, topic, source_of):
    """Polls stay empty and short while it is away; then nothing is missing and nothing twice."""
    own_topics.fill(topic, *(numbers(1000 * number, 1000 * number + 400) for number in (0, 1)))
    source = source_of(own_topics, topic)
    texts, _, _ = read(source, 300, max_records=100)
    broker.kill()
    deadline, longest = time.monotonic() + seconds, 0.0
    while time.monotonic() < deadline:
        start = time.monotonic()
        texts += source.poll(100, 0.5).documents
        longest = max(longest, time.monotonic() - start)
    assert longest < 10.0
    position = dict(source.position())
    broker.start()
    for number in (0, 1):
        own_topics.send(topic, numbers(1000 * number + 400, 1000 * number + 600), number)
    texts += read(source, 1200 - len(texts), seconds=60)[0]
    for number in (0, 1):
        wanted = texts_from(1000 * number, 1000 * number + 600)
        assert [text for text in texts if int(text) // 1000 == number] == wanted
    assert sum(position["offsets"].values()) <= 800


def test_every_poison_is_referenced_before_the_position_passes_it(
    broker, own_topics, topic, source_of, letters_to
):
    """A loop as the daemon's: poll, flush, store. It dies once between poll and flush."""
    own_topics.make(topic, 2)
    n = 90
    values = [b"poison" if i % 3 else b'{"text": "%d"}' % i for i in range(n)]
    for partition in (0, 1):
        own_topics.send(topic, values, partition)
    dead = f"{topic}-dead"
    stored, seen, n_refused = None, [], 0
    for dies in (True, False):
        letters = letters_to(own_topics, dead, request_timeout_seconds=1.0)
        source = source_of(own_topics, topic, format="jsonl", on_reject=letters.put)
        if stored is not None:
            source.seek(stored["position"])
        while len(seen) < 2 * n // 3:
            batch = source.poll(25, 1.0)
            if dies and len(seen) > n // 5:
                broker.kill()
                with pytest.raises(SourceError, match="dead letters in time"):
                    letters.flush(0.5)
                n_refused += 1
                broker.start()
                break
            letters.flush(10)
            seen = [*seen, *batch.documents]
            stored = {"position": json.loads(json.dumps(dict(source.position())))}
            passed = {
                f"{topic}/{number}/{at}"
                for number, end in stored["position"]["offsets"].items()
                for at in range(end)
                if at % 3
            }
            assert passed <= {row.key.decode() for row in own_topics.read(dead)}
        letters.close()
        source.close()
    assert n_refused == 1
    assert Counter(seen) == Counter({str(i): 2 for i in range(0, n, 3)})
    keys = {row.key.decode() for row in own_topics.read(dead)}
    assert keys == {f"{topic}/{part}/{i}" for part in (0, 1) for i in range(n) if i % 3}


CLOSING = """
import sys, threading, time
from streamlda_connectors.kafka import DeadLetters, Record
letters = DeadLetters(sys.argv[2], bootstrap_servers=sys.argv[1], request_timeout_seconds=2.0)
letters.put(Record("source", 0, 0, 0, None, b"x", ()), "not-json")
letters.flush(10)
print("ready", flush=True)
input()
letters.put(Record("source", 0, 1, 0, None, b"x", ()), "not-json")
letters.close()
deadline = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(threading.active_count())
"""


def test_while_the_broker_is_away_all_end_in_time_and_nothing_is_lost(
    broker, own_topics, topic, letters_to, snapshots_to, opened
):
    """One outage for all: a broker takes seconds to start."""
    names = [f"{topic}-{what}" for what in ("flushed", "bounded", "closed", "snapshots", "shares")]
    flushed = letters_to(own_topics, names[0])
    flushed.put(record(0), "not-json")
    flushed.flush(10)
    options = {"request_timeout_seconds": 1.0, "max_pending_bytes": 50_000}
    bounded = letters_to(own_topics, names[1], **options)
    closing = subprocess.Popen(
        [sys.executable, "-c", CLOSING, own_topics.bootstrap, names[2]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert closing.stdout.readline() == "ready\n"
    snapshots = snapshots_to(own_topics, names[3], request_timeout_seconds=1.0)
    snapshots.publish("1", b"one", {})
    shares = opened(ShareTopic, own_topics, names[4], request_timeout_seconds=1.0)
    shares.publish("k", b"one", {})
    # More than one fetch brings, so that the broker is needed again.
    own_topics.send(names[4], [bytes(2**20)] * 24, key=b"large")
    reading = shares.read()
    assert next(reading).value == b"one"
    broker.kill()
    try:
        for offset in range(1, 50):
            flushed.put(record(offset), "not-json")
        with pytest.raises(SourceError, match="pending=49") as caught:
            flushed.flush(0.5)
        assert SECRET.decode() not in str(caught.value)
        with pytest.raises(SourceError, match="pending_bytes=4") as caught:
            fill(bounded)
        n_put = int(re.findall(r"pending=(\d+)", str(caught.value))[0])
        assert 20 < n_put < 50
        out, err = closing.communicate("\n", timeout=60)
        # A thread that is left behind would be one more.
        assert out == "1\n", err[-1000:]
        with pytest.raises(SourceError):
            snapshots.publish("2", b"two", {})
        with pytest.raises(SourceError, match="the brokers must send what they have"):
            list(reading)
        with pytest.raises(SourceError, match="the brokers must take a share"):
            shares.publish("k", b"two", {})
    finally:
        broker.start()
    flushed.flush(20)
    flushed.put(record(50), "not-json")
    flushed.flush(10)
    assert offsets(own_topics.read(names[0])) == list(range(51))
    put_all(bounded, range(n_put, 200))
    bounded.flush(10)
    assert offsets(own_topics.read(names[1])) == list(range(200))
    snapshots.publish("2", b"two", {})
    rows = own_topics.read(names[3])
    assert {row.key: row.value for row in rows} == {b"1": b"one", b"2": b"two"}
    shares.publish("k", b"two", {})
    values = [row.value for row in shares.read()]
    # What was refused for being late may have been written all the same.
    few = [value for value in values if len(value) < 10]
    assert few in ([b"one", b"two"], [b"one", b"two", b"two"])
    assert len(values) - len(few) == 24


def fill(letters):
    for number in range(1000):
        letters.put(record(number), "not-json")


def put_all(letters, numbers):
    waiting, deadline = deque(numbers), time.monotonic() + 60
    while waiting:
        try:
            letters.put(record(waiting[0]), "not-json")
            waiting.popleft()
        except SourceError:
            assert time.monotonic() < deadline
