"""Samples of sets of documents, by which repeated ones are found, whatever order they come in.

A sketch holds the `SKETCH` smallest values of distinct documents. Two of them tell what two sets
share: up to the lesser of their largest values each holds all values of its set, so of both the
same share is drawn there. Documents are *repeated* if, of the values drawn there, at least
`LEAST_REPEATED` and a third of those of the one or of the other set are in both: a copy in another
order, a part of a set, or a set with others beside it. Of two sets of N and n < N documents some
512 n / N of the smaller are drawn: repeats of less than a sixtieth of a set are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappush, heapreplace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

#: Values in a sketch. Documents are repeated if, of the values drawn, `LEAST_REPEATED` and one in
#: `REPEATED_OF` are in both sets.
SKETCH, LEAST_REPEATED, REPEATED_OF = 512, 8, 3

#: Texts come again in many streams. Where a set is compared with others of its own run or file, it
#: must have `LEAST_DISTINCT` distinct documents, and at most `MOST_ALIKE` documents a distinct one:
#: two draws from one stock of equally frequent texts share less than a fifth of them then.
LEAST_DISTINCT, MOST_ALIKE = 64, 1.1

#: The rule, for messages, which say what `Repeats` holds.
REPEATED = (
    "documents must not be in two releases, and fewer than a third of those drawn may have been in "
    "one, under any name and in any order"
)

_LARGEST = 2**64 - 1


class Sketch:
    """The `SKETCH` smallest distinct values of documents that are not blank. O(1) memory."""

    def __init__(self, values: Iterable[int] = (), documents: int | None = None) -> None:
        #: Documents that were taken, equal ones included.
        self.documents = 0
        self._kept: set[int] = set()
        # A heap of the negatives: the largest value that is kept comes first.
        self._heap: list[int] = []
        for value in values:
            self.add(value)
        if documents is not None:
            self.documents = documents

    def add(self, value: int) -> None:
        """Take the value of a document."""
        self.documents += 1
        if len(self._heap) < SKETCH:
            if value not in self._kept:
                self._kept.add(value)
                heappush(self._heap, -value)
        elif value < -self._heap[0] and value not in self._kept:
            self._kept.add(value)
            self._kept.discard(-heapreplace(self._heap, -value))

    def join(self, other: Sketch) -> None:
        """Take what another sketch has taken, of other documents."""
        documents = self.documents + other.documents
        for value in other.values:
            self.add(value)
        self.documents = documents

    @property
    def values(self) -> tuple[int, ...]:
        """The values, smallest first."""
        return tuple(sorted(self._kept))


class Repeats(NamedTuple):
    """Values that are in two sets, and values drawn of the one that has fewer."""

    repeated: int
    drawn: int

    @property
    def too_many(self) -> bool:
        """Whether documents of the one set are repeated in the other."""
        enough = self.repeated >= LEAST_REPEATED
        return enough and REPEATED_OF * self.repeated >= self.drawn


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of a set, all up to `limit`; and how many documents it has, equal ones included."""

    values: NDArray[np.uint64]
    limit: int
    documents: int

    @classmethod
    def of(cls, sketch: Sketch) -> Self:
        """Return that of a sketch."""
        values = sketch.values
        limit = values[-1] if len(values) == SKETCH else _LARGEST
        return cls(np.array(values, dtype=np.uint64), limit, sketch.documents)

    def with_(self, other: Sample) -> Sample:
        """Return that of two sets together."""
        values = np.union1d(self.values, other.values)
        limit = min(self.limit, other.limit)
        return Sample(values, limit, self.documents + other.documents)

    def repeats(self, other: Sample) -> Repeats:
        """Compare two sets."""
        limit = min(self.limit, other.limit)
        here, there = (each.values[each.values <= limit] for each in (self, other))
        repeated = int(np.isin(here, there, assume_unique=True).sum())
        return Repeats(repeated, min(len(here), len(there)))

    @property
    def distinct(self) -> float:
        """About how many documents differ; exact if fewer than `SKETCH`."""
        drawn = int(np.count_nonzero(self.values <= self.limit))
        return drawn * (_LARGEST / max(1, self.limit))

    @property
    def is_diverse(self) -> bool:
        """Whether nearly all documents are different ones."""
        distinct = self.distinct
        return bool(distinct >= LEAST_DISTINCT and self.documents <= MOST_ALIKE * distinct)
