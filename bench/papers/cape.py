"""Figures 2 to 5 of Imtiaz & Sarwate (2018): error of sites that pool noise, not documents.

Each figure has the authors' settings, our algorithms on newly drawn data, the algorithms as
published (`route="paper"`, their calibration) on the same data, and, where the authors gave
numbers, their own runs (`published/imtiaz-sarwate.json`).
"""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom, ttest_ind

from bench.kinds import Figure, Json
from bench.panels import Panel
from bench.papers.cape_tasks import cape_components, cape_pca
from bench.papers.data import STAND_INS
from bench.papers.reproduction import Reproduction
from bench.papers.rule import CERTAIN, RESAMPLES, judge
from bench.styles import AS_PUBLISHED, AUTHORS

PUBLISHED = json.loads(
    (Path(__file__).parent / "published" / "imtiaz-sarwate.json").read_text("utf-8")
)

EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
DELTAS, DELTA = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05), 0.01
#: Draws of the noise at a point, as in the paper.
RUNS = 10


class Swept(NamedTuple):
    """Data or a model, and its sweeps."""

    label: str
    how: Json
    #: Documents (a site, of directions) of sweeps over epsilon and delta; of one over documents.
    documents: tuple[int, ...]
    sizes: tuple[int, ...]
    #: Of the sweep over documents, and of that over delta.
    epsilons: tuple[float, float]


FEW = (100, 1000, 4000)
DATA = [
    Swept(f"{name}, N_s", {"data": name, "components": k, "sites": 10}, (n,), sizes, at)
    for name, k, n, sizes, at in (
        ("synthetic", 50, 1000, FEW, (0.5, 1.0)),
        ("MNIST", 50, 1000, FEW, (0.5, 1.0)),
        ("Covertype", 10, 1000, FEW, (0.1, 0.5)),
        ("digits", 10, 179, (20, 60, 179), (1.0, 2.0)),
        ("cover types", 10, 500, FEW, (0.1, 0.5)),
    )
]
SIZES = (50_000, 100_000, 200_000, 500_000, 800_000)
MIXTURE, TOPICS = (
    [
        Swept(f"{model}, D = {d}, N", {**how, "model": model}, (100_000, 800_000), SIZES, at)
        for d, k, at in ((10, 5, (0.5, 0.1)), (50, 10, (1.0, 2.0)))
        for how in [{"dimension": d, "components": k, "sites": 5}]
    ]
    for model in ("mixture", "topics")
)

#: Each should have less error than the next.
ORDER = ("capeAGN", "conventional", "local")

#: A difference is one where a t-test finds it at this level.
LEVEL = 0.01

#: As published beside the authors' runs: set before any figure was seen. Their data are not ours,
#: and medians of some ten points have a standard error of 0.05 to 0.07, which may leave it open.
SHARE_OF_AUTHORS = 0.06


def settings_of(swept: list[Swept], *axes: str) -> dict[str, Json]:
    """Return the parameters of sweeps over some axes."""
    found = {}
    for (name, how, documents, sizes, (at_size, at_delta)), axis in product(swept, axes):
        points, chosen, where = {
            "epsilon": ([[x, DELTA] for x in EPSILONS], documents, "over epsilon"),
            "delta": (
                [[at_delta, x] for x in DELTAS],
                documents,
                f"epsilon {at_delta:g}, over delta",
            ),
            "documents": ([[at_size, DELTA]], sizes, f"epsilon {at_size:g}"),
        }[axis]
        for n in chosen:
            made = {**how, "documents": n, "points": points, "runs": RUNS}
            found[f"{name} = {n:,}, {where}"] = made
    return found


# What was measured

Lines = dict[str, dict[float, list[float]]]


def axis_of(parameters: Json) -> str:
    epsilons, deltas = (set(values) for values in zip(*parameters["points"], strict=True))
    return "epsilon" if len(epsilons) > 1 else "delta" if len(deltas) > 1 else "documents"


def title_of(label: str, axis: str) -> str:
    """Return the panel of a case; documents are no part of it where they are its axis."""
    title = re.sub(r", over \w+$", "", label)
    return re.sub(r"N(_s)? = [\d,]+, ", "", title) if axis == "documents" else title


def authors_lines(parameters: Json) -> Lines:
    """Return the authors' own runs of the same settings."""
    asked = {**parameters, "against": axis_of(parameters)}
    for curve in PUBLISHED["curves"]:
        if all(asked.get(x) == curve[x] for x in ("model", "dimension", "documents", "against")):
            floor = [curve["non_private"]] * len(curve["values"])
            return {
                f"{method}{AUTHORS}": {x: [y] for x, y in zip(curve["values"], errors, strict=True)}
                for method in (*ORDER, "not private")
                for errors in [curve.get(method, floor)]
            }
    return {}


def measured(result: Json) -> dict[tuple[str, str], Lines]:
    """Return q_comp, or q_CE over the best, by title and axis, method, and place on the axis.

    The error of random components is a line too, and so are the authors' runs.
    """
    found: dict[tuple[str, str], Lines] = {}
    for run in result["runs"]:
        p, each = result["cases"][run["case"]]["parameters"], run["measured"]
        axis = axis_of(p)
        lines = found.setdefault((title_of(run["case"], axis), axis), {})
        for row in each["rows"]:
            values = row.get("q_comp") or [x / each["best"] for x in row["q_CE"]]
            place = {**row, **p}[axis]
            lines.setdefault(row["method"], {})[place] = values
            if "q_comp" in row:
                lines.setdefault("random", {})[place] = [each["random"]]
        lines.update(authors_lines(p))
    return found


#: Values that should be less, values that should be more, and what the opposite is called.
Pair = tuple[list[float], list[float], str]


def compare(pairs: list[Pair]) -> tuple[int, list[str]]:
    """Return how many pairs are as said by a t-test, and which are the opposite."""
    less, more = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    right, opposite = (
        ttest_ind(*sides, axis=-1, alternative="less").pvalue < LEVEL
        for sides in ((less, more), (more, less))
    )
    return int(right.sum()), [pairs[i][2] for i in np.flatnonzero(opposite)]


def judge_pairs(name: str, pairs: list[Pair]) -> Figure:
    """Ask that half of the pairs are as said, and no more the opposite than by chance."""
    right, opposite = compare(pairs)
    by_chance = int(binom.ppf(CERTAIN, len(pairs), LEVEL)) if pairs else 0
    met = True if pairs and right >= len(pairs) / 2 else None
    met = False if len(opposite) > by_chance else met
    target = f"opposite <= {by_chance} (by chance), as said >= half"
    name = f"{name}: as said and opposite, of {len(pairs)}"
    return Figure(name, f"{right} and {len(opposite)}", target, met)


def ordered_pairs(result: Json) -> list[Pair]:
    """Pair each scheme with the next, at points that can differ.

    Those are points where the better of two is below half of the error of random components.
    """
    found = []
    for (title, axis), lines in measured(result).items():
        sign = 1 if "random" in lines else -1
        for (first, second), place in product(pairwise(ORDER), lines["capeAGN"]):
            a, b = lines[first][place], lines[second][place]
            if sign < 0 or min(mean(a), mean(b)) <= lines["random"][place][0] / 2:
                opposite = f"{first} has more error than {second}: {title}, {axis} {place:g}"
                found.append(([sign * x for x in a], [sign * x for x in b], opposite))
    return found


def beside_authors(result: Json) -> tuple[list[float], list[str]]:
    """Return ratios to the authors' errors at points that can differ, and all that are off.

    Points can differ if the authors' error is below half of that of random components, and above
    1.5 times their error without noise, which their data set decides, not the noise.
    """
    ratios, off = [], []
    for (title, axis), lines in measured(result).items():
        for place, (error,) in lines.get(f"capeAGN{AUTHORS}", {}).items():
            if (draws := lines[f"capeAGN{AS_PUBLISHED}"].get(place)) is None:
                continue
            ratio, (floor,) = mean(draws) / error, lines[f"not private{AUTHORS}"][place]
            reason = "one data set there, another here, and one draw of it each"
            if error <= 1.5 * floor:
                reason = f"their data set decides: {floor:g} without noise"
            elif error >= lines["random"][place][0] / 2:
                reason = "near the error of random components"
            else:
                ratios.append(ratio)
            spread = stdev(draws) / math.sqrt(len(draws)) / error
            if abs(ratio - 1) > max(SHARE_OF_AUTHORS, 3 * spread):
                off.append(f"{ratio:.2f} at {title}, {axis} {place:g}: {reason}")
    return ratios, off


def authors_figure(result: Json) -> Figure:
    """Judge `capeAGN` as published by the authors' own runs; points are drawn again."""
    ratios, _ = beside_authors(result)
    name = f"as published over the authors' runs, median of {len(ratios)} points that can differ"
    target = f"1 within {SHARE_OF_AUTHORS:.0%}"
    if len(ratios) < 3:
        return judge(name, "too few points", target, [math.nan])
    medians = np.median(np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    shown = f"{median(ratios):.3f} (standard error {medians.std():.3f})"
    return judge(name, shown, target, np.abs(medians - 1) <= SHARE_OF_AUTHORS)


def figures(result: Json) -> list[Figure]:
    found, number = [], result["scenario"][-1]
    name = "error rises from cape to conventional to local, where it can differ"
    found.append(judge_pairs(name, ordered_pairs(result)))
    if number != "2":
        found.append(authors_figure(result))
    if number == "5":
        ours = [lines["capeAGN"] for lines in measured(result).values()]
        pairs = [(x[max(x)], x[min(x)], "") for x in ours]
        found.append(
            judge_pairs("error of capeAGN falls from the least to the largest delta", pairs)
        )
    for (title, axis), lines in measured(result).items():
        if axis == "epsilon":
            values = {name: mean(points[1.0]) for name, points in lines.items()}
            text = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
            found.append(Figure(f"{title}, epsilon 1", text))
    return found


def details(result: Json) -> str:
    """List every point that is out of order, or off the authors' runs, with the reason."""
    parts = {"Out of order": compare(ordered_pairs(result))[1]}
    if result["scenario"] != "cape-figure-2":
        off = f"As published over the authors' runs, where more than {SHARE_OF_AUTHORS:.0%} off"
        parts[off] = beside_authors(result)[1]
    return "".join(
        f"{title}:\n\n" + "".join(f"- {line}\n" for line in lines or ["none"]) + "\n"
        for title, lines in parts.items()
    )


def panels(result: Json) -> list[Panel]:
    energy = result["scenario"] == "cape-figure-2"
    unit = "documents" if result["scenario"] == "cape-figure-4" else "samples"
    unit += " a site" if energy else " of all sites"
    measure, scale = ("energy over the best", "linear") if energy else ("q_comp", "log")
    found = []
    for (title, axis), lines in measured(result).items():
        for data, stand_in in STAND_INS.items():
            title = title.replace(f"{stand_in},", f"{stand_in} (stand-in for {data})\n")
        if energy:
            lines = {name.replace("capeAGN", "capePCA"): points for name, points in lines.items()}
        x = unit if axis == "documents" else axis
        found.append(Panel(title, x, measure, lines, ("log", scale)))
    return sorted(found, key=lambda panel: ("epsilon", "delta", unit).index(panel.x))


def cape_figure(number: int, claim: str, settings: dict[str, Json], **more: Any) -> Reproduction:
    drawn: Json = {"figures": figures, "panels": panels, "tabled": False, "more": details}
    named = {"id": f"cape-figure-{number}", "question": claim, "settings": settings}
    return Reproduction(**named, **drawn, **{"task": cape_components, "fast": FAST, **more})


FAST = {"documents": 200_000}
LESS, OVER = "capeAGN has less error than conventional and local noise", ("epsilon", "documents")
FALLS = "The error of capeAGN falls with delta, and is below the others."
FIGURE_2: Json = {"task": cape_pca, "columns": 3, "data": ("mnist", "covertype")}
CAPE = [
    cape_figure(
        *(2, "capePCA captures more energy than the others."),
        settings_of(DATA, "epsilon", "delta", "documents"),
        contenders=("synthetic", *STAND_INS.values()),
        **FIGURE_2,
    ),
    cape_figure(3, f"{LESS}: mixture of Gaussians.", settings_of(MIXTURE, *OVER)),
    cape_figure(4, f"{LESS}: single-topic model.", settings_of(TOPICS, *OVER)),
    cape_figure(5, FALLS, settings_of([*MIXTURE, *TOPICS], "delta")),
]
