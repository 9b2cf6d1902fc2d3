"""Tasks of the child process. Only `Meter.timed` is timed; the rest is preparation.

Heavy modules are imported inside the tasks, so that no contender pays for those of another.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.contenders import engine
from bench.corpus import count_words, texts_of
from bench.daemon_tasks import DAEMON_TASKS
from bench.data import planted, planted_counts, quality, zipf_documents
from bench.entrants import COMPARE_TASKS
from bench.grid import GRID_TASKS
from bench.known_truth import KNOWN_TRUTH_TASKS
from bench.measure import Meter, max_rss_bytes, memory_bytes
from bench.prequential import PREQUENTIAL_TASKS
from bench.private_public import PRIVATE_PUBLIC_TASKS
from bench.private_tasks import PRIVATE_TASKS
from bench.private_text import PRIVATE_TEXT_TASKS
from bench.roofline import ROOFLINE_TASKS
from bench.routes import ROUTES_TASKS
from bench.scale import SCALE_TASKS
from bench.scaleout import SCALEOUT_TASKS
from bench.shares import SHARES_TASKS
from bench.start import START_TASKS
from bench.tensor_power import TENSOR_POWER_TASKS
from bench.throughput import THROUGHPUT_TASKS
from bench.turns import TURNS_TASKS
from bench.wa16_online import WA16_ONLINE_TASKS
from bench.wa16_solvers import WA16_SOLVERS_TASKS

Json = dict[str, Any]

#: Documents of one block inside the engine, so that `rate` times whole blocks.
RATE_BATCH = 4096


def warm_up(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Compile the kernels, so that no measured process does."""
    from streamlda import estimator, simulate
    from streamlda.engine import engine
    from streamlda.model import evaluation

    meter.started()
    return {"modules": [m.__name__ for m in (engine, estimator, evaluation, simulate)]}


def fit(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """One pass of sums over planted counts that lie in memory, then how good the topics are."""
    contender = engine(parameters["n_components"], seed)
    meter.started()
    train, held_out, truth = planted_counts(parameters, seed)
    with meter.timed():
        components, alpha = contender.fit(contender.load(train))
    return {"documents": len(train), **quality(train, held_out, components, alpha, truth)}


def prepare(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Learn a vocabulary from a corpus, count its words, and store the counts in a file."""
    source = Path(inputs["corpus"])
    every = parameters["held_out_every"]
    texts = partial(texts_of, source, inputs["text_field"], every)
    return {"documents": count_words(texts, parameters["vocabulary_size"], inputs["counts"])}


def command_line(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """From text to model file by the command, its start included; memory is the command's."""
    meter.started()
    with tempfile.TemporaryDirectory() as folder:
        model_file = Path(folder) / "model"
        command = [sys.executable, "-m", "streamlda", "fit", inputs["corpus"], "--quiet"]
        command += ["--text-field", inputs["text_field"], "--seed", str(seed)]
        command += ["--topics", str(parameters["n_components"])]
        command += ["--set", f"vocabulary.size={parameters['vocabulary_size']}"]
        with meter.timed():
            subprocess.run([*command, "--output", str(model_file)], check=True)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        meter.values["cpu_seconds"] = usage.ru_utime + usage.ru_stime
        meter.values["peak_rss_bytes"] = max_rss_bytes(resource.RUSAGE_CHILDREN)

        from streamlda.model.topic_model import load

        model = load(model_file)
        return {
            "documents": model.documents_seen,
            "topics": model.n_components,
            "words": model.n_features,
            "model_bytes": model_file.stat().st_size,
        }


def stream(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """A planted stream through the engine; `checkpoints` hold only time spent in Engine.add."""
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings

    corpus = planted(parameters, seed)
    names = ("n_components", "n_features", "warmup_documents")
    sizes = {name: parameters[name] for name in names}
    settings = EngineSettings(**sizes, seed=seed, refine=False)
    engine = Engine(settings)
    meter.started()
    size = parameters["batch"]
    spent, checkpoints = [0.0], []
    with meter.timed():
        for end in range(size, parameters["documents"] + 1, size):
            batch = corpus.documents(size)
            before = time.perf_counter()
            engine.add(batch)
            spent.append(spent[-1] + time.perf_counter() - before)
            if end in parameters["checkpoints"]:
                checkpoints.append(
                    {
                        "documents": end,
                        "add_seconds": spent[-1],
                        "peak_rss_bytes": memory_bytes("VmHWM"),
                    }
                )
    arrays, _ = engine.state()
    return {
        "documents": engine.documents_seen,
        "add_seconds": spent[-1],
        "checkpoints": checkpoints,
        "state_bytes": sum(array.nbytes for array in arrays.values()),
        "predicted_state_bytes": settings.state_bytes,
    }


def rate(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Seconds a document in the middle of a round, for documents of exactly nnz words."""
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings

    rng = np.random.default_rng(seed)
    settings = EngineSettings(
        n_components=parameters["n_components"],
        n_features=parameters["n_features"],
        warmup_documents=RATE_BATCH // 4,
        seed=seed,
        refine=False,
    )
    engine = Engine(settings)
    meter.started()
    nnz = parameters["nnz"]
    batches = [zipf_documents(RATE_BATCH, settings.n_features, nnz, rng) for _ in range(5)]
    # Warm-up and first round end after 5/4 of a batch; the second would last 5 batches more.
    engine.add(batches[0].rows(0, RATE_BATCH // 4))
    engine.add(batches[0])
    seconds = []
    with meter.timed():
        for batch in batches[1:]:
            before = time.perf_counter()
            engine.add(batch)
            seconds.append(time.perf_counter() - before)
    return {
        "documents": RATE_BATCH * len(seconds),
        "m": settings.n_columns,
        "t": settings.n_triple_columns,
        "seconds_per_document": float(np.median(seconds)) / RATE_BATCH,
    }


Task = Callable[[Meter, Json, Json, int], Json]


def whole(task: Callable[[Json, Json, int], Json]) -> Task:
    """Return a task of the papers as one whose whole time is measured."""

    def measured(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
        meter.started()
        with meter.timed():
            return task(parameters, inputs, seed)

    return measured


TASKS = {
    task.__name__: task
    for task in (
        warm_up,
        fit,
        prepare,
        command_line,
        stream,
        rate,
        *DAEMON_TASKS,
        *THROUGHPUT_TASKS,
        *SCALEOUT_TASKS,
        *GRID_TASKS,
        *SHARES_TASKS,
        *COMPARE_TASKS,
        *KNOWN_TRUTH_TASKS,
        *PREQUENTIAL_TASKS,
        *TURNS_TASKS,
        *ROUTES_TASKS,
        *START_TASKS,
        *SCALE_TASKS,
        *ROOFLINE_TASKS,
        *PRIVATE_TASKS,
        *PRIVATE_PUBLIC_TASKS,
        *PRIVATE_TEXT_TASKS,
        *WA16_ONLINE_TASKS,
        *WA16_SOLVERS_TASKS,
        *TENSOR_POWER_TASKS,
    )
}


def find_task(name: str) -> Task:
    """Return a task by its name; those of the papers import much, and only where they are run."""
    if name in TASKS:
        return TASKS[name]
    from bench.papers.scenarios import REPRODUCTIONS

    tasks = (reproduction.task for reproduction in REPRODUCTIONS.values())
    return whole(next(task for task in tasks if task.__name__ == name))


def run_here(task: str, parameters: Json, inputs: Json, seed: int) -> Json:
    """Do a task in this process and return what it measured."""
    meter = Meter(time.monotonic())
    found = find_task(task)(meter, parameters, inputs, seed)
    return {**meter.values, **found}


def main() -> None:
    job = json.load(sys.stdin)
    if "cores" in job["parameters"]:
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, usable[: job["parameters"]["cores"]])
    meter = Meter(job["spawned"])
    found = find_task(job["task"])(meter, job["parameters"], job["inputs"], job["seed"])
    Path(job["answer"]).write_text(json.dumps({**meter.values, **found}), "utf-8")


if __name__ == "__main__":
    main()
