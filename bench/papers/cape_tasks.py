"""New data as those of Imtiaz & Sarwate (2018), and what is measured on them.

As in the paper, one data set is drawn and the noise ten times. Noise is that of the operating
system, so that no two runs are equal.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits

from bench.kinds import Json
from bench.papers.data import read_covertype, read_mnist
from streamlda.documents import DocumentBatch
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import MixtureSite, learn_mixture
from streamlda.papers.imtiaz_sarwate.metrics import (
    captured_energy,
    component_error,
)
from streamlda.papers.imtiaz_sarwate.pca import (
    clipped,
    partial_root_subspace,
    principal_subspace,
    second_sum,
)
from streamlda.papers.imtiaz_sarwate.simulated import Promise, SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import SingleTopicSite, learn_topics

#: Of the mixtures.
VARIANCE = 0.05

#: Radius of the mixtures over the root mean square norm of their samples: a public number.
RADIUS = 1.1

#: Scheme, route and calibration of each curve: ours, and as published.
METHODS: dict[str, tuple[Any, str, Any]] = {
    "capeAGN": ("cape", "ours", "exact"),
    "conventional": ("conventional", "ours", "exact"),
    "local": ("local", "ours", "exact"),
    "pooled, private": ("pooled-private", "ours", "exact"),
    "not private": ("pooled", "ours", "exact"),
    "capeAGN, as published": ("cape", "paper", "paper"),
    "conventional, as published": ("conventional", "paper", "paper"),
    "local, as published": ("local", "paper", "paper"),
    "DPdisPCA": ("conventional", "ours", "exact"),
    "DPdisPCA, as published": ("conventional", "paper", "paper"),
}

#: For directions alone.
PCA_ONLY = ("DPdisPCA", "DPdisPCA, as published")


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
        own = np.flatnonzero(topic == i)
        words[own] = rng.choice(d, size=(len(own), 3), p=topics[i])
    rows = np.repeat(np.arange(n), 3)
    counts = csr_matrix((np.ones(3 * n), (rows, words.ravel())), shape=(n, d))
    cuts = np.linspace(0, n, parameters["sites"] + 1).astype(int)
    parts = [counts[a:b] for a, b in pairwise(cuts)]
    sites = [SingleTopicSite(DocumentBatch.from_matrix(part)) for part in parts]
    return Planted(topics, sites, sites)


def planted_mixture(parameters: Json, rng: np.random.Generator) -> Planted:
    """Draw samples around orthonormal means, as the authors do.

    Their program scales by the largest norm, and has the least variance of each site's samples for
    sigma^2: less than that, so that rare components are off without any noise. Neither is private.
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


def learned(
    planted: Planted, parameters: Json, method: str, epsilon: float, delta: float, rng: Any
) -> Any:
    """Return the components that one method finds at all sites, in the units of the metric."""
    scheme, route, calibration = METHODS[method]
    sizes = [site.documents for site in planted.sites]
    network = SimulatedSites(sizes, Promise(epsilon, delta, calibration), scheme)
    ours = route == "ours"
    # Without privacy nothing is scaled down: samples have the radius of the largest.
    whole = not ours or scheme == "pooled"
    asked = planted.as_published if whole else planted.sites, parameters["components"], network
    if parameters["model"] == "topics":
        return learn_topics(*asked, route="whitened" if ours else "paper", rng=rng).components
    way: Any = "projected" if ours else "paper"
    found = learn_mixture(*asked, variance=None if ours else planted.variance, route=way, rng=rng)
    # The authors compare directions: their means have unit length.
    lengths = np.linalg.norm(found.components, axis=1, keepdims=True)
    return found.components / np.where(lengths > 0, lengths, 1.0)


def cape_components(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure q_comp of every method at every (epsilon, delta), with fresh noise in every run."""
    rng = np.random.default_rng([seed, parameters["documents"], parameters["dimension"]])
    draw = {"topics": planted_topics, "mixture": planted_mixture}[parameters["model"]]
    planted = draw(parameters, rng)
    rows, plain = [], None
    for epsilon, delta in parameters["points"]:
        for method in parameters["methods"]:
            if method == "not private" and plain is not None:
                # The same for every epsilon.
                rows.append({**plain, "epsilon": epsilon, "delta": delta})
                continue
            found = [
                learned(planted, parameters, method, epsilon, delta, rng)
                for _ in range(1 if method == "not private" else parameters["runs"])
            ]
            errors = [component_error(planted.components, components) for components in found]
            row = {"method": method, "epsilon": epsilon, "delta": delta, "q_comp": errors}
            plain = row if method == "not private" else plain
            rows.append(row)
    return {"rows": rows, "random": random_error(planted.components, parameters["model"], rng)}


def random_error(components: Any, model: str, rng: np.random.Generator) -> float:
    """Return q_comp of components drawn without any data, as the authors draw them."""
    k, d = components.shape
    errors = []
    for _ in range(100):
        drawn = half_normal(d, k, rng) if model == "topics" else orthonormal(d, k, rng)
        errors.append(component_error(components, drawn))
    return float(np.mean(errors))


def samples_of(data: str, n: int, rng: np.random.Generator, inputs: Json) -> Any:
    """Return n centred samples; digits are those that scikit-learn brings, up to 1797.

    MNIST and Covertype are read from the user's files, rows at random.
    """
    if data == "synthetic":
        # Variances as in the authors' generator, in 200 dimensions of rank about 50.
        variances = np.concatenate([np.linspace(10, 1, 50), 0.5 * rng.random(150)])
        return rng.standard_normal((n, 200)) * np.sqrt(variances)
    if data == "digits":
        found = load_digits().data[rng.permutation(1797)[:n]]
    elif data in ("MNIST", "Covertype"):
        read = read_mnist if data == "MNIST" else read_covertype
        rows = read(Path(inputs[data.lower()]))
        found = rows[rng.permutation(len(rows))[:n]].astype(np.float64)
    else:
        found = cover_types(n, rng)
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
    """Measure q_CE of every method, over that of the best subspace, at every point."""
    rng = np.random.default_rng([seed, parameters["documents"]])
    k, n_sites = parameters["components"], parameters["sites"]
    samples = samples_of(parameters["data"], n_sites * parameters["documents"], rng, inputs)
    # As in the paper, and not private: the radius is the largest norm.
    radius = float(np.linalg.norm(samples, axis=1).max()) * (1 + 1e-9)
    parts = [clipped(part, radius) for part in np.array_split(samples, n_sites)]
    sums = [second_sum(part) for part in parts]
    moment = samples.T @ samples / len(samples)
    best = float(np.linalg.eigvalsh(moment)[-k:].sum())
    rows = []
    for epsilon, delta in parameters["points"]:
        for method, (scheme, route, calibration) in METHODS.items():
            energies = []
            for _ in range(1 if scheme == "pooled" else parameters["runs"]):
                network = SimulatedSites(
                    [len(part) for part in parts], Promise(epsilon, delta, calibration), scheme
                )
                way: Any = "packed" if route == "ours" else "paper"
                learn = partial_root_subspace if method in PCA_ONLY else principal_subspace
                found = learn(sums, k, network, radius, route=way)
                energies.append(captured_energy(found.vectors, moment))
            rows.append({"method": method, "epsilon": epsilon, "delta": delta, "q_CE": energies})
    return {"rows": rows, "best": best, "trace": float(np.trace(moment))}
