"""Topics that are known: a small published test, four topics of unequal weights over 80 words."""

from __future__ import annotations

from functools import partial
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np

from bench.contenders import Contender, gensim, scikit_learn, tomotopy
from bench.contenders_elsewhere import anchortopics, topica
from bench.entrants import DEFAULT, ENTRANTS, Entrant, PlainCounts, missing
from bench.kinds import Case, Figure, Json, Scenario, at_least, series

if TYPE_CHECKING:
    from bench.measure import Meter

ALPHA = (0.5, 0.25, 0.15, 0.1)

#: Batches suit 2,500 documents: with thousands in one, an online method would hardly move.
ONLINE = {"batch_documents": 128}
CONTENDERS: dict[str, Entrant] = {
    DEFAULT: ENTRANTS[DEFAULT],
    "tomotopy": Entrant("tomotopy", tomotopy, {"sweeps": 200}),
    "scikit-learn": Entrant("scikit-learn", scikit_learn, {"passes": 10, **ONLINE}),
    "gensim": Entrant("gensim", gensim, {"passes": 10, "dtype": "int32", **ONLINE}),
    "topica-sparse": Entrant("topica", topica, {"model": "LDA", "burn_in": 50, "fit_iters": 200}),
    "topica-online": Entrant("topica", topica, {"model": "OnlineLDA", "fit_iters": 10}),
    "topica-tensor": Entrant("topica", topica, {"model": "TensorLDA"}),
    "anchortopics": Entrant("anchortopics", anchortopics, {}),
}
#: Cosine from which on a topic is taken as found.
FOUND = 0.99


def known_truth(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Fit documents whose topics are known; return how near each topic came, and its weight."""
    from scipy.optimize import linear_sum_assignment

    from streamlda.simulate import PlantedLDA

    contender: Contender = CONTENDERS[parameters["contender"]].make(
        len(ALPHA), seed, **parameters["options"]
    )
    meter.started()
    shape = {name: parameters[name] for name in ("topic_concentration", "mean_length")}
    corpus = PlantedLDA(len(ALPHA), parameters["n_features"], alpha=ALPHA, **shape, seed=seed)
    documents = corpus.documents(parameters["documents"])
    names = ("counts", "word_ids", "row_pointers", "n_features")
    held = contender.load(PlainCounts(*(getattr(documents, name) for name in names)))
    with meter.timed():
        components, alpha = contender.fit(held)
    unit = [
        rows / np.linalg.norm(rows, axis=1)[:, None] for rows in (corpus.components, components)
    ]
    cosines = unit[0] @ unit[1].T
    mine, theirs = linear_sum_assignment(-cosines)
    l1 = np.abs(corpus.components[mine] - components[theirs]).sum(axis=1)
    return {
        "documents": len(documents),
        "cosines": cosines[mine, theirs].tolist(),
        "l1_error": float(l1.mean()),
        "weights": (alpha[theirs] / alpha.sum()).tolist(),
    }


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {
        **{"n_features": 80, "topic_concentration": 0.1, "mean_length": 100},
        **{"documents": 1000 if quick else 2500, "cores": 1},
    }
    return [
        Case(label, "known_truth", {"contender": label, "options": entrant.options, **shared})
        for label, entrant in CONTENDERS.items()
        if missing(entrant.library) is None
    ]


def figures(result: Json) -> list[Figure]:
    found = []
    for label in result["cases"]:
        cosines = series(result, label, "cosines")
        name = f"mean cosine of topics found and planted, {label}"
        near = at_least(name, mean(map(mean, cosines)), FOUND, "{:.4f}")
        found.append(near if label == DEFAULT else near._replace(target="-", met=None))
    return found


def details(result: Json) -> str:
    """Return a row for each contender; weights are those of the last seed."""
    lines = [
        "| contender | processor seconds | mean cosine | least | mean L1 | weights |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        f"| planted | | | | | {' '.join(f'{weight:.2f}' for weight in ALPHA)} |",
    ]
    for label in result["cases"]:
        of_case = partial(series, result, label)
        cosines = of_case("cosines")
        weights = " ".join(f"{weight:.2f}" for weight in of_case("weights")[-1])
        lines.append(
            f"| {label} | {median(of_case('cpu_seconds')):.2f} | {mean(map(mean, cosines)):.4f} "
            f"| {min(map(min, cosines)):.4f} | {mean(of_case('l1_error')):.3f} | {weights} |"
        )
    return "\n".join(lines) + "\n"


KNOWN_TRUTH_TASKS = (known_truth,)

KNOWN_TRUTH = [
    Scenario(
        "known-truth",
        "How near do topics come to four planted ones of unequal weights, beside other libraries?",
        3,
        cases,
        figures,
        details=details,
    )
]
