"""A figure or a theorem run again: its cases, its figures, and the panels that it draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from bench.kinds import Case, Figure, Json, Scenario, markdown
from bench.papers.rule import Verdict, verdict_of
from bench.styles import REFERENCE, Style, name_lines

Task = Callable[[Json, Json, int], Json]


class Line(NamedTuple):
    """Measured values by their place on the axis; its points are their middle."""

    label: str
    points: dict[float, list[float]]
    style: Style
    dots: bool = False


class Panel(NamedTuple):
    """Lines over axes; guides are drawn, and are in no table."""

    title: str
    x: str
    y: str
    lines: list[Line]
    guides: tuple[tuple[str, list[float], list[float]], ...] = ()
    scales: tuple[str, str] = ("log", "log")
    middle: Callable[[list[float]], float] = mean


@dataclass(frozen=True, kw_only=True)
class Reproduction(Scenario):
    """A scenario that runs a figure or a theorem of a paper again."""

    #: What the paper says.
    claim: str
    task: Task
    panels: Callable[[Json], list[Panel]]
    columns: int
    #: Files that only its user has, by the option that names them.
    data: tuple[str, ...] = ()

    def verdict(self, result: Json) -> Verdict:
        return verdict_of(self.figures(result))

    def draw(self, result: Json, folder: Path) -> None:
        """Draw <id>.png into a folder."""
        draw(self.panels(result), self.columns, folder / f"{self.id}.png")


def reproduction(
    id: str,
    question: str,
    claim: str,
    task: Task,
    cases: Callable[[bool, tuple[str, ...]], list[Case]],
    figures: Callable[[Json], list[Figure]],
    panels: Callable[[Json], list[Panel]],
    *,
    repeats: int = 1,
    columns: int = 2,
    tabled: bool = True,
    data: tuple[str, ...] = (),
    more: Callable[[Json], str] = lambda result: "",
) -> Reproduction:
    """Make a reproduction whose page has its verdict, its panels as tables, and its picture."""

    def details(result: Json) -> str:
        tables = "".join(table(panel) for panel in panels(result)) if tabled else ""
        verdict = f"**{verdict_of(figures(result)).line}**\n\n"
        return f"{verdict}{tables}{more(result)}![{id}](plots/{id}.png)\n"

    return Reproduction(
        id,
        question,
        repeats,
        cases,
        figures,
        needs_corpus="corpus" in data,
        details=details,
        judges_small=True,
        **{"claim": claim, "task": task, "panels": panels, "columns": columns, "data": data},
    )


def table(panel: Panel) -> str:
    """Return the middles of a panel as Markdown, a row a line."""
    places = sorted({place for line in panel.lines for place in line.points})
    rows = [
        [line.label]
        + [
            f"{panel.middle(line.points[place]):.4g}" if place in line.points else "-"
            for place in places
        ]
        for line in panel.lines
    ]
    header = [f"{panel.y}, by {panel.x}", *(f"{place:g}" for place in places)]
    return f"{panel.title}\n\n{markdown(header, rows)}\n"


def rows(panels: Sequence[Panel]) -> Iterator[Json]:
    """Yield the rows of a CSV: a point each."""
    for panel in panels:
        for line in panel.lines:
            for place, values in line.points.items():
                yield {
                    **{"panel": panel.title, "line": line.label, "axis": panel.x, "at": place},
                    **{"measure": panel.y, "value": panel.middle(values), "values": len(values)},
                    **{"least": min(values), "most": max(values)},
                }


def draw(panels: Sequence[Panel], columns: int, path: Path) -> None:
    """Draw panels in rows; lines are named at the right of each row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    columns = min(columns, len(panels))
    down = -(-len(panels) // columns)
    size = (4.2 * columns + 1.6, 3.3 * down)
    figure, axes = pyplot.subplots(down, columns, figsize=size, layout="constrained", squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for label, x, y in panel.guides:
            axis.plot(x, y, label=label, **REFERENCE)
        for line in panel.lines:
            middles = [panel.middle(values) for values in line.points.values()]
            axis.plot(list(line.points), middles, label=line.label, **line.style.keywords())
            for place, values in line.points.items() if line.dots else ():
                dots = {"color": line.style.colour, "markersize": 2, "alpha": 0.5}
                axis.plot([place] * len(values), values, ".", **dots)
        axis.set_title(panel.title, fontsize=9)
        axis.set(xlabel=panel.x, ylabel=panel.y, xscale=panel.scales[0])
        axis.set_yscale(
            panel.scales[1], **({"linthresh": 1e-5} if panel.scales[1] == "symlog" else {})
        )
        if panel.scales[0] == "log":
            # Labels between powers of ten run into each other.
            axis.xaxis.set_minor_formatter(NullFormatter())
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    shown = list(axes.flat[: len(panels)])
    # Where all panels of a row have the same lines, those at the right are named.
    labels = {tuple(each[0] for each in (*panel.lines, *panel.guides)) for panel in panels}
    alike = len(labels) == 1
    ends = {*range(columns - 1, len(shown), columns), len(shown) - 1}
    name_lines([axis for i, axis in enumerate(shown) if not alike or i in ends])
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
