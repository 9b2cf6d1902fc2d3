"""Topics of documents by group: by their class, or by the bin of their time."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.model.document_table import DECIMALS, check_length, infer_documents, label_topics
from streamlda.texts import is_missing, list_values

if TYPE_CHECKING:
    from streamlda.model.topics import Topics

Array = NDArray[np.float64]


class Groups:
    """Sums of topic proportions by group; None is the group of the documents that have none.

    Documents without a topic are in no group. Memory O(groups K).
    """

    def __init__(self, n_topics: int) -> None:
        self._places: dict[Any, int] = {}
        self._sums = np.zeros((0, n_topics))
        self._largest = np.zeros((0, n_topics), dtype=np.int64)

    def add(self, groups: Sequence[Hashable], theta: Array, reasons: Sequence[str | None]) -> None:
        """Count documents, those without a reason."""
        rows = [n for n, reason in enumerate(reasons) if reason is None]
        at = [self._places.setdefault(groups[n], len(self._places)) for n in rows]
        more = ((0, len(self._places) - len(self._sums)), (0, 0))
        self._sums, self._largest = np.pad(self._sums, more), np.pad(self._largest, more)
        np.add.at(self._sums, at, theta[rows])
        np.add.at(self._largest, (at, theta[rows].argmax(axis=1)), 1)

    @property
    def names(self) -> list[Any]:
        """The groups in order, numbers before text; the documents that have none are the last."""
        return sorted(self._places, key=_rank)

    @property
    def sums(self) -> Array:
        """Sum of the proportions of each topic in each group, (groups, K), as `names`."""
        found: Array = self._sums[[self._places[name] for name in self.names]]
        return found

    @property
    def largest(self) -> NDArray[np.int64]:
        """Documents of each group of which each topic is the largest, (groups, K)."""
        found: NDArray[np.int64] = self._largest[[self._places[name] for name in self.names]]
        return found

    def columns(
        self,
        model: Topics,
        name: str,
        n_words: int,
        written: Callable[[Any], Any] = lambda group: group,
    ) -> dict[str, list[Any]]:
        """Return a row for each group and topic; `written` says how a group is called."""
        names, largest, labels = self.names, self.largest, label_topics(model, n_words)[0]
        shares = self.sums / np.maximum(largest.sum(axis=1, keepdims=True), 1)
        K = len(labels)
        return {
            name: [None if key is None else written(key) for key in names for _ in range(K)],
            "topic": [*range(K)] * len(names),
            "label": labels * len(names),
            "share": shares.round(DECIMALS).ravel().tolist(),
            "documents": largest.ravel().tolist(),
        }


def _rank(name: Any) -> tuple[int, float, str]:
    try:
        number = float(name)
    except (TypeError, ValueError):
        return (2 if name is None else 1, 0.0, str(name))
    return (0, number, "") if math.isfinite(number) else (1, 0.0, str(name))


def list_groups(name: str, values: Any, n: int) -> list[Any]:
    """Return a value for each document, None of one that is missing."""
    listed = list(list_values(values))
    check_length(name, listed, n)
    return [None if is_missing(value) else value for value in listed]


def group_documents(model: Topics, documents: Any, classes: Any) -> Groups:
    """Return the topics of documents by class."""
    theta, reasons, _ = infer_documents(model, documents)
    groups = Groups(model.n_components)
    groups.add(list_groups("classes", classes, len(reasons)), theta, reasons)
    return groups
