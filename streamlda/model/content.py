"""What the parts of a model must hold; `streamlda.model.topic_model` calls these checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.container import to_json
from streamlda.errors import VocabularyError
from streamlda.model.model_file import words_to_bytes
from streamlda.text.vocabulary import Vocabulary

#: How far a sum of probabilities may be from 1.
SUM_TOLERANCE = 1e-6


def read_only(name: str, array: Any) -> NDArray[np.float64]:
    """Return an array of finite numbers that others cannot write to, copied where they could."""
    values = np.ascontiguousarray(array, dtype=np.float64)
    if values.flags.writeable and np.may_share_memory(values, array):
        values = values.copy()
    values.flags.writeable = False
    rule = f"{name} must be finite, got {name} with NaN or infinity"
    require(np.isfinite(values).all(), rule, remedy="fit the model again")
    return values


def check_shapes(
    components: NDArray[np.float64], alpha: NDArray[np.float64], background: NDArray[np.float64]
) -> None:
    """Refuse arrays that are not of K topics over V words."""
    shape = components.shape
    require(
        len(shape) == 2
        and 0 not in shape
        and (alpha.shape, background.shape) == (shape[:1], shape[1:]),
        "components must be (K, V), alpha (K,) and background (V,) with K, V >= 1",
        components=shape,
        alpha=alpha.shape,
        background=background.shape,
        remedy="pass arrays of one fit",
    )


def check_probabilities(name: str, values: NDArray[np.float64]) -> None:
    """Refuse rows that are no distributions."""
    low = values.min()
    error = np.abs(values.sum(axis=-1) - 1).max()
    require(
        low >= 0 and error <= SUM_TOLERANCE,
        f"{name} must be probabilities, each row with the sum 1 within {SUM_TOLERANCE}",
        min=low,
        largest_error=error,
        remedy="clip and normalize them first",
    )


def plain_object(name: str, value: Any) -> dict[str, Any]:
    """Return the object as it will be read back, so that a save cannot fail later."""
    require(
        isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        f"{name} must be a mapping with string keys",
        type=type(value).__name__,
        remedy="pass a dict",
    )
    plain: dict[str, Any] = json.loads(to_json(dict(value)))
    return plain


def check_vocabulary(vocabulary: Vocabulary, n_features: int) -> None:
    """Refuse words that are not those of the columns, or cannot be stored."""
    require(
        vocabulary.n_features == n_features,
        "a vocabulary must have one word for each column of components",
        words=vocabulary.n_features,
        columns=n_features,
        remedy="pass the one of the fit",
        error=VocabularyError,
    )
    to_json(vocabulary.metadata())
    if vocabulary.listed is not None:
        words_to_bytes(vocabulary.listed)
