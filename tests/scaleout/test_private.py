"""A private fit on a cluster: number for number the releases of one process."""

import itertools
import os
import signal

import dask
import numpy as np
import pytest

from streamlda.errors import InsufficientDataError, SourceError
from streamlda.guarantee.noise import SeededNoise
from streamlda.learner import feed
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.scaleout import merge, of_partitions, sum_stages
from streamlda.scaleout.private import Private
from streamlda.simulate import PlantedLDA
from tests.private.streams import Recorder

D, SLOTS = 30, 40_000
#: Their ends are at no border of a group, and one is empty.
CUTS = [0, 1, 9000, 9000, 20_011, 33_333, SLOTS]


def settings_of(**changes):
    values = {
        "n_components": 3,
        "n_features": D,
        "epsilon": 10.0,
        "delta": 1e-6,
        "documents_per_snapshot": SLOTS,
        "oversampling": 5,
    }
    return PrivateSettings(**values | changes)


@pytest.fixture(scope="module")
def rows():
    planted = PlantedLDA(3, D, seed=4, mean_length=10, topic_concentration=0.1)
    return planted.documents(SLOTS)


def assert_same_releases(mine, theirs):
    assert [name for name, *_ in mine.released] == [name for name, *_ in theirs.released]
    for (stage, arrays, stddevs), (_, others, wanted) in zip(
        mine.released, theirs.released, strict=True
    ):
        assert stddevs == wanted
        assert arrays.keys() == others.keys()
        for name in arrays:
            np.testing.assert_array_equal(arrays[name], others[name], f"{stage} {name}")


def on_cluster(client, parts, settings, *, slots=SLOTS, recorder=None):
    recorder = recorder or Recorder(SeededNoise(7))
    learner = PrivateLearner(settings, recorder, vocabulary="public")
    for _ in sum_stages(client, of_partitions(parts), learner, None, slots):
        if learner.due == 0 or learner.private.ends_well:
            learner.release()
    return recorder, learner.snapshot()


def killing(part, marker):
    """Return a partition; the first time, end the process instead."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "kills"),
    [
        ({}, False),
        ({"documents_per_snapshot": 19_000}, False),
        ({"refinement_rounds": 1}, False),
        ({"documents_per_snapshot": 20_000, "snapshots": 1}, True),
    ],
    ids=["tensor", "two windows, and a rest", "refinement", "a lost worker"],
)
def test_releases_are_those_of_one_process(client, rows, tmp_path, changes, kills):
    settings, marker = settings_of(**changes), tmp_path / "killed"
    parts = [rows.rows(a, b) for a, b in itertools.pairwise(CUTS)]
    if kills:
        parts = [dask.delayed(killing)(part, marker) for part in parts]
    wanted = Recorder(SeededNoise(7))
    learner = PrivateLearner(settings, wanted, vocabulary="public")
    feed(learner, rows, last=True)
    if learner.private.ends_well:
        learner.release()
    model = learner.snapshot()
    recorder, found = on_cluster(client, parts, settings)
    assert_same_releases(recorder, wanted)
    np.testing.assert_array_equal(found.components, model.components)
    assert found.documents_seen == model.documents_seen
    assert found.privacy == model.privacy
    assert marker.exists() == kills


@pytest.mark.parametrize("stage", ["norms", "pairs"])
def test_any_cut_gives_the_sums_of_one_process(rows, stage):
    settings = settings_of(documents_per_snapshot=2000)
    learner = PrivateLearner(settings, ReleaseManager(SeededNoise(1)), vocabulary="public")
    if stage == "pairs":
        learner.skip(learner.stage.slots_left)
        learner.accept(learner.due_stage.release(SeededNoise(1)))
    assert learner.stage.name == stage
    first, last = learner.slots, learner.stage.last
    how = {"statistics": learner.stage.statistics, "mechanism": learner.stage.mechanism}
    shared = Private(spans=((first, last),), name=stage, n_features=D, **how)
    learner.add(rows.rows(first, last))
    wanted = learner.stage.state()
    borders = [first, *range(first + 64, last, 192), last]
    cuts = [*itertools.pairwise(borders)]
    total = merge(*(shared.fold(span, lambda *own: [rows.rows(*own)]) for span in cuts))
    for name in wanted:
        np.testing.assert_array_equal(total.arrays[name], wanted[name], name)
    shifted = shared.fold((first, last), lambda a, b: [rows.rows(a + 20_000, b + 20_000)])
    assert any((shifted.arrays[name] != wanted[name]).any() for name in wanted)


@pytest.mark.long
def test_what_gives_no_snapshot_or_is_not_what_was_counted_pays_nothing(client, rows):
    recorder = Recorder(SeededNoise(7))
    short = settings_of(documents_per_snapshot=2 * SLOTS)
    with pytest.raises(InsufficientDataError, match="a window of slots, got slots=0"):
        on_cluster(client, [rows], short, recorder=recorder)
    with pytest.raises(SourceError, match="records=40000 known=39999"):
        on_cluster(client, [rows], settings_of(), slots=SLOTS - 1, recorder=recorder)
    assert recorder.released == []
