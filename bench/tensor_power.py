"""The robust tensor power method beside other libraries: same tensors, same errors.

A tensor is the third moment of samples x = sum_i s_i v_i + g with planted orthonormal v_i
(`bench.papers.wa16.skewed`), so that its noise is that of a sample. Libraries of tensors get
the dense array; tlda learns from samples alone, and gets those. An error is the distance of a
planted vector from the nearest that was found, up to its sign, the largest of all. TensorLy and
pyttb draw starts of their own, which are not seeded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from bench.contenders_elsewhere import TLDA_FOLDER
from bench.kinds import Case, Figure, Json, Scenario, markdown, series
from bench.measure import Meter

K, SAMPLES, DIMENSIONS = 5, 20_000, (10, 30, 100)

#: Random starts, and steps of a power iteration from each.
STARTS, STEPS = 10, 30


def streamlda(seed: int) -> Callable[[Any, Any], Any]:
    from streamlda.papers import robust_tensor_power

    return lambda T, x: robust_tensor_power(T, K, STARTS, STEPS, seed=seed).eigenvectors


def tensorly(seed: int) -> Callable[[Any, Any], Any]:
    """Its robust power iteration; one of its iterations is a step for each of three modes."""
    from tensorly.decomposition import (  # type: ignore[import-not-found]
        symmetric_parafac_power_iteration,
    )

    asked = {"rank": K, "n_repeat": STARTS, "n_iteration": STEPS // 3}
    return lambda T, x: symmetric_parafac_power_iteration(T, **asked)[1]


def pyttb(seed: int) -> Callable[[Any, Any], Any]:
    """Alternating least squares at its own limits, the best fit of all starts."""
    import pyttb as library  # type: ignore[import-not-found]

    def find(T: Any, x: Any) -> Any:
        array = library.tensor(T)
        tried = [library.cp_als(array, K, printitn=0) for _ in range(STARTS)]
        return max(tried, key=lambda each: each[2]["fit"])[0].factor_matrices[0]

    return find


def tlda(seed: int) -> Callable[[Any, Any], Any]:
    """Its third cumulant by stochastic gradients; settings of `bench.contenders_elsewhere`."""
    sys.path.append(os.environ[TLDA_FOLDER])
    from tlda.third_order_cumulant import (  # type: ignore[import-not-found]
        ThirdOrderCumulant,
    )

    def find(T: Any, x: Any) -> Any:
        options = {"theta": 5.005, "seed": seed, "n_eigenvec": x.shape[1], "alpha_0": 0.0}
        model = ThirdOrderCumulant(
            K, n_iter_train=2000, n_iter_test=1, batch_size=1000, learning_rate=1e-3, **options
        )
        model.fit(x, verbose=False)
        return model.factors_

    return find


FINDERS = {"streamlda": streamlda, "TensorLy": tensorly, "pyttb": pyttb, "tlda": tlda}


def tensor_power(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Time one library on one tensor, and measure its error."""
    from bench.papers.wa16 import skewed

    d = parameters["dimension"]
    rng = np.random.default_rng([seed, d])
    vectors = np.linalg.qr(rng.standard_normal((d, K)))[0]
    x = skewed(rng, vectors, SAMPLES)
    T = (x.T @ (x[:, :, None] * x[:, None, :]).reshape(SAMPLES, d * d) / SAMPLES).reshape(d, d, d)
    # The product is symmetric but for rounding.
    T = np.mean([T.transpose(order) for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1))], axis=0)
    find = FINDERS[parameters["contender"]](seed)
    # Nothing is loaded, or compiled, while it is timed.
    find(np.ascontiguousarray(T[:K, :K, :K]), x[:50, :K])
    meter.started()
    with meter.timed():
        found = find(T, x)
    found = found / np.linalg.norm(found, axis=0)
    nearest = np.abs(vectors.T @ found).max(axis=1)
    error = float(np.sqrt(np.maximum(2 - 2 * nearest, 0)).max())
    return {"error": error, "found": int((nearest > 0.9).sum())} | meter.values


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [
        Case(
            f"{name}, d = {d}",
            "tensor_power",
            {"contender": name, "dimension": d, "cores": 1},
        )
        for d in (DIMENSIONS[:1] if quick else DIMENSIONS)
        for name in (contenders or FINDERS)
    ]


def figures(result: Json) -> list[Figure]:
    found = []
    dimensions = sorted({case["parameters"]["dimension"] for case in result["cases"].values()})
    for d in dimensions:
        ours, theirs = (
            median(series(result, f"{name}, d = {d}", "cpu_seconds"))
            for name in ("streamlda", "TensorLy")
        )
        name = f"processor time of TensorLy over that of Algorithm 1 here, d = {d}"
        found.append(Figure(name, f"{theirs / ours:.1f}"))
    return found


def details(result: Json) -> str:
    """Return what each library needed, and its error."""
    header = ["library", "d", "processor s", "wall s", "largest error", "worst run", "found"]
    rows = []
    for label, case in result["cases"].items():
        p = case["parameters"]
        cpu, wall = (
            f"{median(series(result, label, key)):.3f}" for key in ("cpu_seconds", "fit_seconds")
        )
        errors, found = series(result, label, "error"), series(result, label, "found")
        row = [p["contender"], str(p["dimension"]), cpu, wall, f"{median(errors):.3f}"]
        rows.append([*row, f"{max(errors):.3f}", f"{sum(found)} of {K * len(found)}"])
    return markdown(header, rows)


TENSOR_POWER_TASKS = (tensor_power,)

TENSOR_POWER = [
    Scenario(
        "tensor-power",
        "How long does Algorithm 1 take beside TensorLy, pyttb and tlda on the same tensors?",
        3,
        cases,
        figures,
        details=details,
    )
]
