"""Brokers that go and come back, and logs that are not what they were."""

import json
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from threading import Thread

import pytest

from streamlda.errors import SourceAwayError, SourceError
from streamlda_connectors.kafka import consumer, writing
from streamlda_connectors.kafka import source as kafka_source
from streamlda_connectors.kafka.consumer import Client
from streamlda_connectors.kafka.partitions import LogTruncation
from tests.kafka.test_producer import SECRET, offsets, put_letters, record
from tests.kafka.topics import SECONDS, read, wait_until


class Relay:
    def __init__(self, target, *, port=0):
        self._target = target.split(":")
        self._server = socket.create_server(("127.0.0.1", port))
        self._opened, self._held, self._silences = [self._server], False, 0
        #: Connections that were begun while it was silent.
        self.n_unanswered = 0
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def fall_silent(self):
        """Pass on nothing of any connection from now on, and close none: they are half-open."""
        self._silences += 1
        self._held = True

    def reconnect(self):
        """Pass new connections on; those that fell silent stay so."""
        self._held = False

    def _accept(self):
        with suppress(OSError):
            while True:
                client = self._server.accept()[0]
                self._opened.append(client)
                if self._held:
                    self.n_unanswered += 1
                    continue
                there = socket.create_connection((self._target[0], int(self._target[1])))
                self._opened.append(there)
                for way in ((client, there), (there, client)):
                    Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, source, target):
        silences = self._silences
        with suppress(OSError):
            while part := source.recv(2**16):
                if silences != self._silences:
                    return
                target.sendall(part)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._server.shutdown(socket.SHUT_RDWR)
        for each in self._opened:
            each.close()


pytestmark = pytest.mark.long


def numbers(first, last):
    return [b"%d" % i for i in range(first, last)]


def texts_from(first, last):
    return [str(i) for i in range(first, last)]


def resume_at(source, position):
    """Return `source` where a position, stored as JSON, says."""
    source.seek(json.loads(json.dumps(dict(position))))
    return source


@pytest.mark.parametrize(("first_left", "lost"), [(12, 7), (20, 15)], ids=["retention", "emptied"])
def test_records_removed_before_they_were_read_are_refused_or_recorded(
    first_left, lost, topics, topic, source_of
):
    """At 20 the topic is empty: the next offset is the end, or behind it."""
    topics.fill(topic, numbers(0, 20))
    source = source_of(topics, topic)
    read(source, 5, max_records=5)
    behind = source.position()
    read(source, 15)
    at_end = source.position()
    topics.remove_before(topic, first_left)
    source = resume_at(source_of(topics, topic), at_end)
    with pytest.raises(SourceError, match=rf"offset=5 log='{first_left}\.\.20'"):
        resume_at(source, behind)
    assert source.position() == at_end
    source = resume_at(source_of(topics, topic, allow_gaps=True), behind)
    assert source.position()["lost"] == {"0": lost}
    assert source.lost() == {"records": lost}
    topics.send(topic, numbers(20, 25))
    assert read(source, 25 - first_left)[0] == texts_from(first_left, 25)
    after = source.position()
    assert resume_at(source_of(topics, topic), after).position() == after
    ahead = {**after, "offsets": {"0": 30}}
    with pytest.raises(SourceError, match=rf"offset=30 log='{first_left}\.\.25'"):
        resume_at(source_of(topics, topic), ahead)
    source = resume_at(source_of(topics, topic, allow_gaps=True), ahead)
    # Five offsets less were passed, and the records that were read stay.
    assert source.position() == {**after, "gaps": {"0": lost - 5}}


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_retention_gap_while_reading(allow_gaps, topics, topic, source_of, monkeypatch):
    topics.fill(topic, numbers(0, 20))
    for name in ("FETCH_BYTES", "PARTITION_BYTES"):
        monkeypatch.setattr(consumer, name, 1)
    source = source_of(topics, topic, allow_gaps=allow_gaps)
    assert read(source, 20)[0] == texts_from(0, 20)
    source.pause()
    # A fetch that is under way would bring the first of them.
    fetcher = source._client.consumer._fetcher
    wait_until(lambda: source.poll(1, 0.1) and not fetcher.in_flight_fetches())
    topics.send(topic, numbers(20, 30))
    topics.remove_before(topic, 26)
    source.resume()
    if allow_gaps:
        assert read(source, 4)[0] == texts_from(26, 30)
        assert source.position()["lost"] == {"0": 6}
        return
    for _ in range(2):
        with pytest.raises(SourceError, match=r"offset=20 log='26\.\.30'"):
            read(source, 1)
    assert source.position()["offsets"] == {"0": 20}


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_truncation_is_refused_even_if_the_log_has_grown_again(
    allow_gaps, topics, topic, source_of, monkeypatch
):
    """One node never elects an unclean leader, so the real client reports the cut once."""
    cuts = deque()

    def cut_off(settings):
        made = Client(settings)
        poll = made.poll

        def polled(timeout_seconds, max_records):
            if cuts:
                raise cuts.pop()
            return poll(timeout_seconds, max_records)

        made.poll = polled
        return made

    topics.fill(topic, numbers(0, 3))
    monkeypatch.setattr(kafka_source, "Client", cut_off)
    source = source_of(topics, topic, allow_gaps=allow_gaps)
    read(source, 3)
    cuts.append(LogTruncation())
    topics.send(topic, numbers(3, 9))
    if allow_gaps:
        assert read(source, 6)[0] == texts_from(3, 9)
        return
    for _ in range(3):
        with pytest.raises(SourceError, match="log was cut"):
            source.poll(5)


def opened_in_time(make):
    """Make a source whose requests have seconds, on a machine that may be slower."""
    made = []

    def is_open():
        with suppress(SourceAwayError):
            made.append(make())
        return made

    wait_until(is_open)
    return made[0]


def refusal_by(source):
    try:
        source.poll(100, 0.5)
    except SourceError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_topic_that_is_replaced_while_it_is_read_is_refused(topics, topic, source_of):
    topics.fill(topic, numbers(0, 3))
    source = source_of(topics, topic, refresh_seconds=0.3)
    read(source, 3)
    position = source.position()
    topics.remove(topic)
    # Longer than what was read: no offset tells them apart.
    topics.fill(topic, numbers(0, 9))
    said = "SourceRefusedError: the topic was replaced by another"
    wait_until(lambda: refusal_by(source).startswith(said))
    with pytest.raises(SourceError, match="topic_id="):
        resume_at(source_of(topics, topic), position)


def test_a_topic_that_is_deleted_is_missing_and_does_not_come_back(topics, topic, source_of):
    """The brokers make a topic for whoever asks for one, and does not say that it must be there."""
    topics.fill(topic, numbers(0, 3))
    source = source_of(topics, topic, refresh_seconds=0.3)
    read(source, 3)
    topics.remove(topic)
    wait_until(lambda: "topic does not exist" in refusal_by(source))
    assert "topic does not exist" in refusal_by(source)
    assert topic not in topics.admin.list_topics()


def test_chosen_partitions_are_read_and_their_position_is_theirs(topics, topic, source_of):
    topics.fill(topic, *(numbers(10 * number, 10 * number + 10) for number in range(5)))
    source = source_of(topics, topic, partitions=[1, 4])
    assert sorted(read(source, 20)[0], key=int) == [*texts_from(10, 20), *texts_from(40, 50)]
    other = source_of(topics, topic, partitions=[2, 4])
    assert sorted(read(other, 20)[0], key=int) == [*texts_from(20, 30), *texts_from(40, 50)]
    with pytest.raises(SourceError, match="partitions="):
        resume_at(other, source.position())
    for partitions in ([-1], [3, 5], [], "1"):
        with pytest.raises(SourceError, match="n_partitions=5"):
            source_of(topics, topic, partitions=partitions)


def test_partitions_added_while_streaming_are_read_from_their_start(topics, topic, source_of):
    topics.fill(topic, numbers(0, 500))
    source = source_of(topics, topic, refresh_seconds=0.3)
    latest = source_of(topics, topic, start="latest", refresh_seconds=0.3)
    old = latest.position()
    assert old["offsets"] == {"0": 500}
    texts, _, _ = read(source, 200, max_records=100)
    topics.admin.create_partitions({topic: 3})
    for number in (1, 2):
        topics.send(topic, numbers(1000 * number, 1000 * number + 50), number)
    texts += read(source, 400, max_records=100)[0]
    assert source.position()["offsets"] == {"0": 500, "1": 50, "2": 50}
    wanted = [*texts_from(0, 500), *texts_from(1000, 1050), *texts_from(2000, 2050)]
    assert sorted(texts, key=int) == wanted
    for each in (latest, resume_at(source_of(topics, topic), old)):
        assert sorted(read(each, 100)[0], key=int) == wanted[500:]
        assert each.position()["offsets"] == {"0": 500, "1": 50, "2": 50}


def damage(path, batch):
    data = bytearray(path.read_bytes())
    end = 0
    for _ in range(batch + 1):
        end += 12 + int.from_bytes(data[end + 8 : end + 12], "big")
    data[end - 1] ^= 1
    path.write_bytes(data)


def test_a_damaged_batch_is_refused(broker, topics, topic, source_of):
    topics.make(topic)
    for first, last in ((0, 10), (10, 35), (35, 60)):
        topics.send(topic, numbers(first, last))
    damage(broker.data / f"{topic}-0" / f"{0:020d}.log", 1)
    source = source_of(topics, topic)
    assert read(source, 10)[0] == texts_from(0, 10)
    for _ in range(2):
        with pytest.raises(SourceError, match="records cannot be read"):
            read(source, 1)
        assert source.position()["offsets"] == {"0": 10}


def test_a_broker_that_does_not_answer_is_known_to_be_away_and_lag_is_not(
    broker, topics, topic, source_of
):
    """It is stopped, not ended: its connections stay."""
    topics.fill(topic, numbers(0, 5), numbers(5, 10))
    source = opened_in_time(lambda: source_of(topics, topic, request_timeout_seconds=1.5))
    assert (source.silent(), source.last_answer()) == (None, None)

    def poll_until(holds):
        wait_until(lambda: holds() or (source.poll(100, 0.1) and holds()))

    poll_until(lambda: source.silent() == 0 and source.lag() == {0: 0, 1: 0})
    before = source.last_answer()
    # With nothing to read, fetches are answered all the same; while it is paused, none is made.
    poll_until(lambda: source.last_answer() > before + 1 and source.silent() == 0)
    source.pause()
    for _ in range(4):
        source.poll(1, 0.5)
    assert source.silent() == 0
    source.resume()
    poll_until(lambda: source.last_answer() > before + 3)
    with broker.stopped():
        stopped = time.monotonic()
        poll_until(lambda: source.silent())
        # It answered until three seconds behind the beginning.
        assert 1.0 < source.silent() < time.monotonic() - before - 2
        assert source.lag() == {0: None, 1: None}
        assert source.last_answer() < time.monotonic() - 1.0
    poll_until(lambda: source.silent() == 0 and source.lag() == {0: 0, 1: 0})
    # A fetch that was under way when the broker stopped is made again later.
    poll_until(lambda: source.last_answer() > stopped + 1)


def test_reading_continues_soon_after_half_open_connections_end(broker, topics, topic, source_of):
    """The client had them all closed and opened others, which nobody answered either."""
    topics.fill(topic, numbers(0, 5))
    with Relay(broker.relayed_bootstrap, port=broker.relay_port) as relay:
        short = {"bootstrap_servers": relay.address, "request_timeout_seconds": 2.0}
        source = opened_in_time(lambda: source_of(topics, topic, **short))
        read(source, 5)
        relay.fall_silent()

        def is_away():
            assert not source.poll(100, 0.5).documents
            return relay.n_unanswered > 1 and source.reason().startswith("no-answer")

        wait_until(is_away)
        relay.reconnect()
        topics.send(topic, numbers(5, 6))
        # Two connections that were begun before, on a machine that may be slow.
        assert read(source, 1)[0] == ["5"]


CLOSING = """
import sys, threading, time
from streamlda_connectors.kafka import DeadLetters, Record
letters = DeadLetters(sys.argv[2], bootstrap_servers=sys.argv[1], request_timeout_seconds=5.0)
letters.put(Record("source", 0, 0, 0, None, b"x"), "not-json")
letters.flush(60)
print("ready", flush=True)
input()
letters.put(Record("source", 0, 1, 0, None, b"x"), "not-json")
letters.close()
deadline = time.monotonic() + 200
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(threading.active_count())
"""


def test_while_the_broker_is_away_all_end_in_time_and_nothing_is_lost(
    broker, topics, topic, source_of, letters_to, monkeypatch
):
    """One outage for all: a broker takes seconds to start."""
    names = [f"{topic}-{what}" for what in ("flushed", "bounded", "closed")]
    flushed = letters_to(topics, names[0])
    put_letters(flushed, record(0))
    short = {"request_timeout_seconds": 5.0}
    monkeypatch.setattr(writing, "MOST_PENDING", 49)
    bounded = letters_to(topics, names[1], **short)
    topics.make(names[2])
    closing = subprocess.Popen(
        [sys.executable, "-c", CLOSING, topics.bootstrap, names[2]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert closing.stdout.readline() == "ready\n"
    topics.fill(topic, *(numbers(first, first + 400) for first in (0, 1000)))
    source = source_of(topics, topic)
    streamed, _, _ = read(source, 300, max_records=100)
    broker.kill()
    try:
        for _ in range(4):
            start = time.monotonic()
            streamed += source.poll(100, 0.5).documents
            assert time.monotonic() - start < 60.0
        n_streamed = sum(source.position()["offsets"].values())
        assert n_streamed == len(streamed) <= 800
        for offset in range(1, 50):
            flushed.put(record(offset), "not-json")
        with pytest.raises(SourceError, match="pending=49") as caught:
            flushed.flush(0.5)
        assert SECRET.decode() not in str(caught.value)
        with pytest.raises(SourceError, match="pending=49"):
            put_letters(bounded, *map(record, range(1000)))
        out, err = closing.communicate("\n", timeout=SECONDS)
        # A thread that is left behind would be one more.
        assert out == "1\n", err[-1000:]
    finally:
        broker.start()
    for number, first in enumerate((400, 1400)):
        topics.send(topic, numbers(first, first + 200), number)
    streamed += read(source, 1200 - n_streamed)[0]
    for first in (0, 1000):
        own = [text for text in streamed if int(text) // 1000 == first // 1000]
        assert own == texts_from(first, first + 600)
    flushed.flush(60)
    put_letters(flushed, record(50))
    assert offsets(topics.read(names[0])) == list(range(51))
    waiting, deadline = deque(range(49, 200)), time.monotonic() + SECONDS
    while waiting:
        try:
            bounded.put(record(waiting[0]), "not-json")
            waiting.popleft()
        except SourceError:
            assert time.monotonic() < deadline
    bounded.flush(60)
    assert offsets(topics.read(names[1])) == list(range(200))
