"""Figures 2 to 4 of DP-LDA, and Figure 2 and Table 2 of its version 2, with other contenders.

The paper does not say its alpha_0, topics or lengths of documents; `PLANTED` is what stands here.
Error is the mean L1 distance of a topic from the planted one, 0 to 2; perplexity is by document
completion, where every model is smoothed with 1 % of uniform words, the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from statistics import mean
from typing import Any

import numpy as np

from bench.corpus import read_counts, read_words
from bench.kinds import Case, Figure, Json, mark, markdown, series
from bench.papers.rule import judge_count
from bench.papers.runner import Line, Panel, Reproduction
from bench.private_contenders import (
    CONTENDERS,
    DPVI,
    ENGINE,
    ENGINE_REPLACE_ONE,
    NONE,
    UNNOISED,
    VI_UNNOISED,
    WA16,
    spectral_steps,
)
from bench.styles import SERIES, STYLES
from streamlda.documents import DocumentBatch
from streamlda.guarantee.noise import SecureNoise
from streamlda.model.evaluation import document_completion, matched_l1_error
from streamlda.papers.dplda.calibration import make_plan, procedure_1
from streamlda.papers.dplda.flow import configuration
from streamlda.papers.dplda.sensitivity import Facts
from streamlda.simulate import PlantedLDA

#: d, topics and lengths of planted corpora.
PLANTED = {"n_features": 50, "n_components": 5, "topic_concentration": 0.2, "mean_length": 80}

#: Shares of alpha are uniform between these, normalised: with equal ones all eigenvalues of the
#: whitened tensor would be equal, and gamma_s zero.
SHARES = (0.5, 1.5)

EPSILONS, DELTA_2 = [0.1, 0.2, 0.5, 1.0, 2.0], 1e-5
SIZES, ALPHAS = (100_000, 10_000), (0.1, 10.0)

#: Figure 2 of version 2: documents (the paper also has 100,000: ten times as long), alpha_0, delta.
SIZES_V2, ALPHAS_V2, DELTA_V2 = (1000, 10_000), (0.1, 1000.0), 1e-7

#: A corpus of 8000 words: documents, alpha_0, delta, topics; who can be run with it.
DOCUMENTS_3, FAST_DOCUMENTS_3, HELD_OUT_3, FAST_HELD_OUT_3 = 50_000, 5000, 2000, 500
ALPHA_3, DELTA_3, TOPICS_3, EPSILONS_3 = 0.01, 1e-4, (10, 50), [0.5, 1.0, 2.0, 10.0]
CONFIGURATIONS = ("DP-LDA 2", "DP-LDA 3", "DP-LDA 4")
LARGE = (ENGINE, ENGINE_REPLACE_ONE, WA16, *CONFIGURATIONS, UNNOISED, DPVI, VI_UNNOISED)
FAST_3 = (ENGINE, *CONFIGURATIONS, DPVI)

#: Table 2 of version 2: topics and words shown.
TABLE_TOPICS, TABLE_WORDS = 10, 6

#: Figure 4: words, numbers of topics, and the epsilon of Procedure 1 as part of the whole.
WORDS_4, TOPICS_4, EPSILON_4 = 500, (5, 10, 20, 30, 50), 1.0

#: Parameters that documents do not depend on.
LEARNING = ("contender", "epsilons", "delta")


# Tasks


def planted(parameters: Json, seed: int) -> Any:
    """Return a planted corpus whose topics are of unequal frequency."""
    k = parameters["n_components"]
    shares: Any = np.random.default_rng([seed, k]).uniform(*SHARES, size=k)
    return PlantedLDA(
        k,
        parameters["n_features"],
        alpha=parameters["alpha_0"] * shares / shares.sum(),
        topic_concentration=parameters["topic_concentration"],
        mean_length=parameters["mean_length"],
        seed=seed,
    )


@lru_cache(maxsize=1)
def planted_documents(parameters: str, seed: int) -> tuple[Any, DocumentBatch]:
    """Return a corpus and its documents, kept for the next contender."""
    made = json.loads(parameters)
    corpus = planted(made, seed)
    return corpus, corpus.documents(made["documents"])


def budgets(parameters: Json) -> list[float]:
    """Return the epsilons of a case; one is enough where none is used."""
    asked: list[float] = parameters["epsilons"]
    return asked[:1] if CONTENDERS[parameters["contender"]].claim == NONE else asked


def learned(parameters: Json, documents: DocumentBatch, epsilon: float, seed: int) -> Any:
    """Return topics and alpha of the contender of a case."""
    k, alpha_0, delta = (parameters[name] for name in ("n_components", "alpha_0", "delta"))
    return CONTENDERS[parameters["contender"]].fit(documents, k, alpha_0, epsilon, delta, seed)


def dplda_figure_2(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure errors of a contender on a planted corpus, one for each epsilon."""
    made = {key: value for key, value in parameters.items() if key not in LEARNING}
    corpus, documents = planted_documents(json.dumps(made), seed)
    topics = {x: learned(parameters, documents, x, seed)[0] for x in budgets(parameters)}
    return {mark(x): matched_l1_error(corpus.components, topics[x]).mean for x in topics}


def dplda_figure_3(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure perplexities of a contender on a corpus, one for each epsilon."""
    train, held_out = (
        spaced(read_counts(inputs["counts"], part), parameters[size])
        for part, size in (("train", "documents"), ("held_out", "held_out"))
    )
    uniform = np.full(train.n_features, 1 / train.n_features)
    frequencies = np.bincount(train.word_ids, train.counts, minlength=train.n_features)
    models = {"frequencies": (frequencies[None] / frequencies.sum(), np.ones(1))}
    for epsilon in budgets(parameters):
        models[mark(epsilon)] = learned(parameters, train, epsilon, seed)
    return {
        name: document_completion(held_out, *model, uniform).perplexity
        for name, model in models.items()
    }


def dplda_table_2(parameters: Json, inputs: Json, seed: int) -> Json:
    """List the most probable words of each topic that a contender publishes."""
    train = spaced(read_counts(inputs["counts"], "train"), parameters["documents"])
    topics, _ = learned(parameters, train, parameters["epsilons"][0], seed)
    words, kept = read_words(inputs["counts"]), topics[np.ptp(topics, axis=1) > 0]
    tops = np.argsort(-kept, axis=1, kind="stable")[:, :TABLE_WORDS]
    return {"words": [[str(words[i]) for i in top] for top in tops]}


def dplda_figure_4(parameters: Json, inputs: Json, seed: int) -> Json:
    """Measure sigma_k and gamma_s of a planted corpus, and what Procedure 1 releases of them."""
    documents = planted(parameters, seed).documents(parameters["documents"])
    k, alpha_0 = parameters["n_components"], parameters["alpha_0"]
    steps = spectral_steps(documents, k, alpha_0, seed)
    sigma_k, gamma_s = float(steps.leading.values[-1]), steps.factors.gap
    facts = Facts(len(documents), k, alpha_0, sigma_k=sigma_k, gamma_s=gamma_s)
    chosen = configuration("3")
    how: Json = {"mechanism": "gaussian", "accounted": "exact"}
    cells = {"gaussian_cells": 1, "laplace_cells": 2}
    plan = make_plan(chosen, parameters["epsilon"], DELTA_2, **how, **cells)
    bounds = procedure_1(chosen, facts, plan, SecureNoise())
    return {
        **{"sigma_k": sigma_k, "gamma_s": gamma_s},
        **{"released sigma_k": bounds.sigma_k, "released gamma_s": bounds.gamma_s},
    }


def spaced(documents: DocumentBatch, n: int) -> DocumentBatch:
    """Return n documents, evenly spaced; all of them if there are no more."""
    if len(documents) <= n:
        return documents
    rows = np.linspace(0, len(documents) - 1, n).astype(int)
    return DocumentBatch.from_matrix(documents.to_csr()[rows])


# Cases


def setting(parameters: Json) -> str:
    if "held_out" in parameters:
        return f"k = {parameters['n_components']}"
    return f"N = {parameters['documents']:,}, alpha_0 = {parameters['alpha_0']:g}"


def cases_of(task: str, names: Iterable[str], parameters: Json) -> list[Case]:
    """Return a case for each contender."""
    where = setting(parameters)
    return [Case(f"{where}: {name}", task, {**parameters, "contender": name}) for name in names]


def planted_cases(
    quick: bool, sizes: Iterable[int], alphas: Iterable[float], delta: float, names: Iterable[str]
) -> list[Case]:
    budget = {"delta": delta, "epsilons": EPSILONS[::2] if quick else EPSILONS}
    found = []
    for n in sizes:
        for alpha_0 in alphas:
            made = {**PLANTED, "documents": n, "alpha_0": alpha_0, **budget}
            found += cases_of("dplda_figure_2", names, made)
    return found


def cases_2(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return planted_cases(quick, SIZES[1:] if quick else SIZES, ALPHAS, DELTA_2, CONTENDERS)


def cases_v2(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    names = ("DP-LDA 1", *CONFIGURATIONS, DPVI, UNNOISED, VI_UNNOISED)
    return planted_cases(quick, SIZES_V2[:1] if quick else SIZES_V2, ALPHAS_V2, DELTA_V2, names)


def corpus_cases(task: str, quick: bool, k: int, epsilons: list[float]) -> list[Case]:
    made = {
        **{"n_components": k, "alpha_0": ALPHA_3, "delta": DELTA_3, "epsilons": epsilons},
        "held_out": FAST_HELD_OUT_3 if quick else HELD_OUT_3,
        "documents": FAST_DOCUMENTS_3 if quick else DOCUMENTS_3,
    }
    return cases_of(task, FAST_3 if quick else LARGE, made)


def cases_3(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    epsilons = EPSILONS_3[:2] if quick else EPSILONS_3
    sizes = TOPICS_3[:1] if quick else TOPICS_3
    return [case for k in sizes for case in corpus_cases("dplda_figure_3", quick, k, epsilons)]


def cases_t2(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return corpus_cases("dplda_table_2", quick, TABLE_TOPICS, [1.0])


def cases_4(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    common = {**PLANTED, "n_features": WORDS_4, "documents": SIZES[0], "epsilon": EPSILON_4}
    found = []
    for alpha_0 in ALPHAS:
        for k in TOPICS_4[:3] if quick else TOPICS_4:
            made = {**common, "n_components": k, "alpha_0": alpha_0}
            found.append(Case(f"alpha_0 = {alpha_0:g}, k = {k}", "dplda_figure_4", made))
    return found


# Figures


def settings(result: Json) -> dict[str, dict[str, dict[float, list[float]]]]:
    """Return the values of each contender by epsilon, over the repeats, for each setting."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for label, each in result["cases"].items():
        parameters = each["parameters"]
        values = {x: series(result, label, mark(x)) for x in budgets(parameters)}
        if CONTENDERS[parameters["contender"]].claim == NONE:
            values = dict.fromkeys(parameters["epsilons"], next(iter(values.values())))
        found.setdefault(setting(parameters), {})[parameters["contender"]] = values
    return found


def ahead(result: Json, name: str, contenders: Iterable[str]) -> Figure:
    """Count points where the best of some contenders is before DP-VI."""
    found = [
        min(mean(by_name[x][epsilon]) for x in contenders) < mean(theirs)
        for by_name in settings(result).values()
        for epsilon, theirs in by_name[DPVI].items()
    ]
    return judge_count(f"points where {name} is before DP-VI", sum(found), len(found))


def compared(result: Json) -> list[Figure]:
    """Judge configurations against DP-VI, and show this engine beside the best of all."""
    found = [ahead(result, "the best of configurations 2 to 4", CONFIGURATIONS)]
    for where, by_name in settings(result).items():
        rivals = [x for x in by_name if CONTENDERS[x].claim != NONE and x.startswith("DP-LDA")]
        worst = max(
            mean(values) / min(mean(by_name[x][epsilon]) for x in (*rivals, DPVI))
            for epsilon, values in by_name[ENGINE].items()
        )
        found.append(Figure(f"largest of {ENGINE} over the best other, {where}", f"{worst:.3f}"))
    return found


def figures_v2(result: Json) -> list[Figure]:
    """Judge each configuration against DP-VI."""
    return [ahead(result, name, (name,)) for name in ("DP-LDA 1", *CONFIGURATIONS)]


def words_by_contender(result: Json) -> dict[str, list[list[str]]]:
    """Return the words of each topic that is published."""
    return {
        case["parameters"]["contender"]: series(result, label, "words")[0]
        for label, case in result["cases"].items()
    }


def figures_t2(result: Json) -> list[Figure]:
    """Count topics that are published; the paper shows words of all of its configurations."""
    found = []
    for name, topics in words_by_contender(result).items():
        figure = Figure(f"topics published, {name}", f"{len(topics)} of {TABLE_TOPICS}")
        if name in CONFIGURATIONS:
            figure = figure._replace(target="all", met=len(topics) == TABLE_TOPICS)
        found.append(figure)
    return found


def words_of(result: Json) -> str:
    """Return the table: words of the topics of each contender."""
    cells = [
        [name, "; ".join(" ".join(words) for words in topics) or "nothing"]
        for name, topics in words_by_contender(result).items()
    ]
    return markdown(["contender", "words of each topic, epsilon 1"], cells) + "\n"


def figures_4(result: Json) -> list[Figure]:
    """Count how often Procedure 1 leaves a bound above 0, without which noise is infinite."""
    found = []
    for name in ("released sigma_k", "released gamma_s"):
        values = [run["measured"][name] for run in result["runs"]]
        won = sum(value > 0 for value in values)
        found.append(judge_count(f"runs with {name} above 0", won, len(values)))
    return found


# Panels


def panels(result: Json) -> list[Panel]:
    """One panel a setting, one line a contender, one dot a run."""
    measure = "perplexity" if result["scenario"] == "dplda-figure-3" else "L1 error of a topic"
    found = []
    for where, by_name in settings(result).items():
        lines = [Line(name, values, STYLES[name], dots=True) for name, values in by_name.items()]
        found.append(Panel(where, "epsilon", measure, lines))
    return found


def panels_4(result: Json) -> list[Panel]:
    """sigma_k and gamma_s against k, and what Procedure 1 releases of them."""
    found = []
    for truth in ("sigma_k", "gamma_s"):
        lines = []
        for style, alpha_0 in zip(SERIES, ALPHAS, strict=False):
            for name, ending, kind in ((truth, "", "-"), (f"released {truth}", ", bound", "--")):
                points = {
                    each["parameters"]["n_components"]: series(result, label, name)
                    for label, each in result["cases"].items()
                    if each["parameters"]["alpha_0"] == alpha_0
                }
                label = f"alpha_0 = {alpha_0:g}{ending}"
                lines.append(Line(label, points, style._replace(line=kind)))
        found.append(Panel(truth, "k", truth, lines, scales=("linear", "symlog")))
    return found


DPLDA = [
    Reproduction(
        id="dplda-figure-2",
        claim="DP-LDA is ahead of private variational Bayes, with the best configuration.",
        task=dplda_figure_2,
        cases=cases_2,
        figures=compared,
        panels=panels,
        repeats=3,
    ),
    Reproduction(
        id="dplda-v2-figure-2",
        claim="Every configuration is ahead of DP-VI (parts of its budget are equal here).",
        task=dplda_figure_2,
        cases=cases_v2,
        figures=figures_v2,
        panels=panels,
    ),
    Reproduction(
        id="dplda-figure-3",
        claim="DP-LDA is ahead of private variational Bayes on a real corpus.",
        task=dplda_figure_3,
        cases=cases_3,
        figures=compared,
        panels=panels,
        data=("corpus",),
    ),
    Reproduction(
        id="dplda-v2-table-2",
        claim="Every configuration shows topics of readable words at epsilon 1.",
        task=dplda_table_2,
        cases=cases_t2,
        figures=figures_t2,
        data=("corpus",),
        more=words_of,
    ),
    Reproduction(
        id="dplda-figure-4",
        claim="sigma_k and gamma_s against k: Procedure 1 releases the lower bounds that "
        "configurations 2 to 4 divide by.",
        task=dplda_figure_4,
        cases=cases_4,
        figures=figures_4,
        panels=panels_4,
        repeats=3,
    ),
]
