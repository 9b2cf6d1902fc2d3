"""How an epsilon is read off trials, and that a calibration is inverted rightly."""

import math

import numpy as np
import pytest

from bench.papers import wa16_theorem_4_2 as theorem
from bench.papers import wa16_theorem_4_2_tasks as tasks
from streamlda.papers.wang_anandkumar.neighbours import Neighbours
from streamlda.papers.wang_anandkumar.noisy import CALIBRATIONS, Schedule
from streamlda.papers.wang_anandkumar.tensors import DenseTensor


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_epsilon_is_that_of_the_noise_multiplier(calibration):
    schedule = Schedule(0.7, tasks.DELTA, Neighbours("entry", magnitude=1.0), calibration)
    z = schedule.noise_multiplier(450)
    assert tasks.epsilon_of(z, 450, calibration) == pytest.approx(0.7, rel=1e-3)


def test_levels_and_exponents_are_read_off_points_and_components_are_flat():
    levels = [1.0, 2.0, 4.0, 8.0, 16.0]
    for recovered, level in (
        ([1.0, 1.0, 0.75, 0.25, 0.0], 4 * math.sqrt(2)),
        ([1.0, 0.7, 0.8, 0.25, 0.0], 4 * 2 ** (0.25 / 0.5)),
        ([1.0] * 5, math.nan),
    ):
        assert theorem.half_level(levels, recovered) == pytest.approx(level, nan_ok=True)
    points = {d: 0.1 * math.log(d) ** 1.5 for d in (100, 400, 3200)}
    assert theorem.slope(points, math.log) == pytest.approx(1.5)
    vectors = tasks.flat_components(400, np.random.default_rng(0))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)
    assert np.abs(vectors).max() < 1.5 / 20


SOURCES = (tasks.MECHANISM, tasks.SIMULATED)
WAYS = [(tasks.ITERATED, None), (tasks.STARTED, None), *((tasks.INPUT, noise) for noise in SOURCES)]


@pytest.mark.parametrize(("method", "noise"), WAYS)
def test_first_components_are_found_under_little_noise_and_not_under_much(method, noise):
    middle = theorem.guess(method, 24)
    parameters = {"method": method, "dimension": 24, "levels": [middle / 20, middle * 20]}
    assert tasks.outcomes({**parameters, "noise": noise}, 0) == [True, False]


def dense(noise):
    """Return all entries of simulated noise, from where each is kept."""
    d = len(noise.slabs)
    full = np.empty((d, d, d))
    for place in np.ndindex(d, d, d):
        i, j, k = sorted(place, reverse=True)
        if j < i:
            full[place] = noise.slabs[i][j, k]
        else:
            full[place] = noise.pairs[i, k] if k < i else noise.diagonal[i, 0]
    return full


def test_simulated_noise_answers_as_its_dense_tensor_does():
    rng = np.random.default_rng(3)
    noise = tasks.SimulatedNoise(9, rng)
    probes = np.linalg.qr(rng.standard_normal((9, 4)))[0]
    pairs = zip(noise.apply(probes), DenseTensor(dense(noise)).apply(probes), strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def scales(full):
    """Return the root mean square of free entries with no, two and three equal indices."""
    i, j, k = np.indices(full.shape)
    kinds = [(i < j) & (j < k), (i == j) & (j != k), (i == j) & (j == k)]
    return [math.sqrt(np.mean(full[kind] ** 2)) for kind in kinds]


@pytest.mark.statistical
def test_both_kinds_of_noise_have_the_same_scales():
    # 220, 132 and 12 squares for d = 12, in 40 draws. The relative standard error of a root mean
    # square of n values is 1 / sqrt(2 n); 5 of them are exceeded in 1 of 290,000 runs (6 checks).
    draws = [[scales(values) for values in entries(12, seed)] for seed in range(40)]
    found = np.sqrt(np.mean(np.square(draws), axis=0))
    errors = 5 / np.sqrt(2 * 40 * np.array([220, 132, 12]))
    assert (np.abs(found / [1, 2, 6] - 1) <= errors).all()
    assert not (np.abs(found / [1, 2, 3] - 1) <= errors).all()
    assert not (np.abs(found / [1, math.sqrt(2), 6] - 1) <= errors).all()


def entries(d, seed):
    """Return noise of the mechanism, polarised from its answers, and simulated noise, at z = 1."""
    tensor, unit = tasks.noise_of(d, seed, tasks.MECHANISM)
    a, b = (places.ravel() for places in np.indices((d, d)))
    units = np.eye(d)
    # E(I, e_a, e_b) = (E(I, s, s) - E(I, t, t)) / 4 with s = e_a + e_b and t = e_a - e_b.
    ends = (tensor.apply(units[:, a] + sign * units[:, b])[0] for sign in (1, -1))
    released = np.subtract(*ends).reshape(d, d, d) / 4
    return [released / unit, dense(tasks.noise_of(d, seed, tasks.SIMULATED)[0])]


@pytest.mark.statistical
def test_both_kinds_of_noise_leave_the_same_recovery():
    # Counts of 300 trials near recovery 1/2, d = 24. Their difference has a standard deviation of
    # 12.3 at most; 4.5 of them are exceeded in 1 of 147,000 runs. Noise 1.3 times as large is
    # to be seen.
    z = 0.9 * theorem.guess(tasks.INPUT, 24)

    def count(source, first, factor):
        seeds = range(first, first + 300)
        return sum(tasks.perturbed_first(24, [factor * z], seed, source)[0] for seed in seeds)

    released = count(tasks.MECHANISM, 0, 1.0)
    assert 60 < released < 240
    assert abs(released - count(tasks.SIMULATED, 1000, 1.0)) <= 4.5 * 12.3
    assert released - count(tasks.SIMULATED, 1000, 1.3) > 4.5 * 12.3


def made_up(exponent):
    """Return a result in which the z at recovery 1/2 of input perturbation is d^-exponent."""
    labels, runs = {}, []
    for case in theorem.cases(False, ()):
        method, d = case.parameters["method"], case.parameters["dimension"]
        middle = 2000.0 * d**-exponent if method == tasks.INPUT else theorem.guess(method, d)
        levels = (middle * np.geomspace(0.5, 2.0, 10)).tolist()
        labels[case.label] = {
            "task": case.task,
            "parameters": {**case.parameters, "levels": levels},
        }
        rows = ["1111000000", "1111100000", "1111110000", "1111100000"]
        runs.append({"case": case.label, "measured": {"outcomes": rows, "mu_0": 1.0}})
    return {"cases": labels, "runs": runs}


@pytest.mark.parametrize(("exponent", "met"), [(1.0, True), (0.6, False)])
def test_a_result_is_judged_by_the_exponent_that_it_has(exponent, met, tmp_path):
    result = made_up(exponent)
    figures = {figure.name: figure for figure in theorem.figures(result)}
    judged = figures["exponent of d, input perturbation, d = 100 to 800"]
    assert judged.met is met
    shown = figures["the same of 1 / z (standard error), d = 100 to 800"].measured
    assert shown.startswith(f"{exponent:.2f} (0.0")
    assert figures["exponent of d of 1 / z, input perturbation, started at v_1"].measured == "0.50"
    assert all(figure.met for figure in figures.values() if "log d" in figure.name)
    details = theorem.details(result)
    assert "| input perturbation | 200 | 1 | 1.00 | perturb_tensor | 4 |" in details
    assert "| input perturbation | 283 | 1 | 1.00 | simulated | 4 |" in details
    theorem.plot(result, tmp_path)
    assert (tmp_path / "wa16-theorem-4-2.png").read_bytes().startswith(b"\x89PNG")
