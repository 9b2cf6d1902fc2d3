"""Scenarios of the cluster: sums of counts by one worker and two, and whole fits of text."""

from __future__ import annotations

import gzip
import json
import logging
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bench.corpus import texts_of_lines
from bench.data import planted
from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most, series

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Meter
    from streamlda.engine.engine import Engine
    from streamlda.run.fit import FitResult
    from streamlda.settings.table import RunSettings

#: Shards that the documents are cut into, on any number of workers.
SHARDS = 32
WORKERS = {"1 worker": 1, "2 workers": 2}
DIFFERENCE = "largest_relative_difference"

#: Compressed files that a corpus of text is written to, and who fits them.
FILES = 16
FITS = {"plain fit": 0, **WORKERS}


def dask_scaling(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Sum counts that workers keep through one map; the tree of merges is timed too.

    Afterwards one engine learns from the same documents in this process, to compare the sums with.
    """
    from distributed import LocalCluster

    from streamlda.engine.engine import Engine
    from streamlda.engine.phase import Counters
    from streamlda.engine.projections import first_projection
    from streamlda.engine.rounds import SharedSums
    from streamlda.engine.settings import EngineSettings
    from streamlda.scaleout import connect, of_partitions
    from streamlda.scaleout.cluster import Run
    from streamlda.scaleout.store import keep_documents
    from streamlda.spectral.moments import Moments

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
        how = {"vocabulary": None, "n_features": parameters["n_features"]}
        with keep_documents(Run(client), of_partitions(futures), **how) as store:
            given = 0, store.total, Moments(shared, settings.n_triple_columns)
            # Workers load the compiled code in the first round.
            store.moments(*given)
            meter.started()
            with meter.timed():
                moments = store.moments(*given)
            counts = store.counts
            counters = Counters(store.total, counts.short, counts.tokens)
    found = Engine.of_phase(SharedSums(settings, counters, moments))
    one = Engine(settings, shared_projection=shared)
    one.add(documents)
    return {
        "documents": found.documents_seen,
        DIFFERENCE: _difference(found, one),
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


def cluster_text(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Fit files of text, in this process or on workers; the second fit, all code loaded, counts.

    Processor seconds are those of client, scheduler (both here) and workers.
    """
    from distributed import LocalCluster

    from streamlda.model.evaluation import document_completion
    from streamlda.run.cluster import fit_on_cluster
    from streamlda.run.fit import fit
    from streamlda.scaleout import connect
    from streamlda.settings.load import load_settings

    held_out: list[str] = []
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        _write(folder / "text", inputs, parameters["documents"], held_out)
        flags = {
            "source.files": [str(folder / "text")],
            "topics.count": parameters["n_components"],
            "topics.seed": seed,
            "output.file": str(folder / "model"),
        }
        way: Callable[[RunSettings], FitResult] = fit
        workers = parameters["workers"]

        def spent() -> list[float]:
            return []

        if workers:
            alone = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
            quiet = {"threads_per_worker": 1, "silence_logs": logging.CRITICAL, **alone}
            made = LocalCluster(n_workers=workers, **quiet)  # type: ignore[no-untyped-call]
            address = opened.enter_context(made).scheduler_address
            client = opened.enter_context(connect(address, timeout_seconds=60))
            flags["cluster.dask"], way = address, fit_on_cluster

            def spent() -> list[float]:
                found: dict[str, float] = client.run(time.process_time)
                return [*found.values()]

        settings = load_settings(None, flags=flags, command="fit")
        way(settings)
        meter.started()
        before = spent()
        with meter.timed():
            model = way(settings).model
        of_workers = sum(spent()) - sum(before)
    assert model.vocabulary is not None
    aside = model.vocabulary.encode(held_out).batch
    found = document_completion(aside, model.components, model.alpha, model.background)
    return {
        "documents": model.documents_seen,
        "all_cpu_seconds": meter.values["cpu_seconds"] + of_workers,
        "worker_cpu_seconds": of_workers,
        "perplexity": found.perplexity,
        "npmi": float(np.mean(model.diagnostics["topic_npmi"])),
    }


def _write(folder: Path, inputs: Json, documents: int, held_out: list[str]) -> None:
    """Write the first documents of a corpus to files, but for those held out."""
    rows: list[str] = []
    for texts, held in texts_of_lines(Path(inputs["corpus"]), inputs["text_field"]):
        for text, aside in zip(texts, held, strict=True):
            (held_out if aside else rows).append(text)
        if len(rows) >= documents:
            break
    del rows[documents:]
    folder.mkdir()
    for n in range(FILES):
        part = rows[len(rows) * n // FILES : len(rows) * (n + 1) // FILES]
        with gzip.open(folder / f"{n:02}.jsonl.gz", "wt", 6, encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in part)


def text_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {"n_components": 10 if quick else 50, "documents": 4000 if quick else 200_000}
    return [Case(name, "cluster_text", {**shared, "workers": n}) for name, n in FITS.items()]


def text_figures(result: Json) -> list[Figure]:
    alone, one, two = FITS
    cpu = {name: series(result, name, "all_cpu_seconds") for name in FITS}
    wall = {name: series(result, name, "fit_seconds") for name in FITS}

    def ratio(of: dict[str, list[float]], over: str) -> float:
        return median(a / b for a, b in zip(of[two], of[over], strict=True))

    return [
        at_most("processor seconds of 2 workers over plain fit", ratio(cpu, alone), 1.25, "{:.2f}"),
        at_most("seconds of 2 workers over those of 1", ratio(wall, one), 0.65, "{:.2f}"),
        *(
            Figure(f"{what}, {name}", shown.format(median(series(result, name, key))))
            for what, key, shown in (
                ("seconds", "fit_seconds", "{:.1f}"),
                ("processor seconds", "all_cpu_seconds", "{:.1f}"),
                ("of them of workers", "worker_cpu_seconds", "{:.1f}"),
                ("perplexity by its own words", "perplexity", "{:.0f}"),
                ("NPMI", "npmi", "{:.3f}"),
            )
            for name in FITS
        ),
    ]


SCALEOUT_TASKS = (dask_scaling, cluster_text)

SCALEOUT = [
    Scenario(
        "dask-scaling",
        "Does a second worker halve the time of summing documents, with the same sums?",
        3,
        scaling_cases,
        scaling_figures,
    ),
    Scenario(
        "cluster-text",
        "What do two workers take from text to topics, beside one and beside plain fit?",
        3,
        text_cases,
        text_figures,
        needs_corpus=True,
    ),
]
