"""Projections: the random one, and the leading eigenspace of a second moment known in full."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.simulate import PlantedLDA
from streamlda.spectral.whitening import (
    centred_pairs,
    next_projection,
    random_projection,
    word_scale,
)
from tests import oracle


@pytest.mark.kernels
def test_random_projection_has_unit_rows():
    np.testing.assert_allclose(np.linalg.norm(random_projection(300, 20, 5), axis=1), 1, rtol=1e-14)
    assert np.sign(random_projection(1, 1, 2**64 - 1)[0, 0]) == oracle.random_sign(2**64 - 1, 0, 0)


@pytest.mark.parametrize(
    ("n_features", "n_columns", "seed", "message"),
    [
        (0, 3, 1, "n_features=0"),
        (3, 65536, 1, "n_columns=65536"),
        (3, 3, -1, "seed=-1"),
        (3, 3, 2**64, "seed=18446744073709551616"),
    ],
)
def test_wrong_sizes_are_refused(n_features, n_columns, seed, message):
    with pytest.raises(InvalidSettingError, match=message):
        random_projection(n_features, n_columns, seed)
    with pytest.raises(InvalidSettingError, match=r"n_columns=6 sketch=\(10, 5\)"):
        next_projection(np.ones((10, 5)), np.ones((10, 5)), np.ones(10), 6)


def test_word_scale_falls_with_frequency_from_1():
    scale = word_scale(np.array([0.0, 0.001, 0.1, 0.899]))
    np.testing.assert_allclose(scale, [1, 1.004**-0.5, 1.4**-0.5, 4.596**-0.5], rtol=1e-14)


@pytest.mark.parametrize("alpha_0", [0.01, 1.0, 100.0])
def test_centred_pairs_are_the_second_moment_through_the_projection(alpha_0):
    planted = PlantedLDA(3, 10, alpha_0=alpha_0, seed=0)
    first, pairs, _ = oracle.expected_moments(planted.components, planted.alpha)
    W = np.random.default_rng(0).standard_normal((10, 4))
    mu = planted.components
    weights = planted.alpha / (alpha_0 * (alpha_0 + 1))
    expected = np.einsum("i,ia,ib->ab", weights, mu, mu) @ W
    found = centred_pairs(first, pairs @ W, W, alpha_0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def low_rank(d, k, seed):
    """Return a second moment of rank k, its scale, and the eigenpairs in scaled word space."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(d, 0.3), size=k)
    weights = rng.uniform(0.5, 1.5, k)
    second = np.einsum("i,ia,ib->ab", weights / weights.sum(), topics, topics)
    scale = word_scale(weights @ topics / weights.sum())
    values, vectors = np.linalg.eigh(scale[:, None] * second * scale)
    return second, scale, values[::-1], vectors[:, ::-1]


def distance(one, other):
    """Return the sine of the largest angle between two spaces given by orthonormal columns."""
    return np.linalg.norm(one @ one.T - other @ other.T, 2)


@pytest.mark.parametrize(
    ("d", "k", "m", "n_columns"), [(40, 4, 9, 9), (40, 4, 40, 4), (300, 10, 25, 10)]
)
def test_next_projection_recovers_the_eigenvectors_of_a_low_rank_moment(d, k, m, n_columns):
    second, scale, _, vectors = low_rank(d, k, seed=1)
    W = np.random.default_rng(2).standard_normal((d, m))
    unscaled = next_projection(second @ W, W, scale, n_columns) / scale[:, None]
    np.testing.assert_allclose(unscaled.T @ unscaled, np.eye(n_columns), rtol=0, atol=1e-12)
    # Leading directions first: each is the eigenvector, not only a basis of the space.
    cosines = np.abs(np.sum(unscaled[:, :k] * vectors[:, :k], axis=0))
    np.testing.assert_allclose(cosines, 1.0, rtol=0, atol=1e-8)


@pytest.mark.fuzz
@given(
    d=st.integers(12, 30), k=st.integers(1, 4), more=st.integers(0, 8), seed=st.integers(0, 2**32)
)
def test_next_projection_recovers_any_low_rank_moment(d, k, more, seed):
    second, scale, values, vectors = low_rank(d, k, seed)
    W = np.random.default_rng(seed + 1).standard_normal((d, k + more))
    unscaled = next_projection(second @ W, W, scale, k) / scale[:, None]
    np.testing.assert_allclose(unscaled.T @ unscaled, np.eye(k), rtol=0, atol=1e-9)
    # Rounding, times the condition of the moment and of the square sketch; and what the Gram
    # matrix loses of orthonormality.
    sketch = np.linalg.cond((vectors[:, :k] / scale[:, None]).T @ W)
    rounding = 1e-14 * d * sketch * values[0] / values[k - 1]
    assert distance(unscaled, vectors[:, :k]) < rounding + 1e-9


def test_next_projection_takes_the_eigenvalue_of_largest_size_first():
    vectors = np.linalg.qr(np.random.default_rng(3).standard_normal((15, 3)))[0]
    second = vectors * [0.5, -2.0, 1.0] @ vectors.T
    W = np.random.default_rng(4).standard_normal((15, 6))
    found = next_projection(second @ W, W, np.ones(15), 3)
    cosines = np.abs(found.T @ vectors)
    np.testing.assert_allclose(cosines, np.eye(3)[[1, 2, 0]], rtol=0, atol=1e-8)


def test_rounds_of_next_projection_come_near_the_eigenspace_when_the_moment_has_full_rank():
    """Subspace iteration: the tail falls by the ratio of eigenvalues a round, here 1/20."""
    rng = np.random.default_rng(5)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    second = basis * np.r_[1.0, 0.8, 0.6, np.full(57, 0.03)] @ basis.T
    scale = rng.uniform(0.5, 1, 60)
    scaled = scale[:, None] * second * scale
    leading = np.linalg.eigh(scaled)[1][:, :-4:-1]
    W, distances = random_projection(60, 6, 7), []
    for _ in range(6):
        W = next_projection(second @ W, W, scale, 6)
        distances.append(distance((W / scale[:, None])[:, :3], leading))
    assert distances[0] < 0.9
    assert distances[-1] < 1e-5
    assert (np.diff(distances) < 0).all()
