"""How far topics are from planted ones: by default, and the better of spectral and refined."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bench.data import planted
from bench.kinds import Case, Figure, Json, Scenario, at_most, series
from bench.measure import Meter

#: Planted topics and alpha_0, and documents. What a fit is given for alpha_0: the planted one, its
#: estimate, or the default, which is false but in one column.
TOPICS, ALPHA_0S, DOCUMENTS = (2, 5, 20, 50), (0.02, 0.2, 1.0, 5.0, 20.0, 50.0), (2000, 20_000)
GIVEN = ("planted", "auto", "default")
MOST_DOCUMENTS = 100_000


def error_grid(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Fit one planted corpus three times; return the matched l1 error of the topics of each."""
    from streamlda import StreamLDA
    from streamlda.model.evaluation import matched_l1_error
    from streamlda.refinement.schedule import passes_for

    meter.started()
    corpus = planted(parameters, seed)
    X = corpus.documents(parameters["documents"]).to_csr()
    given: Any = {"planted": parameters["alpha_0"], "auto": "auto", "default": 1.0}
    ways: Any = {"spectral": 0, "refined": passes_for(X.shape[0]), "chosen": "auto"}
    errors = {}
    with meter.timed():
        for name, passes in ways.items():
            lda = StreamLDA(
                parameters["n_components"],
                alpha_0=given[parameters["given"]],
                refinement_passes=passes,
                random_state=seed,
            )
            topics = lda.fit(X).to_model().components
            errors[f"{name}_error"] = matched_l1_error(corpus.components, topics).mean
    least = min(errors["spectral_error"], errors["refined_error"])
    return {**errors, "documents": X.shape[0], "factor": errors["chosen_error"] / least}


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {"n_features": 300, "topic_concentration": 0.05, "mean_length": 80}
    cells = [(n, K, a) for n in DOCUMENTS for K in TOPICS for a in ALPHA_0S]
    cells += [(MOST_DOCUMENTS, 20, a) for a in (0.2, 5.0, 50.0)]
    if quick:
        cells = [(500, 2, 5.0), (500, 5, 0.2)]
    return [
        Case(
            f"{given} alpha_0, {K} topics, {a:g}, {n}",
            "error_grid",
            {**shared, "documents": n, "n_components": K, "alpha_0": a, "given": given},
        )
        for given in GIVEN
        for n, K, a in cells
        if given != "default" or a != 1.0
    ]


def figures(result: Json) -> list[Figure]:
    """Of each cell the mean of its seeds: the errors of one are within a tenth by chance alone."""
    found = []
    for given in GIVEN:
        own = [case for case in result["cases"] if case.startswith(given)]
        factors = {case: mean(series(result, case, "factor")) for case in own}
        worst = max(factors, key=lambda case: factors[case])
        beyond = sum(factor > 1.1 for factor in factors.values())
        found.append(
            at_most(f"largest factor to the better, {worst}", factors[worst], 1.1, "{:.2f}")
        )
        found.append(Figure(f"cells beyond 1.1, {given} alpha_0", f"{beyond} of {len(own)}"))
    return found


GRID_TASKS = (error_grid,)

GRID = [
    Scenario(
        "error-grid",
        "Are topics by default no worse than the better of spectral and refined ones?",
        3,
        cases,
        figures,
    )
]
