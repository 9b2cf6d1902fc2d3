"""Trials of Theorem 4.2: whether a first component is found at a noise multiplier."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bench.kinds import Json

#: Eigenvalues over the largest, and the largest: such that all epsilons of interest are below 3,
#: where the noise multiplier is nearly proportional to 1 / epsilon.
EIGENVALUES = (1.0, 0.8, 0.6)
LARGEST = 5e3
RECOVERED, DELTA = 0.9, 1e-6

ITERATED, INPUT = "Algorithm 3", "input perturbation"
STARTED = "input perturbation, started at v_1"

#: Where the noise on a tensor comes from.
MECHANISM, SIMULATED = "perturb_tensor", "simulated"
MECHANISM_UP_TO = 200


def schedule(d: int) -> Json:
    """L constant, R growing as log d, as the theorem asks."""
    return {"n_restarts": 10, "n_iterations": math.ceil(2.5 * math.log(d))}


def flat_components(d: int, rng: np.random.Generator) -> Any:
    signs = rng.choice([-1.0, 1.0], (d, len(EIGENVALUES)))
    return np.linalg.qr(signs)[0]


def first_component(method: Any, answer: Any) -> Any:
    """Drive a power method until it has its first component; return that."""
    while not len(method.components().eigenvalues):
        answer()
    return method.components().eigenvectors[:, 0]


def private_first(d: int, z: float, seed: int) -> bool:
    """Whether Algorithm 3 finds the first component at this noise multiplier a query."""
    from streamlda.papers.wang_anandkumar.neighbours import Neighbours
    from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule
    from streamlda.papers.wang_anandkumar.tensors import FactoredTensor
    from streamlda.privacy.noise import SeededNoise
    from streamlda.spectral.power import DeflatedPower

    vectors = flat_components(d, np.random.default_rng([seed, d]))
    values = LARGEST * np.array(EIGENVALUES)
    neighbours = Neighbours("entry", magnitude=values.sum(), roundings=2 * d + 16)
    method = DeflatedPower(d, len(values), **schedule(d), seed=seed)
    epsilon = epsilon_of(z, n_queries(d), "exact")
    tensor = FactoredTensor(values, vectors)
    power = NoisyPower(method, tensor, Schedule(epsilon, DELTA, neighbours), SeededNoise(seed))
    found = first_component(method, power.step)
    return bool(abs(vectors[:, 0] @ found) >= RECOVERED)


class SimulatedNoise:
    """Symmetric Gaussian noise with the scales of `perturb_tensor` for neighbours by entry, z = 1.

    Standard deviation 1 where all indices differ, 2 where two are equal, 6 on the diagonal. Kept
    by the largest index i: E_ijk with j, k < i as a symmetric matrix, then E_iij and E_iii. Time
    O(d^3), memory 4/3 d^3 bytes: 0.7 GB at d = 800.
    """

    def __init__(self, d: int, rng: np.random.Generator) -> None:
        self.slabs = []
        for i in range(d):
            half = rng.standard_normal((i, i), dtype=np.float32)
            # With its transpose that makes standard deviation 1, and 2 on the diagonal.
            half *= np.float32(math.sqrt(0.5))
            half[np.diag_indices(i)] *= np.float32(math.sqrt(2.0))
            self.slabs.append(half + half.T)
        self.pairs = np.tril(2 * rng.standard_normal((d, d), dtype=np.float32), -1)
        self.diagonal = 6 * rng.standard_normal((d, 1), dtype=np.float32)

    def apply(self, vectors: Any) -> tuple[Any, Any]:
        """Return E(I, u, u) and E(u, u, u) at the columns u, in single precision within."""
        u = np.ascontiguousarray(vectors, dtype=np.float32)
        images = self.pairs.T @ u**2 + 2 * u * (self.pairs @ u) + self.diagonal * u**2
        for i, slab in enumerate(self.slabs):
            product = slab @ u[:i]
            images[i] += np.einsum("jn,jn->n", u[:i], product)
            images[:i] += 2 * u[i] * product
        return images, np.einsum("dn,dn->n", vectors, images)


def noise_of(d: int, seed: int, source: str) -> tuple[Any, float]:
    """Return noise on a tensor with `apply`, and the noise multiplier that it has."""
    from streamlda.papers.wang_anandkumar.neighbours import Neighbours
    from streamlda.papers.wang_anandkumar.perturbation import perturb_tensor
    from streamlda.papers.wang_anandkumar.tensors import DenseTensor
    from streamlda.privacy.noise import SeededNoise

    if source == SIMULATED:
        return SimulatedNoise(d, np.random.default_rng([seed, d, 1])), 1.0
    neighbours = Neighbours("entry", magnitude=LARGEST * sum(EIGENVALUES))
    drawn = perturb_tensor(np.zeros((d, d, d)), 1.0, DELTA, neighbours, SeededNoise(seed))
    return DenseTensor(drawn.tensor), drawn.event.noise_multiplier


def perturbed_first(d: int, levels: list[float], seed: int, source: str) -> list[bool]:
    """Whether Algorithm 1 finds the first component of the perturbed tensor, for each z.

    The noise of a release is drawn once and scaled to each z, as it would be but for its grid.
    """
    from streamlda.papers.wang_anandkumar.tensors import FactoredTensor
    from streamlda.spectral.power import DeflatedPower

    vectors = flat_components(d, np.random.default_rng([seed, d]))
    values = LARGEST * np.array(EIGENVALUES)
    (noise, unit), signal = noise_of(d, seed, source), FactoredTensor(values, vectors)
    methods = [DeflatedPower(d, len(values), **schedule(d), seed=seed) for _ in levels]
    width = methods[0].probes.shape[1]
    factor = np.repeat(np.array(levels) / unit, width)
    # All take the same number of answers, so that they share the products with the noise.
    while not len(methods[0].components().eigenvalues):
        probes = np.hstack([method.probes for method in methods])
        pairs = zip(signal.apply(probes), noise.apply(probes), strict=True)
        images, values_at = (exact + factor * noisy for exact, noisy in pairs)
        for i, method in enumerate(methods):
            columns = slice(i * width, (i + 1) * width)
            method.advance(images[:, columns], values_at[columns])
    found = [method.components().eigenvectors[:, 0] for method in methods]
    return [bool(abs(vectors[:, 0] @ vector) >= RECOVERED) for vector in found]


def stays_at_first(d: int, levels: list[float], seed: int) -> list[bool]:
    """Whether power iterations on the perturbed tensor stay near v_1 if they start there."""
    from streamlda.papers.wang_anandkumar.tensors import FactoredTensor
    from streamlda.spectral.power import unit_columns

    vectors = flat_components(d, np.random.default_rng([seed, d]))
    signal = FactoredTensor(LARGEST * np.array(EIGENVALUES), vectors)
    noise, _ = noise_of(d, seed, SIMULATED)
    probes = np.repeat(vectors[:, :1], len(levels), axis=1)
    for _ in range(schedule(d)["n_iterations"]):
        images = signal.apply(probes)[0] + np.array(levels) * noise.apply(probes)[0]
        probes = unit_columns(images, probes)
    return [bool(abs(overlap) >= RECOVERED) for overlap in vectors[:, 0] @ probes]


def n_queries(d: int) -> int:
    """K of the whole Algorithm 3, all components counted."""
    settings = schedule(d)
    return int(len(EIGENVALUES) * settings["n_restarts"] * (settings["n_iterations"] + 1))


def epsilon_of(z: float, queries: int, calibration: str) -> float:
    """Return the epsilon for which a calibration gives each query this noise multiplier."""
    from scipy.optimize import brentq

    from streamlda.papers.wang_anandkumar.neighbours import Neighbours
    from streamlda.papers.wang_anandkumar.noisy import Schedule
    from streamlda.privacy import accounting

    if calibration == "exact":
        return accounting.epsilon_of(math.sqrt(queries) / z, DELTA)
    if calibration == "paper":
        each = math.sqrt(2 * math.log(1.25 * 2 * queries / DELTA)) / z
        return each * math.sqrt(queries * (4 + math.log(2 / DELTA)))
    neighbours = Neighbours("entry", magnitude=1.0)

    def gap(log_epsilon: float) -> float:
        made = Schedule(math.exp(log_epsilon), DELTA, neighbours, calibration)
        return math.log(made.noise_multiplier(queries) / z)

    return math.exp(brentq(gap, math.log(1e-3), math.log(400.0), xtol=1e-4))


def outcomes(parameters: Json, seed: int) -> list[bool]:
    """Whether a trial succeeds, for each level."""
    method, d, levels = (parameters[name] for name in ("method", "dimension", "levels"))
    if method == ITERATED:
        return [private_first(d, z, seed) for z in levels]
    if method == STARTED:
        return stays_at_first(d, levels, seed)
    return perturbed_first(d, levels, seed, parameters["noise"])


def wa16_theorem42(parameters: Json, inputs: Json, seed: int) -> Json:
    """Try every level of a grid of noise multipliers, in two threads; a row of 0 and 1 a trial."""
    from streamlda.utils.threads import one_blas_thread

    d, first = parameters["dimension"], 100_000 * seed
    with one_blas_thread(), ThreadPoolExecutor(2) as pool:
        numbers = range(first, first + parameters["trials"])
        found = list(pool.map(partial(outcomes, parameters), numbers))
    flat = flat_components(d, np.random.default_rng([first, d]))
    incoherence = d / len(EIGENVALUES) * float((flat**2).sum(axis=1).max())
    rows = ["".join(str(int(hit)) for hit in row) for row in found]
    return {"outcomes": rows, "mu_0": incoherence}
