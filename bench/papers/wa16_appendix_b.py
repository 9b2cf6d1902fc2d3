"""Appendix B of Wang & Anandkumar (2016): noise that whitening by a random marginal tolerates.

The tensor, the Gaussian noise and what a failure is are those of Figure 1. For a random theta every
l_i |v_i'theta| is of the order l_i / sqrt(d), so that noise above l_min / sqrt(d) hides the span of
the components (Proposition B.1), while Algorithm 1 works on the tensor itself.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from bench.kinds import (
    Case,
    Figure,
    Json,
    Reproduction,
    Verdict,
    at_least,
    series,
)
from bench.papers.wa16_figure_1 import (
    EIGENVALUES,
    N_RESTARTS,
    at_half,
    failed,
    noise_tensor,
)
from bench.styles import REFERENCE, STYLES, name_lines

DIRECT, MARGINAL = "Algorithm 1", "random marginal"

#: Where each fails, in sigma sqrt d.
LEVELS = {DIRECT: (0.8, 15.0), MARGINAL: (0.05, 1.5)}

#: Trials for each d; whether a marginal shows all components depends on its random theta.
TRIALS, FAST_TRIALS = {DIRECT: 20, MARGINAL: 60}, {DIRECT: 6, MARGINAL: 40}

#: The exponent of d that Proposition B.1 gives, and how far from it is near.
EXPONENT, NEAR = -0.5, 0.15


def wa16_appendix_b(parameters: Json, inputs: Json, seed: int) -> Json:
    """Count the failures of one method over trials, at every level of noise."""
    from streamlda.papers.wang_anandkumar.algorithm_1 import robust_tensor_power
    from streamlda.papers.wang_anandkumar.baselines import random_marginal_power
    from streamlda.papers.wang_anandkumar.tensors import FactoredTensor, ImplicitTensor

    d, sigmas = parameters["dimension"], parameters["sigmas"]
    settings = parameters["n_restarts"], parameters["n_iterations"]
    k = len(EIGENVALUES)
    signal = FactoredTensor(EIGENVALUES, np.eye(d)[:, :k])
    find = random_marginal_power if parameters["method"] == MARGINAL else robust_tensor_power
    counts = np.zeros(len(sigmas), dtype=int)
    for trial in range(parameters["trials"]):
        noise, norm = noise_tensor("Gaussian", d, np.random.default_rng([seed, d, trial]))
        for i, sigma in enumerate(sigmas):

            def images(u: Any, factor: float = sigma / norm, noise: Any = noise) -> Any:
                return signal.apply(u)[0] + factor * noise.apply(u)[0]

            found = find(ImplicitTensor(d, images), k, *settings, seed=seed * 1000 + trial)
            counts[i] += failed(found.eigenvectors[:k])[1]
    return {"failures": (counts / parameters["trials"]).tolist()}


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [
        Case(
            f"{method}, d = {d}",
            "wa16_appendix_b",
            {
                **{
                    "method": method,
                    "dimension": d,
                    "trials": (FAST_TRIALS if quick else TRIALS)[method],
                },
                "sigmas": (np.geomspace(*LEVELS[method], 8) / d**0.5).tolist(),
                **{"n_restarts": N_RESTARTS, "n_iterations": 30},
            },
        )
        for method in LEVELS
        for d in (25, 50, 100)
    ]


def halves(result: Json, method: str) -> dict[int, float]:
    """Return for each d the noise at which half of the trials fail."""
    found = {}
    for label, case in result["cases"].items():
        p = case["parameters"]
        if p["method"] == method:
            rates = np.mean(series(result, label, "failures"), axis=0).tolist()
            found[p["dimension"]] = at_half(p["sigmas"], rates)
    return found


def exponent(points: dict[int, float]) -> float:
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def gains(result: Json) -> list[float]:
    """Return for each d the noise that Algorithm 1 tolerates over that of a random marginal."""
    ours, theirs = halves(result, DIRECT), halves(result, MARGINAL)
    return [ours[d] / theirs[d] for d in theirs]


def figures(result: Json) -> list[Figure]:
    found = []
    for method in LEVELS:
        points = halves(result, method)
        text = ", ".join(f"{sigma:.4f} (d = {d})" for d, sigma in points.items())
        found.append(Figure(f"sigma at failure 1/2, {method}", text))
    slope = exponent(halves(result, MARGINAL))
    target = f"{EXPONENT} within {NEAR}"
    met = abs(slope - EXPONENT) <= NEAR
    found.append(Figure(f"exponent of d, {MARGINAL}", f"{slope:.2f}", target, met))
    found.append(Figure(f"exponent of d, {DIRECT}", f"{exponent(halves(result, DIRECT)):.2f}"))
    name = "least noise that Algorithm 1 tolerates over that of a random marginal"
    return [*found, at_least(name, min(gains(result)), 1.0, "{:.1f}")]


def verdict(result: Json) -> Verdict:
    slope, more = exponent(halves(result, MARGINAL)), gains(result)
    if math.isnan(slope + sum(more)):
        return Verdict(None, "failure 1/2 lies beyond the levels that were tried")
    near = 2 * NEAR if result["quick"] else NEAR
    return Verdict(
        abs(slope - EXPONENT) <= near and min(more) >= 1,
        f"the noise that a random marginal tolerates goes as d^{slope:.2f} (proposition: "
        f"{EXPONENT:g}); Algorithm 1 tolerates {min(more):.1f} to {max(more):.1f} times as much",
    )


def rows(result: Json) -> list[Json]:
    return [
        {"method": p["method"], "d": p["dimension"], "sigma": sigma, "failures": rate}
        for run in result["runs"]
        for p in [result["cases"][run["case"]]["parameters"]]
        for sigma, rate in zip(p["sigmas"], run["measured"]["failures"], strict=True)
    ]


def plot(result: Json, folder: Path) -> None:
    """Draw the noise at failure 1/2 against d as wa16-appendix-b.png."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for method in LEVELS:
        points = halves(result, method)
        axis.plot(list(points), list(points.values()), label=method, **STYLES[method].keywords())
    d = np.array(list(points))
    level = float(np.mean(np.array(list(points.values())) * np.sqrt(d)))
    axis.plot(d, 0.8 * level / np.sqrt(d), label="slope -1/2", **REFERENCE)
    axis.set(xlabel="d", ylabel="operator norm of noise at failure 1/2", xscale="log", yscale="log")
    name_lines([axis])
    figure.savefig(folder / "wa16-appendix-b.png", dpi=100)
    pyplot.close(figure)


WA16_APPENDIX_B = Reproduction(
    "wa16-appendix-b",
    "How much noise does whitening by a random marginal stand, beside Algorithm 1 (WA16, B)?",
    1,
    cases,
    figures,
    details=lambda result: "![Noise at failure 1/2](plots/wa16-appendix-b.png)\n",
    claim="A random marginal tolerates noise of the order lambda_min / sqrt d only; Algorithm 1 "
    "tolerates more.",
    tasks=(wa16_appendix_b,),
    verdict=verdict,
    table=rows,
    draw=plot,
)
