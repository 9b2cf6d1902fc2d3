"""capeAGN for mixtures of Gaussians: the statistic, its bound, and what is learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.papers.imtiaz_sarwate.gaussian_mixture import (
    MixtureSite,
    learn_mixture,
    skew_block,
    skew_norms,
)
from streamlda.papers.imtiaz_sarwate.metrics import matched_component_error
from streamlda.papers.imtiaz_sarwate.promise import Promise
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, SimulatedSites
from streamlda.privacy.noise import SeededNoise
from streamlda.private.packing import pack_triples, unpack_triples
from tests.papers.imtiaz_sarwate.neighbours import Recorder, distinguishability, shift

D, K, VARIANCE, RADIUS = 8, 3, 0.05, 1.4
SIZES = (2000, 3000, 4000)
WEIGHTS = np.array([0.5, 0.3, 0.2])


def planted(sizes=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    means = np.linalg.qr(rng.standard_normal((D, D)))[0][:K]
    n = sum(sizes)
    x = means[rng.choice(K, size=n, p=WEIGHTS)]
    x = x + math.sqrt(VARIANCE) * rng.standard_normal((n, D))
    return means, np.split(x, np.cumsum(sizes)[:-1])


def skew(y, variance):
    """H of one sample, from its definition."""
    d = len(y)
    total = np.einsum("a,b,c->abc", y, y, y)
    for e in np.eye(d):
        for vectors in ((y, e, e), (e, y, e), (e, e, y)):
            total -= variance * np.einsum("a,b,c->abc", *vectors)
    return total


def learned(scheme, epsilon=50.0, route="projected", seed=0, **options):
    means, parts = planted()
    calibration = "paper" if route == "paper" else "exact"
    network = SimulatedSites(
        SIZES, Promise(epsilon, 1e-3, calibration), scheme, noise=SeededNoise(seed)
    )
    sites = [MixtureSite(part, RADIUS) for part in parts]
    rng = np.random.default_rng(seed)
    found = learn_mixture(sites, K, network, route=route, rng=rng, **options)
    return means, found


def error(scheme, *args, **options):
    means, found = learned(scheme, *args, **options)
    lengths = np.maximum(np.linalg.norm(found.components, axis=1, keepdims=True), 1e-12)
    return matched_component_error(means, found.components / lengths)


def test_the_skew_statistic_equals_its_definition():
    rng = np.random.default_rng(0)
    x, U = rng.standard_normal((6, D)) * 0.3, np.linalg.qr(rng.standard_normal((D, 4)))[0]
    site = MixtureSite(x, 10.0)
    wanted = sum(skew(y, VARIANCE) for y in x @ U)
    assert unpack_triples(site.projected(U, VARIANCE, 1e3), 4) == pytest.approx(wanted, rel=1e-5)
    dense = sum(skew(t / 10.0, VARIANCE) for t in x)
    assert site.whole(VARIANCE) == pytest.approx(dense)


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.floats(0, 2))
def test_norms_are_not_too_small(y, variance):
    exact = float(np.linalg.norm(skew(np.array(y), variance)))
    found = float(skew_norms(np.array([y]), variance)[0])
    assert found >= exact * (1 - 1e-6)
    # Never more than a quarter of the absolute terms where it is larger.
    most = np.linalg.norm(y) ** 3 + variance * math.sqrt(3 * 4 + 6) * np.linalg.norm(y)
    assert found <= max(exact * (1 + 1e-6), most / 4 * (1 + 1e-6)) + 1e-9


@given(
    st.lists(st.floats(-3, 3), min_size=D, max_size=D),
    st.lists(st.floats(-3, 3), min_size=D, max_size=D),
    st.floats(0, 0.3),
    st.floats(0.1, 5),
)
def test_two_samples_differ_by_twice_the_bound_at_most(a, b, variance, bound):
    U = np.eye(D)[:, :3]
    one, other = (
        {"third": MixtureSite(np.array([v]), RADIUS).projected(U, variance, bound)} for v in (a, b)
    )
    block = skew_block(3, bound, variance, RADIUS)
    assert shift(one, other, [block]) <= 2
    assert shift(one, {"third": np.zeros(block.shape)}, [block]) <= 1


def test_opposite_samples_attain_the_bound():
    U, bound = np.eye(D)[:, :3], 0.5
    x = np.full((1, D), 5.0)
    one, other = (
        {"third": MixtureSite(sign * x, RADIUS).projected(U, 0.0, bound)} for sign in (1, -1)
    )
    assert shift(one, other, [skew_block(3, bound, 0.0, RADIUS)]) == pytest.approx(2, rel=1e-5)
    # A planted bug, the statistic without its clip factor, goes far beyond it.
    raw = {"third": pack_triples(skew((x[0] * RADIUS / np.linalg.norm(x)) @ U, 0.0))}
    assert shift(raw, other, [skew_block(3, bound, 0.0, RADIUS)]) > 2.2


def test_the_papers_bound_holds_in_all_dimensions():
    rng = np.random.default_rng(3)
    for variance in (0.0, 0.01, 0.1):
        for _ in range(20):
            x = rng.standard_normal((1, D)) * 10
            norm = np.linalg.norm(MixtureSite(x, RADIUS).whole(variance))
            assert norm <= 1 + 3 * D * variance


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("route", ["projected", "paper"])
def test_means_weights_and_variance_are_found(scheme, route):
    # 9000 samples, little noise: errors of 0.01 to 0.04 over seeds.
    means, found = learned(scheme, 300.0, route)
    assert found.found == K
    assert matched_component_error(means, found.components) < 0.12
    assert found.weights == pytest.approx(WEIGHTS, abs=0.06)
    assert found.variance == pytest.approx(VARIANCE, rel=0.1)


def test_a_public_variance_is_used():
    _, found = learned("cape", variance=0.04)
    assert found.variance == 0.04


@pytest.mark.statistical
def test_schemes_are_in_order_and_ours_is_ahead_of_the_papers_route():
    # Means over 8 fixed seeds; gaps are over three standard errors.
    means = {
        scheme: np.mean([error(scheme, 0.5, seed=seed) for seed in range(8)])
        for scheme in ("cape", "conventional", "local", "pooled-private", "pooled")
    }
    assert means["cape"] < means["conventional"] < means["local"]
    assert means["cape"] == pytest.approx(means["pooled-private"], abs=0.1)
    assert means["pooled"] < means["cape"]
    paper = np.mean([error("cape", 0.5, "paper", seed=seed) for seed in range(8)])
    assert means["cape"] < 0.5 * paper


def test_noise_alone_gives_no_components():
    _, found = learned("local", 0.005)
    assert found.found < K
    assert not found.components[found.found :].any()
    assert found.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("scheme", ["cape", "pooled-private"])
def test_a_sample_is_as_well_hidden_as_promised_by_both_stages(scheme):
    _, parts = planted((300, 200))
    one, other = [part.copy() for part in parts], [part.copy() for part in parts]
    one[1][0], other[1][0] = 9 * np.eye(D)[0], -9 * np.eye(D)[0]
    promise = Promise(1.0, 1e-4)
    network = Recorder([300, 200], promise, scheme, noise=SeededNoise(0))
    mine = [MixtureSite(part, RADIUS) for part in one]
    theirs = [MixtureSite(part, RADIUS) for part in other]
    learn_mixture(mine, K, network, variance=0.05, rng=np.random.default_rng(0))
    squared = 0.0
    for stage, (sums, blocks, released) in enumerate(network.stages):
        if stage == 0:
            neighbour = {"second": theirs[1].second()}
        else:
            # Given the first release, both see their samples in the same directions.
            values = released_values(network)
            neighbour = {"third": theirs[1].projected(*values)}
        squared += distinguishability(sums[1], neighbour, released) ** 2
        assert blocks
    assert squared <= promise.noise_multiplier() ** -2


def released_values(network):
    """Return U, variance and bound of the second stage, from the first release alone."""
    second = network.stages[0][2]
    from streamlda.private.packing import unpack_pairs

    moment = unpack_pairs(second.sums["second"] / second.documents, D)
    vectors = np.linalg.eigh(moment)[1][:, ::-1]
    block = network.stages[1][1][0]
    k = next(k for k in range(1, D + 1) if k * (k + 1) * (k + 2) // 6 == block.cells)
    return np.ascontiguousarray(vectors[:, :k]), 0.05, block.l2_clip_norm
