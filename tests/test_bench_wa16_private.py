"""How an epsilon is read off trials, and that a calibration is inverted rightly."""

import math

import numpy as np
import pytest

from bench import wa16_private as bench
from streamlda.decomposition.neighbours import Neighbours
from streamlda.decomposition.noisy import CALIBRATIONS, Schedule


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_epsilon_is_that_of_the_noise_multiplier(calibration):
    schedule = Schedule(0.7, bench.DELTA, Neighbours("entry", magnitude=1.0), calibration)
    z = schedule.noise_multiplier(450)
    assert bench.epsilon_of(z, 450, calibration) == pytest.approx(0.7, rel=1e-3)


def test_the_level_of_half_the_recoveries_is_read_between_points_out_of_order():
    levels = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert bench.half_level(levels, [1.0, 1.0, 0.75, 0.25, 0.0]) == pytest.approx(4 * math.sqrt(2))
    assert bench.half_level(levels, [1.0, 0.7, 0.8, 0.25, 0.0]) == pytest.approx(
        4 * 2 ** (0.25 / 0.5)
    )
    assert math.isnan(bench.half_level(levels, [1.0] * 5))


def test_an_exponent_is_found_again():
    points = {d: 0.1 * math.log(d) ** 1.5 for d in (100, 400, 3200)}
    assert bench.slope(points, math.log) == pytest.approx(1.5)


@pytest.mark.parametrize("method", [bench.ITERATED, bench.INPUT])
def test_first_components_are_found_under_little_noise_and_not_under_much(method):
    def found(z):
        if method == bench.INPUT:
            return bench.perturbed_first(24, [z], 0)[0]
        return bench.private_first(24, z, 0)

    assert found(bench.guess(method, 24) / 20)
    assert not found(bench.guess(method, 24) * 20)


def test_components_are_orthonormal_and_flat():
    vectors = bench.flat_components(400, np.random.default_rng(0))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)
    assert np.abs(vectors).max() < 1.5 / 20
