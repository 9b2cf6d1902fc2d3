"""Theorem 3.1 of Wang & Anandkumar (2016): the error of Algorithm 2 against n and d."""

from __future__ import annotations

import warnings
from statistics import median
from typing import Any

import numpy as np

from bench.kinds import Case, Figure, Json, series
from bench.papers.rule import exponent_figure, judge_law, power, resampled_medians
from bench.papers.runner import Line, Panel, Reproduction
from bench.styles import STYLES
from streamlda.spectral.associations import VectorAssociation
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import DeflatedPower

K, RESTARTS, ITERATIONS = 3, 10, 12
#: A component is found when its vector is off by less than this in norm.
FOUND = 0.7
#: Documents of a round, in units of sigma^2 d^2 / lambda^2, where sigma^2 = E s^6 - (E s^3)^2.
SHARES, SIGMA_OVER_LAMBDA_SQUARED = [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4], 65.8 / (8 / 3) ** 2
DIMENSIONS = [10, 20, 40, 80]
#: Where d varies, and where n does.
FIXED_N, FIXED_D = 16_384, 20

#: Parameter, axis, and exponent of each law of the theorem, and exponents of its rivals.
LAWS = {
    "n": ("documents_per_round", "documents a round, n", -0.5, (-0.25, -0.75)),
    "d": ("dimension", "dimension d", 0.5, (0.25, 0.75)),
}


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


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    dimensions = DIMENSIONS[:3] if quick else DIMENSIONS
    ns = [1024, 4096, 16_384] if quick else [1024, 4096, 16_384, 65_536]
    found = [(f"n = {n}", FIXED_D, n) for n in ns]
    found += [(f"d = {d}", d, 4096 if quick else FIXED_N) for d in dimensions]
    for d in dimensions[:3]:
        unit = SIGMA_OVER_LAMBDA_SQUARED * d * d
        found += [(f"{share:.3f} at {d}", d, int(share * unit)) for share in SHARES]
    trials = {"trials": 5 if quick else 20}
    return [
        Case(label, "theorem_3_1", {"dimension": d, "documents_per_round": n, **trials})
        for label, d, n in found
    ]


def worst_errors(result: Json, case: str) -> list[float]:
    """Return the largest error of a component, for every trial."""
    return [max(trial) for trials in series(result, case, "errors") for trial in trials]


def line(result: Json, name: str) -> dict[float, list[float]]:
    """Return the largest error of every trial, by n or d where that varies."""
    return {
        float(case["parameters"][LAWS[name][0]]): worst_errors(result, label)
        for label, case in result["cases"].items()
        if label.startswith(f"{name} =")
    }


def figures(result: Json) -> list[Figure]:
    found = []
    for name, (_, _, claimed, rivals) in LAWS.items():
        points = line(result, name).items()
        samples = {x: resampled_medians(errors, seed=int(x)) for x, errors in points}
        found.append(exponent_figure(f"exponent of the error in {name}", samples))
        laws = [power(value, name) for value in (claimed, *rivals)]
        found.append(judge_law(f"error in {name}", samples, laws, (laws[0].name,)))
    needed: dict[str, str] = {}
    for label in result["cases"]:
        share, at, d = label.partition(" at ")
        errors = worst_errors(result, label)
        if at and sum(error < FOUND for error in errors) >= 0.9 * len(errors):
            needed.setdefault(d, f"{share} (d = {d})")
    name = "n lambda^2 / (sigma^2 d^2) that finds all in 9 of 10 runs"
    return [*found, Figure(name, ", ".join(needed.values()) or "none")]


def panels(result: Json) -> list[Panel]:
    """The error against n and against d, with the slopes of the theorem."""
    found = []
    for name, (_, axis, claimed, _) in LAWS.items():
        points = line(result, name)
        x = np.array(list(points))
        middles = np.array([median(errors) for errors in points.values()])
        level = np.exp(np.mean(np.log(middles) - claimed * np.log(x)))
        guide = f"slope {claimed}", x.tolist(), (level * x**claimed).tolist()
        lines = [Line("Algorithm 2, median", points, STYLES["Algorithm 2"], dots=True)]
        title = f"d = {FIXED_D}" if name == "n" else "n fixed"
        label = f"largest error of {K} eigenvectors"
        found.append(Panel(title, axis, label, lines, (guide,), middle=median))
    return found


WA16_THEOREM_3_1 = Reproduction(
    id="wa16-theorem-3-1",
    claim="The error of the online tensor power method goes as sqrt(d / n).",
    task=theorem_3_1,
    cases=cases,
    figures=figures,
    panels=panels,
)
