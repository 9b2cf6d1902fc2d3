"""The audit of private releases: how well can two neighbouring streams really be told apart?

The adversary has all releases, and knows the code and all records but a *canary* that it chose,
which is in the stream or not (or another record is in its slot). So it knows all sums but for their
noise. Released less expected sums, along what the canary adds, is a draw from two Gaussians. The
covariance of the noise is learned from other runs, with that of the same places in all other
releases, so that noise that is used twice is found. Canaries are in or out independently; each is
judged given the others.

Runs are of whole pipelines (`tests.private.pipelines`), of filled stages that are released again
(`tests.private.test_audit`), and of shares of sites (`tests.sites.test_audit_of_sites`).
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular
from scipy.stats import chi2, norm

from streamlda.guarantee.noise import Noise
from streamlda.privacy.prefix_release import PrefixSums
from streamlda.private.window import PREFIX

#: Probability that a sound mechanism is refuted by one bound; some hundred are looked at.
ALPHA = 1e-8

#: Standard deviations of a bound that a sound mechanism exceeds by chance so rarely.
SURE = float(norm.isf(ALPHA))


class NoNoise(Noise):
    """None, in place of that of a run whose releases are known."""

    secure = True

    def __init__(self):
        pass

    def discrete_gaussian(self, sigma, shape=()):
        return np.zeros(shape, dtype=np.int64)


@dataclass(frozen=True)
class Release:
    """A release as it is stored: noisy sums by block, and the noise that is said to be in them.

    `values` are the arrays, but of words their votes, NaN where they are not released.
    """

    stage: str
    arrays: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    stddevs: dict[str, float]


@dataclass
class Evidence:
    """Features of the noise and the shift, of each run and canary, as an adversary has them.

    `claim` is the mu that is promised, `canaries` are names.
    """

    claim: float
    canaries: list[str]
    bits: list = field(default_factory=list)
    looks: list = field(default_factory=list)
    told: int = 0  # Runs in which something else was published than the releases lead to.
    lone_words: int = 0  # Runs that show a word that one record has.
    noise: dict = field(default_factory=dict)  # Squares and number, in units of what it should be.

    def add(self, bits, looks, noise, *, told=False, lone=False):
        self.bits.append(bits)
        self.looks.append(looks)
        self.told += told
        self.lone_words += lone
        for name, values in noise.items():
            seen = values[~np.isnan(values)]
            # Of the block, and of its whole release.
            for of in (name, name.rpartition(" ")[0]):
                squares, n = self.noise.get(of, (0.0, 0))
                self.noise[of] = squares + float(seen @ seen), n + len(seen)

    def verdict(self):
        return Verdict(
            self.claim,
            {name: self._of_canary(j) for j, name in enumerate(self.canaries)},
            self.told,
            self.lone_words,
            [name for name, (squares, n) in self.noise.items() if chi2.cdf(squares, n) < ALPHA],
        )

    def _of_canary(self, j):
        bits = np.array([row[j] for row in self.bits], dtype=bool)
        looks = [row[j] for row in self.looks]
        moved = [tuple(name for name, (by, _) in look.items() if by) for look in looks]
        usual = Counter(moved).most_common(1)[0][0]
        # The others lost a window: the canary is elsewhere, or in nothing.
        whole = np.array([names == usual for names in moved])
        echoes = Counter(name for look in looks for name, (by, _) in look.items() if not by)
        usual += tuple(name for name, n in echoes.items() if 2 * n > len(looks))
        shift = np.zeros((len(looks), len(usual)))
        noise = np.zeros_like(shift)
        for i in np.flatnonzero(whole):
            found = [looks[i].get(name, (0.0, 0.0)) for name in usual]
            shift[i], noise[i] = np.reshape(found, (-1, 2)).T
        # Along each feature: the noise, and half of the shift one way or the other.
        features = noise + np.where(bits, 0.5, -0.5)[:, None] * shift
        scores = np.zeros(len(looks))
        folds = np.arange(len(looks)) % 2
        for fold in (0, 1):
            learned = _covariance(noise[whole & (folds != fold)], shift)
            weights = np.linalg.solve(learned, shift[folds == fold].T).T
            scores[folds == fold] = np.sum(weights * features[folds == fold], axis=1)
        covariance, mean = _covariance(noise[whole], shift), shift[whole].mean(axis=0)
        squared = float(mean @ np.linalg.solve(covariance, mean))
        # n squared / its estimate is chi-square of n - p + 1 degrees of freedom.
        n, p = int(whole.sum()), len(usual)
        surely = squared * chi2.ppf(ALPHA, n - p + 1) / n if n > p else 0.0
        return Finding(
            reach=float(np.linalg.norm(shift, axis=1).max()),
            noise=math.sqrt(surely),
            runs=mu_below(scores[~bits], scores[bits], SURE),
        )


def _covariance(noise, shift):
    # Where noise is missing the variance is 0, of few runs in all: that little must do for it.
    found = noise.T @ noise / max(1, len(noise))
    return found + 1e-6 * np.diag(np.diag(found) + np.square(shift).mean(axis=0) + 1e-9)


@dataclass(frozen=True)
class Finding:
    """Lower bounds of mu, shift over noise, of one canary; each holds but with probability `ALPHA`.

    `reach`: by the noise that is said to be there. `noise`: by the noise that was seen. `runs`: by
    scores of runs with the canary and without it.
    """

    reach: float
    noise: float
    runs: float


@dataclass(frozen=True)
class Verdict:
    claim: float
    findings: dict[str, Finding]
    told: int
    lone_words: int
    quiet: list[str]  # Blocks and releases with less noise than is said.

    @property
    def faults(self):
        """Return what refutes the claim: by chance with probability `ALPHA` each."""
        said = {"published": self.told, "lone words": self.lone_words}
        found = [name for name, runs in said.items() if runs]
        found += [f"{name}: quiet" for name in self.quiet]
        for name, each in self.findings.items():
            most = self.claim * (1 + 1e-9)
            found += [f"{name}: {how}" for how, mu in vars(each).items() if mu > most]
        return found


def mu_below(absent, present, quantile):
    """A lower bound of shift over noise from equally many scores of both streams.

    With n scores each, difference over pooled deviation times sqrt(n / 2) is noncentral t of
    variance 1 + t^2 / (4 n): normal, for the hundreds of scores there are.
    """
    n = len(absent)
    spread = math.sqrt((absent.var(ddof=1) + present.var(ddof=1)) / 2)
    difference = float(present.mean() - absent.mean())
    # From 50 on two streams are as good as told apart.
    t = difference / max(spread, difference / 50, 1e-300) * math.sqrt(n / 2)
    return max(0.0, (t - quantile * math.sqrt(1 + t * t / (4 * n))) / math.sqrt(n / 2))


def less(one, two):
    return {name: one[name] - two[name] for name in one}


#: Part of the squared shift from which on noise in a block is sought in other releases, too.
_ECHOED = 0.05


def in_noise(releases, sums, strategy):
    """Return flat sums of each release and block in units of its noise, independent of others.

    `strategy` is that of the rounds of prefix mode.
    """
    found, numbers, rounds = {}, Counter(), []
    for release, arrays in zip(releases, sums, strict=True):
        if release.stage == PREFIX:
            rounds.append((release, arrays))
            continue
        numbers[release.stage] += 1
        label = f"{release.stage} ({numbers[release.stage]})"
        for name, stddev in release.stddevs.items():
            found[f"{label} {name}"] = np.reshape(arrays[name], -1) / stddev
    if rounds:
        impulses = PrefixSums(strategy, (len(rounds),))
        mixed = np.array([impulses.step(row) for row in np.eye(len(rounds))])
        for name, stddev in rounds[0][0].stddevs.items():
            sums = np.array([np.reshape(arrays[name], -1) for _, arrays in rounds])
            apart = solve_triangular(mixed, sums, lower=True)
            for number, values in enumerate(apart, 1):
                found[f"{PREFIX} ({number}) {name}"] = values * mixed[0, 0] / stddev
    return found


def look_along(noise, shift, *, echoes=True):
    """Return shift and noise along what a canary adds to each block, and in other releases."""
    squares = {name: float(values @ values) for name, values in shift.items()}
    total, found, echoed = sum(squares.values()), {}, set()
    for name, square in squares.items():
        if square == 0:
            continue
        along = shift[name] / math.sqrt(square)
        found[name] = math.sqrt(square), float(along @ noise[name])
        if not echoes or square < _ECHOED * total:
            continue
        for other, values in noise.items():
            n = min(len(values), len(along))
            length = np.linalg.norm(along[:n])
            if squares[other] > 0 or length <= 0.5:
                continue
            echo = float(along[:n] @ values[:n]) / length
            if (other, echo) not in echoed:
                echoed.add((other, echo))
                found[f"{name} in {other}"] = 0.0, echo
    return found
