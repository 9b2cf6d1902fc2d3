"""The drawings of a report, as SVG with names for those who do not see them.

Sizes are presentation attributes and not styles, since the policy of the page allows no styles but
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamlda.report.layout import spread
from streamlda.report.markup import Markup, element, joined

Array = NDArray[np.float64]

MAP_WIDTH, MAP_HEIGHT = 640.0, 460.0

#: Part of the map that the circles of all topics cover together, and the least radius.
_COVERED, _LEAST_RADIUS = 0.18, 16.0

#: From more topics on, their numbers are written smaller.
_CROWDED = 80

#: Least radius of a circle that has room for its number.
_ROOM_FOR_TEXT = 8.0

_CHART_WIDTH, _CHART_HEIGHT = 640.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 18.0, 40.0


def bar(share: float) -> Markup:
    """Return a bar as wide as a share, 0 to 1, of what holds it."""
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    rect = element("rect", width=width, height="100%", rx="3")
    return element("svg", rect, class_="size", aria_hidden="true")


def topic_map(
    places: Array, shares: Sequence[float], ids: Sequence[int], told: Sequence[str]
) -> Markup:
    """Return the map: a circle for each topic, its area the prevalence, each a link to its card.

    Parameters
    ----------
    places : ndarray of shape (K, 2)
    shares : sequence of float
        Prevalence.
    ids : sequence of int
    told : sequence of str
        What each circle is called.
    """
    share = np.array(shares)
    radii = np.maximum(np.sqrt(share * _COVERED * MAP_WIDTH * MAP_HEIGHT / np.pi), _LEAST_RADIUS)
    # Many topics cannot all have room for their numbers.
    radii *= min(1.0, np.sqrt(0.45 * MAP_WIDTH * MAP_HEIGHT / (np.pi * (radii**2).sum())))
    at = spread(places, radii, MAP_WIDTH, MAP_HEIGHT)
    circles = []
    # Large ones first, so that small ones lie above them; `ids` is in that order.
    for (x, y), radius, id_, name in zip(at.tolist(), radii.tolist(), ids, told, strict=True):
        circle = element("circle", cx=_n(x), cy=_n(y), r=_n(radius))
        number = _text(str(id_) if radius > _ROOM_FOR_TEXT else "", x, y, "middle", "0.36em")
        circles.append(element("a", circle, number, href=f"#topic-{id_}", aria_label=name))
    return element(
        "svg",
        *circles,
        viewBox=f"0 0 {MAP_WIDTH:.0f} {MAP_HEIGHT:.0f}",
        class_="map crowded" if len(circles) > _CROWDED else "map",
        role="group",
        aria_label=f"Map of {len(circles)} topics, the most prevalent first",
    )


def log_chart(
    values: Sequence[float],
    floor: Sequence[float] | None,
    *,
    names: Sequence[str],
    label: str,
    axis: str,
    counted: Sequence[bool],
    marks: Sequence[tuple[int, str]] = (),
) -> Markup:
    """Return points on a logarithmic scale, with the level below which all is noise.

    Parameters
    ----------
    values : sequence of float
        Those not above 0 lie at the bottom.
    floor : sequence of float or None
        Level of the noise at each point.
    names : sequence of str
        What stands below each point; as many as there is room for.
    label : str
        What the chart says, for those who do not see it.
    axis : str
        What the points are.
    counted : sequence of bool
        Which points stand out; the others are drawn as noise.
    marks : sequence of (int, str)
        Lines behind so many points, each with a word.
    """
    n = len(values)
    levels = [v for v in [*values, *(floor or ())] if v > 0]
    high, low = max(levels, default=1.0), min(levels, default=0.1)
    # What lies far below the noise says no more than that it does.
    if floor is not None:
        low = max(low, min(v for v in floor if v > 0) / 5)
    top, bottom = np.log10(high) + 0.05, np.log10(max(low, high * 1e-6)) - 0.08
    step = (_CHART_WIDTH - _LEFT - _RIGHT) / n

    def x(i: float) -> float:
        return _LEFT + step * (i + 0.5)

    def y(value: float) -> float:
        height = (np.log10(value) - bottom) / (top - bottom) if value > 0 else 0.0
        inner = _CHART_HEIGHT - _TOP - _BOTTOM
        return float(_TOP + inner * (1 - np.clip(height, 0.0, 1.0)))

    base = _CHART_HEIGHT - _BOTTOM
    parts: list[Markup] = []
    end = _n(_CHART_WIDTH - _RIGHT)
    for value in _ticks(bottom, top):
        at = _n(y(value))
        parts.append(element("line", class_="grid", x1=_n(_LEFT), x2=end, y1=at, y2=at))
        parts.append(_text(_tick(value), _LEFT - 6, float(at), "end", "0.33em"))
    if floor is not None:
        steps = " ".join(
            f"{_n(x(i - 0.5))},{_n(y(level))} {_n(x(i + 0.5))},{_n(y(level))}"
            for i, level in enumerate(floor)
        )
        last = f"{_n(x(n - 0.5))},{_n(base)} {_n(x(-0.5))},{_n(base)}"
        parts.append(element("polygon", class_="noise", points=f"{steps} {last}"))
        parts.append(element("polyline", class_="floor", points=steps))
    for line, (count, word) in enumerate(marks):
        at = _n(x(count - 0.5))
        parts.append(element("line", class_="mark", x1=at, x2=at, y1=_n(_TOP), y2=_n(base)))
        anchor = "end" if count > 0.7 * n else "start"
        shift = -5 if anchor == "end" else 5
        parts.append(
            _text(word, float(at) + shift, _TOP + 4, anchor, f"{0.3 + 1.3 * line:.1f}em", "marked")
        )
    every = max(1, int(np.ceil(n * 26 / (_CHART_WIDTH - _LEFT - _RIGHT))))
    for i, value in enumerate(values):
        kind = "point" if counted[i] else "point below"
        at = _n(x(i))
        parts.append(
            element("line", class_=f"stem {kind}", x1=at, x2=at, y1=_n(y(value)), y2=_n(base))
        )
        radius = _n(min(4.5, 0.36 * step + 0.8))
        parts.append(element("circle", class_=kind, cx=at, cy=_n(y(value)), r=radius))
        if i % every == 0:
            # On a narrow screen there is room for every third only.
            class_ = "minor" if i // every % 3 else None
            parts.append(_text(names[i], float(at), base + 15, "middle", "0", class_))
    middle = (_LEFT + _CHART_WIDTH - _RIGHT) / 2
    parts.append(_text(axis, middle, _CHART_HEIGHT - 6, "middle", "0", "axis"))
    return element(
        "svg",
        joined(parts),
        viewBox=f"0 0 {_CHART_WIDTH:.0f} {_CHART_HEIGHT:.0f}",
        class_="plot",
        role="img",
        aria_label=label,
    )


def sparkline(values: Sequence[float | None], label: str) -> Markup:
    """Return the course of a prevalence; what is missing is a gap. At least two values."""
    width, height = 300.0, 40.0
    most = max((v for v in values if v is not None), default=0.0) or 1.0
    runs: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            at = 3 + (width - 6) * i / (len(values) - 1)
            runs[-1].append(f"{_n(at)},{_n(3 + (height - 6) * (1 - value / most))}")
    drawn = [element("line", class_="base", x1="0", x2=_n(width), y1="39.5", y2="39.5")]
    for run in filter(None, runs):
        if len(run) > 1:
            drawn.append(element("polyline", class_="line", points=" ".join(run)))
        else:
            cx, cy = run[0].split(",")
            drawn.append(element("circle", class_="dot", cx=cx, cy=cy, r="2.5"))
    return element(
        "svg",
        *drawn,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        preserveAspectRatio="none",
        class_="spark",
        role="img",
        aria_label=label,
    )


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


def _text(text: str, x: float, y: float, anchor: str, dy: str, class_: str | None = None) -> Markup:
    return element("text", text, x=_n(x), y=_n(y), dy=dy, text_anchor=anchor, class_=class_)


def _n(value: float) -> str:
    """Return a number with one decimal at most: no eye sees more, and the page is smaller."""
    return f"{value:.1f}".removesuffix(".0")
