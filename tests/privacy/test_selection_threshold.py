"""The threshold of a private selection: the smallest that delta allows, and noticed if wrong."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from streamlda.privacy.events import NEIGHBORING_RELATIONS
from streamlda.privacy.noise import Noise, SeededNoise
from tests.privacy.chance import ALARM
from tests.privacy.selection_cases import make, one


@pytest.mark.parametrize(
    ("relation", "d0", "z", "delta"),
    [
        *(("add-remove", 1, 4.37, 1e-6), ("add-remove", 100, 1e-3, 1e-12)),
        *(
            ("add-remove", 100, 1e3, 0.5),
            ("add-remove", 5, 0.2, 0.05),
            ("add-remove", 5, 0.2, 1e-12),
        ),
        *(("replace-one", 1, 1e-3, 0.5), ("replace-one", 100, 4.37, 1e-6)),
        *(("replace-one", 100, 1e3, 1e-12), ("replace-one", 5, 0.2, 0.05)),
    ],
)
def test_threshold_is_the_smallest_that_delta_allows(relation, d0, z, delta):
    made = make(z, delta, d0, relation)
    sigma = mpmath.mpf(z) * (mpmath.sqrt(2) if relation == "replace-one" else 1) / made.step

    def kept(threshold):
        """Return the probability that a word of a lone document is kept, at the worst."""
        return max(
            1 - mpmath.ncdf((threshold - mpmath.sqrt(mpmath.mpf(one(made)) ** 2 / t)) / sigma) ** t
            for t in range(1, d0 + 1)
        )

    with mpmath.workdps(40):
        assert kept(made._threshold_steps) <= delta
        # Three steps are lost to rounding, of 2^32 in a standard deviation.
        slack = 3 + made._threshold_steps * 2.0**-40
        assert kept(made._threshold_steps - slack) > delta


def test_noise_and_threshold_of_either_relation():
    added, replaced = (make(4.0, 5e-7, 100, relation) for relation in NEIGHBORING_RELATIONS)
    assert (added.stddev, replaced.stddev) == pytest.approx((4, 4 * math.sqrt(2)), rel=1e-12)
    assert 2**32 <= added.stddev / added.step < 2**33
    assert math.frexp(added.step)[0] == 0.5
    assert added.tv_distance_bound == 200 * Noise.tv_distance_bound
    assert replaced.tv_distance_bound == 400 * Noise.tv_distance_bound


#: Lone documents a test lets vote, and the chance that any of their words is kept.
LONE, LARGE_DELTA = 4000, 0.05


def lone_documents_found(made, kept):
    """Return of how many documents, none sharing a word with another, a word is released."""
    for number in range(LONE):
        made.add(f"{number} {i}" for i in range(kept))
    return len({found.split()[0] for found, _ in made.release(SeededNoise(kept))})


def worst(d0, z):
    """Return the number of words of a lone document that is found most easily."""
    rho = [t**-0.5 + z * stats.norm.ppf((1 - LARGE_DELTA) ** (1 / t)) for t in range(1, d0 + 1)]
    return 1 + int(np.argmax(rho))


def is_delta(found):
    """Tell whether a count is that of LONE draws at LARGE_DELTA; false alarms: ALARM."""
    low, high = stats.binom.interval(1 - ALARM, LONE, LARGE_DELTA)
    return low <= found <= high


@pytest.mark.statistical
@pytest.mark.parametrize("z", [0.1, 2.0])
@pytest.mark.parametrize("d0", [1, 5, 50])
def test_a_lone_document_is_found_with_probability_delta(d0, z):
    at = worst(d0, z)
    assert at == (1 if z == 0.1 else d0)
    assert is_delta(lone_documents_found(make(z, LARGE_DELTA, d0), at))
    # Nowhere more often: the upper end has a false-alarm rate of ALARM / 2.
    for kept in {1, min(2, d0), d0}:
        found = lone_documents_found(make(z, LARGE_DELTA, d0), kept)
        assert found <= stats.binom.isf(ALARM / 2, LONE, LARGE_DELTA)


def threshold_of_one_word(made):
    return make(made.noise_multiplier, made.delta, 1)._threshold_steps


def threshold_of_most_words(made):
    quantile = stats.norm.ppf((1 - made.delta) ** (1 / made.max_words_per_document))
    rho = made.max_words_per_document**-0.5 + made.stddev * quantile
    return math.ceil(rho / made.step)


def threshold_for_half_the_noise(made):
    half = made.noise_multiplier / 2
    rho = make(half, made.delta, made.max_words_per_document).threshold
    return math.ceil(rho / made.step)


def threshold_for_twice_delta(made):
    return make(made.noise_multiplier, 2 * made.delta, made.max_words_per_document)._threshold_steps


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("bug", "d0", "z"),
    [
        (threshold_of_one_word, 5, 2.0),
        (threshold_of_one_word, 50, 2.0),
        (threshold_of_most_words, 5, 0.1),
        (threshold_of_most_words, 50, 0.1),
        (threshold_for_half_the_noise, 1, 2.0),
        (threshold_for_half_the_noise, 50, 2.0),
        (threshold_for_twice_delta, 1, 2.0),
        (threshold_for_twice_delta, 50, 2.0),
    ],
)
def test_a_wrong_threshold_is_noticed(bug, d0, z):
    made = make(z, LARGE_DELTA, d0)
    made._threshold_steps = bug(made)
    found = lone_documents_found(made, worst(d0, z))
    assert found > stats.binom.isf(ALARM / 2, LONE, LARGE_DELTA)
    assert not is_delta(found)
