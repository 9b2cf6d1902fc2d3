"""Forecasts of `streamlda plan`, beside what comes."""

from __future__ import annotations

from functools import cache
from statistics import mean

from bench.kinds import (
    Case,
    Figure,
    Json,
    Scenario,
    at_most,
    mark,
    markdown,
    series,
)
from bench.measure import VOCABULARY_SIZE
from bench.private import variant
from streamlda.private.plan import Plan
from streamlda.private.settings import PrivateSettings

TEXT_DOCUMENTS, TEXT_TOPICS, TEXT_EPSILONS = [20_000, 60_000, 195_000], [10, 40], [1.0, 3.0]


def plan_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [
        Case(
            f"text, {n:,} documents, {k} topics, {mark(epsilon)}",
            "private_corpus",
            {
                **{"n_components": k, "vocabulary_size": VOCABULARY_SIZE, "documents": n},
                **variant("private", epsilon),
            },
        )
        for n in TEXT_DOCUMENTS[: 1 if quick else None]
        for k in TEXT_TOPICS
        for epsilon in TEXT_EPSILONS
    ]


@cache
def plan_of(n_components: int, n_features: int, epsilon: float, delta: float, n: int) -> Plan:
    """Return the plan of a window of so many documents; once, for every page that shows it."""
    settings = PrivateSettings(
        n_components=n_components,
        n_features=n_features,
        epsilon=epsilon,
        delta=delta,
        documents_per_snapshot=n,
    )
    return Plan.of(settings, n)


def planned(result: Json, label: str) -> Plan:
    """Return the plan of a case, over the documents that it had."""
    p = result["cases"][label]["parameters"]
    documents = int(series(result, label, "documents")[0])
    return plan_of(p["n_components"], VOCABULARY_SIZE, p["epsilon"], p["delta"], documents)


def plan_rows(result: Json) -> list[tuple[str, float, float]]:
    """Return of each case: its label, the topics that were expected, and those that came."""
    rows = []
    for label in result["cases"]:
        expected = planned(result, label).topics_shown
        assert expected is not None
        rows.append((label, max(1.0, expected), mean(series(result, label, "topics"))))
    return rows


def plan_figures(result: Json) -> list[Figure]:
    factor = max(max(a / b, b / a) for _, a, b in plan_rows(result))
    what = "largest factor to what the plan expects, topics of text shown"
    return [at_most(what, factor, 2, "{:.2f}")]


def plan_details(result: Json) -> str:
    rows = [[label, f"{a:.2g}", f"{b:.2g}"] for label, a, b in plan_rows(result)]
    return markdown(["run", "expected", "measured"], rows)


PRIVATE_PLAN = [
    Scenario(
        "private-plan",
        "Does `streamlda plan` expect what comes?",
        5,
        plan_cases,
        plan_figures,
        needs_corpus=True,
        details=plan_details,
    ),
]
