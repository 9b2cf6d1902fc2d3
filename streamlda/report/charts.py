"""Points of the drawings; ``templates/charts.html`` writes them as SVG."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamlda.report.documents import TITLE_CHARACTERS, UNCLASSED
from streamlda.report.facts import Facts, Topic
from streamlda.report.over_time import Course
from streamlda.utils.arrays import Array

#: Passes in which overlapping circles are moved apart.
_PASSES = 200

#: What is farther out than this many times the root mean square is drawn at the edge.
_FAR = 2.2

#: Room between two circles, in the units of the map: a line of text.
_ROOM = 12.0


def spread(positions: Array, radii: Array, width: float, height: float) -> Array:
    """Scale positions into a box as centres of circles, and move those apart that would overlap.

    Circles lie inside the box as far as they fit. Time O(K^2) a pass, memory O(K^2).
    """
    room = np.array([width, height]) / 2
    margin = radii.max() + _ROOM
    # A topic far from all others must not push these together: it comes to lie at the edge.
    extent = np.minimum(np.abs(positions).max(axis=0), _FAR * np.sqrt((positions**2).mean(axis=0)))
    # One scale for both directions, so that distances are not skewed.
    scale = np.min((room - margin) / np.maximum(extent, 1e-12))
    at = positions * scale if extent.max() > 1e-9 else _circle(len(positions)) * radii.max()
    at = np.clip(at, margin - room, room - margin)
    least = radii[:, None] + radii[None] + _ROOM
    np.fill_diagonal(least, 0.0)
    # Circles in one place have no direction to part in; a circle of tiny steps gives them one.
    at = at + 1e-6 * _circle(len(positions))
    inside = room - radii[:, None] - _ROOM
    for _ in range(_PASSES):
        apart = at[:, None] - at[None]
        length = np.sqrt((apart**2).sum(axis=2))
        lack = np.maximum(least - length, 0.0)
        if not lack.any():
            break
        step = apart * (lack / np.maximum(length, 1e-12))[:, :, None]
        at = np.clip(at + 0.25 * step.sum(axis=1), -inside, inside)
    return np.asarray(at + room, dtype=np.float64)


def _circle(n: int) -> Array:
    angles = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angles), np.sin(angles)])


MAP_WIDTH, MAP_HEIGHT = 640.0, 460.0

#: Part of the map that the circles of all topics cover together, and the least radius.
_COVERED, _LEAST_RADIUS = 0.11, 13.0

_WIDTH, _LEFT, _RIGHT, _TOP = 640.0, 52.0, 14.0, 18.0

#: Radius of a circle that is all tokens of a word.
FULL_RADIUS = 64.0

_SPARK_WIDTH, _SPARK_HEIGHT = 300.0, 40.0

#: The chart over time: where lines and the bars below them end, lines that have names, dates.
_LINES_LEFT, _LINES_RIGHT, _LINES_BASE, _BARS = 62.0, 500.0, 230.0, 24.0
_NAMED_LINES, _LINE_HEIGHT, _LETTER_WIDTH = 6, 18.0, 7.0

#: Bars of classes: height of one, and where bars begin and end.
_BAR_ROW, _BARS_LEFT, _BARS_RIGHT = 26.0, 210.0, 570.0

#: Room around the topics on the map of documents.
_MARGIN = 24.0

#: The tree: height of a topic, and where labels end.
_TREE_ROW, _TREE_LEFT = 24.0, 260.0

#: Moments with less than this part of the documents of the largest do not set the scale.
_FEW = 0.02

_SHARE_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

Run = list[tuple[float, float]]


class Circle(NamedTuple):
    """A topic on the map; its area is the prevalence."""

    x: float
    y: float
    radius: float


class Line(NamedTuple):
    """The shares of a topic; `rank` is its place among those that move most, which have a name."""

    id: int
    runs: list[Run]
    rank: int | None


class Tree(NamedTuple):
    """Topics below each other, with the height of each, and a bracket for each join."""

    topics: list[tuple[float, Topic]]
    brackets: list[Run]
    height: float
    left: float = _TREE_LEFT - 8


class Bars(NamedTuple):
    """A bar for each class: height, label, documents, named parts, and where the rest begins."""

    rows: list[tuple[float, str, int, list[tuple[float, float]], float]]
    #: Numbers of the topics that are named.
    named: list[int]
    height: float
    left: float = _BARS_LEFT
    right: float = _BARS_RIGHT


class Lines(NamedTuple):
    """Shares over time: lines, names at their ends, and documents as bars below."""

    lines: list[Line]
    labels: list[tuple[Line, float]]
    ticks: list[tuple[float, str]]
    dates: list[tuple[float, str, bool]]
    bars: list[tuple[float, float]]
    #: Whether a moment of few documents has a share above the scale.
    beyond: bool
    left: float = _LINES_LEFT
    right: float = _LINES_RIGHT
    top: float = _TOP
    base: float = _LINES_BASE
    floor: float = _LINES_BASE + _BARS + 4


def topic_tree(facts: Facts) -> Tree:
    """Return the joins of all topics as brackets, the first ones next to the labels."""
    rows = {topic: _TREE_ROW * (n + 0.5) for n, topic in enumerate(facts.leaves)}
    at = [(_TREE_LEFT, rows[i]) for i in range(len(rows))]
    widest = float(facts.tree[:, 2].max(initial=0.0)) or 1.0
    brackets = []
    for first, second, height, _ in facts.tree.tolist():
        (x, y), (other_x, other_y) = at[int(first)], at[int(second)]
        to = _TREE_LEFT + (_WIDTH - _RIGHT - _TREE_LEFT) * height / widest
        brackets.append([(x, y), (to, y), (to, other_y), (other_x, other_y)])
        at.append((to, (y + other_y) / 2))
    ends = [(rows[i], topic) for i, topic in enumerate(facts.topics)]
    return Tree(sorted(ends, key=lambda end: end[0]), brackets, _TREE_ROW * len(rows))


def topic_circles(facts: Facts) -> list[Circle]:
    """Return a circle for each topic, moved apart until none covers another."""
    radii = _radii(facts)
    at = spread(facts.positions, radii, MAP_WIDTH, MAP_HEIGHT)
    return [*map(Circle, *at.T.tolist(), radii.tolist())]


def _radii(facts: Facts) -> Array:
    full = float(np.sqrt(_COVERED * MAP_WIDTH * MAP_HEIGHT / np.pi))
    radii = np.maximum(full * np.sqrt(facts.model.weights[facts.model.order]), _LEAST_RADIUS)
    # Many topics cannot all have room for their numbers.
    shrunk: Array = radii * min(
        1.0, np.sqrt(0.45 * MAP_WIDTH * MAP_HEIGHT / (np.pi * (radii**2).sum()))
    )
    return shrunk


def course_lines(facts: Facts) -> Lines | None:
    """Return the shares of all topics over time; None where there are fewer than two moments."""
    course = facts.course
    if course is None or len(course.at) < 2:
        return None
    shares, documents = np.array(course.shares, dtype=np.float64), np.array(course.documents)
    known, many = np.nan_to_num(shares), documents.max()
    # Shares of a moment with few documents are mostly chance, and must not flatten all others.
    most = float(known[:, documents >= _FEW * many].max()) or 1.0
    step = next(s for s in _SHARE_STEPS if most / s <= 5)
    x = _LINES_LEFT + np.array(course.at) * (_LINES_RIGHT - _LINES_LEFT)

    def y(share: Any) -> Any:
        return _TOP + (_LINES_BASE - _TOP) * (1 - np.minimum(1.0, share / most))

    named = _most_moving(course)
    lines = [
        Line(k, runs, named.index(k) if k in named else None)
        for k, row in enumerate(y(shares))
        if (runs := _runs(x, row))
    ]
    # Those with a name lie above the others.
    lines.sort(key=lambda line: line.rank is not None)
    ends = sorted((line for line in lines if line.rank is not None), key=_end)
    width = _LETTER_WIDTH * max(map(len, course.labels))
    n_dates = max(2, int((_LINES_RIGHT - _LINES_LEFT) / (width + _LEFT)))
    places = np.array(course.at)
    dates = {int(np.abs(places - at).argmin()) for at in np.linspace(0, 1, n_dates)}
    return Lines(
        lines=lines,
        labels=list(zip(ends, _apart([*map(_end, ends)]), strict=True)),
        ticks=[(y(i * step), f"{100 * i * step:g} %") for i in range(int(most / step) + 1)],
        dates=[(x[i], course.labels[i], 0 < i < len(x) - 1) for i in sorted(dates)],
        bars=list(zip(x, _BARS * documents / many, strict=True)),
        beyond=bool(known.max() > most),
    )


def _end(line: Line) -> float:
    """Return the height at which a line ends."""
    return line.runs[-1][-1][1]


def class_bars(facts: Facts) -> Bars | None:
    """Return the shares of the topics that vary most between classes, for each class."""
    course = facts.class_course
    if course is None:
        return None
    named = _most_moving(course)
    widths = (_BARS_RIGHT - _BARS_LEFT) * np.array(course.shares, dtype=np.float64)[named].T
    ends = _BARS_LEFT + np.cumsum(widths, axis=1)
    rows = [
        (_BAR_ROW * g, label, documents, list(zip(end - width, width, strict=True)), end[-1])
        for g, (label, documents, width, end) in enumerate(
            zip(course.labels, course.documents, widths, ends, strict=True)
        )
    ]
    return Bars(rows, named, _BAR_ROW * len(rows))


def document_points(facts: Facts, circles: Sequence[Circle]) -> dict[str, Any] | None:
    """Return the documents that are drawn, for the script; positions are means of circles.

    A point is x, y, the place of its largest topic, its proportion in hundredths, and the place of
    its class.
    """
    survey = facts.survey
    if survey is None or not survey.points:
        return None
    theta = np.array([point.theta for point in survey.points])[:, facts.model.order]
    centres = np.array([[circle.x, circle.y] for circle in circles])
    extent = np.maximum(np.ptp(centres, axis=0), 1e-9)
    room = np.array([MAP_WIDTH, MAP_HEIGHT]) - 2 * _MARGIN
    # One scale for both directions, as on the map of topics.
    centres = (centres - centres.min(axis=0) - extent / 2) * min(room / extent)
    centres = centres * (len(centres) > 1) + np.array([MAP_WIDTH, MAP_HEIGHT]) / 2
    at = theta @ centres
    largest = theta.argmax(axis=1)
    shares = np.rint(100 * theta[np.arange(len(theta)), largest]).astype(int)
    labels = () if facts.class_course is None else facts.class_course.labels
    places = {label: i for i, label in enumerate(labels)}
    groups = [UNCLASSED if p.group is None else str(p.group) for p in survey.points]
    columns = zip(at.round(1).tolist(), largest.tolist(), shares.tolist(), groups, strict=True)
    titles = [None if p.title is None else str(p.title)[:TITLE_CHARACTERS] for p in survey.points]
    return {
        "points": [[x, y, k, share, places.get(group, -1)] for (x, y), k, share, group in columns],
        "titles": titles if any(title is not None for title in titles) else None,
        "centres": centres.round(1).tolist(),
    }


def _most_moving(course: Course) -> list[int]:
    """Return the topics whose shares vary most between moments, by documents."""
    shares = np.ma.masked_invalid(np.array(course.shares, dtype=np.float64))
    mean = np.ma.average(shares, axis=1, weights=course.documents, keepdims=True)
    moves = np.ma.average((shares - mean) ** 2, axis=1, weights=course.documents)
    most: list[int] = np.argsort(-np.ma.filled(moves, 0.0), kind="stable")[:_NAMED_LINES].tolist()
    return most


def _apart(heights: Sequence[float]) -> list[float]:
    """Return heights, which ascend, with room for a line of text between them."""
    found: list[float] = []
    for height in heights:
        found.append(max(height, found[-1] + _LINE_HEIGHT) if found else height)
    for i in range(len(found) - 1, -1, -1):
        below = found[i + 1] - _LINE_HEIGHT if i + 1 < len(found) else _LINES_BASE
        found[i] = min(found[i], below)
    return found


def sparkline(course: Course, id_: int) -> list[Run]:
    """Return the course of a topic in runs of points; missing values are gaps."""
    shares = np.array(course.shares[id_], dtype=np.float64)
    most = np.nan_to_num(shares).max() or 1.0
    xs = 3 + (_SPARK_WIDTH - 6) * np.array(course.at)
    return _runs(xs, 3 + (_SPARK_HEIGHT - 6) * (1 - shares / most))


def _runs(xs: Array, ys: Array) -> list[Run]:
    runs: list[Run] = [[]]
    for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
        if np.isnan(y):
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]
