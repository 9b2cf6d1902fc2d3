"""A figure or a theorem of a paper run again: a scenario with a verdict, panels and a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.kinds import Case, Json, Scenario
from bench.panels import Panel, draw, table
from bench.papers.rule import Verdict, verdict_of

#: Values of each line by their place on the axis.
Lines = dict[str, dict[float, list[float]]]


def lines_of(result: Json) -> dict[str, Lines]:
    """Return all values of a result by panel, line and place.

    Each row has them, or the parameters of its case where all rows have the same.
    """
    found: dict[str, Lines] = {}
    for run in result["runs"]:
        for row in run["measured"]["rows"]:
            at = {**result["cases"][run["case"]]["parameters"], **row}
            lines = found.setdefault(at["panel"], {})
            lines.setdefault(at["line"], {}).setdefault(at["x"], []).extend(at["values"])
    return found


@dataclass(frozen=True, kw_only=True)
class Reproduction(Scenario):
    """A scenario whose question is what a paper says."""

    task: Callable[[Json, Json, int], Json]
    #: Parameters of its cases by label; a fast run has those that are at most `fast`, reduced.
    settings: dict[str, Json]
    fast: Json = field(default_factory=dict)
    cases: Any = None
    repeats: int = 1
    judges_small: bool = True
    #: Axes of panels that show what was measured, and nothing else; y is their name if left out.
    axes: tuple[str, str] = ("epsilon", "L1 error of a topic")
    scales: tuple[str, str] = ("log", "log")
    #: Other panels; none of a table, whose page is all that there is.
    panels: Any = None
    #: Panels in a row, and whether the page has them as tables.
    columns: int = 2
    tabled: bool = True
    #: Files that only its user has, by the option that names them.
    data: tuple[str, ...] = ()
    more: Callable[[Json], str] = lambda result: ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs_corpus", "corpus" in self.data)
        object.__setattr__(self, "details", self.page)
        object.__setattr__(self, "cases", self.choose_cases)
        object.__setattr__(self, "panels", self.panels or self.measured_panels)

    def choose_cases(self, quick: bool, contenders: tuple[str, ...]) -> list[Case]:
        """Return the cases; of data, of which some stand in for others, those of contenders."""
        return [
            Case(label, self.task.__name__, reduced(p) if quick else p)
            for label, p in self.settings.items()
            if not contenders or p.get("data") in (None, *contenders)
            if not quick or all(p[name] <= most for name, most in self.fast.items())
        ]

    def measured_panels(self, result: Json) -> list[Panel]:
        x, y = self.axes
        measured = lines_of(result).items()
        return [Panel(name, x, y or name, lines, self.scales) for name, lines in measured]

    def verdict(self, result: Json) -> Verdict:
        return verdict_of(self.figures(result))

    def page(self, result: Json) -> str:
        """Return verdict, panels as tables, and picture, as Markdown."""
        panels = self.panels(result)
        tables = "".join(map(table, panels)) if self.tabled else ""
        picture = f"![{self.id}](plots/{self.id}.png)\n" if panels else ""
        return f"**{self.verdict(result).line}**\n\n{tables}{self.more(result)}{picture}"

    def draw(self, result: Json, folder: Path) -> None:
        """Draw <id>.png into a folder."""
        if panels := self.panels(result):
            draw(panels, folder / f"{self.id}.png", self.columns)


def reduced(parameters: Json) -> Json:
    """Return fewer trials and runs, every other budget, and fewer documents of a corpus."""
    found = {x: parameters[x][::2] for x in ("epsilons", "points") if x in parameters}
    if "trials" in parameters:
        found["trials"] = min(-(-parameters["trials"] // 4), 1000 // parameters["dimension"])
    if "runs" in parameters:
        found["runs"] = -(-parameters["runs"] // 4)
    return {**parameters, **found, **({"documents": 5000} if "held_out" in parameters else {})}
