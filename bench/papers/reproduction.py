"""A figure or a theorem of a paper run again: a scenario with a verdict, panels and a picture.

One rule makes all verdicts: they follow from the figures shown, and from nothing else.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import binom

from bench.kinds import Case, Figure, Json, Scenario
from bench.panels import Panel, draw, tables

CERTAIN, RESAMPLES = 0.95, 400

#: Values of each line by their place on the axis.
Lines = dict[str, dict[float, list[float]]]


def lines_of(result: Json) -> dict[str, Lines]:
    """Return all values of a result by panel, line and place.

    Each row has them, or the parameters of its case where all rows have the same.
    """
    found: dict[str, Lines] = {}
    for run in result["runs"]:
        for row in run["measured"]["rows"]:
            at = {**result["cases"][run["case"]]["parameters"], **row}
            lines = found.setdefault(at["panel"], {})
            lines.setdefault(at["line"], {}).setdefault(at["x"], []).extend(at["values"])
    return found


@dataclass(frozen=True, kw_only=True)
class Reproduction(Scenario):
    """A scenario whose question is what a paper says."""

    task: Callable[[Json, Json, int], Json]
    #: Parameters of its cases by label; a fast run has those that are at most `fast`, reduced.
    settings: dict[str, Json]
    fast: Json = field(default_factory=dict)
    cases: Any = None
    repeats: int = 1
    judges_small: bool = True
    #: Axes of panels that show what was measured, and nothing else; y is their name if left out.
    axes: tuple[str, str] = ("epsilon", "L1 error of a topic")
    scales: tuple[str, str] = ("log", "log")
    #: Other panels; none of a table, whose page is all that there is.
    panels: Any = None
    #: Whether the page has panels as tables.
    tabled: bool = True
    #: Files that only its user has, by the option that names them.
    data: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs_corpus", "corpus" in self.data)
        object.__setattr__(self, "details", self.page)
        object.__setattr__(self, "cases", self.choose_cases)
        object.__setattr__(self, "panels", self.panels or self.measured_panels)

    def choose_cases(self, quick: bool, contenders: tuple[str, ...]) -> list[Case]:
        """Return the cases; of data, of which some stand in for others, those of contenders."""
        return [
            Case(label, self.task.__name__, reduced(p) if quick else p)
            for label, p in self.settings.items()
            if not contenders or p.get("data") in (None, *contenders)
            if not quick or all(p[name] <= most for name, most in self.fast.items())
        ]

    def measured_panels(self, result: Json) -> list[Panel]:
        x, y = self.axes
        measured = lines_of(result).items()
        return [Panel(name, x, y or name, lines, self.scales) for name, lines in measured]

    def verdict(self, result: Json) -> Verdict:
        return verdict_of(self.figures(result))

    def page(self, result: Json) -> str:
        """Return verdict, panels as tables, and picture, as Markdown."""
        panels = self.panels(result)
        means = tables(panels) if self.tabled else ""
        picture = f"![{self.id}](plots/{self.id}.png)\n" if panels else ""
        return f"**{self.verdict(result).line}**\n\n{means}{picture}"

    def draw(self, result: Json, folder: Path) -> None:
        """Draw <id>.png into a folder."""
        if panels := self.panels(result):
            draw(panels, folder / f"{self.id}.png")


def reduced(parameters: Json) -> Json:
    """Return fewer trials and runs, every other budget, and fewer documents of a corpus."""
    found = {x: parameters[x][::2] for x in ("epsilons", "points") if x in parameters}
    if "trials" in parameters:
        found["trials"] = min(-(-parameters["trials"] // 4), 1000 // parameters["dimension"])
    if "runs" in parameters:
        found["runs"] = -(-parameters["runs"] // 4)
    return {**parameters, **found, **({"documents": 5000} if "held_out" in parameters else {})}


# The rule


class Verdict(NamedTuple):
    """Verdict on a paper's claim: whether it comes out, None where that is open, and why."""

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


ANY_POWER = Law("any power", np.asarray, -np.inf, np.inf)


def power(exponent: float, of: str = "d") -> Law:
    return Law(f"{of}^{exponent:g}", lambda x: np.asarray(x, dtype=float) ** exponent)


def fitted(samples: Mapping[float, Any], law: Law) -> tuple[Any, Any]:
    """Return largest over smallest value after division by the law, and p, of every resample."""
    shape = centred(law.shape(np.array(list(samples), dtype=float)))
    logs, across = centred(np.stack([*samples.values()], axis=-1)), float(shape @ shape)
    p = np.clip(logs @ shape / across if across else 1.0, law.least, law.most)
    return np.exp(np.ptp(logs - np.multiply.outer(p, shape), axis=-1)), p


def centred(values: Any) -> Any:
    logs = np.log(values)
    return logs - logs.mean(axis=-1, keepdims=True)


def judge_law(name: str, samples: Mapping[float, Any], laws: Sequence[Law], claimed: str) -> Figure:
    """Ask that the claimed law fits best; `samples` has the resamples of each measured value."""
    own = [law.name for law in laws].index(claimed)
    # Of few points all laws may say the same.
    found = np.stack([fitted(samples, law)[0] for law in laws]).round(9)
    rival = np.delete(found, own, axis=0).min(axis=0)
    unknown = np.isnan(found).any(axis=0) | (found[own] == rival)
    hits = np.where(unknown, np.nan, found[own] < rival)
    middle, shown = {x: np.array([np.median(values)]) for x, values in samples.items()}, []
    for law in dict.fromkeys((*laws, ANY_POWER)):
        shown.append(f"{law.name} {fitted(middle, law)[0].item():.2f}")
        if law.least < law.most:
            p = fitted(samples, law)[1]
            shown[-1] += f" (p {np.nanmedian(p):.3f}, standard error {np.nanstd(p):.3f})"
    least = f"least in {np.nanmean(hits):.0%}" if not np.isnan(hits).all() else "not known"
    measured = f"{', '.join(shown)}; {least}"
    return judge(f"{name}, largest / smallest over", measured, f"{claimed} least", hits)


def at_half(levels: Any, rates: Any) -> float:
    """Return where rates, made to rise, reach 1/2, on a logarithmic scale; nan if they do not."""
    falling, logs = -isotonic_regression(rates).x[::-1], np.log(levels)[::-1]
    return float(np.exp(np.interp(-0.5, falling, logs, left=np.nan, right=np.nan)))


def halves(levels: Any, rates: Any, trials: int, seed: int = 0) -> Any:
    """Return `at_half` of resampled trials, each of which fails from a level of its own on."""
    own = np.random.default_rng(seed).random((RESAMPLES, trials, 1))
    rising = isotonic_regression(rates).x
    return np.array([at_half(levels, each) for each in (own <= rising).mean(axis=1)])


def medians(values: Sequence[float], seed: int = 0) -> Any:
    rng, values = np.random.default_rng(seed), np.asarray(values)
    return np.median(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
