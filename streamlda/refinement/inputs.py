"""Topics and word frequencies that a refinement is given: checked, and scaled to sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError

Array = NDArray[np.float64]


def checked_topics(components: Any, n_topics: int) -> Array:
    """Return topics with rows scaled to sum to 1, or raise InvalidSettingError."""
    topics: Array = np.asarray(components, dtype=np.float64)
    if topics.ndim != 2 or len(topics) != n_topics or not proper(topics):
        raise InvalidSettingError(
            "topics must be a matrix of finite numbers >= 0 with one row for each number in "
            f"alpha, got components={topics.shape} alpha=({n_topics},); "
            "project them onto the simplex"
        )
    mass = topics.sum(axis=1, keepdims=True)
    if not np.all((mass > 0) & np.isfinite(mass)):
        raise InvalidSettingError(
            "each topic must have a word above 0, got "
            f"topic={int(np.argmin(mass))} sum={mass.min()}; leave the topic out"
        )
    scaled: Array = topics / mass
    return scaled


def checked_background(background: Any, n_words: int) -> Array:
    """Return word frequencies scaled to sum to 1, or raise InvalidSettingError."""
    frequencies: Array = np.asarray(background, dtype=np.float64)
    if frequencies.shape != (n_words,) or not proper(frequencies) or not frequencies.any():
        raise InvalidSettingError(
            "the background must hold a finite number >= 0 for each word, one of them above 0, got "
            f"background={frequencies.shape} n_features={n_words}; pass word frequencies"
        )
    scaled: Array = frequencies / frequencies.sum()
    return scaled


def proper(array: Array) -> bool:
    """Return whether all numbers are finite and >= 0."""
    return bool(np.all(np.isfinite(array) & (array >= 0)))
