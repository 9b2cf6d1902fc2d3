"""A hundred million short documents in one run, and what a billion would take."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bench.data import planted
from bench.kinds import Case, Figure, Json, Scenario, at_most, series, within
from bench.measure import memory_bytes

if TYPE_CHECKING:
    from bench.measure import Meter

BILLION = 1_000_000_000

#: Where memory and time are noted, as shares of the stream.
MARKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

DASK = {"Dask, 1 worker": 1, "Dask, 2 workers": 2}
#: Workers that a billion documents are computed for.
WORKERS = (2, 4, 8)


def long_stream(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Learn from a pool of planted documents over and over, its batches in a new order each time.

    Documents are drawn before the clock starts: drawing takes longer than learning.
    """
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings

    names = ("n_components", "n_features")
    settings = EngineSettings(
        **{name: parameters[name] for name in names}, seed=seed, refine=parameters["refine"]
    )
    engine = Engine(settings)
    pool = planted(parameters, seed).documents(parameters["pool"])
    rng, size, total = np.random.default_rng(seed), parameters["batch"], parameters["documents"]
    marks = [round(share * total) for share in MARKS]
    meter.started()
    found = []
    with meter.timed():
        wall, processor = time.perf_counter(), time.process_time()
        while engine.documents_seen < total:
            for start in rng.permutation(len(pool) // size) * size:
                engine.add(pool.rows(start, start + size))
                while marks and engine.documents_seen >= marks[0]:
                    marks.pop(0)
                    found.append(
                        {
                            "documents": engine.documents_seen,
                            "wall_seconds": time.perf_counter() - wall,
                            "cpu_seconds": time.process_time() - processor,
                            "peak_rss_bytes": memory_bytes("VmHWM"),
                        }
                    )
                if engine.documents_seen >= total:
                    break
        model = engine.snapshot()
    return {"documents": engine.documents_seen, "topics": model.n_components, "marks": found}


SCALE_TASKS = (long_stream,)


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shrink = 1000 if quick else 1
    shared = {
        **{"n_components": 20, "n_features": 20_000 // (20 if quick else 1), "alpha_0": 1.0},
        **{"topic_concentration": 0.05, "mean_length": 15},
    }
    stream = {
        **{"documents": 100_000_000 // shrink, "pool": 2_000_000 // shrink},
        **{"batch": 10_000 // (10 if quick else 1), **shared},
    }
    tenth = {"documents": stream["documents"] // 10}
    dask = {"documents": 2_000_000 // shrink, **shared}
    return [
        Case("refined", "long_stream", {**stream, "refine": True, "cores": 1}),
        Case("sums alone", "long_stream", {**stream, **tenth, "refine": False, "cores": 1}),
        *(Case(label, "dask_scaling", {**dask, "workers": n}) for label, n in DASK.items()),
    ]


def marks(result: Json, label: str) -> list[Json]:
    """Return the marks of the first repeat."""
    found: list[Json] = series(result, label, "marks")[0]
    return found


def hours(seconds_a_document: float) -> str:
    return f"{BILLION * seconds_a_document / 3600:.1f}"


def figures(result: Json) -> list[Figure]:
    found = []
    for label in ("refined", "sums alone"):
        of_case = marks(result, label)
        last = of_case[-1]
        rates = [
            (b["cpu_seconds"] - a["cpu_seconds"]) / (b["documents"] - a["documents"])
            for a, b in pairwise(of_case)
        ]
        growth = last["peak_rss_bytes"] / of_case[0]["peak_rss_bytes"]
        second = last["cpu_seconds"] / last["documents"]
        found += [
            Figure(f"documents of one run, {label}", f"{last['documents']:,}"),
            Figure(f"documents/s of one core, {label}", f"{1 / second:,.0f}"),
            within(f"memory at the end / after a hundredth, {label}", growth, 0.02),
            at_most(f"slowest / fastest part, {label}", max(rates) / min(rates), 1.2, "{:.2f}"),
            Figure(f"hours of a billion on one core, {label}", hours(second)),
        ]
    one, two = (median(seconds_of(result, label)) for label in DASK)
    found += [
        Figure(f"documents/s, {label}", f"{1 / s:,.0f}")
        for label, s in zip(DASK, (one, two), strict=True)
    ]
    # Two measured points give the share of the work that more workers do not divide.
    serial = max(0.0, 2 * two / one - 1)
    found.append(Figure("share of a worker's time that others add to it", f"{serial:.3f}"))
    found += [
        Figure(
            f"hours of a billion by Dask, {n} workers with a core each",
            hours(one / n * (1 + serial * (n - 1))),
        )
        for n in WORKERS
    ]
    return found


def seconds_of(result: Json, label: str) -> list[float]:
    pairs = zip(
        series(result, label, "fit_seconds"), series(result, label, "documents"), strict=True
    )
    return [seconds / documents for seconds, documents in pairs]


SCALE = [
    Scenario(
        "scale-short",
        "Do a hundred million documents of 15 tokens pass in one run, with memory and speed level?",
        1,
        cases,
        figures,
    )
]
