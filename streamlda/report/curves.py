"""Curves over numbers of topics, as one picture in the colours of the report."""

from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from streamlda.report import environment

#: Size of a panel, and where its curve may be.
WIDTH, HEIGHT = 640, 210
_LEFT, _RIGHT, _TOP, _BASE = 84.0, 610.0, 40.0, 170.0

#: Lines of the scale.
_TICKS = 4


class Curve(NamedTuple):
    """Values, one a number of topics, with their standard errors where these are known."""

    title: str
    values: Sequence[float]
    errors: Sequence[float]


class Panel(NamedTuple):
    """Points of a curve (x, y, half the height of its bar), and lines of the scale."""

    title: str
    points: list[tuple[float, float, float]]
    ticks: list[tuple[float, str]]


def draw_curves(title: str, counts: Sequence[int], curves: Sequence[Curve]) -> str:
    """Return a panel for each curve, over numbers that ascend, on a scale of logarithms."""
    at = np.log(np.asarray(counts, dtype=np.float64))
    xs = _LEFT + 24 + (_RIGHT - _LEFT - 48) * (at - at[0]) / (float(np.ptp(at)) or 1.0)
    css = files("streamlda").joinpath("page", "base.css").read_text("utf-8")
    return (
        environment()
        .get_template("curves.svg")
        .render(
            title=title,
            # Its colours, which stand first.
            css=Markup(css.partition("\n* {")[0]),
            width=WIDTH,
            height=HEIGHT,
            left=_LEFT,
            right=_RIGHT,
            base=_BASE,
            places=list(zip(xs.tolist(), counts, strict=True)),
            panels=[_panel(curve, xs.tolist()) for curve in curves],
        )
    )


def _panel(curve: Curve, xs: Sequence[float]) -> Panel:
    values, errors = np.asarray(curve.values), np.asarray(curve.errors)
    low, high = float((values - errors).min()), float((values + errors).max())
    unit = (_BASE - _TOP) / ((high - low) or 1.0)
    points = [
        (x, _BASE - unit * (value - low), unit * error)
        for x, value, error in zip(xs, values.tolist(), errors.tolist(), strict=True)
    ]
    ticks = [
        (_BASE - unit * (value - low), f"{value:,.4g}")
        for value in np.linspace(low, high, _TICKS).tolist()
    ]
    return Panel(curve.title, points, ticks)
