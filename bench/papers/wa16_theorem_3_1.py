"""Theorem 3.1 of Wang & Anandkumar (2016): the error of Algorithm 2 against n and d."""

from __future__ import annotations

import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.kinds import Case, Figure, Json, Reproduction, Verdict, series
from bench.styles import BLUE, REFERENCE, STYLES, name_lines

K = 3
#: E s^3 of the planted factors, below.
EIGENVALUE = 8 / 3
RESTARTS, ITERATIONS = 10, 12
#: A component is found when its vector is off by less than this in norm.
FOUND = 0.7
#: Documents of a round, in units of sigma^2 d^2 / lambda^2.
SHARES = [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4]
DIMENSIONS = [10, 20, 40, 80]
#: Where d varies, and where n does.
FIXED_N, FIXED_D = 16_384, 20


def skewed(rng: np.random.Generator, vectors: Any, n: int) -> Any:
    """Return n vectors x = sum_i s_i v_i + g, with E x^(x3) = sum_i (8/3) v_i^(x3) exactly.

    Independent s_i of mean 0 are 3 with probability 1/10, else -1/3; g are random signs without
    their part in the span of the v_i. All is bounded, hence sub-Gaussian, all other third moments
    are 0, and the covariance is the identity.
    """
    d, k = vectors.shape
    factors = np.where(rng.random((n, k)) < 0.1, 3.0, -1 / 3)
    bits = np.unpackbits(rng.integers(0, 256, (n, -(-d // 8)), dtype=np.uint8), axis=1)[:, :d]
    signs = 2.0 * bits - 1.0
    return signs + (factors - signs @ vectors) @ vectors.T


def theorem_3_1(parameters: Json, inputs: Json, seed: int) -> Json:
    """Run Algorithm 2 on fresh planted streams; errors of eigenvectors, one list a trial."""
    from streamlda.spectral.associations import VectorAssociation
    from streamlda.spectral.online import OnlinePower
    from streamlda.spectral.power import DeflatedPower

    # Rounds that are too short are what is measured.
    warnings.filterwarnings("ignore", message="a component should come from enough documents")
    d, n = parameters["dimension"], parameters["documents_per_round"]
    errors, spreads = [], []
    for trial in range(parameters["trials"]):
        rng = np.random.default_rng([seed, trial, d])
        vectors = np.linalg.qr(rng.standard_normal((d, K)))[0]
        spreads.append(float(np.std((skewed(rng, vectors, 20_000) @ vectors) ** 3)))
        settings: Json = {"n_restarts": RESTARTS, "n_iterations": ITERATIONS, "seed": trial}
        method = DeflatedPower(d, K, eigenvalue_round=False, **settings)
        online = OnlinePower(method, VectorAssociation(d), n)
        while not online.finished:
            online.add(skewed(rng, vectors, min(8192, online.remaining)))
        found = online.components().eigenvectors
        gaps = np.linalg.norm(found[:, :, None] - vectors[:, None, :], axis=0)
        errors.append(gaps.min(axis=0).tolist())
    return {"documents": n * K * ITERATIONS * len(errors), "errors": errors, "sigma": spreads}


def theorem_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    trials = 5 if quick else 20

    def case(label: str, d: int, n: int) -> Case:
        parameters = {"dimension": d, "documents_per_round": n, "trials": trials}
        return Case(label, "theorem_3_1", parameters)

    ns = [1024, 4096, 16_384] if quick else [1024, 4096, 16_384, 65_536]
    dimensions = DIMENSIONS[:3] if quick else DIMENSIONS
    found = [case(f"n = {n}", FIXED_D, n) for n in ns]
    found += [case(f"d = {d}", d, 4096 if quick else FIXED_N) for d in dimensions]
    # (sigma / lambda)^2, where sigma^2 = E s^6 - (E s^3)^2.
    ratio = 65.8 / EIGENVALUE**2
    for d in dimensions[:3]:
        found += [case(f"{share:.3f} at {d}", d, int(share * ratio * d * d)) for share in SHARES]
    return found


def slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def worst_errors(result: Json, case: str) -> list[float]:
    """Return the largest error of a component, for every trial."""
    return [max(trial) for trials in series(result, case, "errors") for trial in trials]


def line(result: Json, kind: str, name: str) -> tuple[list[float], list[float]]:
    """Return n or d of the cases that vary it, and the median of their largest errors."""
    cases = {label: case["parameters"] for label, case in result["cases"].items()}
    chosen = [label for label in cases if label.startswith(kind)]
    errors = [median(worst_errors(result, label)) for label in chosen]
    return [float(cases[label][name]) for label in chosen], errors


def both_lines(result: Json) -> dict[str, tuple[list[float], list[float]]]:
    return {
        "n": line(result, "n =", "documents_per_round"),
        "d": line(result, "d =", "dimension"),
    }


#: Slopes of log error that the theorem gives, and how far from them is near.
SLOPES, NEAR = {"n": -0.5, "d": 0.5}, 0.1


def theorem_figures(result: Json) -> list[Figure]:
    cases = {label: case["parameters"] for label, case in result["cases"].items()}
    lines = both_lines(result)
    by_n, by_d = lines["n"], lines["d"]
    found = []
    for name, points in lines.items():
        value, expected = slope(*points), SLOPES[name]
        met = abs(value - expected) <= NEAR
        target = f"{expected} within {NEAR}"
        found.append(Figure(f"slope of log error in log {name}", f"{value:.3f}", target, met))
    for label, error in zip(cases, by_n[1] + by_d[1], strict=False):
        found.append(Figure(f"median largest error of {K} eigenvectors, {label}", f"{error:.4f}"))
    needed: dict[str, tuple[str, int]] = {}
    for label, parameters in cases.items():
        if " at " not in label:
            continue
        share, d = label.split(" at ")
        errors = worst_errors(result, label)
        rate = sum(error < FOUND for error in errors) / len(errors)
        if rate >= 0.9:
            needed.setdefault(d, (share, parameters["documents_per_round"]))
    found += [
        Figure(f"n lambda^2 / (sigma^2 d^2) that finds all in 9 of 10 runs, d = {d}", share)
        for d, (share, _) in needed.items()
    ]
    constants = []
    for label, parameters in cases.items():
        if label[0] in "nd":
            sigma = median(x for xs in series(result, label, "sigma") for x in xs)
            error = float(np.quantile(worst_errors(result, label), 0.9)) * EIGENVALUE / sigma
            constants.append(error**2 * parameters["documents_per_round"] / parameters["dimension"])
    name = "n error^2 lambda^2 / (sigma^2 d), 0.9-quantile, smallest to largest"
    return [*found, Figure(name, f"{min(constants):.3f} to {max(constants):.3f}")]


def verdict(result: Json) -> Verdict:
    """Say whether both slopes are near those of the theorem."""
    slopes = {name: slope(*points) for name, points in both_lines(result).items()}
    shown = ", ".join(f"{value:.2f} in {name}" for name, value in slopes.items())
    said = f"log error falls and grows with slopes {shown} (theorem: -0.5, 0.5)"
    # Few trials: slopes of medians of 5 have a standard deviation of about 0.1.
    near = 3 * NEAR if result["quick"] else NEAR
    return Verdict(all(abs(value - SLOPES[name]) <= near for name, value in slopes.items()), said)


def rows(result: Json) -> list[Json]:
    return [
        {
            **{"case": label, "d": case["parameters"]["dimension"]},
            **{"documents a round": case["parameters"]["documents_per_round"]},
            **{"trial": trial, "largest error": error},
        }
        for label, case in result["cases"].items()
        for trial, error in enumerate(worst_errors(result, label))
    ]


def plot(result: Json, folder: Path) -> None:
    """Draw the error against n and against d, with the slopes of the theorem."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained", sharey=True)
    fixed = {"n": f"d = {FIXED_D}", "d": "n fixed"}
    for axis, (name, (x, errors)) in zip(axes, both_lines(result).items(), strict=True):
        kind = f"{name} = "
        for label, case in result["cases"].items():
            if label.startswith(kind):
                at = case["parameters"]["documents_per_round" if name == "n" else "dimension"]
                trials = worst_errors(result, label)
                axis.plot([at] * len(trials), trials, ".", color=BLUE, markersize=2, alpha=0.5)
        axis.plot(x, errors, label="Algorithm 2, median", **STYLES["Algorithm 2"].keywords())
        middle = float(np.exp(np.mean(np.log(errors)) - SLOPES[name] * np.mean(np.log(x))))
        guide = [middle * value ** SLOPES[name] for value in x]
        axis.plot(x, guide, label=f"slope {SLOPES[name]}", **REFERENCE)
        labels = {"n": "documents a round, n", "d": "dimension d"}
        axis.set(xlabel=labels[name], xscale="log", yscale="log", title=fixed[name])
    axes[0].set(ylabel=f"largest error of {K} eigenvectors")
    name_lines(axes)
    figure.savefig(folder / "wa16-theorem-3-1.png", dpi=100)
    pyplot.close(figure)


WA16_THEOREM_3_1 = Reproduction(
    "wa16-theorem-3-1",
    "Does the error of Algorithm 2 fall with n and grow with d as WA16 Theorem 3.1 says?",
    1,
    theorem_cases,
    theorem_figures,
    claim="The error of the online tensor power method goes as sqrt(d / n).",
    tasks=(theorem_3_1,),
    verdict=verdict,
    table=rows,
    draw=plot,
)
