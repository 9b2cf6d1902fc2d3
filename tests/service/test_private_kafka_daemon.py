"""Private daemons that read a topic of a real broker: killed at random, and rolled back."""

import random
from itertools import count

import pytest

from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda_connectors.kafka.partitions import BLOCK
from tests.private.pipelines import published
from tests.service.daemon_process import changed, few_or, texts
from tests.service.long_stream import as_json, ending, run_killed
from tests.service.test_kafka_daemon import settings_for

__all__ = ["settings_for"]


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
    # A window that is lost takes another one.
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
