"""Styles of contenders: one colour, line and marker each, the same in all plots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

#: Of Okabe and Ito, safe for the colour-blind, without their yellow, which is lost on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY = "0.6"

#: Of lines that are no contender's: fits, guesses.
REFERENCE: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1}

AS_PUBLISHED, AUTHORS = ", as published", ", authors' run"


class Style(NamedTuple):
    """A line of matplotlib; what is not private has no marker."""

    colour: str
    line: str = "-"
    marker: str = ""

    def keywords(self) -> dict[str, Any]:
        return {
            **{"color": self.colour, "linestyle": self.line, "marker": self.marker},
            **{"linewidth": 1.2, "markersize": 4},
        }


_SITES = {
    "capeAGN": Style(BLUE, "-", "o"),
    "conventional": Style(ORANGE, "-", "^"),
    "local": Style(GREEN, "-", "v"),
    "DPdisPCA": Style(VERMILION, "-", "s"),
}

STYLES = {
    "random": Style(BLACK, "--"),
    "claimed law": Style(BLACK, ":"),
    "capePCA": _SITES["capeAGN"],
    f"capePCA{AS_PUBLISHED}": _SITES["capeAGN"]._replace(line="--"),
    "streamlda": Style(BLUE, "-", "o"),
    "streamlda, replace-one": Style(BLUE, "--", "o"),
    "wang-anandkumar": Style(GREEN, "-", "D"),
    "DP-LDA 1": Style(VERMILION, "-", "s"),
    "DP-LDA 1, the paper's accounting": Style(VERMILION, "--", "s"),
    "DP-LDA 1, Laplace": Style(VERMILION, ":", "s"),
    "DP-LDA 2": Style(PURPLE, "-", "^"),
    "DP-LDA 3": Style(ORANGE, "-", "v"),
    "DP-LDA 4": Style(SKY, "-", "<"),
    "DP-LDA without noise": Style(VERMILION, "-."),
    "variational Bayes": Style(BLACK, "-", "x"),
    "variational Bayes without noise": Style(BLACK, "-."),
    "tomotopy": Style(VERMILION, "-", "D"),
    "gensim": Style(ORANGE, "-", "p"),
    "scikit-learn": Style(GREEN, "-", "s"),
    "anchortopics": Style(SKY, "-", "*"),
    "vowpal-wabbit": Style(PURPLE, "-", "v"),
    "topica": Style(SKY, "-", "^"),
    "mallet": Style(BLACK, "-", "X"),
    "tlda": Style(BLACK, "--", "P"),
    **_SITES,
    **{f"{name}{AS_PUBLISHED}": s._replace(line="--") for name, s in _SITES.items()},
    **{f"{name}{AUTHORS}": s._replace(line=":", marker="x") for name, s in _SITES.items()},
    "pooled, private": Style(PURPLE, "-", "D"),
    "not private": Style(BLACK, "-."),
    f"not private{AUTHORS}": Style(BLACK, ":"),
    "Algorithm 1": Style(BLUE, "-", "o"),
    "Algorithm 2": Style(BLUE, "-", "o"),
    "random marginal": Style(VERMILION, "-", "s"),
    "Algorithm 3, exact": Style(BLUE, "-", "D"),
    "Algorithm 3, paper": Style(GREEN, "--", "D"),
    "input perturbation": Style(VERMILION, "-", "*"),
}

#: Of curves that differ in a number, or in a setting of one contender.
SERIES = tuple(
    Style(colour, "-", marker)
    for colour, marker in zip((BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE), "os^Dv<", strict=True)
)


def name_lines(axes: Iterable[Any], size: float = 7.5) -> None:
    """Write the label of every line beside its end, in its colour, none over another."""
    axes = list(axes)
    figure = axes[0].figure
    figure.draw_without_rendering()
    for axis in axes:
        gap = 1.25 * size * figure.dpi / 72 / axis.get_window_extent().height
        ends = []
        for line in axis.get_lines():
            if not line.get_label().startswith("_"):
                end = line.get_xdata()[-1], line.get_ydata()[-1]
                seen = axis.transAxes.inverted().transform(line.get_transform().transform(end))
                ends.append((float(seen[1]), float(seen[0]), line))
        ends.sort(key=lambda end: end[0])
        places = apart([y for y, _, _ in ends], gap)
        for (y, x, line), place in zip(ends, places, strict=True):
            axis.annotate(
                line.get_label(),
                (x, y),
                (1.05, place),
                xycoords="axes fraction",
                textcoords="axes fraction",
                color=line.get_color(),
                fontsize=size,
                va="center",
                annotation_clip=False,
                arrowprops={
                    **{"arrowstyle": "-", "color": line.get_color(), "lw": 0.5, "alpha": 0.6},
                    **{"relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 2},
                },
            )


def apart(places: list[float], gap: float) -> list[float]:
    """Return sorted places, moved to be a gap apart and within 0 to 1 as far as there is room."""
    groups: list[tuple[list[float], float]] = []
    for place in places:
        members = [place]
        middle = _within(members, gap)
        while groups and middle - groups[-1][1] < gap * (len(members) + len(groups[-1][0])) / 2:
            members = groups.pop()[0] + members
            middle = _within(members, gap)
        groups.append((members, middle))
    return [
        middle + gap * (i - (len(members) - 1) / 2)
        for members, middle in groups
        for i in range(len(members))
    ]


def _within(members: list[float], gap: float) -> float:
    half = min(gap * (len(members) - 1) / 2, 0.5)
    return min(max(sum(members) / len(members), half), 1 - half)
