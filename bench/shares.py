"""Cost of measured shares of topics, and their distance from inference everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from bench.corpus import read_counts
from bench.kinds import Case, Figure, Json, Scenario, at_most, series
from bench.measure import VOCABULARY_SIZE, Meter

#: Least share of the tokens of a topic that is judged.
LEAST_SHARE = 0.005

#: Documents of a batch of the stream.
BATCH = 1000

#: Documents from one snapshot to the next where snapshots come more often than by default.
OFTEN = 20_000


class Stopwatch:
    """Processor seconds inside some functions, each counted once however they call each other."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def watch(self, owner: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            begin, self._depth = time.process_time(), self._depth + 1
            try:
                return inner(*arguments, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.process_time() - begin

        setattr(owner, name, timed)


def shares(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Fit counts in memory, or as a stream with snapshots; compare prevalence with transform."""
    # What is measured would import it in the part that is timed.
    import scipy.sparse  # noqa: F401

    from streamlda.engine.engine import Engine
    from streamlda.engine.measures import Measures
    from streamlda.engine.settings import EngineSettings
    from streamlda.refinement import refine
    from streamlda.refinement.measures import Samples

    meter.started()
    documents = read_counts(inputs["counts"], "train")
    settings = EngineSettings(
        n_components=parameters["n_components"], n_features=documents.n_features, seed=seed
    )
    watch = Stopwatch()
    watch.watch(refine, "measured")
    watch.watch(Samples, "add")
    watch.watch(Measures, "add")
    watch.watch(Measures, "published")
    every = parameters["snapshot_every"]
    with meter.timed():
        if every:
            engine = Engine(settings)
            for start in range(0, len(documents), BATCH):
                engine.add(documents.rows(start, start + BATCH))
                if (start + BATCH) % every == 0:
                    engine.release()
            model = engine.release()
        else:
            model = Engine.fit(settings, documents)[1]
    found = documents.lengths @ model.transform(documents)
    found /= found.sum()
    assert model.prevalence is not None
    off = np.maximum(found / model.prevalence, model.prevalence / found)[found >= LEAST_SHARE]
    return {
        "documents": len(documents),
        "measuring_seconds": watch.seconds,
        "topics": len(off),
        "largest_factor": float(off.max()),
        "median_factor": float(np.median(off)),
    }


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {"n_components": 10 if quick else 50, "vocabulary_size": VOCABULARY_SIZE}
    from streamlda.settings.build import DEFAULT_EVERY

    every = {"fit": None, "stream": DEFAULT_EVERY, f"stream, snapshots every {OFTEN:,}": OFTEN}
    return [Case(name, "shares", {**shared, "snapshot_every": n}) for name, n in every.items()]


def figures(result: Json) -> list[Figure]:
    found = []
    for case in result["cases"]:
        spent, whole = (series(result, case, k) for k in ("measuring_seconds", "cpu_seconds"))
        cost = median(a / (b - a) for a, b in zip(spent, whole, strict=True))
        name = f"cost over the rest, {case}"
        # What was asked is about the cost as things are by default.
        asked = case in ("fit", "stream")
        found.append(at_most(name, cost, 0.05, "{:.3f}") if asked else Figure(name, f"{cost:.3f}"))
        largest = max(series(result, case, "largest_factor"))
        found.append(at_most(f"largest factor to transform, {case}", largest, 1.5, "{:.2f}"))
        middle = median(series(result, case, "median_factor"))
        found.append(Figure(f"median factor to transform, {case}", f"{middle:.3f}"))
    return found


SHARES_TASKS = (shares,)

SHARES = [
    Scenario(
        "measured-shares",
        "What do measured shares cost, and are they those of inference in all documents?",
        3,
        cases,
        figures,
        needs_corpus=True,
    )
]
