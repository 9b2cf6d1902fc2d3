"""Scenarios: cases to measure, and figures that are drawn from the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

Json = dict[str, Any]


class Case(NamedTuple):
    """One thing to measure: a task of `bench.tasks` and all that it depends on but the seed."""

    label: str
    task: str
    parameters: Json


class Figure(NamedTuple):
    """One number of a result beside what was asked; `met` is None where nothing was."""

    name: str
    measured: str
    target: str = "-"
    met: bool | None = None


@dataclass(frozen=True)
class Scenario:
    id: str
    question: str
    repeats: int
    cases: Callable[[bool, tuple[str, ...]], list[Case]]
    figures: Callable[[Json], list[Figure]]
    contenders: tuple[str, ...] = ()
    needs_corpus: bool = False
    #: Whether the documents of --corpus are taken where they are given.
    takes_corpus: bool = False
    #: What else its page shows: Markdown from a result, without the line of its origin.
    details: Callable[[Json], str] | None = None
    #: What it is measured by: `python -m bench COMMAND`.
    command: str = "run"
    #: Whether its targets know themselves what small sizes cannot decide.
    judges_small: bool = False


def series(result: Json, case: str, key: str) -> list[Any]:
    """Return a measured value over the repeats of a case."""
    return [run["measured"][key] for run in result["runs"] if run["case"] == case]


def at_most(name: str, value: float, limit: float, form: str) -> Figure:
    return Figure(name, form.format(value), "<= " + form.format(limit), value <= limit)


def at_least(name: str, value: float, limit: float, form: str) -> Figure:
    return Figure(name, form.format(value), ">= " + form.format(limit), value >= limit)


def within(name: str, ratio: float, share: float) -> Figure:
    """Judge a ratio that should be 1."""
    target = f"1 within {share:.0%}"
    return Figure(name, f"{ratio:.3f}", target, 1 - share <= ratio <= 1 + share)


def documents_per_second(result: Json, case: str) -> list[float]:
    pairs = zip(series(result, case, "documents"), series(result, case, "fit_seconds"), strict=True)
    return [documents / seconds for documents, seconds in pairs]


def judged(scenario: Scenario, result: Json) -> list[Figure]:
    """Return the figures of a result; small sizes reach no target, so theirs are not judged."""
    found = scenario.figures(result)
    if scenario.judges_small or not result["quick"]:
        return found
    return [figure._replace(met=None) for figure in found]


def mark(epsilon: float) -> str:
    return f"epsilon {epsilon:g}"


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, marks, *rows))
