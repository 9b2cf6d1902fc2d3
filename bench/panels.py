"""Panels of lines: the same values as a table of a page and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bench.kinds import markdown
from bench.styles import SERIES, STYLES, name_lines


class Panel(NamedTuple):
    """Values of each line by their place on the axis: their mean is drawn, and their range."""

    title: str
    x: str
    y: str
    lines: dict[str, dict[float, list[float]]]
    scales: tuple[str, str] = ("log", "log")

    @property
    def places(self) -> list[float]:
        """Places of all lines on the axis."""
        return sorted({place for points in self.lines.values() for place in points})


def tables(panels: Sequence[Panel]) -> str:
    """Return the means of panels as Markdown, a row a line; panels of one axis are one table."""
    found = ""
    for (y, x, places), group in groupby(panels, lambda panel: (panel.y, panel.x, panel.places)):
        rows = [
            [panel.title, label, *(f"{mean(own[at]):.4g}" if at in own else "-" for at in places)]
            for panel in group
            for label, own in panel.lines.items()
        ]
        found += markdown([y, f"by {x}", *(f"{place:g}" for place in places)], rows) + "\n"
    return found


def draw(panels: Sequence[Panel], path: Path, columns: int = 2) -> None:
    """Draw panels in rows; where all have the same lines, the last of each row names them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(columns, len(panels))
    down = -(-len(panels) // columns)
    # Many panels are shown smaller: with less of them between letters, these stay legible.
    wide, high = (4.2, 3.3) if columns < 3 else (3.4, 2.7)
    size = (wide * columns + 1.6, high * down)
    figure, axes = pyplot.subplots(down, columns, figsize=size, layout="constrained", squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        draw_panel(axis, panel)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    shown = list(axes.flat[: len(panels)])
    last = {*range(columns - 1, len(shown), columns), len(shown) - 1}
    alike = len({tuple(panel.lines) for panel in panels}) == 1
    name_lines([axis for i, axis in enumerate(shown) if i in last or not alike])
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def draw_panel(axes: Any, panel: Panel) -> None:
    others = iter(SERIES)
    for label, points in panel.lines.items():
        style = STYLES.get(label) or next(others)
        x, values = list(points), points.values()
        axes.plot(x, [mean(each) for each in values], label=label, **style.keywords())
        ends = [min(each) for each in values], [max(each) for each in values]
        axes.fill_between(x, *ends, color=style.colour, alpha=0.12, linewidth=0)
    axes.set_title(panel.title, fontsize=9)
    axes.set(xlabel=panel.x, ylabel=panel.y, xscale=panel.scales[0])
    axes.set_yscale(panel.scales[1], **({"linthresh": 1e-5} if panel.scales[1] == "symlog" else {}))
    if panel.scales[1] == "linear":
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    for scale, axis, wide in zip(panel.scales, (axes.xaxis, axes.yaxis), (30, 200), strict=True):
        if scale == "log":
            label_plainly(axis, wide)


def label_plainly(axis: Any, wide: float) -> None:
    """Write 0.2 for 2 x 10^-1, and powers of ten alone where there is no room for more."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    ratio = high / low
    steps = (1,) if ratio > wide else (1, 2, 5) if ratio > 4 else (1, 1.5, 2, 3, 4, 6, 8)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(
        lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x:,.0f}" if x >= 1000 else f"{x:g}"
    )
    axis.set_minor_formatter(NullFormatter())
