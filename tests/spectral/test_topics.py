"""Projections, and from exact and sampled moments to topics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral.support import Spectrum
from streamlda.spectral.topics import (
    ALPHA_0_RANGE,
    RoundMoments,
    SpectralTopics,
    alpha_0_estimate,
    diagnostics,
    recover_topics,
    solve_alpha_0,
    topics_along,
)
from streamlda.spectral.whitening import (
    centre_pairs,
    next_projection,
    random_projection,
    word_scale,
)
from tests import oracle


def exact(mu, alpha, W):
    """Return the moments of the model itself, through W, without sampling noise."""
    a0 = alpha.sum()
    k, m = len(alpha), W.shape[1]
    y = mu @ W
    second = (np.outer(alpha, alpha) + np.diag(alpha)) / (a0 * (a0 + 1))
    third = np.empty((k, k, k))
    for i, j, n in np.ndindex(k, k, k):
        counts = np.bincount([i, j, n], minlength=k)
        rising = [np.prod(a + np.arange(c)) for a, c in zip(alpha, counts, strict=True)]
        third[i, j, n] = np.prod(rising) / (a0 * (a0 + 1) * (a0 + 2))
    return RoundMoments(
        documents=1000,
        first=mu.T @ (alpha / a0),
        pairs=mu.T @ second @ y,
        whitening=W,
        triples=np.einsum("abc,ai,bj,cn->ijn", third, y, y, y),
        triple_noise=np.zeros((m, m, m)),
        triple_first=y.T @ (alpha / a0),
        triple_pairs=y.T @ second @ y,
    )


def planted_moments(alpha, extra=5):
    """Return random topics over 40 words, and exact moments with that alpha."""
    mu = np.random.default_rng(3).dirichlet(np.full(40, 0.1), size=len(alpha))
    return mu, exact(mu, np.array(alpha), random_projection(40, len(alpha) + extra, seed=5))


@pytest.mark.parametrize("alpha", [[1.0], [0.2, 0.3], [0.1, 0.5, 1.5], [0.05] * 6])
@pytest.mark.parametrize("extra", [0, 7])
def test_exact_moments_give_exact_topics_for_any_projection(alpha, extra):
    mu, seen = planted_moments(alpha, extra)
    found = recover_topics(seen, len(alpha), sum(alpha))
    assert matched_l1_error(mu, found.normalize()).mean < 1e-8
    np.testing.assert_allclose(np.sort(found.alpha), np.sort(alpha), rtol=1e-8)
    assert found.is_supported.all()


@pytest.mark.parametrize(
    ("alpha_0", "found"),
    [(0.05, 0.05), (1.0, 1.0), (20.0, 20.0), (500.0, ALPHA_0_RANGE[1]), (0.003, ALPHA_0_RANGE[0])],
)
def test_auto_alpha_0_solves_for_the_truth_or_the_nearer_end_of_its_range(alpha_0, found):
    _, seen = planted_moments([0.5 * alpha_0, 0.3 * alpha_0, 0.2 * alpha_0])
    solved = solve_alpha_0(seen, 3)
    assert solved == pytest.approx(found, rel=0.02)
    known = alpha_0_estimate(solved, 3)
    assert known["value"] == solved
    assert known["identified"] == (solved not in ALPHA_0_RANGE)
    assert (known["reason"] is None) == known["identified"]


def test_a_topic_without_direction_repeats_the_background_and_is_not_supported():
    first = np.array([0.5, 0.25, 0.25])
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    second = np.diag(first) + np.outer(first, first) / 2
    along = np.array([2.0, 1.0]), vectors, np.zeros(2)
    found = topics_along(first, second, np.eye(3), *along, 3, 1.0, 9)
    assert found.eigenvalues.tolist() == [2.0, 0.0, 0.0]
    assert found.is_supported.tolist() == [True, False, False]
    np.testing.assert_array_equal(found.topics[1:], [first, first])


def fixed(topics, **changes):
    k = len(topics)
    values = {
        "topics": topics,
        "alpha": np.full(k, 1 / k),
        "alpha_0": 1.0,
        "eigenvalues": np.full(k, 2.0),
        "eigenvalue_noise": np.full(k, 0.01),
        "pair_eigenvalues": np.full(k, 0.1),
        "pair_noise": np.full(k, 0.001),
        "documents": 100,
    }
    return SpectralTopics(**{**values, **changes})


def test_diagnostics_warn_in_words_and_are_plain():
    mu = np.eye(3)
    two = Spectrum(np.array([2.0, 2.0, 0.1]), np.ones(3))

    def described(found, spectrum=None):
        spectrum = spectrum or Spectrum(found.pair_eigenvalues, found.pair_noise)
        return diagnostics(found, spectrum, found.is_supported, 50)

    found = described(fixed(mu, eigenvalue_noise=np.array([0.1, 9.0, np.inf])), two)
    text = " ".join(found["warnings"])
    assert "2 of 3 topics apart above sampling noise (documents=50)" in text
    assert "2 of 3: 1, 2; do not rely on them" in text
    assert found["eigenvalue_noise"] == [0.1, 9.0, None]
    assert described(fixed(mu))["warnings"] == []
    # Fewer directions tell no topic from another.
    noisy = fixed(mu, eigenvalue_noise=np.full(3, 99.0))
    for few in ([2.0, 0.1, 0.1], [0.1, 0.1, 0.1]):
        (text,) = described(noisy, Spectrum(np.array(few), np.ones(3)))["warnings"]
        assert "no topics beyond their word frequencies (documents=50)" in text
    # Of noise that was not measured nothing is said.
    unknown = described(fixed(mu), Spectrum(np.full(3, 0.1), None))
    assert (unknown["directions_supported"], unknown["pair_noise"]) == (None, None)
    assert unknown["warnings"] == []


@pytest.mark.kernels
def test_random_projection_has_unit_rows_and_the_scale_of_words_falls_with_frequency():
    np.testing.assert_allclose(np.linalg.norm(random_projection(300, 20, 5), axis=1), 1, rtol=1e-14)
    assert np.sign(random_projection(1, 1, 2**64 - 1)[0, 0]) == oracle.random_sign(2**64 - 1, 0, 0)
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
    found = centre_pairs(first, pairs @ W, W, alpha_0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.fuzz
@given(
    d=st.integers(12, 30), k=st.integers(1, 4), more=st.integers(0, 8), seed=st.integers(0, 2**32)
)
def test_next_projection_recovers_any_low_rank_moment(d, k, more, seed):
    rng = np.random.default_rng(seed)
    topics, weights = rng.dirichlet(np.full(d, 0.3), size=k), rng.uniform(0.5, 1.5, k)
    second = np.einsum("i,ia,ib->ab", weights / weights.sum(), topics, topics)
    scale = word_scale(weights @ topics / weights.sum())
    values, vectors = np.linalg.eigh(scale[:, None] * second * scale)
    values, vectors = values[::-1], vectors[:, ::-1]
    W = np.random.default_rng(seed + 1).standard_normal((d, k + more))
    unscaled = next_projection(second @ W, W, scale) / scale[:, None]
    np.testing.assert_allclose(unscaled.T @ unscaled, np.eye(k + more), rtol=0, atol=1e-9)
    # Rounding, times the condition of the moment and of the sketch.
    sketch = np.linalg.cond((vectors[:, :k] / scale[:, None]).T @ W)
    rounding = 1e-14 * d * sketch * values[0] / values[k - 1]
    # The sine of the largest angle between both spaces.
    one, other = unscaled[:, :k], vectors[:, :k]
    assert np.linalg.norm(one @ one.T - other @ other.T, 2) < rounding + 1e-9
