"""capeAGN for mixtures of Gaussians: the statistic, its bound, and what is learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.papers.imtiaz_sarwate.gaussian_mixture import (
    MixtureSite,
    MixtureView,
    learn_mixture,
    skew_block,
    skew_norms,
)
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES
from streamlda.private.packing import unpack_triples
from tests.oracle import pack_triples
from tests.papers.imtiaz_sarwate.neighbours import (
    Recorder,
    changed,
    matched_component_error,
    network_of,
    shift,
)

D, K, VARIANCE, RADIUS = 8, 3, 0.05, 1.4
SIZES = (2000, 3000, 4000)
WEIGHTS = np.array([0.5, 0.3, 0.2])
VECTORS = st.lists(st.floats(-3, 3), min_size=D, max_size=D)
PROJECTION = np.eye(D)[:, :3]


def planted(sizes):
    rng = np.random.default_rng(0)
    means = np.linalg.qr(rng.standard_normal((D, D)))[0][:K]
    n = sum(sizes)
    x = means[rng.choice(K, size=n, p=WEIGHTS)]
    x = x + math.sqrt(VARIANCE) * rng.standard_normal((n, D))
    return means, np.split(x, np.cumsum(sizes)[:-1])


MEANS, SAMPLES = planted(SIZES)


def skew(y, variance):
    total = np.einsum("a,b,c->abc", y, y, y)
    for e in np.eye(len(y)):
        for vectors in ((y, e, e), (e, y, e), (e, e, y)):
            total -= variance * np.einsum("a,b,c->abc", *vectors)
    return total


def project(sample, variance, bound):
    site = MixtureSite(np.array([sample]), RADIUS)
    return {"third": site.project(MixtureView(PROJECTION, np.ones(3), variance, bound))}


def learn(scheme, epsilon, route="projected", **options):
    network = network_of(SIZES, scheme, epsilon, route=route)
    sites = [MixtureSite(part, RADIUS) for part in SAMPLES]
    return learn_mixture(sites, K, network, route=route, rng=np.random.default_rng(0), **options)


def test_the_skew_statistic_equals_its_definition():
    rng = np.random.default_rng(0)
    x, U = rng.standard_normal((6, D)) * 0.3, np.linalg.qr(rng.standard_normal((D, 4)))[0]
    site = MixtureSite(x, 10.0)
    wanted = sum(skew(y, VARIANCE) for y in x @ U)
    found = site.project(MixtureView(U, np.ones(4), VARIANCE, 1e3))
    assert unpack_triples(found, 4) == pytest.approx(wanted, rel=1e-5)
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


@given(VECTORS, VECTORS, st.floats(0, 0.3), st.floats(0.1, 5))
def test_two_samples_differ_by_twice_the_bound_at_most(a, b, variance, bound):
    one, other = (project(v, variance, bound) for v in (a, b))
    block = skew_block(3, bound, variance, RADIUS)
    assert shift(one, other, [block]) <= 2
    assert shift(one, {"third": np.zeros(block.shape)}, [block]) <= 1


def test_opposite_samples_attain_the_bound():
    x, block = np.full(D, 5.0), skew_block(3, 0.5, 0.0, RADIUS)
    one, other = (project(sign * x, 0.0, 0.5) for sign in (1, -1))
    assert shift(one, other, [block]) == pytest.approx(2, rel=1e-5)
    # A planted bug, the statistic without its clip factor, goes far beyond it.
    raw = {"third": pack_triples(skew((x * RADIUS / np.linalg.norm(x)) @ PROJECTION, 0.0))}
    assert shift(raw, other, [block]) > 2.2


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
    found = learn(scheme, 300.0, route)
    assert found.found == K
    assert matched_component_error(MEANS, found.components) < 0.12
    assert found.weights == pytest.approx(WEIGHTS, abs=0.06)
    assert found.variance == pytest.approx(VARIANCE, rel=0.1)


def test_noise_alone_gives_no_components_and_a_public_variance_is_used():
    found = learn("local", 0.005, variance=0.04)
    assert found.found < K
    assert not found.components[found.found :].any()
    assert found.weights.sum() == pytest.approx(1)
    assert found.variance == 0.04


@pytest.mark.parametrize("scheme", ["cape", "pooled-private"])
def test_a_sample_is_as_well_hidden_as_promised_by_both_stages(scheme):
    _, parts = planted((300, 200))
    mine, theirs = (
        [MixtureSite(part, RADIUS) for part in changed(parts, sign * 9 * np.eye(D)[0])]
        for sign in (1, -1)
    )
    network = network_of((300, 200), scheme, 1.0, 1e-4, kind=Recorder)
    network.neighbours = theirs
    learn_mixture(mine, K, network, variance=VARIANCE, rng=np.random.default_rng(0))
    assert len(network.mu) == 2
    assert math.hypot(*network.mu) <= 1 / network.promises[0].noise_multiplier()
