"""The plot of a comparison: what is fast, what is good, and what is both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.compare import COMPARE, corpus_title, failed, measured
from bench.entrants import ENTRANTS
from bench.kinds import Json, series
from bench.styles import STYLES

#: Where a label may stand beside its point, best first; the line of the best runs to the right.
PLACES = ((9, 6), (9, -14), (-9, -14), (-9, 6), (0, 9), (0, -17), (9, -3), (-9, -3))


def plot(results: Mapping[str, Json], folder: Path) -> None:
    """Draw compare.png: time and perplexity of all contenders, a panel for each corpus."""
    from matplotlib import pyplot

    shown = [results[scenario.id] for scenario in COMPARE if scenario.id in results]
    shown = [result for result in shown if result["runs"]]
    if not shown:
        return
    size = (5.2 * len(shown), 4.6)
    figure, axes = pyplot.subplots(1, len(shown), figsize=size, layout="constrained", squeeze=False)
    medians = [draw(axis, result) for axis, result in zip(axes[0], shown, strict=True)]
    # Labels look for room, so that all else must have its place.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis, points in zip(axes[0], medians, strict=True):
        name_points(axis, points)
    figure.savefig(folder / "compare.png", dpi=100)
    pyplot.close(figure)


def draw(axis: Any, result: Json) -> dict[str, tuple[float, float]]:
    """Draw one corpus: medians, seeds as dots, the line of fastest or best.

    What failed is left out, and what had two cores, of which processor seconds are not all known.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    medians = {}
    for label in measured(result):
        if failed(result, label) or ENTRANTS[label].cores > 1:
            continue
        seconds, perplexity = (series(result, label, k) for k in ("cpu_seconds", "perplexity"))
        colour, _, marker = STYLES[ENTRANTS[label].library]
        axis.plot(seconds, perplexity, ".", color=colour, alpha=0.4)
        medians[label] = median(seconds), median(perplexity)
        axis.plot(*medians[label], marker, color=colour, markersize=8)
    best = frontier(medians.values())
    axis.step(*zip(*best, strict=True), where="post", color="0.7", zorder=0)
    axis.set(xlabel="processor seconds of the fit", xscale="log")
    axis.set(ylabel="held-out perplexity", yscale="log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_locator(MaxNLocator(7))
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(StrMethodFormatter("{x:g}"))
        side.set_minor_formatter(NullFormatter())
    axis.set_title(corpus_title(result), fontsize=10)
    axis.margins(x=0.15, y=0.1)
    return medians


def name_points(axis: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each label beside its point, where it covers neither another nor a marker."""
    taken = []
    for point in points.values():
        x, y = axis.transData.transform(point)
        taken.append((x - 6, y - 6, x + 6, y + 6))
    left, right = axis.get_window_extent().intervalx
    for label, point in points.items():
        colour = STYLES[ENTRANTS[label].library].colour
        for x, y in PLACES:
            text = axis.annotate(
                label,
                point,
                xytext=(x, y),
                textcoords="offset points",
                fontsize=8,
                color=colour,
                ha={9: "left", -9: "right", 0: "center"}[x],
            )
            box = text.get_window_extent().extents
            apart = all(
                box[2] < other[0] or other[2] < box[0] or box[3] < other[1] or other[3] < box[1]
                for other in taken
            )
            if apart and left < box[0] and box[2] < right:
                break
            text.remove()
        else:
            # Nowhere is room: better over something than not at all.
            axis.add_artist(text)
        taken.append(tuple(box))


def frontier(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other is both faster and better than, rising in time."""
    best: list[tuple[float, float]] = []
    for seconds, perplexity in sorted(points):
        if not best or perplexity < best[-1][1]:
            best.append((seconds, perplexity))
    return best
