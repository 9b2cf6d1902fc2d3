"""Scenario of the cluster: does a second worker halve the time, and are the sums the same?"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bench.data import planted
from streamlda.papers.reproduce.kinds import Case, Figure, Json, Scenario, at_least, at_most, series

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.engine.engine import Engine

#: Shards that the documents are cut into, on any number of workers.
SHARDS = 32
WORKERS = {"1 worker": 1, "2 workers": 2}
DIFFERENCE = "largest_relative_difference"


def dask_scaling(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Sum counts that lie in the workers' memory through one map; the tree of merges is timed too.

    Afterwards one engine learns from the same documents in this process, to compare the sums with.
    """
    from distributed import LocalCluster

    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings
    from streamlda.engine.warmup import first_projection
    from streamlda.scaleout import connect, learn, of_partitions

    corpus = planted(parameters, seed)
    documents = corpus.documents(parameters["documents"])
    names = ("n_components", "n_features")
    settings = EngineSettings(**{name: parameters[name] for name in names}, seed=seed)
    shared = first_projection(documents.rows(0, 2000), settings)
    step = -(-len(documents) // SHARDS)
    parts = [documents.rows(a, a + step) for a in range(0, len(documents), step)]
    workers = parameters["workers"]
    alone = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, **alone) as cluster,  # type: ignore[no-untyped-call]
        connect(cluster.scheduler_address, timeout_seconds=60) as client,
    ):
        futures = client.scatter(parts)  # type: ignore[no-untyped-call]
        # Workers load the compiled code in the first round.
        learn(client, of_partitions(futures[:workers]), settings, shared_projection=shared)
        meter.started()
        with meter.timed():
            found = learn(client, of_partitions(futures), settings, shared_projection=shared)
    one = Engine(settings, shared_projection=shared)
    one.add(documents)
    return {
        "documents": found.engine.documents_seen,
        DIFFERENCE: _difference(found.engine, one),
    }


def _difference(mine: Engine, theirs: Engine) -> float:
    """Return the largest difference of a sum, halves joined, over the largest of its kind."""
    worst = 0.0
    mine_arrays, their_arrays = (engine.state()[0] for engine in (mine, theirs))
    for name in ("word_totals", "pair_cross", "triple_cross", "gram", "cube"):
        a, b = (arrays[f"current.{name}"] for arrays in (mine_arrays, their_arrays))
        if name in ("gram", "cube"):
            a, b = a.sum(axis=0), b.sum(axis=0)
        if name == "cube":
            # Other entries are unspecified.
            i, j, k = np.indices(a.shape)
            a, b = (array[(i <= j) & (j <= k)] for array in (a, b))
        worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
    return worst


def scaling_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    parameters = {
        "n_features": 8000,
        "n_components": 10 if quick else 50,
        "alpha_0": 1.0,
        "topic_concentration": 0.05,
        "mean_length": 80,
        "documents": 4000 if quick else 200_000,
    }
    return [Case(name, "dask_scaling", {**parameters, "workers": n}) for name, n in WORKERS.items()]


def scaling_figures(result: Json) -> list[Figure]:
    one, two = (series(result, name, "fit_seconds") for name in WORKERS)
    ratio = median(a / b for a, b in zip(one, two, strict=True))
    difference = max(d for name in WORKERS for d in series(result, name, DIFFERENCE))
    speeds = [
        Figure(
            f"documents/s, {name}",
            f"{median(series(result, name, 'documents')) / median(seconds):,.0f}",
        )
        for name, seconds in zip(WORKERS, (one, two), strict=True)
    ]
    return [
        at_least("times as fast with 2 workers as with 1", ratio, 1.6, "{:.2f}"),
        *speeds,
        at_most("largest relative difference to one process", difference, 1e-10, "{:.1e}"),
    ]


SCALEOUT_TASKS = (dask_scaling,)

SCALEOUT = [
    Scenario(
        "dask-scaling",
        "Does a second worker halve the time of summing documents, with the same sums?",
        3,
        scaling_cases,
        scaling_figures,
    )
]
