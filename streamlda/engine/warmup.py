"""The documents that a stream begins with, and the projections that sums are taken through."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.spectral.moments import Moments, half_of
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.whitening import (
    centred_pairs,
    next_projection,
    random_projection,
    word_scale,
)
from streamlda.utils.arrays import Arrays, named, with_prefix

Array = NDArray[np.float64]

#: Power steps that sharpen the first projection on the warm-up documents.
WARMUP_POWER_STEPS = 3

#: And those of a projection that is made for a test, through as many columns as the triple moment
#: takes.
TEST_POWER_STEPS = 2

#: A warm-up also ends at this many stored counts (12 bytes each), however few the documents.
WARMUP_MAX_ENTRIES = 4_000_000


def warmup_end(
    batch: DocumentBatch, start: int, documents: int, entries: int = WARMUP_MAX_ENTRIES
) -> int:
    """Return where a warm-up ends that is at `start` and has room for N documents and counts.

    With the last of these documents, or with the one that fills up the counts, whichever comes
    first; else with the batch.
    """
    pointers = batch.row_pointers
    reached = int(np.searchsorted(pointers, pointers[start] + entries))
    return min(start + documents, reached, batch.n_documents)


class WarmUpDocuments:
    """Documents kept to be fitted: at most `most`, of as many counts or so."""

    def __init__(self, most: int, most_entries: int = 0) -> None:
        self.most, self.most_entries = most, max(most_entries, WARMUP_MAX_ENTRIES)
        self._parts: list[DocumentBatch] = []
        self.n_documents = self._entries = 0

    @property
    def missing(self) -> tuple[int, int]:
        """Documents and counts that there is room for."""
        return self.most - self.n_documents, self.most_entries - self._entries

    @property
    def full(self) -> bool:
        """Whether the warm-up ends here."""
        return min(self.missing) <= 0

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Keep a copy of documents from `start` up to the end of the warm-up; return how many."""
        part = batch.rows(start, warmup_end(batch, start, *self.missing))
        self._parts.append(part.copy())
        self.n_documents += part.n_documents
        self._entries += len(part.counts)
        return part.n_documents

    def batch(self) -> DocumentBatch:
        """Return them as one batch, one at least: sums must not depend on how they came."""
        self._parts = [DocumentBatch.joined(self._parts)]
        return self._parts[0]

    def clear(self) -> None:
        """Keep none."""
        self._parts.clear()
        self.n_documents = self._entries = 0

    def state(self) -> Arrays:
        """Return them as named arrays; nothing if there are none."""
        return with_prefix(self.batch().arrays, "warmup.") if self._parts else {}

    def restore(self, arrays: Mapping[str, NDArray[Any]], n_features: int) -> None:
        """Take back what `state` returned."""
        if kept := named(arrays, "warmup."):
            self.add(DocumentBatch(**kept, n_features=n_features, integral=False), 0)


def first_projection(warmup: DocumentBatch, settings: EngineSettings) -> Array:
    """Find a projection by power steps on the second moment of the warm-up documents."""
    return _power_steps(warmup, settings, settings.n_columns, WARMUP_POWER_STEPS)


def held_out_pairs(warmup: DocumentBatch, settings: EngineSettings) -> HeldOutPairs | None:
    """Find directions in one half of the warm-up documents, and return what the other says of them.

    None if there are not enough for two halves of a half. Time as for two thirds of one of the
    steps to a first projection, and O(nnz t + d t^2).
    """
    usable = np.flatnonzero(warmup.usable)
    second = np.zeros(warmup.n_documents, dtype=np.bool_)
    second[usable] = half_of(0, len(usable)) == 1
    if second.sum() < 2:
        return None
    steps, columns = TEST_POWER_STEPS, settings.n_triple_columns
    W = _power_steps(warmup.where(warmup.usable & ~second), settings, columns, steps)
    return HeldOutPairs.of_documents(warmup.where(second), W)


def _power_steps(
    documents: DocumentBatch, settings: EngineSettings, columns: int, steps: int
) -> Array:
    W = random_projection(settings.n_features, columns, settings.seed)
    for _ in range(steps):
        sketch = Moments(W, triple_columns=0)
        sketch.add(documents)
        first, pairs = sketch.first_moment(), sketch.pair_moment()
        # Sums take as much memory as a projection.
        del sketch
        W = _projection(first, pairs, W, settings)
    return W


def better_projection(moments: Moments, settings: EngineSettings) -> Array:
    """Return the projection that sums lead to, for the round after them; time O(d m^2)."""
    return _projection(moments.first_moment(), moments.pair_moment(), moments.whitening, settings)


def _projection(first: Array, pairs: Array, whitening: Array, settings: EngineSettings) -> Array:
    # It only has to span the topics roughly, whatever alpha_0 will be.
    centred = centred_pairs(first, pairs, whitening, settings.working_alpha_0, out=pairs)
    return next_projection(centred, whitening, word_scale(first), whitening.shape[1])


def projection_digest(whitening: Array) -> str:
    """Return 16 hex digits that tell projections apart by content. Time O(d m)."""
    data = np.ascontiguousarray(whitening, dtype="<f8").view(np.uint8).data
    return blake2b(data, digest_size=8).hexdigest()
