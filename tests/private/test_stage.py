"""Stages: slots of a sum, and what comes out. See also `test_sensitivity`."""

import numpy as np
import pytest

from streamlda.guarantee.noise import SeededNoise
from streamlda.private import stage as stage_module
from streamlda.private.stage import Stage, prefix_mechanism
from tests.private.streams import D, filled, settings_of, stage_of, statistics_of

#: Slots of a stage.
SLOTS = 24


def random_documents(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {int(w): int(rng.integers(1, 20)) for w in rng.permutation(D)[: rng.integers(0, D + 1)]}
        for _ in range(n)
    ]


def stage_with(config=None, kind="all", slots=SLOTS):
    return stage_of(statistics_of(kind, 0.3), config or settings_of(), slots)


def assert_same(sums, others):
    for name, array in sums.items():
        np.testing.assert_array_equal(array, others[name])


def test_documents_are_read_in_parts_of_any_size(monkeypatch):
    rows = random_documents(SLOTS)
    whole = filled(stage_with(), rows)
    for doubles in (1, 100, 10**9):
        monkeypatch.setattr(stage_module, "DOUBLES", doubles)
        assert_same(whole.sums.aggregates, filled(stage_with(), rows).sums.aggregates)


# What comes out.


@pytest.mark.parametrize("kind", ["norms", "triple norms", "pairs dense", "all"])
def test_released_values_are_whole_steps_of_one_public_grid(kind):
    rows, found = random_documents(9), []
    for documents in (rows, [{}, *rows[1:]]):
        stage = filled(stage_with(kind=kind), documents)
        released = stage.release(SeededNoise(1))
        shapes = {name: np.shape(array) for name, array in released.items()}
        assert shapes == {block.name: block.shape for block in stage.mechanism.blocks}
        for name, values in released.items():
            whole = values / stage.mechanism.steps[name]
            np.testing.assert_array_equal(whole, np.rint(whole))
        found.append((stage, released))
    (one, first), (other, second) = found
    assert one.mechanism.steps == other.mechanism.steps
    # With the same noise, the releases differ by the integers alone: any value that the one can
    # take the other can, too.
    for name, step in one.mechanism.steps.items():
        difference = one.sums.aggregates[name] - other.sums.aggregates[name]
        np.testing.assert_array_equal(first[name] - second[name], difference * step)


def test_rounds_release_the_sums_of_all_rounds_so_far():
    config = settings_of(mode="prefix", snapshots=3)
    rows = random_documents(12)

    def rounds(rows):
        """The mechanism of rounds of four rows each, and what each released with one seed."""
        statistics = [statistics_of("all", 0.3) for _ in range(3)]
        prefix = prefix_mechanism(statistics[0], 4, config, 1.0)
        noise, released = SeededNoise(4), []
        for first, own in zip((0, 4, 8), statistics, strict=True):
            stage = Stage("prefix", first, first + 4, own, prefix.mechanism, prefix=prefix)
            stddevs = stage.stddevs()
            released.append(filled(stage, rows[first : first + 4]).release(noise))
            # The same before and after: it is the noise of this round's sum.
            assert stage.stddevs() == stddevs == prefix.stddevs(len(released))
        return prefix.mechanism, released

    (mechanism, released), (_, blank) = rounds(rows), rounds([{}] * 12)
    for t in range(3):
        stage = filled(stage_with(config, slots=12), rows[: 4 * (t + 1)])
        for name, values in stage.mechanism.from_grid(stage.sums.aggregates).items():
            # Rounded to two grids, and noise of up to 10^4 steps taken off again.
            tolerance = 1e-6 * mechanism.stddevs[name]
            difference = released[t][name] - blank[t][name]
            np.testing.assert_allclose(difference, values, rtol=0, atol=tolerance)
