"""From exact and sampled moments to topics."""

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from streamlda.spectral.topics import (
    ALPHA_0_RANGE,
    RoundMoments,
    SpectralTopics,
    average_rounds,
    diagnostics,
    recover_topics,
    topics_along,
)
from streamlda.spectral.whitening import random_projection


def exact(mu, alpha, W):
    """Return the moments of the model itself, through W, without sampling noise.

    By the definition of the Dirichlet moments, not by the formulas that are inverted.
    """
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
        triples=np.einsum("abc,ai,bj,cn->ijn", third, y, y, y),
        whitening=W,
        pair_noise=np.zeros((m, m)),
        triple_noise=np.zeros((m, m, m)),
    )


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def planted_moments(rng, alpha, extra=5):
    """Return random topics over 40 words, and exact moments with that alpha."""
    mu = rng.dirichlet(np.full(40, 0.1), size=len(alpha))
    return mu, exact(mu, np.array(alpha), random_projection(40, len(alpha) + extra, seed=5))


@pytest.mark.parametrize("alpha", [[1.0], [0.2, 0.3], [0.1, 0.5, 1.5], [0.05] * 6])
@pytest.mark.parametrize("extra", [0, 7])
def test_exact_moments_give_exact_topics_for_any_projection(rng, alpha, extra):
    mu, seen = planted_moments(rng, alpha, extra)
    found = recover_topics(seen, len(alpha), sum(alpha), rng)
    assert matched_l1_error(mu, found.normalized()).mean < 1e-8
    np.testing.assert_allclose(np.sort(found.alpha), np.sort(alpha), rtol=1e-8)
    assert found.alpha_fit == pytest.approx(1.0)
    assert found.supported.all()


@pytest.mark.parametrize(
    ("alpha_0", "found"),
    [(0.05, 0.05), (1.0, 1.0), (20.0, 20.0), (500.0, ALPHA_0_RANGE[1]), (0.003, ALPHA_0_RANGE[0])],
)
def test_auto_alpha_0_solves_for_the_truth_or_the_nearer_end_of_its_range(rng, alpha_0, found):
    _, seen = planted_moments(rng, [0.5 * alpha_0, 0.3 * alpha_0, 0.2 * alpha_0])
    assert recover_topics(seen, 3, None, rng).alpha_0 == pytest.approx(found, rel=0.02)


def test_auto_alpha_0_is_1_where_two_topics_cannot_tell_it(rng):
    _, seen = planted_moments(rng, [2.0, 3.0], 4)
    for alpha_0 in (0.1, 1.0, 10.0):
        assert recover_topics(seen, 2, alpha_0, rng).alpha_fit == pytest.approx(1.0)
    assert recover_topics(seen, 2, None, rng).alpha_0 == 1.0


def test_wrong_alpha_0_shows_in_alpha_fit(rng):
    _, seen = planted_moments(rng, [1.0, 1.0, 1.0])
    assert recover_topics(seen, 3, 1.0, rng).alpha_fit > 1.05
    assert recover_topics(seen, 3, 9.0, rng).alpha_fit < 0.95


def test_topics_beyond_the_rank_repeat_the_background(rng):
    mu, seen = planted_moments(rng, [0.4, 0.6], 6)
    found = recover_topics(seen, 4, 1.0, rng)
    assert matched_l1_error(mu, found.normalized()[:2]).mean < 1e-6
    np.testing.assert_allclose(found.normalized()[2:], np.tile(seen.first, (2, 1)))
    assert found.supported.tolist() == [True, True, False, False]
    assert found.alpha.min() > 0
    assert found.condition_number is None or found.condition_number > 1e6


def test_a_topic_without_direction_repeats_the_background_and_is_not_supported():
    first = np.array([0.5, 0.25, 0.25])
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    second = np.diag(first) + np.outer(first, first) / 2
    found = topics_along(
        first, second, np.eye(3), np.array([2.0, 1.0]), vectors, np.zeros(2), 1.0, 9
    )
    assert found.eigenvalues.tolist() == [2.0, 0.0]
    assert found.supported.tolist() == [True, False]
    np.testing.assert_array_equal(found.topics[1], first)


def sampled(planted, n, W):
    moments = Moments(W)
    moments.add(planted.documents(n))
    return RoundMoments.of(moments)


@pytest.mark.statistical
def test_noise_estimate_tells_real_topics_from_noise():
    """20 corpora: with 3 planted topics the 3 stand out, and a 4th is doubted.

    The threshold leaves a factor 2 on either side in these corpora; seeds are fixed.
    """
    doubted = 0
    for seed in range(20):
        planted = PlantedLDA(3, 60, seed=seed, topic_concentration=0.1)
        seen = sampled(planted, 6000, random_projection(60, 10, seed))
        rng = np.random.default_rng(seed)
        assert recover_topics(seen, 3, 1.0, rng).supported.all()
        four = recover_topics(seen, 4, 1.0, rng)
        doubted += four.directions_supported == 3 or not four.supported.all()
    assert doubted >= 18


@pytest.mark.statistical
def test_averaging_two_rounds_lowers_the_error():
    """Averaging two independent estimates lowers a mean error by 1/sqrt(2); 0.85 is the bound."""
    single, averaged = [], []
    for seed in range(5):
        planted = PlantedLDA(3, 200, seed=seed, topic_concentration=0.1)
        W = random_projection(200, 20, seed)
        rng = np.random.default_rng(seed)
        rounds = [recover_topics(sampled(planted, 8000, W), 3, 1.0, rng) for _ in range(2)]
        both = average_rounds(*rounds)
        single += [matched_l1_error(planted.components, r.normalized()).mean for r in rounds]
        averaged.append(matched_l1_error(planted.components, both.normalized()).mean)
        assert both.documents == 16_000
    assert np.mean(averaged) < 0.85 * np.mean(single)


def fixed(topics, **changes):
    k = len(topics)
    values = {
        "topics": topics,
        "alpha": np.full(k, 1 / k),
        "alpha_0": 1.0,
        "alpha_fit": 1.0,
        "eigenvalues": np.full(k, 2.0),
        "eigenvalue_noise": np.full(k, 0.01),
        "pair_eigenvalues": np.full(k, 0.1),
        "pair_noise": np.full(k, 0.001),
        "documents": 100,
    }
    return SpectralTopics(**{**values, **changes})


def test_averaging_leaves_topics_without_a_match_alone():
    mu = np.eye(4)
    main = fixed(mu[:2])
    np.testing.assert_array_equal(average_rounds(main, fixed(mu[[1, 3]])).topics, main.topics)


def test_diagnostics_warn_in_words_and_are_plain():
    mu = np.eye(3)
    weak = fixed(mu, eigenvalue_noise=np.array([0.1, 9.0, np.inf]), pair_noise=np.ones(3))
    found = diagnostics(weak)
    text = " ".join(found["warnings"])
    assert "0 of 3 topics apart" in text
    assert "topics 1, 2" in text
    assert found["eigenvalue_noise"] == [0.1, 9.0, None]
    assert diagnostics(fixed(mu))["warnings"] == []
    ill = fixed(mu, pair_eigenvalues=np.array([1.0, 0.1, 1e-4]), pair_noise=np.full(3, 1e-9))
    assert "condition_number=10000" in diagnostics(ill)["warnings"][0]
