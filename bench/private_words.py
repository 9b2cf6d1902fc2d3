"""Words chosen privately: how many come out, and how much of the text they are."""

from __future__ import annotations

from statistics import mean

from bench.kinds import (
    Case,
    Figure,
    Json,
    Scenario,
    at_least,
    mark,
    markdown,
    series,
)
from bench.private import DELTA

EPSILONS = [0.5, 1.0, 3.0]
SIZES = [2000, 20_000, 100_000]

#: At epsilon 1 from 20,000 documents.
LEAST_WORDS = 600


def label(documents: int) -> str:
    return f"{documents:,} documents"


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [
        Case(
            label(documents),
            "private_words",
            {"documents": documents, "epsilons": EPSILONS, "delta": DELTA},
        )
        for documents in ([300] if quick else SIZES)
    ]


def figures(result: Json) -> list[Figure]:
    found = []
    for case in result["cases"]:
        words = mean(series(result, case, "words, epsilon 1"))
        name = f"words chosen at epsilon 1 from {case}"
        judged = at_least(name, words, LEAST_WORDS, "{:,.0f}")
        found.append(judged if case == label(20_000) else Figure(name, judged.measured))
    return found


def details(result: Json) -> str:
    rows = []
    for case in result["cases"]:
        for how in ("words", "one round"):
            cells = []
            for epsilon in EPSILONS:
                words, share = (
                    mean(series(result, case, f"{key}, {mark(epsilon)}"))
                    for key in (how, f"share of {how}")
                )
                cells.append(f"{words:,.0f} ({share:.1%})")
            rows.append([case, {"words": "two rounds"}.get(how, how), *cells])
    return markdown(["chosen from", "by", *map(mark, EPSILONS)], rows)


PRIVATE_WORDS = [
    Scenario(
        "private-words",
        "How many words does a private choice find, and how much of the text are they?",
        3,
        cases,
        figures,
        needs_corpus=True,
        details=details,
    )
]
