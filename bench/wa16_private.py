"""Theorem 4.2 of Wang & Anandkumar (2016): the epsilon that a first component needs, against d.

T = sum_i l_i v_i^3 with orthonormal, flat v_i (random signs, made orthogonal). The paper: with
noise at every iteration (Algorithm 3), epsilon need not grow with a power of d; with noise on the
tensor itself, it must grow as d. A trial succeeds if the first eigenvector found has
|v_hat'v_1| >= 0.9.

Whether it does depends on the noise multiplier z alone; so trials are run over a grid of z, and
epsilon follows from the z at which half of them succeed, for each calibration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most

#: Eigenvalues over the largest, and the largest: such that all epsilons of interest are below 3,
#: where the noise multiplier is nearly proportional to 1 / epsilon.
EIGENVALUES = (1.0, 0.8, 0.6)
LARGEST = 5e3
RECOVERED, DELTA = 0.9, 1e-6

#: The plot of this scenario, named from the page that shows it.
PLOT = "![Epsilon needed against d](plots/wa16-theorem-4-2.png)\n"

ITERATED, INPUT = "Algorithm 3", "input perturbation"


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
    from streamlda.decomposition.neighbours import Neighbours
    from streamlda.decomposition.noisy import NoisyPower, Schedule
    from streamlda.decomposition.power import DeflatedPower
    from streamlda.decomposition.tensors import FactoredTensor
    from streamlda.privacy.noise import SeededNoise

    vectors = flat_components(d, np.random.default_rng([seed, d]))
    values = LARGEST * np.array(EIGENVALUES)
    neighbours = Neighbours("entry", magnitude=values.sum(), roundings=2 * d + 16)
    method = DeflatedPower(d, len(values), **schedule(d), seed=seed)
    epsilon = epsilon_of(z, n_queries(d), "exact")
    tensor = FactoredTensor(values, vectors)
    power = NoisyPower(method, tensor, Schedule(epsilon, DELTA, neighbours), SeededNoise(seed))
    found = first_component(method, power.step)
    return bool(abs(vectors[:, 0] @ found) >= RECOVERED)


def perturbed_first(d: int, levels: list[float], seed: int) -> list[bool]:
    """Whether Algorithm 1 finds the first component of the perturbed tensor, for each z.

    The noise of a release is drawn once and scaled to each z, as it would be but for its grid.
    """
    from streamlda.decomposition.neighbours import Neighbours
    from streamlda.decomposition.perturbation import perturb_tensor
    from streamlda.decomposition.power import DeflatedPower
    from streamlda.decomposition.tensors import DenseTensor, FactoredTensor
    from streamlda.privacy.noise import SeededNoise

    vectors = flat_components(d, np.random.default_rng([seed, d]))
    values = LARGEST * np.array(EIGENVALUES)
    zero = np.zeros((d, d, d))
    neighbours = Neighbours("entry", magnitude=values.sum())
    drawn = perturb_tensor(zero, 1.0, DELTA, neighbours, SeededNoise(seed))
    noise = DenseTensor(drawn.tensor)
    unit = drawn.event.noise_multiplier
    signal = FactoredTensor(values, vectors)
    methods = [DeflatedPower(d, len(values), **schedule(d), seed=seed) for _ in levels]
    width = methods[0].probes.shape[1]
    # All take the same number of answers, so that they share the products with the noise.
    while not len(methods[0].components().eigenvalues):
        probes = np.hstack([method.probes for method in methods])
        factor = np.repeat(np.array(levels) / unit, width)
        pairs = zip(signal.apply(probes), noise.apply(probes), strict=True)
        images, values_at = (exact + factor * noisy for exact, noisy in pairs)
        for i, method in enumerate(methods):
            columns = slice(i * width, (i + 1) * width)
            method.advance(images[:, columns], values_at[columns])
    found = [method.components().eigenvectors[:, 0] for method in methods]
    return [bool(abs(vectors[:, 0] @ vector) >= RECOVERED) for vector in found]


def n_queries(d: int) -> int:
    """K of the whole Algorithm 3, all components counted."""
    settings = schedule(d)
    return len(EIGENVALUES) * settings["n_restarts"] * (settings["n_iterations"] + 1)


def epsilon_of(z: float, queries: int, calibration: str) -> float:
    """Return the epsilon for which a calibration gives each query this noise multiplier."""
    from scipy.optimize import brentq

    from streamlda.decomposition.neighbours import Neighbours
    from streamlda.decomposition.noisy import Schedule
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


def wa16_theorem42(meter: Any, parameters: Json, inputs: Json, seed: int) -> Json:
    """Count successes over a grid of noise multipliers."""
    from streamlda.decomposition import noisy, perturbation  # noqa: F401 - loaded before timing

    d, levels, trials = parameters["dimension"], parameters["levels"], parameters["trials"]
    meter.started()
    found = np.zeros(len(levels))
    with meter.timed():
        for trial in range(trials):
            number = 100_000 * seed + trial
            if parameters["method"] == INPUT:
                found += perturbed_first(d, levels, number)
            else:
                found += [private_first(d, z, number) for z in levels]
    flat = flat_components(d, np.random.default_rng([100_000 * seed, d]))
    incoherence = d / len(EIGENVALUES) * float((flat**2).sum(axis=1).max())
    return {"recovered": (found / trials).tolist(), "mu_0": incoherence}


WA16_PRIVATE_TASKS = (wa16_theorem42,)


def guess(method: str, d: int) -> float:
    """Return about where half of the trials succeed; the grid lies around it."""
    return LARGEST * (GUESS[0] / d if method == INPUT else GUESS[1] / math.log(d))


#: Found by a first, wide search.
GUESS = (1.9, 0.33)


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = []
    sizes = {ITERATED: [100, 200, 400, 800, 1600, 3200], INPUT: [50, 71, 100, 141, 200]}
    for method, dimensions in sizes.items():
        for d in [30, 60] if quick else dimensions:
            parameters = {
                "method": method,
                "dimension": d,
                "levels": (guess(method, d) * np.geomspace(0.45, 2.2, 5 if quick else 10)).tolist(),
                "trials": 3 if quick else 40 if method == ITERATED else 20,
            }
            found.append(Case(f"{method}, d = {d}", "wa16_theorem42", parameters))
    return found


def half_level(levels: list[float], recovered: list[float]) -> float:
    """Return the z at which half of the trials succeed, on a logarithmic scale; nan if none is."""
    from scipy.optimize import isotonic_regression

    falling = isotonic_regression(np.array(recovered), increasing=False).x
    below = int(np.searchsorted(-falling, -0.5))
    if below in (0, len(falling)):
        return float("nan")
    high, low = falling[below - 1], falling[below]
    share = (high - 0.5) / (high - low)
    return float(levels[below - 1] * (levels[below] / levels[below - 1]) ** share)


def halves(result: Json, method: str) -> dict[int, float]:
    """Return the z at recovery 1/2 for each d; repeats are averaged."""
    found = {}
    for label, case in result["cases"].items():
        parameters = case["parameters"]
        if parameters["method"] == method:
            runs = [r["measured"]["recovered"] for r in result["runs"] if r["case"] == label]
            rates = np.mean(runs, axis=0).tolist()
            found[parameters["dimension"]] = half_level(parameters["levels"], rates)
    return found


def needed(result: Json) -> dict[str, dict[int, float]]:
    """Return the epsilon needed for each way and d."""
    iterated, once = halves(result, ITERATED), halves(result, INPUT)
    found = {
        f"{ITERATED}, {name}": {d: epsilon_of(z, n_queries(d), name) for d, z in iterated.items()}
        for name in ("exact", "advanced", "paper")
    }
    found[INPUT] = {d: epsilon_of(z, 1, "exact") for d, z in once.items()}
    return found


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
    power = slope(ways[INPUT], float)
    found.append(at_least(f"exponent of d, {INPUT}", power, 0.9, "{:.2f}"))
    found.append(Figure(f"exponent of d, {ITERATED}, exact", f"{exact_power(ways):.2f}"))
    crossing = crossing_point(ways)
    found.append(Figure(f"d above which {ITERATED}, exact, needs less (lines drawn on)", crossing))
    return found


def exact_power(ways: dict[str, dict[int, float]]) -> float:
    return slope(ways[f"{ITERATED}, exact"], float)


def crossing_point(ways: dict[str, dict[int, float]]) -> str:
    """Return where the line of input perturbation meets that of Algorithm 3, both in log d."""
    lines = []
    for name in (INPUT, f"{ITERATED}, exact"):
        points = ways[name]
        lines.append(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1))
    steep, level = lines
    if not steep[0] > level[0]:
        return "none"
    return f"{math.exp((level[1] - steep[1]) / (steep[0] - level[0])):,.0f}"


def details(result: Json) -> str:
    """Recovery at each noise multiplier, and how flat the components are."""
    header = ["way", "d", "K", "mu_0", "z at recovery 1/2"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for method in (ITERATED, INPUT):
        for d, z in halves(result, method).items():
            runs = [r for r in result["runs"] if r["case"] == f"{method}, d = {d}"]
            queries = n_queries(d) if method == ITERATED else 1
            flatness = np.mean([run["measured"]["mu_0"] for run in runs])
            lines.append([method, str(d), str(queries), f"{flatness:.2f}", f"{z:.1f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n" + PLOT


def plot(result: Json, folder: Any) -> None:
    """Draw the epsilon needed against d as wa16-theorem-4-2.png."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name, points in needed(result).items():
        axis.plot(list(points), list(points.values()), ".-", label=name)
    d, start = np.geomspace(50, 3200, 20), needed(result)[INPUT]
    first = min(start)
    axis.plot(d, start[first] * d / first, ":", color="0.6", label="proportional to d")
    axis.set(xlabel="d", ylabel="epsilon at recovery 1/2", xscale="log", yscale="log")
    axis.legend(frameon=False, fontsize=8)
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
