"""Where the points of a drawing lie; ``templates/charts.html`` writes them as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamlda.report.facts import Facts
from streamlda.report.layout import spread
from streamlda.report.wording import short
from streamlda.spectral.topics import SUPPORT_ANGLE

MAP_WIDTH, MAP_HEIGHT = 640.0, 460.0

#: Part of the map that the circles of all topics cover together, and the least radius.
_COVERED, _LEAST_RADIUS = 0.18, 16.0

_WIDTH, _HEIGHT = 640.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 18.0, 40.0

#: Width of the name of a point.
_NAME_WIDTH = 26

_SPARK_WIDTH, _SPARK_HEIGHT = 300.0, 40.0


class Circle(NamedTuple):
    """A topic on the map; its area is the prevalence."""

    x: float
    y: float
    radius: float


class Mark(NamedTuple):
    """A line behind the first points of a plot, with a word at one side of it."""

    x: float
    word: str
    before: bool


class Point(NamedTuple):
    """A value of a plot, with its name if there is room for it."""

    x: float
    y: float
    above: bool
    name: str | None
    minor: bool


class Plot(NamedTuple):
    """Points on a logarithmic scale, with the level below which all is noise (None: unknown)."""

    points: list[Point]
    radius: float
    ticks: list[tuple[float, str]]
    floor: str | None
    marks: list[Mark]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _WIDTH - _RIGHT
    top: float = _TOP
    base: float = _HEIGHT - _BOTTOM


def topic_circles(facts: Facts) -> list[Circle]:
    """Return a circle for each topic, moved apart until none covers another."""
    newest = facts.models[-1]
    share = newest.weights[newest.order]
    radii = np.maximum(np.sqrt(share * _COVERED * MAP_WIDTH * MAP_HEIGHT / np.pi), _LEAST_RADIUS)
    # Many topics cannot all have room for their numbers.
    radii *= min(1.0, np.sqrt(0.45 * MAP_WIDTH * MAP_HEIGHT / (np.pi * (radii**2).sum())))
    at = spread(facts.positions, radii, MAP_WIDTH, MAP_HEIGHT)
    return [Circle(x, y, r) for (x, y), r in zip(at.tolist(), radii.tolist(), strict=True)]


def spectrum_plot(facts: Facts) -> Plot | None:
    """Return the eigenvalues of the word pairs over the largest; None if unknown."""
    if facts.spectrum is None:
        return None
    eigenvalues, noise = facts.spectrum
    found, K, n = facts.suggestion, facts.newest.n_components, len(eigenvalues)
    # The largest may be 0 or below in noise alone.
    largest = max(float(eigenvalues[0]), 1e-300)
    marks = [(K, f"{K} in the model")] if n > K else []
    if found.basis in ("drop", "floor") and found.n_components not in (None, K):
        assert found.n_components is not None
        marks.append((found.n_components, f"{found.n_components} suggested"))
    return _log_plot(
        (eigenvalues / largest).tolist(),
        None if noise is None else (noise / largest).tolist(),
        names=[str(i + 1) for i in range(n)],
        above=[i < facts.directions for i in range(n)],
        marks=marks,
    )


def clarity_plot(facts: Facts) -> Plot | None:
    """Return how clearly each topic stands out of word triples; None if unknown."""
    ratios = [topic.clarity for topic in facts.topics if topic.clarity is not None]
    if len(ratios) < len(facts.topics):
        return None
    least = 1 / SUPPORT_ANGLE
    return _log_plot(
        ratios,
        [least] * len(ratios),
        names=[str(topic.id) for topic in facts.topics],
        above=[ratio > least for ratio in ratios],
    )


def _log_plot(
    values: Sequence[float],
    floor: Sequence[float] | None,
    *,
    names: Sequence[str],
    above: Sequence[bool],
    marks: Sequence[tuple[int, str]] = (),
) -> Plot:
    """Place values, those not above 0 at the bottom, and a mark behind the first `count`."""
    n = len(values)
    levels = [v for v in [*values, *(floor or ())] if v > 0]
    high, low = max(levels, default=1.0), min(levels, default=0.1)
    # What lies far below the noise says no more than that it does.
    if floor is not None:
        low = max(low, min(v for v in floor if v > 0) / 5)
    top, bottom = np.log10(high) + 0.05, np.log10(max(low, high * 1e-6)) - 0.08
    inner = _WIDTH - _LEFT - _RIGHT
    step = inner / n

    def x(i: float) -> float:
        return _LEFT + step * (i + 0.5)

    def y(value: float) -> float:
        height = (np.log10(value) - bottom) / (top - bottom) if value > 0 else 0.0
        return float(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - np.clip(height, 0.0, 1.0)))

    every = max(1, int(np.ceil(n * _NAME_WIDTH / inner)))
    return Plot(
        points=[
            # On a narrow screen there is room for every third name only.
            Point(
                x=x(i),
                y=y(value),
                above=above[i],
                name=names[i] if i % every == 0 else None,
                minor=i // every % 3 > 0,
            )
            for i, value in enumerate(values)
        ],
        radius=min(4.5, 0.36 * step + 0.8),
        ticks=[(y(value), _tick(value)) for value in _ticks(bottom, top)],
        floor=None
        if floor is None
        else " ".join(
            f"{short(x(i - 0.5))},{short(y(level))} {short(x(i + 0.5))},{short(y(level))}"
            for i, level in enumerate(floor)
        ),
        marks=[Mark(x(count - 0.5), word, before=count > 0.7 * n) for count, word in marks],
    )


def sparkline(values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """Return the course of a prevalence in runs of points; what is missing is a gap."""
    most = max((v for v in values if v is not None), default=0.0) or 1.0
    runs: list[list[tuple[float, float]]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            x = 3 + (_SPARK_WIDTH - 6) * i / (len(values) - 1)
            runs[-1].append((x, 3 + (_SPARK_HEIGHT - 6) * (1 - value / most)))
    return [run for run in runs if run]


def _ticks(bottom: float, top: float) -> list[float]:
    """Return round numbers between two powers of ten: few, but more than one."""
    factors = (1, 2, 5) if top - bottom < 2.2 else (1,)
    powers = range(int(np.floor(bottom)), int(np.floor(top)) + 1)
    found = [factor * 10.0**power for power in powers for factor in factors]
    return [value for value in found if bottom <= np.log10(value) <= top]


def _tick(value: float) -> str:
    power = int(np.floor(np.log10(value) + 1e-9))
    if -3 < power < 5:
        return f"{value:g}"
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
