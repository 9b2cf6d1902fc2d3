"""One rule for all verdicts: they follow from the figures shown, and from nothing else.

1. A figure with a target is met, missed, or open where the size of the run does not decide.
2. Trials are drawn again with replacement. A figure is met if `CERTAIN` of these resamples meet its
   target, and missed if as many do not.
3. A law is judged beside its rivals: it must fit best, by the least ratio of largest to smallest
   measured value over its own. A law may have an exponent that is fitted, within limits.
4. A count of comparisons is judged by sign: as many must be won as no coin would win.
5. The verdict is "does not" if a figure is missed, else "not judged" if one is open or none has a
   target, else "agrees".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import binom

from bench.kinds import Figure

CERTAIN, RESAMPLES = 0.95, 400


class Verdict(NamedTuple):
    """Whether a paper's claim comes out, None where that is open, and why."""

    agrees: bool | None
    because: str

    @property
    def line(self) -> str:
        start = {None: "not judged: ", True: "agrees: ", False: "does not, because "}
        return f"{start[self.agrees]}{self.because}"


def verdict_of(figures: Iterable[Figure]) -> Verdict:
    asked = [figure for figure in figures if figure.target != "-"]
    if missed := [figure for figure in asked if figure.met is False]:
        return Verdict(False, said(missed))
    if unknown := [figure for figure in asked if figure.met is None]:
        return Verdict(None, f"this size does not decide {said(unknown)}")
    return Verdict(True, said(asked)) if asked else Verdict(None, "the paper claims nothing here")


def said(figures: Iterable[Figure]) -> str:
    return "; ".join(f"{f.name}: {f.measured} (target: {f.target})" for f in figures)


def judge(name: str, measured: str, target: str, hits: Any) -> Figure:
    """Judge resamples of 1 (met), 0 (missed) and nan (neither)."""
    hits = np.asarray(hits, dtype=float)
    known, met = hits[~np.isnan(hits)], None
    if len(known) >= CERTAIN * len(hits):
        share = known.mean()
        met = True if share >= CERTAIN else False if share <= 1 - CERTAIN else None
    return Figure(name, measured, f"{target}, in {CERTAIN:.0%} of resamples", met)


def judge_count(name: str, won: int, tried: int) -> Figure:
    """Ask that all comparisons are won: open where a coin would do the same."""
    lost = float(binom.cdf(won, tried, 0.5)) <= 1 - CERTAIN
    met = False if lost else True if won == tried and 0.5**tried <= 1 - CERTAIN else None
    return Figure(name, f"{won} of {tried}", "all, more than a coin would win", met)


class Law(NamedTuple):
    """Values in proportion to shape(x)^p; p is 1, or fitted between limits."""

    name: str
    shape: Callable[[Any], Any]
    least: float = 1.0
    most: float = 1.0

    def through(self, points: Mapping[float, float]) -> dict[float, list[float]]:
        """Return the line of a law with p = 1 through the middle of points."""
        shape = self.shape(np.array(list(points), dtype=float))
        level = np.exp(np.mean(np.log(list(points.values())) - np.log(shape)))
        return {x: [float(y)] for x, y in zip(points, level * shape, strict=True)}


def power(exponent: float, of: str = "d") -> Law:
    return Law(f"{of}^{exponent:g}", lambda x: np.asarray(x, dtype=float) ** exponent)


def misfits(samples: Mapping[float, Any], law: Law) -> Any:
    """Return the largest over the smallest value after division by the law, for every resample."""
    shape, logs = centred(law.shape(np.array(list(samples), dtype=float))), log_values(samples)
    across = float(shape @ shape)
    p = np.clip(logs @ shape / across if across else 1.0, law.least, law.most)
    return np.exp(np.ptp(logs - np.multiply.outer(p, shape), axis=-1))


def log_values(samples: Mapping[float, Any]) -> Any:
    return centred(np.stack([np.asarray(values) for values in samples.values()], axis=-1))


def centred(values: Any) -> Any:
    logs = np.log(values)
    return logs - logs.mean(axis=-1, keepdims=True)


def judge_law(name: str, samples: Mapping[float, Any], laws: Sequence[Law], claimed: str) -> Figure:
    """Ask that the claimed law fits best; `samples` has the resamples of each measured value."""
    own = [law.name for law in laws].index(claimed)
    # Of few points all laws may say the same.
    found = np.stack([misfits(samples, law) for law in laws]).round(9)
    rival = np.delete(found, own, axis=0).min(axis=0)
    unknown = np.isnan(found).any(axis=0) | (found[own] == rival)
    hits = np.where(unknown, np.nan, found[own] < rival)
    middle = {x: np.array([np.median(values)]) for x, values in samples.items()}
    shown = ", ".join(f"{law.name} {float(misfits(middle, law)[0]):.2f}" for law in laws)
    shown += f"; least in {np.nanmean(hits):.0%}" if not np.isnan(hits).all() else "; not known"
    return judge(f"{name}, largest / smallest over", shown, f"{claimed} least", hits)


def exponent_figure(name: str, samples: Mapping[float, Any]) -> Figure:
    """Show the exponent of x and its standard error, over resamples."""
    x = centred(np.array(list(samples), dtype=float))
    slopes = log_values(samples) @ x / np.sum(x**2)
    error = float(np.nanstd(slopes))
    return Figure(name, f"{float(np.nanmedian(slopes)):.3f} (standard error {error:.3f})")


def rise(rates: Any) -> Any:
    """Return rates made to rise: running means of neighbours that are out of order."""
    return isotonic_regression(np.asarray(rates, dtype=float)).x


def at_half(levels: Any, rising: Any) -> Any:
    """Return where rows of rising rates cross 1/2, on a logarithmic scale; nan if they never do."""
    levels = np.asarray(levels)
    above = np.sum(rising < 0.5, axis=-1, keepdims=True)
    within = (above > 0) & (above < len(levels))
    above = np.where(within, above, 1)
    low, high = (np.take_along_axis(rising, above - i, -1) for i in (1, 0))
    with np.errstate(all="ignore"):
        share = (0.5 - low) / (high - low)
        found = levels[above - 1] * (levels[above] / levels[above - 1]) ** share
    return np.where(within, found, np.nan)[..., 0]


def resampled_halves(levels: Any, rates: Any, trials: int, seed: int = 0) -> Any:
    """Return `at_half` of resampled trials, each of which fails from a level of its own on."""
    own = np.random.default_rng(seed).random((RESAMPLES, trials, 1))
    return at_half(levels, (own <= rise(rates)).mean(axis=1))


def resampled_medians(values: Sequence[float], seed: int = 0) -> Any:
    rng, values = np.random.default_rng(seed), np.asarray(values)
    return np.median(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
