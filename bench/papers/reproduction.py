"""A figure or a theorem of a paper run again: a scenario with a verdict, panels and a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.kinds import Json, Scenario
from bench.panels import Panel, draw, table
from bench.papers.rule import Verdict, verdict_of


@dataclass(frozen=True, kw_only=True)
class Reproduction(Scenario):
    """A scenario whose question is what a paper says."""

    task: Callable[[Json, Json, int], Json]
    repeats: int = 1
    judges_small: bool = True
    #: None of a table, whose page is all that there is.
    panels: Callable[[Json], list[Panel]] = lambda result: []
    #: Panels in a row, and whether the page has them as tables.
    columns: int = 2
    tabled: bool = True
    #: Files that only its user has, by the option that names them.
    data: tuple[str, ...] = ()
    more: Callable[[Json], str] = lambda result: ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs_corpus", "corpus" in self.data)
        object.__setattr__(self, "details", self.page)

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
