"""From noisy sums to topics: each step against a slow one, and what it is good for."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from streamlda.errors import InsufficientDataError
from streamlda.model.evaluation import matched_l1_error
from streamlda.private.topics import FLOOR, PairView, positive_mean, private_topics, project_simplex
from streamlda.spectral.whitening import random_projection
from tests import oracle

D, K = 40, 4
N = 50_000
ALPHA = np.full(K, 0.25)


def planted(seed=3):
    return np.random.default_rng(seed).dirichlet(np.full(D, 0.1), K)


def exact_moments(W, topics, alpha=ALPHA):
    """W'M1, W' E P2 W and E P3(W, W, W), exact."""
    first, pairs, triples = oracle.expected_moments(topics, alpha)
    seen = np.einsum("abc,ai,bj,ck->ijk", triples, W, W, W, optimize=True)
    return W.T @ first, W.T @ pairs @ W, seen


def symmetric(rng, stddev, d=D):
    """Noise as packed pairs have it: off the diagonal `stddev`, on it sqrt(2) as much."""
    upper = np.triu(rng.standard_normal((d, d)), 1)
    return stddev * (upper + upper.T + np.diag(np.sqrt(2) * rng.standard_normal(d)))


def view_of(stddev, *, topics=None, seed=0, columns=None, components=K):
    """The view of planted topics under noise; `stddev` is that of a mean of pairs."""
    rng = np.random.default_rng(seed)
    first, pairs, _ = oracle.expected_moments(planted() if topics is None else topics, ALPHA)
    probes = None if columns is None else random_projection(D, columns, 1)
    if probes is None:
        noisy = pairs + symmetric(rng, stddev)
    else:
        noisy = pairs @ probes + stddev * rng.standard_normal(probes.shape)
    first = first + 1e-4 * rng.standard_normal(D)
    released = N * first, N * 1e-4, N * noisy, float(N), N * stddev
    return PairView.of(*released, probes, components, ALPHA.sum())


def decompose(view, W, first, pairs, triples, stddev=0.0, alpha_0=1.0):
    rng = np.random.default_rng(1)
    return private_topics(view, triples, stddev, W, first, pairs, alpha_0, N, rng)


def topics_of(view, stddev=0.0, *, alpha_0=1.0, seed=0):
    """Topics from the triples through the view's own projection, with noise."""
    W = view.whitening
    first, pairs, seen = exact_moments(W, planted())
    if stddev:
        draw = np.random.default_rng(seed).standard_normal((W.shape[1],) * 3)
        orders = itertools.permutations(range(3))
        seen = seen + stddev * sum(draw.transpose(order) for order in orders) / np.sqrt(6)
    return decompose(view, W, first, pairs, seen, stddev, alpha_0)


def error(found, truth):
    return matched_l1_error(truth, found).mean / 2


def test_positive_mean_is_that_of_a_truncated_normal_and_gives_every_word_something():
    z = np.array([-30.0, -8.0, -3.0, -1.0, 0.0, 0.5, 2.0, 6.0, 40.0])
    slow = stats.truncnorm.mean(-z, np.inf, loc=0.7 * z, scale=0.7)
    assert positive_mean(0.7 * z, 0.7) == pytest.approx(slow / np.sum(slow), rel=1e-6)
    # However far below zero.
    found = positive_mean(np.array([-1e9, -1e3, 0.0, 50.0, 1e6]), 1.0)
    assert found[0] > 0
    assert found.sum() == pytest.approx(1)
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_project_simplex_gives_the_nearest_point(seed):
    rng = np.random.default_rng(seed)
    v = rng.normal(rng.normal(), 2.0 ** rng.integers(-4, 4), rng.integers(1, 30))
    found = project_simplex(v)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found.min() >= 0
    # The condition of the nearest point: words are lower by one shift, or 0 and no farther below.
    shift = (v - found)[found > 0]
    np.testing.assert_allclose(shift, shift[0], atol=1e-12)
    assert np.all(v[found == 0] <= shift[0] + 1e-12)
    assert project_simplex(found) == pytest.approx(found, abs=1e-15)


def floor_of(columns):
    return 1.0 if columns is None else FLOOR


def chance_directions(columns):
    """How many eigenvalues of pure noise are due above the floor, by the semicircle law."""
    above = integrate.quad(lambda x: 2 / np.pi * np.sqrt(1 - x * x), floor_of(columns), 1)[0]
    return D * float(above)


@pytest.mark.parametrize("columns", [None, 20])
def test_pure_noise_has_few_directions_above_the_floor(columns):
    # None are due above the norm of the noise, 3.8 above 0.7 of it.
    empty = np.tile(np.full(D, 1 / D), (K, 1))
    counted = []
    for seed in range(40):
        view = view_of(0.05, topics=empty, seed=seed, columns=columns, components=10)
        above = int((view.spectrum > floor_of(columns) * view.floor).sum())
        counted.append(len(view.eigenvalues))
        assert counted[-1] == max(1, above)
    assert np.mean(counted) <= chance_directions(columns) + 1
    assert max(counted) <= chance_directions(columns) + 2 < 10


@pytest.mark.parametrize("columns", [None, 20])
def test_all_planted_directions_are_above_the_floor(columns):
    for seed in range(10):
        view = view_of(1e-5, seed=seed, columns=columns, components=10)
        assert K <= len(view.eigenvalues) <= K + chance_directions(columns) + 1
        assert view.eigenvalues[K - 1] > 20 * view.floor
        inside = view.directions[:, :K].T @ np.linalg.qr(planted().T)[0]
        assert np.linalg.svd(inside, compute_uv=False).min() > 0.999
    assert len(view_of(1e-5, columns=columns).eigenvalues) == K


def test_exact_moments_give_the_planted_topics():
    truth = planted()
    found = topics_of(view_of(1e-9))
    assert error(found.components, truth) < 0.01
    assert found.alpha.sum() == pytest.approx(1.0)
    assert found.components.sum(axis=1) == pytest.approx(np.ones(K))
    assert (found.components >= 0).all()
    assert found.prevalence == pytest.approx(ALPHA, rel=0.02)
    assert (np.diff(found.prevalence) <= 0).all()


def test_more_noise_mixes_in_more_of_the_corpus():
    little, more, much = (topics_of(view_of(stddev), 0.01) for stddev in (1e-6, 1e-4, 5e-4))
    assert little.mixed.max() < 1e-3
    assert more.mixed.mean() > 5 * little.mixed.mean()
    assert much.mixed.mean() > 2 * more.mixed.mean()
    assert much.mixed.max() <= 1
    away = [np.abs(found.components - found.background).sum() for found in (little, much)]
    assert away[1] < away[0] or len(much.components) < len(little.components)


def test_alpha_0_is_found_when_it_is_not_given():
    found = topics_of(view_of(1e-7), alpha_0=None)
    assert found.alpha.sum() == pytest.approx(1.0, rel=0.1)
    assert error(found.components, planted()) < 0.03
    noisy = topics_of(view_of(1e-4), 0.02, alpha_0=None)
    assert np.isfinite(noisy.components).all()
    assert 0 < noisy.alpha.sum() < np.inf


def test_sums_are_read_in_proportion_and_nothing_but_noise_is_refused():
    first, pairs, _ = oracle.expected_moments(planted(), ALPHA)
    noisy = pairs + symmetric(np.random.default_rng(0), 1e-4)
    views = [
        PairView.of(n * first, n * 1e-4, n * noisy, n, n * 1e-4, None, K, 1.0) for n in (1e3, 1e6)
    ]
    assert views[0].eigenvalues == pytest.approx(views[1].eigenvalues, rel=1e-9)
    assert views[0].first == pytest.approx(views[1].first, rel=1e-9)
    for kept, scale in ((0.0, 1.0), (-12.0, 1.0), (100.0, -1.0)):
        with pytest.raises(
            InsufficientDataError, match=r"more documents than its noise .*number=-?\d"
        ):
            PairView.of(scale * first, 0.1, pairs, kept, 0.1, None, K, 1.0)


@pytest.mark.parametrize("columns", [None, 20])
def test_triples_of_other_documents_are_centred_by_their_own_moments(columns):
    # The same topics, but what was a quarter of the words is 70 % of them when triples are read.
    truth, drifted = planted(), np.array([0.1, 0.7, 0.1, 0.1])
    view = view_of(1e-9, columns=columns)
    W = view.whitening
    first, pairs, triples = exact_moments(W, truth, drifted)
    right = decompose(view, W, first, pairs, triples)
    wrong = decompose(view, W, *exact_moments(W, truth)[:2], triples)
    assert error(right.spectral.normalize(), truth) < 0.01
    assert error(right.components, truth) < 0.01
    assert error(wrong.spectral.normalize(), truth) > 0.1
    assert error(wrong.components, truth) > 5 * error(right.components, truth)
