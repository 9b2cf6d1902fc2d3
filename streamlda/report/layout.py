"""Room for the circles of a map and for their labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Passes in which overlapping circles are moved apart.
_PASSES = 200

#: What is farther out than this many times the root mean square is drawn at the edge.
_FAR = 2.2

#: Room between two circles, in the units of the map.
_ROOM = 3.0


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
