"""What an adversary has of runs of whole private pipelines, and what it weighs."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2, norm

from streamlda.guarantee.accounting import mu_of
from tests.private.audit import mu_below

EPSILON, DELTA = 1.0, 1e-6

#: What is promised at these.
CLAIM = mu_of(EPSILON, DELTA)

#: Probability that a sound pipeline is refuted by one bound; some hundred are looked at.
ALPHA = 1e-8


@dataclass
class Evidence:
    """What an adversary has of runs: of each run and canary, features of the noise and the shift.

    `told` counts runs in which something else was published than the releases lead to,
    `lone_words` those that show a word that one record has; `noise` has squares and numbers of the
    noise by block and by release, in units of what it is said to be.
    """

    scene: object
    bits: list = field(default_factory=list)
    looks: list = field(default_factory=list)
    told: int = 0
    lone_words: int = 0
    noise: dict = field(default_factory=dict)

    def add(self, bits, looks, told, lone, noise):
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
        """Weigh all of it."""
        found = [self._of_canary(j) for j in range(len(self.scene.canaries))]
        return Verdict(
            {c.name: one for c, one in zip(self.scene.canaries, found, strict=True)},
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
            absent=scores[~bits],
            present=scores[bits],
            reach=float(np.linalg.norm(shift, axis=1).max()),
            measured=math.sqrt(squared * max(n - p - 1, 1) / n),
            measured_surely=math.sqrt(surely),
            whole=float(whole.mean()),
        )


def _covariance(noise, shift):
    # Where noise is missing the variance is 0, of few runs in all: that little must do for it.
    found = noise.T @ noise / max(1, len(noise))
    return found + 1e-6 * np.diag(np.diag(found) + np.square(shift).mean(axis=0) + 1e-9)


@dataclass(frozen=True)
class Finding:
    """What was found out about one canary; mu is shift over noise.

    `reach`: the largest shift in units of the noise that is said to be there. `measured`: the shift
    over the noise that was seen, with a bound that it exceeds but with probability `ALPHA`. Scores
    are those of runs without the canary and with it.
    """

    absent: np.ndarray
    present: np.ndarray
    reach: float
    measured: float
    measured_surely: float
    whole: float

    @property
    def seen_surely(self):
        """A bound on mu that holds but with probability `ALPHA`, from scores alone."""
        return mu_below(self.absent, self.present, float(norm.isf(ALPHA)))

    @property
    def seen(self):
        """Mu from scores alone, less than half of its standard error too low or high."""
        return mu_below(self.absent, self.present, 0.0)


@dataclass(frozen=True)
class Verdict:
    """What was found out about all canaries.

    `quiet` are blocks and releases with less noise than is said.
    """

    findings: dict[str, Finding]
    told: int
    lone_words: int
    quiet: list[str]

    @property
    def faults(self):
        """Return what refutes the claim: by chance with probability `ALPHA` each."""
        said = {"published": self.told, "lone words": self.lone_words}
        found = [name for name, runs in said.items() if runs]
        found += [f"{name}: quiet" for name in self.quiet]
        for name, each in self.findings.items():
            bounds = {"reach": each.reach, "noise": each.measured_surely, "runs": each.seen_surely}
            most = CLAIM * (1 + 1e-9)
            found += [f"{name}: {how}" for how, bound in bounds.items() if bound > most]
        return found

    def __str__(self):
        lines = [f"claim {CLAIM:.4f} faults {self.faults}"]
        lines += [
            f"  {name}: reach {f.reach:.4f} measured {f.measured:.4f} (> {f.measured_surely:.4f})"
            f" seen {f.seen:.4f} (> {f.seen_surely:.4f}) whole {f.whole:.3f}"
            for name, f in self.findings.items()
        ]
        return "\n".join(lines)
