"""Theorem 4.2 of Wang & Anandkumar (2016): the epsilon that a first component needs, against d.

T = sum_i l_i v_i^3 with orthonormal, flat v_i (random signs, made orthogonal). The paper: with
noise at every iteration (Algorithm 3), epsilon need not grow with a power of d; with noise on the
tensor itself, it must grow as d. A trial succeeds if the first eigenvector found has
|v_hat'v_1| >= 0.9.

Whether it does depends on the noise multiplier z alone; so trials are run over a grid of z, and
epsilon follows from the z at which half of them succeed, for each calibration.

Input perturbation has two limits. Free entries have noise of standard deviation z, so that
E(I, u, u) has length z sqrt(2 d). From a random start (u'v_1)^2 is about 1 / d, which asks for
z ~ 1 / d: the regime of the paper. But from z ~ 1 / sqrt(d) on the noise drowns v_1 itself, and at
small d the two are close. So the second limit is measured too, by power iterations started at v_1
(`STARTED`; no algorithm, since v_1 is the secret). Input perturbation is judged over all d that the
theorem was to be shown for, from `FIT_FROM` = 100 on; d = 50 and 71, where the second limit is
at most about a quarter above the first, are shown but not judged. Exponents of 1 / z stand beside
that of epsilon, which is larger: z epsilon is not constant, it rises with epsilon (from 3.4 at
d = 100 to 3.9 at d = 800).

The noise on the tensor is what `perturb_tensor` releases as long as that is affordable (d <= 200,
`MECHANISM`). Beyond, it is `SimulatedNoise`: NumPy's Gaussian floats of single precision, with the
same standard deviation for each entry. That is not private and need not be: what is measured is
what noise of this size does to the answer. A test holds that both give the same recovery.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most
from bench.styles import REFERENCE, STYLES, name_lines

#: Eigenvalues over the largest, and the largest: such that all epsilons of interest are below 3,
#: where the noise multiplier is nearly proportional to 1 / epsilon.
EIGENVALUES = (1.0, 0.8, 0.6)
LARGEST = 5e3
RECOVERED, DELTA = 0.9, 1e-6

#: The plot of this scenario, named from the page that shows it.
PLOT = "![Epsilon needed against d](plots/wa16-theorem-4-2.png)\n"

#: How its exponents are to be read.
NOTE = """\
Input perturbation is judged over all d from 100 on. At smaller d noise drowns v_1 itself not far
above the z at which random starts miss it. That limit goes as 1 / sqrt(d) only; it is measured by
iterations started at v_1 (no algorithm, since v_1 is the secret). `simulated` noise is Gaussian
floats with the standard deviations of `perturb_tensor`, whose exact sampler would take too long
there: this measures what noise does to recovery, not privacy.
"""

ITERATED, INPUT = "Algorithm 3", "input perturbation"
STARTED = "input perturbation, started at v_1"

#: Where the noise on a tensor comes from.
MECHANISM, SIMULATED = "perturb_tensor", "simulated"
MECHANISM_UP_TO = 200

#: The d from which the exponents of input perturbation are judged.
FIT_FROM = 100


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


def wa16_theorem42(meter: Any, parameters: Json, inputs: Json, seed: int) -> Json:
    """Try every level of a grid of noise multipliers, in two threads; a row of 0 and 1 a trial."""
    from streamlda.papers.wang_anandkumar import noisy, perturbation  # noqa: F401 - loaded before timing
    from streamlda.threads import one_blas_thread

    d, first = parameters["dimension"], 100_000 * seed
    meter.started()
    with meter.timed(), one_blas_thread(), ThreadPoolExecutor(2) as pool:
        numbers = range(first, first + parameters["trials"])
        found = list(pool.map(partial(outcomes, parameters), numbers))
    flat = flat_components(d, np.random.default_rng([first, d]))
    incoherence = d / len(EIGENVALUES) * float((flat**2).sum(axis=1).max())
    rows = ["".join(str(int(hit)) for hit in row) for row in found]
    return {"outcomes": rows, "mu_0": incoherence}


WA16_PRIVATE_TASKS = (wa16_theorem42,)


def guess(method: str, d: int) -> float:
    """Return about where half of the trials succeed; the grid lies around it."""
    stays = LARGEST * GUESS[STARTED] / math.sqrt(d)
    if method == STARTED:
        return stays
    if method == ITERATED:
        return LARGEST * GUESS[ITERATED] / math.log(d)
    # Near the smaller of the two limits.
    return float((stays**-3 + (LARGEST * GUESS[INPUT] / d) ** -3) ** (-1 / 3))


#: Found by a first, wide search.
GUESS = {ITERATED: 0.33, INPUT: 2.5, STARTED: 0.274}

#: Trials for each d; fewer where a trial takes long.
TRIALS = {
    ITERATED: dict.fromkeys((100, 200, 400, 800, 1600, 3200), 40),
    INPUT: {
        **{50: 200, 71: 200, 100: 200, 141: 100, 200: 80},
        **{283: 100, 400: 80, 566: 50, 800: 36},
    },
    STARTED: dict.fromkeys((50, 100, 200, 400), 40),
}


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = []
    for method, full in TRIALS.items():
        for d, trials in {100: 3, 141: 3}.items() if quick else full.items():
            spread = np.geomspace(0.45, 2.2, 5) if quick else np.geomspace(0.55, 1.75, 11)
            parameters = {
                "method": method,
                "dimension": d,
                "levels": (guess(method, d) * spread).tolist(),
                "trials": trials,
            }
            if method == INPUT:
                parameters["noise"] = MECHANISM if d <= MECHANISM_UP_TO else SIMULATED
            found.append(Case(f"{method}, d = {d}", "wa16_theorem42", parameters))
    return found


def half_level(levels: list[float], recovered: Any) -> float:
    """Return the z at which half of the trials succeed, on a logarithmic scale; nan if none is."""
    from scipy.optimize import isotonic_regression

    falling = isotonic_regression(np.array(recovered), increasing=False).x
    below = int(np.searchsorted(-falling, -0.5))
    if below in (0, len(falling)):
        return float("nan")
    high, low = falling[below - 1], falling[below]
    share = (high - 0.5) / (high - low)
    return float(levels[below - 1] * (levels[below] / levels[below - 1]) ** share)


def trials_of(result: Json, method: str) -> dict[int, tuple[list[float], Any]]:
    """Return for each d the levels and what came of them, shape (trials, levels)."""
    found = {}
    for label, case in result["cases"].items():
        parameters = case["parameters"]
        if parameters["method"] == method:
            runs = [run["measured"] for run in result["runs"] if run["case"] == label]
            rows = [[float(hit) for hit in row] for run in runs for row in run["outcomes"]]
            found[parameters["dimension"]] = (parameters["levels"], np.array(rows))
    return found


def halves(result: Json, method: str) -> dict[int, float]:
    """Return the z at recovery 1/2 for each d."""
    found = trials_of(result, method)
    return {d: half_level(levels, hits.mean(axis=0)) for d, (levels, hits) in found.items()}


def power_error(result: Json, first: int) -> float:
    """Return the standard error of the exponent of 1 / z, input perturbation: a bootstrap."""
    rng = np.random.default_rng(0)
    tried = {d: trials for d, trials in trials_of(result, INPUT).items() if d >= first}
    slopes = []
    for _ in range(100):
        points = {}
        for d, (levels, hits) in tried.items():
            again = hits[rng.integers(len(hits), size=len(hits))]
            points[d] = 1 / half_level(levels, again.mean(axis=0))
        slopes.append(slope(points, float))
    return float(np.std(slopes, ddof=1))


def needed(result: Json) -> dict[str, dict[int, float]]:
    """Return the epsilon needed for each way and d."""
    iterated, once = halves(result, ITERATED), halves(result, INPUT)
    found = {
        f"{ITERATED}, {name}": {d: epsilon_of(z, n_queries(d), name) for d, z in iterated.items()}
        for name in ("exact", "advanced", "paper")
    }
    found[INPUT] = {d: epsilon_of(z, 1, "exact") for d, z in once.items()}
    started = halves(result, STARTED)
    found[STARTED] = {d: epsilon_of(z, 1, "exact") for d, z in started.items()}
    return found


def beyond(points: dict[int, float], first: int) -> dict[int, float]:
    return {d: value for d, value in points.items() if d >= first}


def slope(points: dict[int, float], scale: Any) -> float:
    """Return the exponent a of epsilon ~ scale(d)^a, by least squares on logarithms."""
    x = np.log([scale(d) for d in points])
    return float(np.polyfit(x, np.log(list(points.values())), 1)[0])


def figures(result: Json) -> list[Figure]:
    found, ways = [], needed(result)
    for name, points in ways.items():
        text = ", ".join(f"{epsilon:.3g} (d = {d})" for d, epsilon in points.items())
        found.append(Figure(f"epsilon at recovery 1/2, {name}", text))
    for calibration in ("exact", "paper"):
        points = ways[f"{ITERATED}, {calibration}"]
        name = f"exponent of log d, {ITERATED}, {calibration}"
        found.append(at_most(name, slope(points, math.log), 2.0, "{:.2f}"))
    judged = beyond(ways[INPUT], FIT_FROM)
    shown = f"{min(judged)} to {max(judged)}"
    power = slope(judged, float)
    found.append(at_least(f"exponent of d, {INPUT}, d = {shown}", power, 0.9, "{:.2f}"))
    inverse = {d: 1 / z for d, z in halves(result, INPUT).items()}
    for first in sorted({min(inverse), *(d for d in (FIT_FROM, 200) if d < max(inverse))}):
        name = f"the same of 1 / z (standard error), d = {first} to {max(judged)}"
        value = slope(beyond(inverse, first), float)
        found.append(Figure(name, f"{value:.2f} ({power_error(result, first):.2f})"))
    stays = {d: 1 / z for d, z in halves(result, STARTED).items()}
    found.append(Figure(f"exponent of d of 1 / z, {STARTED}", f"{slope(stays, float):.2f}"))
    level = slope(ways[f"{ITERATED}, exact"], float)
    found.append(Figure(f"exponent of d, {ITERATED}, exact", f"{level:.2f}"))
    crossing = crossing_point(ways)
    found.append(Figure(f"d above which {ITERATED}, exact, needs less (lines drawn on)", crossing))
    return found


def crossing_point(ways: dict[str, dict[int, float]]) -> str:
    """Return where the line of input perturbation meets that of Algorithm 3, both in log d."""
    lines = []
    for name in (INPUT, f"{ITERATED}, exact"):
        points = beyond(ways[name], FIT_FROM)
        lines.append(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1))
    steep, level = lines
    if not steep[0] > level[0]:
        return "none"
    return f"{math.exp((level[1] - steep[1]) / (steep[0] - level[0])):,.0f}"


def details(result: Json) -> str:
    """The z at recovery 1/2, how it was measured, and how flat the components are."""
    header = ["way", "d", "K", "mu_0", "noise", "trials", "z at recovery 1/2", "times d / l_1"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for method in (ITERATED, INPUT, STARTED):
        counted = {d: len(hits) for d, (_, hits) in trials_of(result, method).items()}
        for d, z in halves(result, method).items():
            label = f"{method}, d = {d}"
            runs = [run["measured"] for run in result["runs"] if run["case"] == label]
            flatness = f"{np.mean([measured['mu_0'] for measured in runs]):.2f}"
            queries = n_queries(d) if method == ITERATED else 1
            source = "every answer" if method == ITERATED else SIMULATED
            source = result["cases"][label]["parameters"].get("noise", source)
            numbers = [str(counted[d]), f"{z:.1f}", f"{z * d / LARGEST:.2f}"]
            lines.append([method, str(d), str(queries), flatness, source, *numbers])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n" + NOTE + "\n" + PLOT


def plot(result: Json, folder: Any) -> None:
    """Draw the epsilon needed against d as wa16-theorem-4-2.png."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7.5, 4.5), layout="constrained")
    ways = needed(result)
    for name, points in ways.items():
        axis.plot(list(points), list(points.values()), label=name, **STYLES[name].keywords())
    last = max(ways[INPUT])
    d = np.geomspace(min(ways[INPUT]), max(ways[f"{ITERATED}, exact"]), 20)
    axis.plot(d, ways[INPUT][last] * d / last, label="proportional to d", **REFERENCE)
    axis.set(xlabel="d", ylabel="epsilon at recovery 1/2", xscale="log", yscale="log")
    name_lines([axis])
    figure.savefig(folder / "wa16-theorem-4-2.png", dpi=100)
    pyplot.close(figure)


WA16_PRIVATE = [
    Scenario(
        "wa16-theorem-4-2",
        "Does the epsilon that Algorithm 3 needs grow no faster than log^2 d (WA16 Theorem 4.2)?",
        1,
        cases,
        figures,
        details=details,
    )
]
