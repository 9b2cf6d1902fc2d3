"""capePCA: directions under every scheme."""

import numpy as np
import pytest

from streamlda.papers.imtiaz_sarwate.metrics import captured_energy
from streamlda.papers.imtiaz_sarwate.pca import principal_subspace
from streamlda.papers.imtiaz_sarwate.promise import Promise
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, SimulatedSites
from streamlda.papers.imtiaz_sarwate.vector_moments import clipped, second_sum
from streamlda.privacy.noise import SeededNoise
from tests.papers.imtiaz_sarwate.neighbours import Recorder, distinguishability

D, K, RADIUS = 12, 3, 4.0
STDDEVS = np.sqrt(np.concatenate([[3.0, 2.0, 1.5], np.full(D - K, 0.1)]))


def samples(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, D)) * STDDEVS for n in sizes]


def sums_of(parts):
    return [second_sum(clipped(part, RADIUS)) for part in parts]


def energy(scheme, epsilon, route="packed", sizes=(800, 200, 500), seed=0):
    parts = samples(sizes)
    promise = Promise(epsilon, 1e-3, "paper" if route == "paper" else "exact")
    network = SimulatedSites(sizes, promise, scheme, site=1, noise=SeededNoise(seed))
    found = principal_subspace(sums_of(parts), K, network, RADIUS, route=route)
    assert found.vectors.T @ found.vectors == pytest.approx(np.eye(K))
    return captured_energy(found.vectors, np.diag(STDDEVS**2))


@pytest.mark.parametrize("route", ["packed", "paper"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_energy_is_captured_where_noise_is_small(scheme: str, route: str) -> None:
    assert energy(scheme, 1e3, route) > 6.4


@pytest.mark.statistical
def test_schemes_are_in_order() -> None:
    # Means of 12 runs with seeds fixed; gaps are over four standard errors.
    means = {
        scheme: np.mean([energy(scheme, 0.1, seed=seed) for seed in range(12)])
        for scheme in ("cape", "conventional", "local")
    }
    assert means["cape"] > means["conventional"] + 0.2
    assert means["conventional"] > means["local"] + 0.2
    paper = np.mean([energy("cape", 0.1, "paper", seed=seed) for seed in range(12)])
    assert means["cape"] > paper + 0.2


@pytest.mark.parametrize("scheme", ["cape", "conventional", "local", "pooled-private"])
def test_a_sample_is_as_well_hidden_as_promised(scheme: str) -> None:
    # Samples on the sphere at right angles: the most that a sample can do.
    parts = samples([60, 40])
    one, other = [part.copy() for part in parts], [part.copy() for part in parts]
    one[1][0], other[1][0] = 9 * np.eye(D)[0], 9 * np.eye(D)[1]
    promise = Promise(1.0, 1e-4)
    network = Recorder([60, 40], promise, scheme, site=1, noise=SeededNoise(0))
    for data in (one, other):
        principal_subspace(sums_of(data), K, network, RADIUS)
    (mine, _, released), (theirs, _, _) = network.stages
    mu = distinguishability(mine[1], theirs[1], released)
    # The local site and each conventional one protect by what the aggregate shows, too.
    assert mu <= 1 / promise.noise_multiplier()
    if scheme in ("cape", "pooled-private", "local"):
        assert mu >= 0.98 / promise.noise_multiplier()
