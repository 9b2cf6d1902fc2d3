"""Room for the circles of a map and for their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Width of a letter over the size of the font, at most for nearly all text of the page; that of a
#: wide character (Chinese, Japanese, Korean) is 1.
_LETTER = 0.56

#: Longer words are cut in labels.
_LONGEST_WORD = 16

#: Passes in which overlapping circles are moved apart.
_PASSES = 200

#: What is farther out than this many times the root mean square is drawn at the edge.
_FAR = 2.2

#: Room between two circles, in the units of the map: a line of text.
_ROOM = 12.0


class Label(NamedTuple):
    """Text beside a circle, by the middle of its baseline."""

    x: float
    y: float
    text: str


def place_labels(
    at: Array,
    radii: Array,
    words: Sequence[Sequence[str]],
    size: float,
    width: float,
    height: float,
) -> list[Label | None]:
    """Return a label for each circle that has room for one: first come, first served.

    All words beside each other, or fewer; below the circle, above it or at a side. A label covers
    no circle and no other label. Time O(K^2).
    """
    boxes = np.empty((0, 4))
    found: list[Label | None] = []
    for (x, y), radius, named in zip(at.tolist(), radii.tolist(), words, strict=True):
        for label, box in _tried(x, y, radius, [_cut(word) for word in named], size):
            left, top, right, bottom = box
            nearest = np.clip(at, [left, top], [right, bottom])
            free = (((at - nearest) ** 2).sum(axis=1) > radii**2).all()
            free &= bool(
                (
                    (boxes[:, 0] > right)
                    | (boxes[:, 2] < left)
                    | (boxes[:, 1] > bottom)
                    | (boxes[:, 3] < top)
                ).all()
            )
            if free and left >= 0 and top >= 0 and right <= width and bottom <= height:
                boxes = np.vstack([boxes, box])
                found.append(label)
                break
        else:
            found.append(None)
    return found


def _tried(
    x: float, y: float, radius: float, words: list[str], size: float
) -> Iterator[tuple[Label, tuple[float, float, float, float]]]:
    """Yield labels of a circle, the best first, each with its box: left, top, right, bottom."""
    # A line is 1.1 of the size high, 0.8 of it above the baseline.
    for n, (aside, line) in product(
        range(len(words), 0, -1), ((0, 1), (0, -1), (1, 0), (-1, 0), (0.7, 0.8), (-0.7, 0.8))
    ):
        text = " ".join(words[:n])
        half = _width(text) * size / 2
        middle = x + aside * (radius + half + 0.3 * size)
        base = y + 0.3 * size + line * (radius + 0.55 * size + 2)
        yield (
            Label(middle, base, text),
            (middle - half, base - 0.8 * size, middle + half, base + 0.3 * size),
        )


def _cut(word: str) -> str:
    return (
        word
        if len(word) <= _LONGEST_WORD
        else f"{word[: _LONGEST_WORD - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


def _width(text: str) -> float:
    return sum(1.0 if east_asian_width(letter) in "WF" else _LETTER for letter in text)


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
