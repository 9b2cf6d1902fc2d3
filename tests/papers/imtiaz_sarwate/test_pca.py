"""Moments of vectors, how much a sample can move them, capePCA, and the paper's measures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import component_error, third_sum
from streamlda.papers.imtiaz_sarwate.pca import (
    BLOCK_SAMPLES,
    SECOND_RATIO,
    captured_energy,
    clipped,
    partial_root_subspace,
    principal_subspace,
    second_block,
    second_sum,
)
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, Promise, SimulatedSites
from streamlda.papers.symmetric import pack, unpack
from tests.oracle import pack_pairs
from tests.papers.imtiaz_sarwate.neighbours import (
    Recorder,
    changed,
    matched_component_error,
    network_of,
    shift,
)

BOUND = 1.5
VECTORS = st.lists(st.floats(-3, 3), min_size=4, max_size=4)


def second_of(sample):
    return {"second": pack_pairs(second_sum(clipped(np.array([sample]), BOUND)))}


def test_sums_equal_their_definition_over_more_than_one_block():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BLOCK_SAMPLES + 10, 3))
    f = rng.random(len(x))
    pairs, triples = second_sum(x), third_sum(x)
    assert pairs == pytest.approx(np.einsum("na,nb->ab", x, x))
    assert triples == pytest.approx(np.einsum("na,nb,nc->abc", x, x, x))
    assert third_sum(x, f) == pytest.approx(np.einsum("n,na,nb,nc->abc", f, x, x, x))


def test_samples_are_scaled_to_the_radius_and_unusable_ones_are_left_out():
    x = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 1.0], [1e300, 1e300]])
    found = clipped(x, BOUND)
    assert np.linalg.norm(found, axis=1).max() <= BOUND
    assert found[0] == pytest.approx([0.9, 1.2], rel=1e-5)
    assert found[1].tolist() == [0.3, 0.4]
    assert not found[2:4].any()
    assert np.isfinite(found).all()


@given(VECTORS, VECTORS)
def test_two_samples_differ_by_no_more_than_is_stated(a, b):
    block = second_block(4, BOUND)
    assert shift(second_of(a), second_of(b), [block]) <= SECOND_RATIO
    x, y = (clipped(np.array([v]), BOUND) / BOUND for v in (a, b))
    plain = pack(second_sum(x), 0.0) - pack(second_sum(y), 0.0)
    assert np.linalg.norm(plain) <= SECOND_RATIO


def test_orthogonal_samples_on_the_sphere_attain_the_bound():
    a, b = np.array([5.0, 0, 0, 0]), np.array([0, 0, -5.0, 0])
    moved = shift(second_of(a), second_of(b), [second_block(4, BOUND)])
    assert moved == pytest.approx(SECOND_RATIO, rel=1e-5)
    # A planted bug, the bound of the paper, would be exceeded.
    assert moved > 1.4
    # As would any bound if samples were not scaled down.
    raw = {"second": pack_pairs(second_sum(np.array([a])))}
    assert shift(raw, second_of(b), [second_block(4, BOUND)]) > 2 * SECOND_RATIO


D, K, RADIUS = 12, 3, 4.0
STDDEVS = np.sqrt(np.concatenate([[3.0, 2.0, 1.5], np.full(D - K, 0.1)]))


def samples(sizes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, D)) * STDDEVS for n in sizes]


def sums_of(parts):
    return [second_sum(clipped(part, RADIUS)) for part in parts]


def energy(scheme, epsilon, route="packed", sizes=(800, 200, 500)):
    network = network_of(sizes, scheme, epsilon, route=route)
    found = principal_subspace(sums_of(samples(sizes)), K, network, RADIUS, route=route)
    assert found.vectors.T @ found.vectors == pytest.approx(np.eye(K))
    return captured_energy(found.vectors, np.diag(STDDEVS**2))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_energy_is_captured_where_noise_is_small(scheme):
    assert energy(scheme, 1e3) > 6.4
    assert energy(scheme, 1e3, "paper") > 6.4


def test_the_guarantees_of_section_iv_hold_with_constants():
    """Loss of energy <= 4 tau K sqrt(D) and distance of projections <= 4 tau sqrt(D) / gap.

    A symmetric Gaussian matrix has norm 2 tau sqrt(D) and, of 60 columns, above 2.6 tau sqrt(D)
    with probability below exp(-60 x 0.6^2 / 4) = 0.005: within 4 it fails once in 1e26 draws.
    """
    d, radius, sizes = 60, 20.0, (1500, 1500)
    scales = np.concatenate([[4.0, 3.5, 3.0], np.full(d - K, 0.3)])
    rng = np.random.default_rng(1)
    sums = [second_sum(clipped(rng.standard_normal((n, d)) * scales, radius)) for n in sizes]
    moment = sum(sums) / sum(sizes)
    values, vectors = np.linalg.eigh(moment)
    best, gap = vectors[:, -K:], values[-K] - values[-K - 1]
    for epsilon in (2.0, 10.0, 50.0):
        network = network_of(sizes, "cape", epsilon, route="paper")
        plain = [{"second": pack(total, 0.0)} for total in sums]
        drawn = network.release(plain, dict, [second_block(d, radius)], ratio=SECOND_RATIO)
        tau = drawn.stddevs["second"] / sum(sizes)
        found = principal_subspace(sums, K, network, radius, route="paper").vectors
        loss = np.trace(best.T @ moment @ best) - np.trace(found.T @ moment @ found)
        apart = np.linalg.norm(best @ best.T - found @ found.T, 2)
        assert 0 <= loss <= 4 * tau * K * np.sqrt(d)
        assert 0.1 * tau * np.sqrt(d) / gap < apart <= 4 * tau * np.sqrt(d) / gap


@pytest.mark.parametrize(
    ("scheme", "learn"),
    [
        *((s, principal_subspace) for s in ("cape", "conventional", "local", "pooled-private")),
        ("conventional", partial_root_subspace),
    ],
)
def test_a_sample_is_as_well_hidden_as_promised(scheme, learn):
    # Samples on the sphere at right angles: the most that a sample can do.
    one, other = (changed(samples([60, 40]), 9 * np.eye(D)[i]) for i in (0, 1))
    network = network_of([60, 40], scheme, 1.0, 1e-4, kind=Recorder)
    network.neighbours = sums_of(other)
    learn(sums_of(one), K, network, RADIUS)
    # The local site and each conventional one protect by what the aggregate shows, too. Of two
    # releases, the second is of the site whose sample changed.
    used = network.mu[-1] * network.promises[1].noise_multiplier()
    assert used <= 1
    assert used >= 0.98 or (scheme, learn) == ("conventional", principal_subspace)


def test_dpdispca_is_the_program_of_its_authors():
    """Line by line, in the noise that was drawn."""
    sizes, rank = (800, 200), 5
    sums = sums_of(samples(sizes))
    found, again = (network_of(sizes, "conventional", 1.0, route="paper") for _ in range(2))
    ours = partial_root_subspace(sums, K, found, RADIUS, n_intermediate=rank, route="paper")
    block = [second_block(D, RADIUS)]
    total = np.zeros((D, D))
    for s, size in enumerate(sizes):
        sent = [{"second": pack(x, 0.0)} for x in sums]
        noisy = again.alone(s).release(sent, dict, block, ratio=SECOND_RATIO)
        moment = unpack(noisy.sums["second"] / size, D, 2, 0.0)
        left, values, _ = np.linalg.svd(moment)
        root = left[:, :rank] * np.sqrt(values[:rank])
        total += size * root @ root.T
    vectors = np.linalg.svd(total)[0][:, :K]
    assert np.abs(np.sum(ours.vectors * vectors, axis=0)) == pytest.approx(1)
    # Some of the singular values kept are those of negative eigenvalues.
    assert np.linalg.eigvalsh(moment).min() < -values[rank - 1]


def test_measures_equal_values_by_hand():
    assert captured_energy(np.eye(3)[:, 1:], np.diag([1.0, 2.0, 4.0])) == pytest.approx(6)
    true = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert component_error(true, true[::-1]) == matched_component_error(true, true[::-1]) == 0
    # Both estimates are at the first component; one of them has to be matched with the second.
    twice = np.zeros((2, 2))
    assert component_error(true, twice) == 0
    assert matched_component_error(true, twice) == pytest.approx(2.5)
    moved = true + np.array([[1.0, 0.0], [0.0, 2.0]])
    assert component_error(true, moved) == pytest.approx(1.5)


@pytest.mark.parametrize("learn", [principal_subspace, partial_root_subspace])
def test_sums_of_more_samples_than_a_site_has_are_refused(learn):
    """Noise is made for the sizes of the network: a smaller one would promise too much."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 100, 4))
    sums = [second_sum(BOUND * part / np.linalg.norm(part, axis=1)[:, None]) for part in x]
    scheme = "cape" if learn is principal_subspace else "conventional"
    networks = [
        SimulatedSites(sizes, Promise(1.0, 1e-2), scheme) for sizes in ([100, 100], [100, 99])
    ]
    assert learn(sums, 2, networks[0], BOUND).vectors.shape == (4, 2)
    with pytest.raises(InvalidSettingError, match=r"site=1 samples=99 radius=1\.5"):
        learn(sums, 2, networks[1], BOUND)
