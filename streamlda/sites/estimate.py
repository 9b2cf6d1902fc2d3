"""What sites have learned of rows of numbers, and its file; `read` reads models of every kind.

The file is a checked file of `streamlda.container` of kind ``streamlda-estimate``, version 1, with
float64 arrays of K components and d numbers.

- ``pca``: ``directions`` (d, K), orthonormal, largest eigenvalue first; ``eigenvalues`` (K,) of
  the second moment over all slots, as it was released.
- ``mixture``: ``means`` (K, d), most frequent first, zeros where none was found; their shares
  ``weights`` (K,), 0 where none was found; ``variance`` () of a component in each direction.

Its metadata are ``kind``, ``settings``, ``privacy`` (the statement), ``documents_seen`` (record
slots) and ``created``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.container import read_arrays, write_arrays
from streamlda.errors import ModelFileError
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.statement import check_statement
from streamlda.sites.files import parsed

ESTIMATE_FORMAT, ESTIMATE_VERSION = "streamlda-estimate", 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, eq=False)
class Estimate:
    """Directions or means, with the privacy statement of what they were made from."""

    kind: str
    arrays: Mapping[str, NDArray[np.float64]] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)
    privacy: Mapping[str, Any] = field(repr=False)
    documents_seen: int
    created: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        K, d = self.settings["n_components"], self.settings["n_features"]
        wanted: dict[str, tuple[int, ...]] = {
            "pca": {"directions": (d, K), "eigenvalues": (K,)},
            "mixture": {"means": (K, d), "weights": (K,), "variance": ()},
        }[self.kind]
        found = {name: array.shape for name, array in self.arrays.items()}
        require(
            found == wanted and all(np.isfinite(array).all() for array in self.arrays.values()),
            "an estimate must have the arrays of its kind, of finite numbers",
            kind=self.kind,
            shapes=found,
            expected=wanted,
            error=ModelFileError,
        )
        check_statement(self.privacy)

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        made = "directions" if self.kind == "pca" else "means"
        return f"{self.settings['n_components']} {made} of {self.settings['n_features']} numbers"

    def publish(self, path: str | os.PathLike[str]) -> Path | None:
        """Write the estimate; return where another one that was there is kept: it was paid for."""
        target, kept = Path(path), None
        if target.exists() and not self._equals(self.load(target)):
            numbered = (target.with_name(f"{target.name}.{n}") for n in count(1))
            kept = next(other for other in numbered if not other.exists())
            target.rename(kept)
        self.save(target)
        return kept

    def _equals(self, other: Estimate) -> bool:
        """Return whether another is made of the same releases."""
        return (self.kind, self.privacy) == (other.kind, other.privacy) and all(
            np.array_equal(self.arrays[name], array) for name, array in other.arrays.items()
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimate to a file, whole or not at all."""
        about: dict[str, Any] = {
            "kind": self.kind,
            "settings": dict(self.settings),
            "privacy": dict(self.privacy),
        }
        about |= {"documents_seen": self.documents_seen, "created": self.created}
        write_arrays(path, ESTIMATE_FORMAT, ESTIMATE_VERSION, self.arrays, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        file = read_arrays(path, ESTIMATE_FORMAT, ESTIMATE_VERSION)
        rule, remedy = "a file of an estimate must be whole", "make it again from the shares"
        return parsed(lambda: cls(arrays=file.arrays, **file.metadata), path, rule, remedy)


def read(path: str | os.PathLike[str]) -> TopicModel | Estimate:
    """Return what sites have learned together, of whatever kind.

    Raises `ModelFileError` if it is no file of a model, or not whole.
    """
    try:
        return Estimate.load(path)
    except ModelFileError as error:
        if "of the wanted kind" not in str(error):
            raise
    return load(path)
