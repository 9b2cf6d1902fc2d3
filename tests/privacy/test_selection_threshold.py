"""The threshold of words: what delta allows, and lone documents that are found."""

import math
from fractions import Fraction

import mpmath
import pytest
from scipy import stats

from streamlda.guarantee import selection
from streamlda.guarantee.mechanism import NEIGHBORING_RELATIONS
from streamlda.guarantee.noise import Noise, SeededNoise
from streamlda.privacy.events import GaussianRelease, event_of_selection
from tests.privacy.chance import ALARM
from tests.privacy.test_selection import make


@pytest.mark.parametrize(
    ("relation", "d0", "z", "delta"),
    [
        *(("zero-out", 1, 4.37, 1e-6), ("zero-out", 100, 1e-3, 1e-12)),
        *(("zero-out", 100, 1e3, 0.5), ("zero-out", 5, 0.2, 0.05)),
        *(("replace-one", 1, 1e-3, 0.5), ("replace-one", 100, 4.37, 1e-6)),
        *(("replace-one", 100, 1e3, 1e-12), ("replace-one", 5, 0.2, 0.05)),
    ],
)
def test_threshold_is_the_smallest_that_delta_allows(relation, d0, z, delta):
    made = make(z, delta, d0, relation)
    stddev = mpmath.mpf(z) * (mpmath.sqrt(2) if relation == "replace-one" else 1)
    first = stddev / mpmath.sqrt(mpmath.mpf(selection.FIRST_SHARE))
    second = stddev / mpmath.sqrt(1 - mpmath.mpf(selection.FIRST_SHARE))
    tau = mpmath.sqrt(second**2 + first**2 / 16)

    def kept(steps):
        """Return the probability that a word of a lone document is kept, at the worst."""
        return 1 - mpmath.ncdf((steps * made.step / 4 - mpmath.mpf("0.75")) / tau) ** d0

    with mpmath.workdps(40):
        # What rounding may add to a score, in steps of it: five halves.
        assert kept(made._threshold_steps - mpmath.mpf("2.5")) <= delta
        slack = 7 + made._threshold_steps * 2.0**-40
        assert kept(made._threshold_steps - slack) > delta


def test_noise_and_threshold_of_either_relation():
    added, replaced = (make(4.0, 5e-7, 100, relation) for relation in NEIGHBORING_RELATIONS)
    for made, sensitivity in ((added, 1), (replaced, math.sqrt(2))):
        # Each round is a Gaussian mechanism: their costs add up to that of one with the multiplier.
        mu_squared = sum((sensitivity / Fraction(stddev)) ** 2 for stddev in made.stddevs)
        assert float(mu_squared) == pytest.approx(1 / 16, rel=1e-12)
        assert mu_squared * Fraction(4) ** 2 <= 1
        assert (sensitivity / made.stddevs[0]) ** 2 * 16 == pytest.approx(selection.FIRST_SHARE)
        assert event_of_selection(made).event == GaussianRelease(4.0)
    assert 2**32 <= added.stddevs[1] / added.step < 2**33
    assert math.frexp(added.step)[0] == 0.5
    # Two draws a word, and as much again for what rounds a Gaussian.
    assert added.tv_distance_bound == 400 * Noise.tv_distance_bound
    assert replaced.tv_distance_bound == 800 * Noise.tv_distance_bound


#: Lone documents a test lets vote, and the chance that any of their words is kept.
LONE, LARGE_DELTA = 4000, 0.05


def lone_documents_found(made, kept):
    """Return of how many documents, none sharing a word with another, a word is released."""
    for number in range(LONE):
        made.add(f"{number} {i}" for i in range(kept))
    return len({found.word.split()[0] for found in made.release(SeededNoise(kept))})


def is_delta(found):
    """Tell whether a count is that of LONE draws at LARGE_DELTA; false alarms: ALARM."""
    low, high = stats.binom.interval(1 - ALARM, LONE, LARGE_DELTA)
    return low <= found <= high


@pytest.mark.statistical
@pytest.mark.parametrize(("d0", "z"), [(1, 2.0), (1, 0.1), (5, 0.1), (50, 2.0)])
def test_a_lone_document_is_found_with_probability_delta_at_most(d0, z):
    """A document of one word that is alone attains it where a document has one vote."""
    for kept in {1, min(2, d0), d0}:
        found = lone_documents_found(make(z, LARGE_DELTA, d0), kept)
        # The upper end has a false-alarm rate of ALARM / 2.
        assert found <= stats.binom.isf(ALARM / 2, LONE, LARGE_DELTA)
        assert d0 > 1 or is_delta(found)
