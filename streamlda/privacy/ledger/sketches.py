"""Samples of sets of documents, by which repeated ones are found, whatever order they come in.

A sketch holds the `SKETCH` smallest values of distinct documents. Two of them tell what two sets
share: up to the lesser of their largest values each holds all values of its set, so of both the
same share is drawn there. Documents are *repeated* if, of the values drawn there, at least
`LEAST_REPEATED` and a third of those of the one or of the other set are in both: a copy in another
order, a part of a set, or a set with others beside it. Of two sets of N and n < N documents some
512 n / N of the smaller are drawn: repeats of less than a sixtieth of a set are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from itertools import repeat
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
    """The `SKETCH` smallest distinct values of documents that are not blank. O(1) memory.

    And how many documents have each: a value that is kept was kept from its first document on.
    """

    def __init__(self) -> None:
        #: Documents that were taken, equal ones included.
        self.documents: float = 0
        self._counts: dict[int, float] = {}
        # A heap of the negatives: the largest value that is kept comes first.
        self._heap: list[int] = []

    @classmethod
    def of(cls, values: Iterable[int], counts: Iterable[float] | None = None) -> Self:
        """Return that of documents by their values, or of values and how many have each."""
        sketch = cls()
        for value, count in zip(values, repeat(1) if counts is None else counts, strict=False):
            sketch.add(value, count)
        return sketch

    @classmethod
    def estimated(cls, values: Sequence[int], documents: int) -> Self:
        """Return that of distinct values, and what `estimate` gave for them."""
        mean = documents / max(1.0, Sample.of(cls.of(values)).distinct)
        sketch = cls.of(values, repeat(mean))
        sketch.documents = documents
        return sketch

    @property
    def estimate(self) -> int:
        """About how many documents there are, by those that have the values; exact if few differ.

        So its share of `Sample.distinct` tells exactly how many documents have one value.
        """
        values, sample = len(self._counts), Sample.of(self)
        return round(sample.distinct * sum(self._counts.values()) / max(1, values))

    def add(self, value: int, count: float = 1) -> None:
        """Take the value of a document, or of `count` equal ones."""
        self.documents += count
        counts, heap = self._counts, self._heap
        if value in counts:
            counts[value] += count
        elif len(heap) < SKETCH:
            counts[value] = count
            heappush(heap, -value)
        elif value < -heap[0]:
            counts[value] = count
            del counts[-heapreplace(heap, -value)]

    def join(self, other: Sketch) -> None:
        """Take what another sketch has taken, of other documents."""
        documents = self.documents + other.documents
        for value, count in zip(other.values, other.counts, strict=True):
            self.add(value, count)
        self.documents = documents

    @property
    def values(self) -> tuple[int, ...]:
        """The values, smallest first."""
        return tuple(sorted(self._counts))

    @property
    def counts(self) -> tuple[float, ...]:
        """How many documents have each of the values."""
        return tuple(count for _, count in sorted(self._counts.items()))


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
    """Values of a set, all up to `limit`; and how many documents have each."""

    values: NDArray[np.uint64]
    counts: NDArray[np.float64]
    limit: int

    @classmethod
    def of(cls, sketch: Sketch) -> Self:
        """Return that of a sketch."""
        values = sketch.values
        limit = values[-1] if len(values) == SKETCH else _LARGEST
        return cls(np.array(values, dtype=np.uint64), np.array(sketch.counts, float), limit)

    def with_(self, other: Sample) -> Sample:
        """Return that of two sets together."""
        both = np.concatenate([self.values, other.values])
        values, where = np.unique(both, return_inverse=True)
        counts = np.bincount(where, np.concatenate([self.counts, other.counts])).astype(float)
        return Sample(values, counts, min(self.limit, other.limit))

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
        """Whether nearly all documents are different ones: of those drawn, exactly so."""
        counts = self.counts[self.values <= self.limit]
        few = self.distinct < LEAST_DISTINCT
        return bool(not few and counts.sum() <= MOST_ALIKE * len(counts))
