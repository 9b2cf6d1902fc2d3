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
    found = next_projection(second @ W, W, np.ones(15), 5)
    np.testing.assert_allclose(found.T @ found, np.eye(5), rtol=0, atol=1e-12)
    cosines = np.abs(found[:, :3].T @ vectors)
    np.testing.assert_allclose(cosines, np.eye(3)[[1, 2, 0]], rtol=0, atol=1e-8)
