"""Topics and word frequencies that a refinement starts from: checked, and scaled to sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require

Array = NDArray[np.float64]


def checked_topics(components: Any, n_topics: int) -> Array:
    """Return topics with rows scaled to sum to 1."""
    topics: Array = np.asarray(components, dtype=np.float64)
    require(
        topics.ndim == 2 and len(topics) == n_topics and is_nonnegative(topics),
        "topics must be a matrix of finite numbers >= 0 with one row for each number in alpha",
        components=topics.shape,
        alpha=(n_topics,),
        remedy="project them onto the simplex",
    )
    mass = topics.sum(axis=1, keepdims=True)
    require(
        np.all((mass > 0) & np.isfinite(mass)),
        "each topic must have a word above 0",
        topic=int(np.argmin(mass)),
        sum=mass.min(),
        remedy="leave the topic out",
    )
    scaled: Array = topics / mass
    return scaled


def checked_background(background: Any, n_words: int) -> Array:
    """Return word frequencies scaled to sum to 1."""
    frequencies: Array = np.asarray(background, dtype=np.float64)
    require(
        frequencies.shape == (n_words,) and is_nonnegative(frequencies) and frequencies.any(),
        "the background must hold a finite number >= 0 for each word, one of them above 0",
        background=frequencies.shape,
        n_features=n_words,
        remedy="pass word frequencies",
    )
    scaled: Array = frequencies / frequencies.sum()
    return scaled


def is_nonnegative(array: Array) -> bool:
    """Return whether all numbers are finite and >= 0."""
    return bool(np.all(np.isfinite(array) & (array >= 0)))
