"""Daemons that share a topic's partitions: killed, added, removed; each record counts once."""

import os
import random
import signal
import time

import pytest

from streamlda_connectors.kafka.consumer import SESSION_SECONDS
from tests.kafka.topics import wait_until
from tests.service.daemon_process import Daemon, changed, texts
from tests.service.sharing import Shared, Truth, none_ended

#: Locks as of a file system that grants all of them: only generations hold daemons apart.
LOCKS_FOR_ALL = "import fcntl; fcntl.flock = lambda *_: None"

#: Others take over what a daemon held that is stopped for so long.
STOPPED_SECONDS = SESSION_SECONDS + 2


def campaign(
    shared, topics, broker, *, documents, n_daemons, kills, broker_kills, seed, stops=0, changes=""
):
    """Kill and stop daemons, kill the broker, add and remove daemons; all is counted once."""
    moments = random.Random(seed)
    truth = Truth(topics, shared.topic, shared.settings("truth"))
    all_of_it = texts(documents)
    parts = [all_of_it[i * documents // 12 : (i + 1) * documents // 12] for i in range(12)]
    topics.make(shared.topic, 4)
    for number in range(4):
        truth.send(parts[number], number)

    def daemon(number):
        settings = shared.settings(f"d{number}", **{"snapshots.every": documents // 5})
        return Daemon(settings, changed(settings, changes))

    daemons = {number: daemon(number) for number in range(n_daemons)}
    broker_moments = set(moments.sample(range(kills), broker_kills))
    stop_moments = set(moments.sample(range(kills), stops))
    rest = iter(enumerate(parts[4:], 4))
    try:
        for kill in range(kills):
            time.sleep(moments.uniform(0.5, 5.0))
            if kill in broker_moments:
                broker.kill()
                time.sleep(moments.uniform(1.0, 4.0))
                broker.start()
            if kill == kills // 3:
                daemons[n_daemons] = daemon(n_daemons)
            if kill == kills // 2:
                topics.admin.create_partitions({shared.topic: 6})
            if kill == 2 * kills // 3:
                gone = daemons.pop(0)
                gone.process.kill()
                gone.end()
            if moments.random() < 8 / kills and (part := next(rest, None)):
                truth.send(part[1], part[0] % (4 if kill < kills // 2 else 6))
            none_ended(daemons.values())
            one = moments.choice(list(daemons))
            if kill in stop_moments:
                daemons[one].process.send_signal(signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                daemons[one].process.send_signal(signal.SIGCONT)
                one = moments.choice(list(daemons))
            daemons[one].process.kill()
            daemons[one].end()
            daemons[one] = daemon(one)
        for number, part in rest:
            truth.send(part, number % 6)
        wait_until(lambda: none_ended(daemons.values()) or shared.records() >= truth.records, 300)
        snapshots = len(shared.snapshots())
        wait_until(lambda: len(shared.snapshots()) >= min(1, snapshots), 60)
        for one in daemons.values():
            # Before that line a signal finds a process without a handler.
            one.wait_for("settings-checked")
            assert one.stop() == 0
    finally:
        for one in daemons.values():
            one.__exit__()
    assert shared.records() == truth.records
    assert shared.learned() == truth.learned()
    for model in shared.snapshots():
        assert model.documents_seen <= truth.learned()[0]
        assert model.prevalence.sum() == pytest.approx(1)


@pytest.mark.long
def test_killed_daemons_that_share_partitions_count_each_record_once(shared, topics):
    campaign(shared, topics, None, documents=12_000, n_daemons=2, kills=3, broker_kills=0, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("changes", ["", LOCKS_FOR_ALL], ids=["locks", "no-locks"])
def test_a_campaign_of_kills(changes, broker, topics, topic, tmp_path):
    shared = Shared(tmp_path, broker.bootstrap, topic)
    kills = int(os.environ.get("STREAMLDA_TEST_SHARED_KILLS", 100))
    sizes = {
        "documents": int(os.environ.get("STREAMLDA_TEST_SHARED_DOCUMENTS", 300_000)),
        "kills": kills,
        "stops": kills // 5,
        "broker_kills": kills // 20,
        "changes": changes,
    }
    campaign(shared, topics, broker, n_daemons=3, seed=1, **sizes)
