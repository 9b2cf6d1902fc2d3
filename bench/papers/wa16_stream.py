"""Theorem 3.1 of Wang & Anandkumar (2016): the error of Algorithm 2 against n and d."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from bench.kinds import Figure, Json, series
from bench.panels import Panel
from bench.papers.reproduction import Reproduction
from bench.papers.rule import exponent_figure, judge_law, power, resampled_medians
from streamlda.spectral.associations import VectorAssociation
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import DeflatedPower

K, RESTARTS, ITERATIONS = 3, 10, 12
SIZES, DIMENSIONS = [1024, 4096, 16_384, 65_536], [10, 20, 40, 80]
#: Where n varies, and where d does.
FIXED_D, FIXED_N = 20, 16_384

#: Parameter, axis, and exponent of each law of the theorem.
LAWS = {
    "n": ("documents_per_round", "documents a round, n", -0.5),
    "d": ("dimension", "dimension d", 0.5),
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
    d, n = parameters["dimension"], parameters["documents_per_round"]
    errors = []
    for trial in range(parameters["trials"]):
        rng = np.random.default_rng([seed, trial, d])
        vectors = np.linalg.qr(rng.standard_normal((d, K)))[0]
        settings: Json = {"n_restarts": RESTARTS, "n_iterations": ITERATIONS, "seed": trial}
        method = DeflatedPower(d, K, eigenvalue_round=False, **settings)
        online = OnlinePower(method, VectorAssociation(d), n)
        while not online.finished:
            online.add(skewed(rng, vectors, min(8192, online.remaining)))
        found = online.components().eigenvectors
        gaps = np.linalg.norm(found[:, :, None] - vectors[:, None, :], axis=0)
        errors.append(gaps.min(axis=0).tolist())
    return {"errors": errors}


def line(result: Json, name: str) -> dict[float, list[float]]:
    """Return the largest error of a component in every trial, by n or d where that varies."""
    return {
        float(case["parameters"][LAWS[name][0]]): [
            max(trial) for trials in series(result, label, "errors") for trial in trials
        ]
        for label, case in result["cases"].items()
        if label.startswith(f"{name} =")
    }


def figures(result: Json) -> list[Figure]:
    found = []
    for name, (_, _, claimed) in LAWS.items():
        points = line(result, name).items()
        samples = {x: resampled_medians(errors, seed=int(x)) for x, errors in points}
        found.append(exponent_figure(f"exponent of the error in {name}", samples))
        laws = [power(claimed * share, name) for share in (1, 0.5, 1.5)]
        found.append(judge_law(f"error in {name}", samples, laws, laws[0].name))
    return found


def panels(result: Json) -> list[Panel]:
    """The error against n and against d, with the laws of the theorem."""
    found = []
    for name, (_, axis, claimed) in LAWS.items():
        middles = {x: median(errors) for x, errors in line(result, name).items()}
        lines = {
            "Algorithm 2": {x: [middle] for x, middle in middles.items()},
            "claimed law": power(claimed).through(middles),
        }
        title = f"d = {FIXED_D}" if name == "n" else "n fixed"
        found.append(Panel(title, axis, f"median of the largest error of {K} vectors", lines))
    return found


WA16_THEOREM_3_1 = Reproduction(
    id="wa16-theorem-3-1",
    question="The error of the online tensor power method goes as sqrt(d / n).",
    task=theorem_3_1,
    settings={
        label: {"dimension": d, "documents_per_round": n, "trials": 20}
        for label, d, n in (
            *((f"n = {n}", FIXED_D, n) for n in SIZES),
            *((f"d = {d}", d, FIXED_N) for d in DIMENSIONS),
        )
    },
    fast={"dimension": 40, "documents_per_round": FIXED_N},
    figures=figures,
    panels=panels,
)
