"""New data as those of Imtiaz & Sarwate (2018), and what is measured on them.

As in the paper, one data set is drawn and the noise ten times. Noise is that of the operating
system, so that no two runs are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits

from bench.kinds import Json
from bench.papers.data import read_covertype, read_mnist
from bench.styles import AS_PUBLISHED
from streamlda.documents import DocumentBatch
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import MixtureSite, learn_mixture
from streamlda.papers.imtiaz_sarwate.metrics import captured_energy, component_error
from streamlda.papers.imtiaz_sarwate.pca import (
    clipped,
    partial_root_subspace,
    principal_subspace,
    second_sum,
)
from streamlda.papers.imtiaz_sarwate.simulated import Promise, SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import SingleTopicSite, learn_topics

#: Of the mixtures; the radius is a public number times the root mean square norm of their samples.
VARIANCE, RADIUS = 0.05, 1.1

#: Scheme of each curve; the route and the calibration are ours, or as published.
_SCHEMES = {"capeAGN": "cape", "conventional": "conventional", "local": "local"}
METHODS: dict[str, Any] = {
    **_SCHEMES,
    "pooled, private": "pooled-private",
    "not private": "pooled",
    **{f"{name}{AS_PUBLISHED}": scheme for name, scheme in _SCHEMES.items()},
    "DPdisPCA": "conventional",
    f"DPdisPCA{AS_PUBLISHED}": "conventional",
}

#: Methods of Figures 3 to 5: that of one holder with noise has the law of capeAGN.
COMPONENT_METHODS = [name for name in METHODS if not name.startswith(("pooled", "DPdisPCA"))]


class Planted(NamedTuple):
    """Components, the sites that hold samples of them, and the sites as the authors have them."""

    components: Any
    sites: list[Any]
    as_published: list[Any]
    #: sigma^2 as the authors estimate it.
    variance: float | None = None


def linear(n: int) -> Any:
    """Return shares in proportion to 1 ... 10 n in n equal steps, the weights of the authors."""
    shares = np.linspace(1, 10 * n, n)
    return shares / shares.sum()


def planted_topics(parameters: Json, rng: np.random.Generator) -> Planted:
    """Draw documents of three words, one topic each, as the authors do."""
    d, k, n = (parameters[name] for name in ("dimension", "components", "documents"))
    topics = half_normal(d, k, rng)
    topic = rng.choice(k, size=n, p=linear(k))
    words = np.empty((n, 3), dtype=np.int64)
    for i in range(k):
        own = topic == i
        words[own] = rng.choice(d, size=(own.sum(), 3), p=topics[i])
    counts = csr_matrix((np.ones(3 * n), words.ravel(), np.arange(0, 3 * n + 1, 3)), shape=(n, d))
    cuts = np.linspace(0, n, parameters["sites"] + 1).astype(int)
    batch = DocumentBatch.from_matrix(counts)
    sites = [SingleTopicSite(batch.rows(a, b)) for a, b in pairwise(cuts)]
    return Planted(topics, sites, sites)


def planted_mixture(parameters: Json, rng: np.random.Generator) -> Planted:
    """Draw samples around orthonormal means, as the authors do.

    Their program scales by the largest norm, and takes the least variance of each site's samples
    for sigma^2. Neither is private.
    """
    d, k, n = (parameters[name] for name in ("dimension", "components", "documents"))
    means = orthonormal(d, k, rng)
    samples = means[rng.choice(k, size=n, p=linear(k))]
    samples += math.sqrt(VARIANCE) * rng.standard_normal((n, d))
    radius = RADIUS * math.sqrt(1 + d * VARIANCE)
    largest = float(np.linalg.norm(samples, axis=1).max()) * (1 + 1e-9)
    parts = np.array_split(samples, parameters["sites"])
    least = [float(np.linalg.eigvalsh(np.cov(part.T, bias=True))[0]) for part in parts]
    return Planted(
        means,
        [MixtureSite(part, radius) for part in parts],
        [MixtureSite(part, largest) for part in parts],
        sum(least) / len(least),
    )


def orthonormal(d: int, k: int, rng: np.random.Generator) -> Any:
    """Return k random orthonormal rows."""
    return np.linalg.qr(rng.standard_normal((d, d)))[0].T[:k]


def half_normal(d: int, k: int, rng: np.random.Generator) -> Any:
    """Return the positive parts of random orthonormal rows, each divided by its sum."""
    drawn = np.maximum(orthonormal(d, k, rng), 0.0)
    while not drawn.sum(axis=1).all():
        drawn = np.maximum(orthonormal(d, k, rng), 0.0)
    return drawn / drawn.sum(axis=1, keepdims=True)


def measured(
    parameters: Json, name: str, methods: Iterable[str], measure: Callable[..., float]
) -> list[Json]:
    """Measure every method at every (epsilon, delta), with fresh noise in every run."""
    rows = []
    for (epsilon, delta), method in product(parameters["points"], methods):
        runs = 1 if METHODS[method] == "pooled" else parameters["runs"]
        values = [measure(method, epsilon, delta) for _ in range(runs)]
        rows.append({"method": method, "epsilon": epsilon, "delta": delta, name: values})
    return rows


def network_of(sizes: list[int], method: str, epsilon: float, delta: float) -> SimulatedSites:
    calibration: Any = "paper" if method.endswith(AS_PUBLISHED) else "exact"
    return SimulatedSites(sizes, Promise(epsilon, delta, calibration), METHODS[method])


def learned(
    planted: Planted, parameters: Json, method: str, epsilon: float, delta: float, rng: Any
) -> Any:
    """Return the components that one method finds at all sites, in the units of the metric."""
    network = network_of([site.documents for site in planted.sites], method, epsilon, delta)
    ours = not method.endswith(AS_PUBLISHED)
    # Without privacy nothing is scaled down: samples have the radius of the largest.
    whole = not ours or METHODS[method] == "pooled"
    asked = planted.as_published if whole else planted.sites, parameters["components"], network
    if parameters["model"] == "topics":
        return learn_topics(*asked, route="whitened" if ours else "paper", rng=rng).components
    way: Any = "projected" if ours else "paper"
    found = learn_mixture(*asked, variance=None if ours else planted.variance, route=way, rng=rng)
    # The authors compare directions: their means have unit length.
    lengths = np.linalg.norm(found.components, axis=1, keepdims=True)
    return found.components / np.where(lengths > 0, lengths, 1.0)


def cape_components(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure q_comp of every method."""
    rng = np.random.default_rng([seed, parameters["documents"], parameters["dimension"]])
    draw = {"topics": planted_topics, "mixture": planted_mixture}[parameters["model"]]
    planted = draw(parameters, rng)

    def error(method: str, epsilon: float, delta: float) -> float:
        found = learned(planted, parameters, method, epsilon, delta, rng)
        return component_error(planted.components, found)

    rows = measured(parameters, "q_comp", COMPONENT_METHODS, error)
    # q_comp of components drawn without any data, as the authors draw them.
    (k, d), blind = planted.components.shape, {"topics": half_normal, "mixture": orthonormal}
    drawn = (blind[parameters["model"]](d, k, rng) for _ in range(100))
    errors = [component_error(planted.components, components) for components in drawn]
    return {"rows": rows, "random": float(np.mean(errors))}


def samples_of(data: str, n: int, rng: np.random.Generator, inputs: Json) -> Any:
    """Return n centred samples; digits are those that scikit-learn brings, up to 1797.

    MNIST and Covertype are read from the user's files, rows at random.
    """
    if data == "synthetic":
        # Variances as in the authors' generator, in 200 dimensions of rank about 50.
        variances = np.concatenate([np.linspace(10, 1, 50), 0.5 * rng.random(150)])
        return rng.standard_normal((n, 200)) * np.sqrt(variances)
    if data == "cover types":
        found = cover_types(n, rng)
    else:
        read = {"MNIST": read_mnist, "Covertype": read_covertype}.get(data)
        rows = read(Path(inputs[data.lower()])) if read else load_digits().data
        found = rows[rng.permutation(len(rows))[:n]].astype(np.float64)
    return found - found.mean(axis=0)


def cover_types(n: int, rng: np.random.Generator) -> Any:
    """Return samples shaped as Covertype: 10 correlated measurements, 4 and 40 of one kind each.

    Standard deviations are of the size of that data set's: metres, degrees and shades.
    """
    scale = np.array([280.0, 112.0, 7.5, 213.0, 58.0, 1559.0, 27.0, 20.0, 38.0, 1324.0])
    mixing = np.eye(10) + 0.3 * rng.standard_normal((10, 10))
    mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
    measured = rng.standard_normal((n, 10)) @ mixing.T * scale
    kinds = [measured]
    for count in (4, 40):
        shares = 1.0 / np.arange(1, count + 1)
        chosen = rng.choice(count, size=n, p=shares / shares.sum())
        kinds.append(np.eye(count)[chosen])
    return np.hstack(kinds)


def cape_pca(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure q_CE of every method, and that of the best subspace."""
    rng = np.random.default_rng([seed, parameters["documents"]])
    k, n_sites = parameters["components"], parameters["sites"]
    samples = samples_of(parameters["data"], n_sites * parameters["documents"], rng, inputs)
    # As in the paper, and not private: the radius is the largest norm.
    radius = float(np.linalg.norm(samples, axis=1).max()) * (1 + 1e-9)
    parts = [clipped(part, radius) for part in np.array_split(samples, n_sites)]
    sums = [second_sum(part) for part in parts]
    moment = samples.T @ samples / len(samples)
    best = float(np.linalg.eigvalsh(moment)[-k:].sum())

    def energy(method: str, epsilon: float, delta: float) -> float:
        network = network_of([len(part) for part in parts], method, epsilon, delta)
        way: Any = "paper" if method.endswith(AS_PUBLISHED) else "packed"
        learn = partial_root_subspace if method.startswith("DPdisPCA") else principal_subspace
        return captured_energy(learn(sums, k, network, radius, route=way).vectors, moment)

    return {"rows": measured(parameters, "q_CE", METHODS, energy), "best": best}
