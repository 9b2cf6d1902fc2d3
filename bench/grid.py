"""Distances of topics from planted ones: by default, and the better of spectral and refined."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, median
from typing import Any, TypeAlias

from bench.data import planted
from bench.kinds import Case, Figure, Json, Scenario, at_most, markdown, series
from bench.measure import Meter

#: Planted topics and alpha_0, and documents. What a fit is given for alpha_0: the default, which is
#: false but in one column, its estimate, or the planted one.
TOPICS, ALPHA_0S, DOCUMENTS = (2, 5, 20, 50), (0.02, 0.2, 1.0, 5.0, 20.0, 50.0), (2000, 20_000)
GIVEN = ("default", "auto", "planted")
MOST_DOCUMENTS = 100_000

#: Documents of `error-growth`.
GROWTH = 5000, 20_000, 60_000, 200_000

#: Errors within this factor of the better one are as good.
WITHIN = 1.1

Cell: TypeAlias = tuple[str, int, int, float]


def error_grid(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Fit some planted corpora three times each; return the matched l1 errors of the topics."""
    from streamlda import StreamLDA
    from streamlda.model.evaluation import matched_l1_error
    from streamlda.refinement.schedule import passes_for

    meter.started()
    documents, errors = parameters["documents"], []
    with meter.timed():
        for alpha_0 in parameters["alpha_0s"]:
            corpus = planted({**parameters, "alpha_0": alpha_0}, seed)
            X = corpus.documents(documents).to_csr()
            given: Any = {"planted": alpha_0, "auto": "auto", "default": 1.0}
            ways: Any = {"default": "auto", "spectral": 0, "refined": passes_for(documents)}
            found = {}
            for name, passes in ways.items():
                lda = StreamLDA(
                    parameters["n_components"],
                    alpha_0=given[parameters["given"]],
                    refinement_passes=passes,
                    random_state=seed,
                )
                topics = lda.fit(X).to_model().components
                found[name] = matched_l1_error(corpus.components, topics).mean
            errors.append(found)
    return {"documents": documents, "errors": errors}


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {"n_features": 300, "topic_concentration": 0.05, "mean_length": 80}
    rows: list[tuple[int, int, tuple[float, ...]]]
    rows = [(n, K, ALPHA_0S) for n in DOCUMENTS for K in TOPICS]
    rows.append((MOST_DOCUMENTS, 20, (0.2, 5.0, 50.0)))
    if quick:
        rows = [(500, 2, (5.0,)), (500, 5, (0.2,))]
    return [
        Case(
            f"{given} alpha_0, {K} topics, {n} documents",
            "error_grid",
            {
                **shared,
                "documents": n,
                "n_components": K,
                "alpha_0s": [a for a in alpha_0s if given != "default" or a != 1.0],
                "given": given,
            },
        )
        for given in GIVEN
        for n, K, alpha_0s in rows
    ]


def errors_by_cell(result: Json) -> dict[Cell, dict[str, float]]:
    """Return the mean error of each way over the seeds: one is within a tenth by chance alone."""
    found: dict[Cell, dict[str, float]] = {}
    for name, case in result["cases"].items():
        own = case["parameters"]
        errors = [run["measured"]["errors"] for run in result["runs"] if run["case"] == name]
        for i, alpha_0 in enumerate(own["alpha_0s"]):
            found[own["given"], own["documents"], own["n_components"], alpha_0] = {
                way: mean(seed[i][way] for seed in errors) for way in errors[0][i]
            }
    return found


def factor(errors: dict[str, float]) -> float:
    """Return how many times the better of spectral and refined errors the default has."""
    return errors["default"] / min(errors["spectral"], errors["refined"])


def figures(result: Json) -> list[Figure]:
    found, cells = [], errors_by_cell(result)
    for given in GIVEN:
        factors = {cell: factor(errors) for cell, errors in cells.items() if cell[0] == given}
        _, n, K, alpha_0 = worst = max(factors, key=lambda cell: factors[cell])
        place = f"{K} topics, planted alpha_0 {alpha_0:g}, {n:,} documents"
        found.append(
            at_most(f"largest factor, {given} alpha_0 ({place})", factors[worst], WITHIN, "{:.2f}")
        )
        good = sum(one <= WITHIN for one in factors.values())
        found.append(Figure(f"cells within {WITHIN}, {given} alpha_0", f"{good} of {len(factors)}"))
    return found


def details(result: Json) -> str:
    """Return the table of all cells."""
    rows = []
    for (given, n, K, alpha_0), errors in errors_by_cell(result).items():
        times = f"{factor(errors):.2f}"
        rows.append(
            [
                *(given, f"{n:,}", str(K), f"{alpha_0:g}"),
                *(f"{errors[way]:.3f}" for way in ("default", "spectral", "refined")),
                times if factor(errors) <= WITHIN else f"**{times}**",
            ]
        )
    header = ["alpha_0 given", "documents", "topics", "planted", "default", "spectral", "refined"]
    return markdown([*header, "factor"], rows)


# error-growth


def error_growth(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Fit the first 5,000 planted documents, the first 20,000, and so on, by default."""
    from streamlda import StreamLDA
    from streamlda.model.evaluation import matched_l1_error

    meter.started()
    corpus = planted(parameters, seed)
    X = corpus.documents(parameters["sizes"][-1]).to_csr()
    errors = []
    with meter.timed():
        for n in parameters["sizes"]:
            lda = StreamLDA(parameters["n_components"], random_state=seed).fit(X[:n])
            errors.append(matched_l1_error(corpus.components, lda.to_model().components).mean)
    return {"errors": errors}


def growth_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {
        "n_features": 1000,
        "topic_concentration": 0.05,
        "mean_length": 60,
        "sizes": [500, 1000] if quick else [*GROWTH],
    }
    return [
        Case(f"{K} topics, alpha_0 {alpha_0:g}", "error_growth", {**shared, **own})
        for K in (5, 20, 50)
        for alpha_0 in (0.1, 2.0, 20.0)
        if (own := {"n_components": K, "alpha_0": alpha_0})
    ]


def growth_figures(result: Json) -> list[Figure]:
    found = []
    for case in result["cases"]:
        errors = [median(each) for each in zip(*series(result, case, "errors"), strict=True)]
        worst = max(after / before for before, after in pairwise(errors))
        said = ", ".join(f"{error:.3f}" for error in errors)
        name = f"largest error / that of fewer documents, {case} ({said})"
        found.append(at_most(name, worst, 1.0, "{:.2f}"))
    return found


GRID_TASKS = error_grid, error_growth

GRID = [
    Scenario(
        "error-grid",
        "Are topics by default no worse than the better of spectral and refined ones?",
        2,
        cases,
        figures,
        details=details,
    ),
    Scenario(
        "error-growth",
        "Do more documents of planted topics never make them worse?",
        3,
        growth_cases,
        growth_figures,
    ),
]
