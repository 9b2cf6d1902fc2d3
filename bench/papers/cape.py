"""Figures 2 to 5 of Imtiaz & Sarwate (2018): error of sites that pool noise, not documents.

Each figure has the authors' settings, our algorithms on newly drawn data, the algorithms as
published (`route="paper"`, their calibration) on the same data, and, where the authors gave
numbers, their own runs (`published/imtiaz-sarwate.json`).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from bench.kinds import Case, Figure, Json, at_most, within
from bench.papers.cape_tasks import METHODS, PCA_ONLY

PUBLISHED = Path(__file__).parent / "published" / "imtiaz-sarwate.json"

EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
DELTAS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05)
DELTA = 0.01
SIZES = (50_000, 100_000, 200_000, 500_000, 800_000)
#: Draws of the noise at a point, as in the paper, and in a fast run.
RUNS, FAST_RUNS = 10, 3
#: In a fast run: every other epsilon and delta, the smaller corpora.
FAST, FAST_SIZES = slice(None, None, 2), (50_000, 100_000, 200_000)
LARGE, SMALL = 800_000, 100_000

#: Methods of Figures 3 to 5: that of one holder with noise has the law of capeAGN.
COMPONENT_METHODS = [name for name in METHODS if name not in ("pooled, private", *PCA_ONLY)]

#: Dimension, components, and the epsilons of the sweeps over documents and over delta.
SHAPES = {"D = 10": (10, 5, 0.5, 0.1), "D = 50": (50, 10, 1.0, 2.0)}

#: What stands in for data that only its user has: digits of scikit-learn, drawn samples.
STAND_INS = {"MNIST": "digits", "Covertype": "cover types"}

#: Data of Figure 2: components, and samples a site and epsilon of each sweep.
PCA_DATA: dict[str, Json] = {
    "synthetic": {
        "components": 50,
        "epsilon": (1000, 0.0),
        "documents": (0, 0.5),
        "delta": (1000, 1.0),
    },
    "MNIST": {
        "components": 50,
        "epsilon": (1000, 0.0),
        "documents": (0, 0.5),
        "delta": (1000, 1.0),
    },
    "Covertype": {
        "components": 10,
        "epsilon": (1000, 0.0),
        "documents": (0, 0.1),
        "delta": (1000, 0.5),
    },
    "digits": {"components": 10, "epsilon": (179, 0.0), "documents": (0, 1.0), "delta": (179, 2.0)},
    "cover types": {
        "components": 10,
        "epsilon": (500, 0.0),
        "documents": (0, 0.1),
        "delta": (500, 0.5),
    },
}
PCA_SIZES = {
    "synthetic": (100, 1000, 4000),
    "MNIST": (100, 1000, 4000),
    "Covertype": (100, 1000, 4000),
    "digits": (20, 60, 179),
    "cover types": (100, 1000, 4000),
}
PCA_SITES = 10

#: What each method should not be worse than, by more than its noise allows.
ORDER = ("capeAGN", "conventional", "local")


def component_case(
    model: str, truth: str, d: int, k: int, n: int, points: Any, quick: bool
) -> Json:
    return {
        "model": model,
        "truth": truth,
        "dimension": d,
        "components": k,
        "documents": n,
        "sites": 5,
        "runs": FAST_RUNS if quick else RUNS,
        "methods": COMPONENT_METHODS,
        "points": [list(point) for point in (points[FAST] if quick else points)],
    }


def sweep(model: str, truth: str, shape: str, quick: bool) -> list[Case]:
    """Return the cases of one shape of Figures 3 and 4: over epsilon, and over documents."""
    d, k, epsilon, _ = SHAPES[shape]
    along = [(value, DELTA) for value in EPSILONS]
    found = [
        Case(
            f"{shape}, N = {n:,}, over epsilon",
            "cape_components",
            component_case(model, truth, d, k, n, along, quick),
        )
        for n in ((SMALL,) if quick else (SMALL, LARGE))
    ]
    found += [
        Case(
            f"{shape}, N = {n:,}, epsilon {epsilon:g}",
            "cape_components",
            component_case(model, truth, d, k, n, [(epsilon, DELTA)], quick),
        )
        for n in (FAST_SIZES if quick else SIZES)
    ]
    return found


#: The corpus that the targets speak of: other topics, shares from 0.014 to 0.38.
DIRICHLET = "Dirichlet(0.1) topics, D = 50, N = 800,000, over epsilon"


def figure_3_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [case for shape in SHAPES for case in sweep("mixture", "orthonormal", shape, quick)]


def figure_4_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    along = [(value, DELTA) for value in EPSILONS]
    planted = component_case("topics", "Dirichlet(0.1)", 50, 10, LARGE, along, quick)
    found = [case for shape in SHAPES for case in sweep("topics", "half-normal", shape, quick)]
    return found if quick else [*found, Case(DIRICHLET, "cape_components", planted)]


def figure_5_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = []
    for model, truth in (("mixture", "orthonormal"), ("topics", "half-normal")):
        for shape, (d, k, _, epsilon) in SHAPES.items():
            along = [(epsilon, delta) for delta in DELTAS]
            for n in (SMALL,) if quick else (SMALL, LARGE):
                parameters = component_case(model, truth, d, k, n, along, quick)
                label = f"{model}, {shape}, N = {n:,}, epsilon {epsilon:g}"
                found.append(Case(label, "cape_components", parameters))
    return found


def figure_2_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    """Return the cases of these sets of data, of which some are for others that are not there."""
    found = []
    for data in contenders or ("synthetic", *STAND_INS.values()):
        sweeps = PCA_DATA[data]
        n, _ = sweeps["epsilon"]
        at_n, at_d = sweeps["documents"][1], sweeps["delta"][1]
        wanted = [(f"N_s = {n:,}, over epsilon", n, [(value, DELTA) for value in EPSILONS])]
        wanted += [(f"N_s = {m:,}, epsilon {at_n:g}", m, [(at_n, DELTA)]) for m in PCA_SIZES[data]]
        wanted += [(f"N_s = {n:,}, over delta", n, [(at_d, value) for value in DELTAS])]
        for label, documents, points in wanted:
            parameters = {
                "data": data,
                "components": sweeps["components"],
                "documents": documents,
                "sites": PCA_SITES,
                "runs": FAST_RUNS if quick else RUNS,
                "points": [list(point) for point in (points[FAST] if quick else points)],
            }
            found.append(Case(f"{data}, {label}", "cape_pca", parameters))
    return found


def rows_of(result: Json, label: str) -> list[Json]:
    return [
        row for run in result["runs"] if run["case"] == label for row in run["measured"]["rows"]
    ]


def error_at(result: Json, label: str, method: str, epsilon: float) -> float:
    """Return the mean q_comp of a method at one epsilon."""
    return float(
        mean(
            error
            for row in rows_of(result, label)
            if row["method"] == method and math.isclose(row["epsilon"], epsilon)
            for error in row["q_comp"]
        )
    )


def disorder(result: Json, key: str) -> tuple[list[str], int]:
    """Return where a scheme is worse than the next by over three standard errors, and all tried."""
    sign, found, tried = (-1.0 if key == "q_CE" else 1.0), [], 0
    for label in result["cases"]:
        rows = {
            (row["method"], row["epsilon"], row["delta"]): row for row in rows_of(result, label)
        }
        for (method, epsilon, delta), row in rows.items():
            if method not in ORDER[:-1]:
                continue
            following = ORDER[ORDER.index(method) + 1]
            other = rows[following, epsilon, delta]
            tried += 1
            worse = sign * (mean(row[key]) - mean(other[key]))
            error = math.sqrt(sum(stdev(r[key]) ** 2 / len(r[key]) for r in (row, other)))
            if worse > 3 * error + 1e-12:
                where = f"{label}, ({epsilon:g}, {delta:g})"
                found.append(f"{method} after {following}: {where}")
    return found, tried


def chance(result: Json, tried: int) -> int:
    """Return how many may be out by chance; errors of three draws are known to half at best."""
    return math.ceil((0.1 if result["quick"] else 0.02) * tried)


def order_figures(result: Json, key: str = "q_comp") -> list[Figure]:
    """Judge the order of the schemes; where they tie, one comparison in 100 is out by chance."""
    found, tried = disorder(result, key)
    name = f"comparisons out of the order cape, conventional, local, of {tried}"
    return [at_most(name, len(found), chance(result, tried), "{:d}")]


def figure_2_figures(result: Json) -> list[Figure]:
    found = []
    for data, sweeps in PCA_DATA.items():
        label = f"{data}, N_s = {sweeps['epsilon'][0]:,}, over epsilon"
        if label not in result["cases"]:
            continue
        for epsilon in (0.1, 1.0):
            parts = []
            for method in (*ORDER, "DPdisPCA", "capeAGN, as published", "DPdisPCA, as published"):
                rows = [r for r in rows_of(result, label) if r["method"] == method]
                near = [r for r in rows if math.isclose(r["epsilon"], epsilon)]
                if near:
                    best = result_best(result, label)
                    parts.append(f"{method} {mean(near[0]['q_CE']) / best:.3f}")
            if parts:
                name = f"{data}: captured energy over the best, epsilon {epsilon:g}"
                found.append(Figure(name, ", ".join(parts).replace("capeAGN", "capePCA")))
    return [*found, *order_figures(result, "q_CE")]


def result_best(result: Json, label: str) -> float:
    return float(mean(run["measured"]["best"] for run in result["runs"] if run["case"] == label))


def published(model: str, d: int, n: int, against: str) -> Json | None:
    """Return the authors' curve of these settings, if they gave one."""
    for curve in json.loads(PUBLISHED.read_text("utf-8"))["curves"]:
        found: Json = curve
        names = ("model", "dimension", "documents", "against")
        if tuple(found[name] for name in names) == (model, d, n, against):
            return found
    return None


def ratios(result: Json, label: str) -> list[float]:
    """Return q_comp of capeAGN as published over that of the authors' runs, at their points."""
    p = result["cases"][label]["parameters"]
    rows = [row for row in rows_of(result, label) if row["method"] == "capeAGN, as published"]
    if label == DIRICHLET or len(rows) < 2:
        return []
    against = "delta" if len({row["epsilon"] for row in rows}) == 1 else "epsilon"
    curve = published(p["model"], p["dimension"], p["documents"], against)
    if curve is None:
        return []
    theirs = dict(zip(curve["values"], curve["capeAGN"], strict=True))
    return [mean(row["q_comp"]) / theirs[row[against]] for row in rows if row[against] in theirs]


#: As published beside the authors' runs, by the median over their points: data and noise are drawn
#: afresh, so single points differ by more.
SHARE_OF_AUTHORS = 0.06


def authors_figures(result: Json) -> list[Figure]:
    """Judge `capeAGN` as published by the authors' own runs, at D = 50."""
    found = []
    for label in result["cases"]:
        if values := ratios(result, label):
            name = f"capeAGN as published over the authors' run, median, {label}"
            figure = within(name, median(values), SHARE_OF_AUTHORS)
            found.append(figure if "D = 50" in label else figure._replace(target="-", met=None))
    return found


def has(result: Json, label: str, epsilon: float) -> bool:
    return label in result["cases"] and any(
        math.isclose(row["epsilon"], epsilon) for row in rows_of(result, label)
    )


def beside(result: Json, label: str, epsilon: float) -> Figure:
    """Show ours, the same as published, and the authors' run."""
    parameters = result["cases"][label]["parameters"]
    parts = [
        f"{method} {error_at(result, label, method, epsilon):.3f}"
        for method in ("capeAGN", "not private", "capeAGN, as published")
    ]
    curve = published(
        parameters["model"], parameters["dimension"], parameters["documents"], "epsilon"
    )
    if curve is not None and label != DIRICHLET and epsilon in curve["values"]:
        theirs = curve["capeAGN"][curve["values"].index(epsilon)]
        parts.append(f"authors' run {theirs:.3f}")
    return Figure(
        f"q_comp, {label.removesuffix(', over epsilon')}, epsilon {epsilon:g}", ", ".join(parts)
    )


def figure_3_figures(result: Json) -> list[Figure]:
    label = "D = 50, N = 100,000, over epsilon"
    found = [beside(result, label, e) for e in (0.1, 0.5, 1.0, 5.0) if has(result, label, e)]
    for epsilon, limit in ((0.5, 0.6), (1.0, 0.3)):
        if has(result, label, epsilon):
            error = error_at(result, label, "capeAGN", epsilon)
            found.append(at_most(f"capeAGN, {label}, {epsilon:g}", error, limit, "{:.3f}"))
    return [*found, *authors_figures(result), *order_figures(result)]


def figure_4_figures(result: Json) -> list[Figure]:
    found = []
    for label in ("D = 50, N = 800,000, over epsilon", DIRICHLET):
        found += [
            beside(result, label, e) for e in (0.01, 0.1, 0.5, 1.0, 5.0) if has(result, label, e)
        ]
    for epsilon, limit in ((0.01, 0.10), (0.1, 0.05), (0.5, None)):
        if has(result, DIRICHLET, epsilon):
            if limit is None:
                limit = error_at(result, DIRICHLET, "not private", epsilon) + 0.03
            error = error_at(result, DIRICHLET, "capeAGN", epsilon)
            name = f"capeAGN, Dirichlet(0.1) topics, epsilon {epsilon:g}"
            found.append(at_most(name, error, limit, "{:.3f}"))
    return [*found, *authors_figures(result), *order_figures(result)]


def figure_5_figures(result: Json) -> list[Figure]:
    found = []
    for label in result["cases"]:
        rows = [r for r in rows_of(result, label) if r["method"] == "capeAGN"]
        text = ", ".join(f"{mean(r['q_comp']):.3f} ({r['delta']:g})" for r in rows)
        found.append(Figure(f"q_comp (delta), capeAGN, {label}", text))
    return [*found, *authors_figures(result), *order_figures(result)]


def details_of(name: str, key: str = "q_comp") -> Any:
    """Return what makes the page of a figure: where the order fails, and the picture."""

    def details(result: Json) -> str:
        found, tried = disorder(result, key)
        said = "".join(f"- {line}\n" for line in found) or "- none\n"
        head = f"Out of the order by more than three standard errors, of {tried} comparisons:\n\n"
        return f"{head}{said}\n![{name}](plots/{name}.png)\n"

    return details
