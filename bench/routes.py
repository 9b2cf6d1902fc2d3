"""Topics of one file by the command, by `StreamLDA.fit` and by `partial_fit`.

`partial_fit` gets counts of the words that `fit` chose: of texts it knows the words of the first
batch alone. That way too is measured, without a target.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bench.kinds import Case, Figure, Json, Scenario, at_most, series
from bench.prequential import OURS
from bench.turns import BLOCK, TESTED

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.model.topic_model import TopicModel

NAMES = "streamlda fit", "StreamLDA.fit", "partial_fit", "partial_fit of texts"
SIZES = 15_000, 25_000, 60_000


def routes(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Files of several sizes by the command, by `StreamLDA.fit` and by `partial_fit` in blocks.

    All are judged on the words that all of them know.
    """
    with gzip.open(inputs["corpus"], "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)[inputs["text_field"]] for line in lines if line.strip()]
    order = np.random.default_rng(seed).permutation(len(texts))
    tested = [texts[i] for i in order[: 3 * TESTED]]
    trained = [texts[i] for i in order[3 * TESTED :]]
    meter.started()
    with meter.timed():
        fits = {
            f"{n}": fit_by_routes(trained[:n], parameters["n_components"], seed)
            for n in parameters["sizes"]
        }
        models = [model for found in fits.values() for model in found]
        shared = sorted(set.intersection(*({*known_words(model)} for model in models)))
        found = {
            n: [perplexity_of_words(model, shared, tested) for model in each]
            for n, each in fits.items()
        }
    return {"words": len(shared), "perplexity": found}


def fit_by_routes(texts: list[str], n_components: int, seed: int) -> list[TopicModel]:
    import streamlda

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
        command = [sys.executable, "-m", "streamlda", "fit", str(file), "--quiet"]
        command += ["--topics", str(n_components), "--seed", str(seed)]
        subprocess.run([*command, "--output", f"{folder}/model"], check=True)
        by_command = streamlda.load(f"{folder}/model")
    by_fit = streamlda.StreamLDA(n_components, random_state=seed).fit(texts)
    rows = by_fit.vocabulary_.encode(texts).batch.to_csr()
    by_parts = [streamlda.StreamLDA(n_components, random_state=seed) for _ in range(2)]
    for part in (slice(start, start + BLOCK) for start in range(0, len(texts), BLOCK)):
        by_parts[0].partial_fit(rows[part])
        by_parts[1].partial_fit(texts[part])
    found = by_parts[0].to_model()
    found = replace(found, vocabulary=by_fit.vocabulary_)
    return [by_command, by_fit.to_model(), found, by_parts[1].to_model()]


def known_words(model: TopicModel) -> tuple[str, ...]:
    assert model.vocabulary is not None
    assert model.vocabulary.words is not None
    return model.vocabulary.words


def perplexity_of_words(model: TopicModel, words: list[str], texts: list[str]) -> float:
    """Return the perplexity of texts as if they had no other words."""
    from streamlda.documents import DocumentBatch
    from streamlda.model.evaluation import document_completion

    assert model.vocabulary is not None
    place = {word: i for i, word in enumerate(known_words(model))}
    chosen = np.array([place[word] for word in words])
    rows = model.vocabulary.encode(texts).batch.to_csr()[:, chosen]
    topics, background = (
        kept / kept.sum(axis=-1, keepdims=True)
        for kept in (model.components[:, chosen], model.background[chosen])
    )
    alpha = np.full(len(topics), 1 / len(topics))
    batch = DocumentBatch.from_matrix(rows)
    return document_completion(batch, topics, alpha, background).perplexity


def routes_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    sizes = [1000, 2000] if quick else [*SIZES]
    return [Case(OURS, "routes", {"sizes": sizes, "n_components": 5 if quick else 20})]


def routes_figures(result: Json) -> list[Figure]:
    runs = series(result, OURS, "perplexity")
    found: list[Figure] = []
    before: list[float] = []
    for n in result["cases"][OURS]["parameters"]["sizes"]:
        middle = [median(each) for each in zip(*(run[f"{n}"] for run in runs), strict=True)]
        three = middle[: NAMES.index("partial_fit") + 1]
        spread = max(three) / min(three)
        found.append(at_most(f"worst / best route, {n:,} documents", spread, 1.02, "{:.3f}"))
        for number, (route, value) in enumerate(zip(NAMES, middle, strict=True)):
            found.append(Figure(f"perplexity, {n:,} documents, {route}", f"{value:,.0f}"))
            if before:
                name = f"perplexity / that of fewer documents, {n:,}, {route}"
                found.append(at_most(name, value / before[number], 1.01, "{:.3f}"))
        before = middle
    return found


ROUTES_TASKS = (routes,)

ROUTES = [
    Scenario(
        "routes",
        "Are topics of one file equally good by the command, the estimator and `partial_fit`?",
        5,
        routes_cases,
        routes_figures,
        needs_corpus=True,
    ),
]
