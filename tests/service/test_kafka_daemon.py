"""Daemons that read a topic of a real broker, die, lose it, and meet what is no document."""

import re
import time

import pytest

from streamlda.storage.store import Store
from tests.kafka.broker import free_ports
from tests.kafka.topics import wait_until
from tests.service.daemon_process import (
    Daemon,
    few_or,
    left_by,
    run_to_end,
    texts,
)
from tests.service.long_stream import (
    AWAY_SECONDS,
    answer_of,
    as_json,
    ending,
    not_ready,
    topic_settings,
    wait_for_slots,
)

#: Of each partition that is read to its end.
N_RECORDS = 10_000


@pytest.fixture
def settings_for(topics, topic, tmp_path):
    def make(name, **more):
        return topic_settings(tmp_path / name, topics.bootstrap, topic, **more)

    return make


@pytest.mark.long
@pytest.mark.parametrize("seconds", few_or(3.0, AWAY_SECONDS))
def test_a_broker_that_is_away_at_the_start_and_goes_again_ends_nothing(
    seconds, broker, topics, topic, tmp_path
):
    values, poison = poisoned(N_RECORDS, 10)
    half = N_RECORDS // 2
    letters = f"{topic}-letters"
    topics.make(topic)
    topics.make(letters)
    topics.send(topic, values[:half])
    (port,) = free_ports(1)

    def settings_in(name, **more):
        made = topic_settings(tmp_path / name, broker.bootstrap, topic, **more)
        return made | ending(N_RECORDS)

    def outage(daemon, said):
        until = time.monotonic() + seconds
        known = time.monotonic() + 20
        while time.monotonic() < until:
            assert answer_of(port, "/livez")["alive"]
            assert daemon.process.poll() is None
            if time.monotonic() > known:
                assert re.fullmatch(said, not_ready(port))
                assert answer_of(port, "/status")["lag"]["records"] is None
            time.sleep(0.2)

    # One failure of what is there would end it.
    more = {"http__port": port, "dead_letters__topic": letters, "breaker__attempts": 1}
    broker.kill()
    try:
        with Daemon(settings_in("daemon", **more)) as daemon:
            stalled = daemon.wait_for("stalled")
            # Dead letters are what it connects first; it is the same brokers.
            assert (stalled["what"], stalled["reason"]) == ("dead-letters", "refused:ECONNREFUSED")
            said = r".*dead-letters stalled since \S+: .*"
            outage(daemon, said)
            assert re.fullmatch(said, not_ready(port))
            assert answer_of(port, "/status")["lag"]["records"] is None
            broker.start()
            wait_for_slots(daemon, port, half)
            assert answer_of(port, "/readyz")["ready"]
            assert answer_of(port, "/status")["lag"]["records"] is not None
            broker.kill()
            outage(daemon, r".*source stalled since \S+: \S+")
            broker.start()
            topics.send(topic, values[half:])
            assert daemon.end() == 0
    finally:
        if not broker.runs:
            broker.start()
    assert daemon.events("recovered")[0]["what"] == "dead-letters"
    run_to_end(settings_in("twin"))
    assert left_by(tmp_path / "daemon") == left_by(tmp_path / "twin")
    keys = {row.key for row in topics.read(letters)}
    assert keys == {b"%s/0/%d" % (topic.encode(), at) for at in poison}


@pytest.mark.long
def test_a_topic_that_is_missing_is_waited_for_and_so_is_a_partition_that_is_added(
    topics, topic, settings_for, tmp_path
):
    (port,) = free_ports(1)
    settings = settings_for("daemon", http__port=port)
    with Daemon(settings | {"snapshots.every": 3000}) as daemon:
        daemon.wait_for("stalled")
        # On a busy machine the first connection may not be answered in time.
        said = re.compile(r".*source stalled since \S+: topic-missing")
        wait_until(lambda: said.fullmatch(not_ready(port)))
        assert topic not in topics.admin.list_topics()
        topics.make(topic)
        topics.send(topic, as_json(texts(3000, seed=1)))
        wait_for_slots(daemon, port, 3000)
        wait_until(lambda: not not_ready(port))
        assert daemon.stop() == 0
    # It is read from its first record.
    topics.admin.create_partitions({topic: 2})
    topics.send(topic, as_json(texts(3000, seed=2)), 1)
    run_to_end(settings | ending(6000, 2))
    with Store.open(tmp_path / "daemon" / "checkpoints") as store:
        newest = store.newest()
    assert newest.about["places"] == 6000
    assert newest.position["offsets"] == {"0": 3000, "1": 3000}


def poisoned(n_records, every):
    """Return values of which one in N is no document, and the offsets of those."""
    bad = [b"\xff", b'{"text": 1}', b'{"no": ""}']
    values, poison = as_json(texts(n_records)), set(range(0, n_records, every))
    for offset in poison:
        values[offset] = bad[offset // every % len(bad)]
    return values, poison
