"""What happens when processes die, brokers restart, and logs are not what they were."""

import hashlib
import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from streamlda.errors import SourceError
from streamlda_connectors.kafka import KafkaSource
from streamlda_connectors.kafka.client import Bounds, Truncated
from streamlda_connectors.kafka.kafka_python import KafkaPythonClient
from streamlda_connectors.kafka.share import after_gap
from tests.kafka.topics import read


def numbers(first, last):
    return [b"%d" % i for i in range(first, last)]


def texts_from(first, last):
    return [str(i) for i in range(first, last)]


def consume(bootstrap, topic, path, n_records):
    """Read a topic and store, at once in one file, the offsets and a sum of what was read."""
    source = KafkaSource(topic, bootstrap_servers=bootstrap, format="text")
    state = {"texts": 0, "blanks": 0, "sum": 0, "digest": "", "position": None}
    if path.exists():
        state = json.loads(path.read_text())
        source.seek(state["position"])
    while state["texts"] + state["blanks"] < n_records:
        batch = source.poll(7, 1.0)
        for text in batch.documents:
            state["sum"] += int(text)
            state["digest"] = hashlib.sha256((state["digest"] + text).encode()).hexdigest()
        state["texts"] += batch.n_documents
        state["blanks"] += batch.n_records - batch.n_documents
        state["position"] = dict(source.position())
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, path)  # noqa: PTH105 - the atomic step that is tested
    source.close()


# Children of a server that has imported this module once, and has no threads.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__])


def test_kill_9_loses_nothing_and_counts_nothing_twice(topics, topic, tmp_path):
    n_records = 6000
    topics.make(topic)
    values = [None if i % 10 == 3 else value for i, value in enumerate(numbers(0, n_records))]
    topics.send(topic, values)
    wanted = [i for i in range(n_records) if i % 10 != 3]
    path = tmp_path / "state.json"
    rng = np.random.default_rng(5)
    codes = []
    for last in (False,) * 5 + (True,):
        arguments = (topics.bootstrap, topic, path, n_records)
        process = context.Process(target=consume, args=arguments, daemon=True)
        process.start()
        before = path.stat().st_mtime_ns if path.exists() else 0
        while not last and process.is_alive():
            if path.exists() and path.stat().st_mtime_ns > before:
                time.sleep(rng.uniform(0, 0.02))
                process.kill()
                break
            time.sleep(0.002)
        process.join(60)
        codes.append(process.exitcode)
    assert codes.count(-signal.SIGKILL) >= 3
    assert codes[-1] == 0
    state = json.loads(path.read_text())
    digest = ""
    for i in wanted:
        digest = hashlib.sha256((digest + str(i)).encode()).hexdigest()
    assert (state["texts"], state["blanks"]) == (len(wanted), n_records - len(wanted))
    assert (state["sum"], state["digest"]) == (sum(wanted), digest)


@pytest.mark.parametrize(("first_left", "lost"), [(12, 7), (20, 15)], ids=["retention", "emptied"])
def test_records_removed_before_they_were_read_are_refused_or_recorded(
    first_left, lost, topics, topic, source_of
):
    """At 20 the topic is empty: the next offset is the end, or behind it."""
    topics.fill(topic, numbers(0, 20))
    source = source_of(topics, topic)
    read(source, 5, max_records=5)
    behind = json.loads(json.dumps(dict(source.position())))
    read(source, 15)
    at_end = source.position()
    topics.remove_before(topic, first_left)

    source = source_of(topics, topic)
    source.seek(at_end)
    with pytest.raises(SourceError, match=rf"offset=5 log='{first_left}\.\.20'"):
        source.seek(behind)
    assert source.position() == at_end
    source = source_of(topics, topic, allow_gaps=True)
    source.seek(behind)
    assert source.position()["lost"] == {"0": lost}
    topics.send(topic, numbers(20, 25))
    assert read(source, 25 - first_left)[0] == texts_from(first_left, 25)
    after = source.position()
    source = source_of(topics, topic)
    source.seek(after)
    assert source.position() == after


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_retention_gap_while_reading(allow_gaps, topics, topic, source_of):
    topics.fill(topic, numbers(0, 20))
    source = source_of(
        topics, topic, allow_gaps=allow_gaps, fetch_max_bytes=1, max_partition_fetch_bytes=1
    )
    assert read(source, 20)[0] == texts_from(0, 20)
    source.pause()
    source.poll(1, 0.6)
    topics.send(topic, numbers(20, 30))
    topics.remove_before(topic, 26)
    source.resume()
    if allow_gaps:
        assert read(source, 4)[0] == texts_from(26, 30)
        assert source.position()["lost"] == {"0": 6}
    else:
        for _ in range(2):
            with pytest.raises(SourceError, match=r"offset=20 log='26\.\.30'"):
                read(source, 1, seconds=10)
        assert source.position()["offsets"] == {"0": 20}


def test_position_beyond_the_log_is_refused_or_goes_on_at_the_end(topics, topic, source_of):
    topics.fill(topic, numbers(0, 3))
    source = source_of(topics, topic)
    ahead = {**source.position(), "offsets": {"0": 10}}
    with pytest.raises(SourceError, match=r"offset=10 log='0\.\.3'"):
        source.seek(ahead)
    source = source_of(topics, topic, allow_gaps=True)
    source.seek(ahead)
    assert source.position()["offsets"] == {"0": 3}


@pytest.mark.parametrize(
    ("offset", "wanted"), [(2, (5, 3)), (5, (5, 0)), (7, (7, 0)), (9, (9, 0)), (12, (9, 0))]
)
def test_after_gap(offset, wanted):
    assert after_gap(offset, Bounds(5, 9)) == wanted


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_truncation_is_refused_even_if_the_log_has_grown_again(
    allow_gaps, topics, topic, source_of
):
    """One node never elects an unclean leader, so the real client is told of the cut once."""

    class Cut(KafkaPythonClient):
        told = False

        def poll(self, timeout_seconds, max_records):
            if position == 3 and not Cut.told:
                Cut.told = True
                raise Truncated
            return super().poll(timeout_seconds, max_records)

    topics.fill(topic, numbers(0, 3))
    position = 0
    source = source_of(topics, topic, allow_gaps=allow_gaps, connect=Cut)
    read(source, 3)
    position = 3
    topics.send(topic, numbers(3, 9))
    if allow_gaps:
        assert read(source, 6)[0] == texts_from(3, 9)
    else:
        for _ in range(3):
            with pytest.raises(SourceError, match="must not be cut"):
                source.poll(5)


@pytest.mark.real_broker
def test_another_topic_of_the_same_name_is_refused(topics, topic, source_of):
    topics.fill(topic, numbers(0, 3))
    source = source_of(topics, topic)
    read(source, 3)
    position = source.position()
    source.close()
    topics.admin.delete_topics([topic])
    deadline = time.monotonic() + 60
    while topic in topics.admin.list_topics():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    topics.fill(topic, numbers(0, 9))
    source = source_of(topics, topic)
    with pytest.raises(SourceError, match="topic_id="):
        source.seek(position)
    source.close()


def test_shares_cover_all_partitions_disjointly(topics, topic, source_of):
    topics.fill(topic, *(numbers(10 * number, 10 * number + 10) for number in range(5)))
    seen = []
    for i, n_partitions in enumerate([2, 2, 1]):
        source = source_of(topics, topic, partitions=f"{i}/3")
        texts, _, _ = read(source, 10 * n_partitions)
        seen += texts
        position = source.position()
        assert set(position["offsets"]) == {str(n) for n in range(5) if n % 3 == i}
    assert sorted(seen, key=int) == texts_from(0, 50)
    other = source_of(topics, topic, partitions=[2, 4])
    assert sorted(read(other, 20)[0], key=int) == [*texts_from(20, 30), *texts_from(40, 50)]
    with pytest.raises(SourceError, match="partitions="):
        other.seek(position)
    for partitions in ("6/7", [3, 5]):
        with pytest.raises(SourceError, match="n_partitions=5"):
            source_of(topics, topic, partitions=partitions)


def test_partitions_added_while_streaming_are_read_from_their_start(topics, topic, source_of):
    topics.fill(topic, numbers(0, 500))
    source = source_of(topics, topic, refresh_seconds=0.3)
    half = source_of(topics, topic, partitions="0/2", start="latest", refresh_seconds=0.3)
    assert half.position()["offsets"] == {"0": 500}
    old = half.position()
    texts, _, _ = read(source, 200, max_records=100)
    topics.admin.create_partitions({topic: 3})
    for number in (1, 2):
        topics.send(topic, numbers(1000 * number, 1000 * number + 50), number)
    texts += read(source, 400, max_records=100)[0]
    assert source.position()["offsets"] == {"0": 500, "1": 50, "2": 50}
    wanted = [*texts_from(0, 500), *texts_from(1000, 1050), *texts_from(2000, 2050)]
    assert sorted(texts, key=int) == wanted
    assert read(half, 50)[0] == texts_from(2000, 2050)
    assert half.position()["offsets"] == {"0": 500, "2": 50}
    again = source_of(topics, topic, partitions="0/2")
    again.seek(old)
    assert read(again, 50)[0] == texts_from(2000, 2050)


def damage(path, batch):
    """Flip a bit in the last byte of one batch of a log segment."""
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(batch):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    with path.open("r+b") as file:
        file.seek(end - 1)
        file.write(bytes([data[end - 1] ^ 1]))


def test_damaged_batch_is_refused_or_passed_over(broker, own_topics, topic, source_of):
    own_topics.make(topic)
    for first in (0, 10, 35):
        own_topics.send(topic, numbers(first, 10 if first == 0 else first + 25))
    segment = broker.data / f"{topic}-0" / f"{0:020d}.log"
    damage(segment, 1)
    source = source_of(own_topics, topic)
    assert read(source, 10)[0] == texts_from(0, 10)
    for _ in range(2):
        with pytest.raises(SourceError, match="records must be readable"):
            read(source, 1)
        assert source.position()["offsets"] == {"0": 10}
    position = source.position()
    source = source_of(own_topics, topic, allow_gaps=True)
    source.seek(position)
    assert read(source, 25)[0] == texts_from(35, 60)
    assert source.position()["lost"] == {"0": 25}
