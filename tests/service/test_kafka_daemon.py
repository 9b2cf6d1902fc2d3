"""Daemons that read a topic of a real broker, die, lose it, and meet what is no document.

Private ones are killed at random: each offset is in one release, and models are the same.
"""

import random
import re
import time
from itertools import count

import pytest

from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda.storage.store import Store
from streamlda_connectors.kafka.partitions import BLOCK
from tests.kafka.broker import free_ports
from tests.kafka.topics import wait_until
from tests.private.pipelines import published
from tests.service.daemon_process import Daemon, changed, few_or, left_by, run_to_end, texts
from tests.service.long_stream import (
    AWAY_SECONDS,
    answer_of,
    as_json,
    ending,
    not_ready,
    run_killed,
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
    seconds, broker, topics, topic, settings_for, tmp_path
):
    values, half = as_json(texts(N_RECORDS)), N_RECORDS // 2
    poison, bad = range(0, N_RECORDS, 10), [b"\xff", b'{"text": 1}', b'{"no": ""}']
    for offset in poison:
        values[offset] = bad[offset // 10 % len(bad)]
    letters = f"{topic}-letters"
    topics.make(topic)
    topics.send(topic, values[:half])
    (port,) = free_ports(1)

    def outage(daemon, said):
        until = time.monotonic() + seconds
        known = time.monotonic() + 60
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
        with Daemon(settings_for("daemon", **more) | ending(N_RECORDS)) as daemon:
            stalled = daemon.wait_for("stalled")
            # Dead letters are what it connects first; it is the same brokers.
            assert (stalled["what"], stalled["reason"]) == ("source", "refused:ECONNREFUSED")
            said = r"source stalled since \S+: \S+; starting"
            outage(daemon, said)
            assert re.fullmatch(said, not_ready(port))
            assert answer_of(port, "/status")["lag"]["records"] is None
            broker.start()
            missing = r"dead-letters stalled since \S+: topic-missing; starting"
            wait_until(lambda: re.fullmatch(missing, not_ready(port)))
            topics.make(letters)
            wait_for_slots(daemon, port, half)
            wait_until(lambda: not not_ready(port))
            wait_until(lambda: answer_of(port, "/status")["lag"]["records"] is not None)
            broker.kill()
            outage(daemon, r"source stalled since \S+: \S+")
            broker.start()
            topics.send(topic, values[half:])
            assert daemon.end() == 0
    finally:
        if not broker.runs:
            broker.start()
    recovered = [each["what"] for each in daemon.events("recovered")]
    assert recovered[:2] == ["source", "dead-letters"]
    run_to_end(settings_for("twin") | ending(N_RECORDS))
    assert left_by(tmp_path / "daemon") == left_by(tmp_path / "twin")
    keys = {row.key for row in topics.read(letters)}
    assert keys == {b"%s/0/%d" % (topic.encode(), at) for at in poison}


@pytest.mark.long
def test_a_topic_that_is_missing_is_waited_for_and_so_is_a_partition_that_is_added(
    topics, topic, settings_for, tmp_path
):
    (port,) = free_ports(1)
    more = {"http__port": port, "kafka__group": topic, "checkpoint__interval": 3600.0}
    settings = settings_for("daemon", **more)

    def is_shown(offset):
        entries = topics.admin.list_group_offsets([topic]).get(topic, {})
        return [entry.offset for entry in entries.values()] == [offset]

    with Daemon(settings | {"snapshots.every": 3000}) as daemon:
        daemon.wait_for("stalled")
        # On a busy machine the first connection may not be answered in time.
        said = re.compile(r"source stalled since \S+: topic-missing; starting")
        wait_until(lambda: said.fullmatch(not_ready(port)))
        assert topic not in topics.admin.list_topics()
        topics.make(topic)
        topics.send(topic, as_json(texts(3000, seed=1)))
        wait_for_slots(daemon, port, 3000)
        wait_until(lambda: not not_ready(port))
        wait_until(lambda: is_shown(3000))
        topics.send(topic, as_json(texts(500, seed=3)))
        wait_for_slots(daemon, port, 3500)
        assert daemon.stop() == 0
    # The last checkpoint is shown too.
    wait_until(lambda: is_shown(3500))
    topics.admin.create_partitions({topic: 2})
    topics.send(topic, as_json(texts(2500, seed=2)), 1)
    run_to_end(settings | ending(6000, 2))
    with Store.open(tmp_path / "daemon" / "checkpoints") as store:
        newest = store.newest()
    assert newest.about["places"] == 6000
    assert newest.position["offsets"] == {"0": 3500, "1": 2500}


PROMISE = {"privacy.epsilon": 12.0, "privacy.delta": 1e-3, "vocabulary.hash_bits": 5}

#: Slots of a window, and windows; each of four partitions has somewhat more than its part.
SLOTS, WINDOWS = 2000, 3

#: Noise that is the same each time, so that models can be compared: behind a slot one draw.
SAME_NOISE = """
from streamlda.private.release_manager import ReleaseManager
from streamlda.guarantee.noise import SeededNoise

class Same(SeededNoise):
    secure = True

release = ReleaseManager.release

def with_same_noise(self, name, first, *more, **others):
    self.noise = Same(first)
    return release(self, name, first, *more, **others)

ReleaseManager.release = with_same_noise
"""


def releases_of(settings, n_partitions):
    """Return what was paid for each release, and whether all were drawn; each offset is in one."""
    report = read_report(settings["privacy.ledger"])
    behind = {}
    for shot in report["snapshots"]:
        names = [name for name, *_ in shot["documents"]]
        assert len(names) == len(set(names)) <= n_partitions
        for name, first, last in shot["documents"]:
            assert first == behind.get(name, 0), "each offset is in one release"
            behind[name] = last
        first, last = shot["slots"]
        assert sum(stop - start for _, start, stop in shot["documents"]) == last - first
    assert len(behind) == n_partitions
    assert max(behind.values()) - min(behind.values()) <= BLOCK
    assert report["spent"]["epsilon"] <= settings["privacy.epsilon"]
    shots = report["snapshots"]
    paid = [(shot["description"], shot["slots"], shot["mu_squared"]) for shot in shots]
    return paid, {shot["state"] for shot in shots} == {"committed"}


@pytest.mark.long
@pytest.mark.parametrize("n_kills", few_or(4, 100))
def test_private_daemons_of_four_partitions_killed_at_random_give_the_models_of_one_that_was_not(
    n_kills, topics, topic, settings_for, tmp_path
):
    """Paid once, the same price as for one partition; a release that was lost takes its window."""
    slots = SLOTS * WINDOWS
    there = slots + min(n_kills, 10) * SLOTS
    records = [as_json(texts(there // 4 + 90, seed=n + 1)) for n in range(4)]
    records[2] = [value + b" " * 3000 for value in records[2]]
    topics.fill(topic, *records)
    topics.fill(f"{topic}-one", as_json(texts(slots)))

    def run(name, kills=0, **more):
        folder = tmp_path / name
        settings = settings_for(
            name,
            **{
                **PROMISE,
                "privacy.ledger": str(folder / "ledger"),
                # A checkpoint within a stage rounds its sums to the grid there; those behind a
                # release come whatever the interval is.
                "checkpoint.interval": "1 h",
                **ending(slots, WINDOWS),
                **more,
            },
        )
        killed = run_killed(settings, moments, kills, changed(settings, SAME_NOISE))
        paths = sorted((folder / "snapshots").glob("snapshot-??????"))
        paid, all_drawn = releases_of(settings, 1 if more else 4)
        return [published(load(path)) for path in paths], paid, all_drawn, killed

    moments = random.Random(n_kills)
    wanted, paid, *_ = run("twin")
    assert len(wanted) == WINDOWS
    assert paid == run("one", **{"kafka.topic": f"{topic}-one", "kafka.partitions": "0"})[1]
    killed, compared, names = 0, 0, map(str, count())
    while killed < n_kills or not compared:
        models, again, all_drawn, more = run(next(names), max(1, n_kills - killed))
        killed += more
        if all_drawn:
            assert (models, again) == (wanted, paid)
            compared += 1
