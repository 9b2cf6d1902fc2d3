"""What is measured for Figures 2 to 4 of DP-LDA."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.kinds import Json, mark
from bench.private_contenders import CONTENDERS, NONE, spectral_steps

if TYPE_CHECKING:
    from streamlda.documents import DocumentBatch

#: Shares of alpha are uniform between these, normalised: with equal ones all eigenvalues of the
#: whitened tensor would be equal, and gamma_s zero.
SHARES = (0.5, 1.5)

#: Parameters that documents do not depend on.
LEARNING = ("contender", "epsilons", "delta")

#: Of the planted corpora.
DELTA_2 = 1e-5


def planted(parameters: Json, seed: int) -> Any:
    """Return a planted corpus whose topics are of unequal frequency."""
    from streamlda.simulate import PlantedLDA

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
def _corpus(parameters: str, seed: int) -> tuple[Any, DocumentBatch]:
    """Return a corpus and its documents, kept for the next contender."""
    made = json.loads(parameters)
    corpus = planted(made, seed)
    return corpus, corpus.documents(made["documents"])


def budgets(parameters: Json) -> list[float]:
    """Return the epsilons of a case; one is enough where none is used."""
    asked: list[float] = parameters["epsilons"]
    return asked[:1] if CONTENDERS[parameters["contender"]].claim == NONE else asked


def dplda_figure_2(parameters: Json, inputs: Json, seed: int) -> Json:
    """Errors of a contender on a planted corpus, one for each epsilon; the corpus has the seed."""
    from streamlda.model.evaluation import matched_l1_error

    made = {key: value for key, value in parameters.items() if key not in LEARNING}
    corpus, documents = _corpus(json.dumps(made), seed)
    fit = CONTENDERS[parameters["contender"]].fit
    k, alpha_0, delta = (parameters[name] for name in ("n_components", "alpha_0", "delta"))
    found = {}
    for epsilon in budgets(parameters):
        topics, _ = fit(documents, k, alpha_0, epsilon, delta, seed)
        found[mark(epsilon)] = matched_l1_error(corpus.components, topics).mean
    return found


def dplda_figure_3(parameters: Json, inputs: Json, seed: int) -> Json:
    """Perplexities of a contender on a corpus, one for each epsilon."""
    from bench.corpus import read_counts
    from streamlda.model.evaluation import document_completion

    train, held_out = (
        spaced(read_counts(inputs["counts"], part), parameters[size])
        for part, size in (("train", "documents"), ("held_out", "held_out"))
    )
    fit = CONTENDERS[parameters["contender"]].fit
    k, alpha_0, delta = (parameters[name] for name in ("n_components", "alpha_0", "delta"))
    uniform = np.full(train.n_features, 1 / train.n_features)
    found = {}
    for epsilon in budgets(parameters):
        topics, alpha = fit(train, k, alpha_0, epsilon, delta, seed)
        found[mark(epsilon)] = document_completion(held_out, topics, alpha, uniform).perplexity
    frequencies = np.bincount(train.word_ids, train.counts, minlength=train.n_features)
    one = document_completion(
        held_out, frequencies[None] / frequencies.sum(), np.ones(1), uniform
    ).perplexity
    return {**found, "frequencies": one}


def spaced(documents: DocumentBatch, n: int) -> DocumentBatch:
    """Return n documents, evenly spaced; all of them if there are no more."""
    from streamlda.documents import DocumentBatch

    if len(documents) <= n:
        return documents
    rows = np.linspace(0, len(documents) - 1, n).astype(int)
    return DocumentBatch.from_matrix(documents.to_csr()[rows])


def dplda_figure_4(parameters: Json, inputs: Json, seed: int) -> Json:
    """sigma_k and gamma_s of a planted corpus, and what Procedure 1 releases of them."""
    from streamlda.papers.dplda.calibration import make_plan, procedure_1
    from streamlda.papers.dplda.flow import configuration
    from streamlda.papers.dplda.sensitivity import Facts
    from streamlda.privacy.noise import SecureNoise

    documents = planted(parameters, seed).documents(parameters["documents"])
    k, alpha_0 = parameters["n_components"], parameters["alpha_0"]
    steps = spectral_steps(documents, k, alpha_0, seed)
    sigma_k, gamma_s = float(steps.leading.values[-1]), steps.factors.gap
    facts = Facts(len(documents), k, alpha_0, sigma_k=sigma_k, gamma_s=gamma_s)
    chosen = configuration("3")
    plan = make_plan(
        chosen,
        parameters["epsilon"],
        DELTA_2,
        mechanism="gaussian",
        accounted="exact",
        gaussian_cells=1,
        laplace_cells=2,
    )
    bounds = procedure_1(chosen, facts, plan, SecureNoise())
    return {
        **{"sigma_k": sigma_k, "gamma_s": gamma_s},
        **{"released sigma_k": bounds.sigma_k, "released gamma_s": bounds.gamma_s},
    }


DPLDA_TASKS = (dplda_figure_2, dplda_figure_3, dplda_figure_4)
