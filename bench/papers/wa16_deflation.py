"""Private deflation: the error of every component against epsilon.

Theorem 4.2 of Wang & Anandkumar (2016) speaks of the first component alone and leaves the others
open: they are found in what noisy deflation leaves. The tensor is that of Theorem 4.2, with more
components; epsilon pays for the queries of all of them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from bench.kinds import Case, Figure, Json, Reproduction, Verdict, series
from bench.papers.wa16_theorem_4_2_tasks import DELTA, LARGEST, schedule
from bench.styles import SERIES, name_lines

#: Over the largest.
EIGENVALUES = (1.0, 0.9, 0.8, 0.7, 0.6)
EPSILONS = tuple(float(f"{value:.3g}") for value in np.geomspace(0.1, 3.0, 10))
DIMENSIONS = (100, 400)

#: A component is found when its vector is off by less than this in norm.
FOUND = 0.5


def wa16_deflation(parameters: Json, inputs: Json, seed: int) -> Json:
    """Run Algorithm 3 for all components; distances of each from its vector, one list a trial."""
    from streamlda.papers.wang_anandkumar.neighbours import Neighbours
    from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule
    from streamlda.papers.wang_anandkumar.tensors import FactoredTensor
    from streamlda.privacy.noise import SeededNoise
    from streamlda.spectral.power import DeflatedPower

    d, values = parameters["dimension"], LARGEST * np.array(parameters["eigenvalues"])
    neighbours = Neighbours("entry", magnitude=values.sum(), roundings=2 * d + 16)
    errors = []
    for trial in range(parameters["trials"]):
        rng = np.random.default_rng([seed, trial, d])
        vectors = np.linalg.qr(rng.choice([-1.0, 1.0], (d, len(values))))[0]
        method = DeflatedPower(d, len(values), **schedule(d), seed=trial)
        promised = Schedule(parameters["epsilon"], DELTA, neighbours)
        noise = SeededNoise(1000 * seed + trial)
        found = NoisyPower(method, FactoredTensor(values, vectors), promised, noise).run()
        cosines = np.clip((vectors.T @ found.eigenvectors).max(axis=1), -1, 1)
        errors.append(np.sqrt(2 - 2 * cosines).tolist())
    return {"errors": errors}


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [
        Case(
            f"d = {d}, epsilon {epsilon:g}",
            "wa16_deflation",
            {
                **{"dimension": d, "eigenvalues": list(EIGENVALUES), "epsilon": epsilon},
                "trials": 10 if quick else 20,
            },
        )
        for d in (DIMENSIONS[:1] if quick else DIMENSIONS)
        for epsilon in EPSILONS
    ]


def curves(result: Json) -> dict[int, dict[float, list[float]]]:
    """Return for each d and epsilon the median error of every component."""
    found: dict[int, dict[float, list[float]]] = {}
    for label, case in result["cases"].items():
        p = case["parameters"]
        trials = [errors for run in series(result, label, "errors") for errors in run]
        medians = [median(column) for column in zip(*trials, strict=True)]
        found.setdefault(p["dimension"], {})[p["epsilon"]] = medians
    return found


def needed(points: dict[float, list[float]], i: int) -> float:
    """Return the epsilon at which component i is first found, on logarithmic scales; or nan."""
    for low, high in pairwise(sorted(points)):
        above, below = points[low][i], points[high][i]
        if above >= FOUND > below:
            share = math.log(above / FOUND) / math.log(above / below)
            return float(low * (high / low) ** share)
    return math.nan


def figures(result: Json) -> list[Figure]:
    found = []
    for d, points in curves(result).items():
        numbers = [needed(points, i) for i in range(len(EIGENVALUES))]
        text = ", ".join(f"{value:.2g} (component {i + 1})" for i, value in enumerate(numbers))
        found.append(Figure(f"epsilon at which the error is {FOUND}, d = {d}", text))
    return found


def verdict(result: Json) -> Verdict:
    """Say how much more epsilon the last component needs; there is nothing to agree with."""
    last = len(EIGENVALUES) - 1
    parts = [
        f"component {last + 1} needs {needed(points, last) / needed(points, 0):.2f} times the "
        f"epsilon of the first at d = {d}"
        for d, points in curves(result).items()
    ]
    ratio = f"its eigenvalue is {EIGENVALUES[-1]:g} of the largest"
    return Verdict(None, f"the paper leaves it open; {', '.join(parts)}; {ratio}")


def rows(result: Json) -> list[Json]:
    return [
        {"d": d, "epsilon": epsilon, "component": i + 1, "median error": error}
        for d, points in curves(result).items()
        for epsilon, errors in points.items()
        for i, error in enumerate(errors)
    ]


def plot(result: Json, folder: Path) -> None:
    """Draw the error of every component against epsilon as wa16-deflation.png."""
    from matplotlib import pyplot

    panels = curves(result)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5.8 * len(panels), 4), layout="constrained", squeeze=False
    )
    for axis, (d, points) in zip(axes[0], panels.items(), strict=True):
        for i, (style, value) in enumerate(zip(SERIES, EIGENVALUES, strict=False)):
            errors = [points[epsilon][i] for epsilon in points]
            label = f"component {i + 1}, eigenvalue {value:g}"
            axis.plot(list(points), errors, label=label, **style.keywords())
        axis.set(xlabel="epsilon", ylabel="distance from its vector, median", title=f"d = {d}")
        axis.set(xscale="log", yscale="log")
    name_lines(axes[0])
    figure.savefig(folder / "wa16-deflation.png", dpi=100)
    pyplot.close(figure)


WA16_DEFLATION = Reproduction(
    "wa16-deflation",
    "How much more epsilon do later components need, found in what private deflation leaves?",
    1,
    cases,
    figures,
    details=lambda result: "![Error of components](plots/wa16-deflation.png)\n",
    claim="Left open in section 4: the error of the later components.",
    tasks=(wa16_deflation,),
    verdict=verdict,
    table=rows,
    draw=plot,
)
