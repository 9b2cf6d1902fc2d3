"""Tests of the size of drawn noise, and the exact cost of Gaussian noise."""

import mpmath
import numpy as np
from scipy import stats

#: False-alarm rate of a statistical test; seeds are fixed, so it does not vary from run to run.
ALARM = 1e-5

MP = mpmath.mp.clone()
MP.dps = 80


def fits_scale(values, sigma=1.0, alarm=ALARM):
    """Tell whether values may be normal with mean 0 and this deviation: two-sided chi-squared."""
    scaled = np.ravel(values) / np.ravel(sigma)
    total, n = float(np.sum(scaled**2)), len(scaled)
    return bool(2 * min(stats.chi2.cdf(total, n), stats.chi2.sf(total, n)) > alarm)


def has_scale(values, sigma=1.0, alarm=ALARM):
    """Tell whether values have this deviation, and the test would refuse 2/3 or 3/2 of it."""
    found = [fits_scale(values, sigma * times, alarm) for times in (1, 2 / 3, 3 / 2)]
    return found == [True, False, False]


def exact_delta(mu, epsilon):
    """Return delta of a mu-GDP release (Balle and Wang 2018, Theorem 8), 40 digits left of it."""
    MP.dps = 80 + int(max(0, -2 * MP.log10(mu)))
    mu_, epsilon_ = MP.mpf(mu), MP.mpf(epsilon)

    def normal(x):
        return MP.erfc(-x / MP.sqrt(2)) / 2

    first = normal(-epsilon_ / mu_ + mu_ / 2)
    return first - MP.exp(epsilon_) * normal(-epsilon_ / mu_ - mu_ / 2)
