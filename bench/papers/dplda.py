"""Figures 2 to 4 of DP-LDA, and Figure 2 and Table 2 of its version 2, with other contenders.

The paper does not say its alpha_0, topics or lengths of documents; `PLANTED` is what stands here.
Error is the mean L1 distance of a topic from the planted one, 0 to 2; perplexity is by document
completion, where every model is smoothed with 1 % of uniform words, the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import product
from statistics import mean
from typing import Any

import numpy as np

from bench import private_contenders as known
from bench.corpus import read_counts, read_words
from bench.kinds import Figure, Json
from bench.papers.reproduction import Reproduction, judge_count, lines_of
from streamlda import papers
from streamlda.documents import DocumentBatch
from streamlda.guarantee.noise import SecureNoise
from streamlda.model.evaluation import document_completion, matched_l1_error
from streamlda.simulate import PlantedLDA

#: d, topics and lengths of planted corpora.
PLANTED = {"n_features": 50, "n_components": 5, "topic_concentration": 0.2, "mean_length": 80}

#: Shares of alpha are uniform between these, normalised: with equal ones all eigenvalues of the
#: whitened tensor would be equal, and gamma_s zero.
SHARES = (0.5, 1.5)

EPSILONS, DELTA_2, ALPHAS = [0.1, 0.2, 0.5, 1.0, 2.0], 1e-5, (0.1, 10.0)

CONFIGURATIONS = ("DP-LDA 2", "DP-LDA 3", "DP-LDA 4")
UNNOISED = (known.UNNOISED, known.VI_UNNOISED)
LARGE = (known.ENGINE, known.ENGINE_REPLACE_ONE, known.WA16, *CONFIGURATIONS, known.DPVI, *UNNOISED)

#: Of a corpus of 8000 words.
CORPUS: Json = {"alpha_0": 0.01, "delta": 1e-4, "documents": 50_000, "held_out": 2000}

#: What Figure 4 calls a released bound.
BOUND = ", bound"

#: Table 2 of version 2: topics and words shown.
TABLE_TOPICS, TABLE_WORDS = 10, 6


# Tasks


@lru_cache(maxsize=1)
def planted(n: int, k: int, d: int, alpha_0: float, seed: int) -> tuple[PlantedLDA, DocumentBatch]:
    """Return a corpus whose topics are of unequal frequency, and its documents."""
    shares: Any = np.random.default_rng([seed, k]).uniform(*SHARES, size=k)
    alpha, names = alpha_0 * shares / shares.sum(), ("topic_concentration", "mean_length")
    corpus = PlantedLDA(k, d, alpha=alpha, **{name: PLANTED[name] for name in names}, seed=seed)
    return corpus, corpus.documents(n)


def sizes(parameters: Json) -> list[Any]:
    return [parameters[name] for name in ("documents", "n_components", "n_features", "alpha_0")]


def measured(
    parameters: Json, documents: DocumentBatch, seed: int, measure: Callable[[Any, Any], Any]
) -> Json:
    """Measure the topics and alpha of a contender for each epsilon, once if it uses none."""
    k, alpha_0, delta = (parameters[name] for name in ("n_components", "alpha_0", "delta"))
    contender, rows = known.CONTENDERS[parameters["line"]], []
    for epsilon in parameters["epsilons"]:
        if not rows or contender.claim != known.NONE:
            found = measure(*contender.fit(documents, k, alpha_0, epsilon, delta, seed))
        rows.append({"x": epsilon, "values": [found]})
    return {"rows": rows}


def dplda_figure_2(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure errors on a planted corpus."""
    corpus, documents = planted(*sizes(parameters), seed)

    def error(topics: Any, alpha: Any) -> float:
        return matched_l1_error(corpus.components, topics).mean

    return measured(parameters, documents, seed, error)


def dplda_figure_3(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure perplexities on a corpus."""
    train, held_out = (
        spaced(read_counts(inputs["counts"], part), parameters[size])
        for part, size in (("train", "documents"), ("held_out", "held_out"))
    )
    uniform = np.full(train.n_features, 1 / train.n_features)

    def perplexity(topics: Any, alpha: Any) -> float:
        return document_completion(held_out, topics, alpha, uniform).perplexity

    return measured(parameters, train, seed, perplexity)


def dplda_table_2(parameters: Json, inputs: Json, seed: int) -> Json:
    """List the most probable words of each topic that a contender publishes."""
    train = spaced(read_counts(inputs["counts"], "train"), parameters["documents"])
    words = read_words(inputs["counts"])

    def tops(topics: Any, alpha: Any) -> list[list[str]]:
        kept = topics[np.ptp(topics, axis=1) > 0]
        order = np.argsort(-kept, axis=1, kind="stable")[:, :TABLE_WORDS]
        return [[str(word) for word in words[top]] for top in order]

    return measured(parameters, train, seed, tops)


def dplda_figure_4(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure sigma_k and gamma_s of a planted corpus, and what Procedure 1 releases of them."""
    n, k, _, alpha_0 = sizes(parameters)
    _, documents = planted(*sizes(parameters), seed)
    steps = known.spectral_steps(documents, k, alpha_0, seed)
    found = {"sigma_k": float(steps.leading_pairs.values[-1]), "gamma_s": steps.factors.gap}
    chosen = papers.configuration("3")
    how: Json = {"mechanism": "gaussian", "accounted": "exact"}
    cells = {"gaussian_cells": 1, "laplace_cells": 2}
    plan = papers.make_plan(chosen, parameters["epsilon"], DELTA_2, **how, **cells)
    bounds = papers.procedure_1(chosen, papers.Facts(n, k, alpha_0, **found), plan, SecureNoise())
    line = parameters["line"]
    return {
        "rows": [
            {"panel": name, "line": said, "values": [value]}
            for name, truth in found.items()
            for said, value in ((line, truth), (f"{line}{BOUND}", getattr(bounds, name)))
        ]
    }


def spaced(documents: DocumentBatch, n: int) -> DocumentBatch:
    """Return n documents, evenly spaced; all of them if there are no more."""
    last = len(documents) - 1
    return documents.take(np.linspace(0, last, min(n, last + 1)).astype(np.intp))


# Figures and panels


def figures(result: Json, rivals: dict[str, tuple[str, ...]]) -> list[Figure]:
    """Count points where the best of some contenders is before DP-VI."""
    found = []
    for name, contenders in rivals.items():
        won = [
            min(mean(by_name[x][epsilon]) for x in contenders) < mean(theirs)
            for by_name in lines_of(result).values()
            for epsilon, theirs in by_name[known.DPVI].items()
        ]
        found.append(judge_count(f"points where {name} is before DP-VI", sum(won), len(won)))
    return found


def figures_t2(result: Json) -> list[Figure]:
    """Show the words of topics; the paper has those of all of its configurations."""
    (lines,), found = lines_of(result).values(), []
    for name, points in lines.items():
        ((topics,),) = points.values()
        asked = ("all", len(topics) == TABLE_TOPICS) if name in CONFIGURATIONS else ()
        words = "; ".join(map(" ".join, [[f"{len(topics)} of {TABLE_TOPICS}"], *topics]))
        found.append(Figure(f"topics published, {name}", words, *asked))
    return found


def figures_4(result: Json) -> list[Figure]:
    """Count how often Procedure 1 leaves a bound above 0, without which noise is infinite."""
    found = []
    for name, lines in lines_of(result).items():
        bounds = [points.values() for line, points in lines.items() if line.endswith(BOUND)]
        above = [value > 0 for values in bounds for each in values for value in each]
        found.append(judge_count(f"runs with released {name} above 0", sum(above), len(above)))
    return found


def planted_settings(
    documents: tuple[int, ...], alphas: tuple[float, ...], delta: float, names: Iterable[str]
) -> dict[str, Json]:
    return {
        f"{panel}: {name}": {
            **{**PLANTED, "panel": panel, "line": name, "documents": n, "alpha_0": alpha_0},
            **{"delta": delta, "epsilons": EPSILONS},
        }
        for n, alpha_0 in product(documents, alphas)
        for panel in [f"N = {n:,}, alpha_0 = {alpha_0:g}"]
        for name in names
    }


def corpus_settings(epsilons: list[float], *topics: int) -> dict[str, Json]:
    return {
        f"k = {k}: {name}": {
            **{**CORPUS, "panel": f"k = {k}", "line": name},
            **{"n_components": k, "epsilons": epsilons},
        }
        for k, name in product(topics, LARGE)
    }


RIVALS = {"the best of configurations 2 to 4": CONFIGURATIONS}
RIVALS_V2 = {name: (name,) for name in ("DP-LDA 1", *CONFIGURATIONS)}
DPLDA = [
    Reproduction(
        id="dplda-figure-2",
        question="DP-LDA is ahead of private variational Bayes, with the best configuration.",
        task=dplda_figure_2,
        settings=planted_settings((10_000, 100_000), ALPHAS, DELTA_2, known.CONTENDERS),
        fast={"documents": 10_000},
        figures=partial(figures, rivals=RIVALS),
        repeats=3,
    ),
    Reproduction(
        id="dplda-v2-figure-2",
        question="Every configuration is ahead of DP-VI (parts of its budget are equal here).",
        task=dplda_figure_2,
        # The paper also has 100,000 documents: ten times as long.
        settings=planted_settings(
            (1000, 10_000), (0.1, 1000.0), 1e-7, (*RIVALS_V2, known.DPVI, *UNNOISED)
        ),
        fast={"documents": 1000},
        figures=partial(figures, rivals=RIVALS_V2),
    ),
    Reproduction(
        id="dplda-figure-3",
        question="DP-LDA is ahead of private variational Bayes on a real corpus.",
        task=dplda_figure_3,
        settings=corpus_settings([0.5, 1.0, 2.0, 10.0], 10, 50),
        fast={"n_components": 10},
        figures=partial(figures, rivals=RIVALS),
        axes=("epsilon", "perplexity"),
        data=("corpus",),
    ),
    Reproduction(
        id="dplda-v2-table-2",
        question="Every configuration shows topics of readable words at epsilon 1.",
        task=dplda_table_2,
        settings=corpus_settings([1.0], TABLE_TOPICS),
        figures=figures_t2,
        panels=lambda result: [],
        data=("corpus",),
    ),
    Reproduction(
        id="dplda-figure-4",
        question="sigma_k and gamma_s against k: Procedure 1 releases the lower bounds that "
        "configurations 2 to 4 divide by.",
        task=dplda_figure_4,
        # With the epsilon of Procedure 1 as part of the whole.
        settings={
            f"alpha_0 = {alpha_0:g}, k = {k}": {
                **{"n_features": 500, "documents": 100_000, "epsilon": 1.0},
                **{"line": f"alpha_0 = {alpha_0:g}", "x": k, "n_components": k, "alpha_0": alpha_0},
            }
            for alpha_0, k in product(ALPHAS, (5, 10, 20, 30, 50))
        },
        fast={"n_components": 20},
        figures=figures_4,
        axes=("k", ""),
        scales=("linear", "symlog"),
        repeats=3,
    ),
]
