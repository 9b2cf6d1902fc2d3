"""Projections that sums are taken through, and the end of a warm-up."""

from hashlib import blake2b

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.spectral.moments import Moments, half_of
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.whitening import (
    centre_pairs,
    next_projection,
    random_projection,
    word_scale,
)
from streamlda.utils.arrays import Array

#: Power steps that sharpen the first projection on the warm-up documents.
POWER_STEPS = 3

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


def first_projection(
    documents: DocumentBatch, settings: EngineSettings, columns: int | None = None
) -> Array:
    """Find a projection by power steps on the second moment of documents."""
    W = random_projection(settings.n_features, columns or settings.n_columns, settings.seed)
    for _ in range(POWER_STEPS):
        W = _sharpened(W, documents, settings)
    return W


def _sharpened(W: Array, documents: DocumentBatch, settings: EngineSettings) -> Array:
    sketch = Moments(W, triple_columns=0)
    sketch.add(documents)
    first, pairs = sketch.first_moment(), sketch.pair_moment(spend=True)
    return _projection(first, pairs, W, settings)


def make_held_out_pairs(warmup: DocumentBatch, settings: EngineSettings) -> HeldOutPairs | None:
    """Find directions in one half of the warm-up documents, and return what the other says of them.

    None if there are not enough for two halves of a half.
    """
    usable = warmup.sharing(warmup.usable)
    second = half_of(0, len(usable)) == 1
    if second.sum() < 2:
        return None
    W = first_projection(usable.where(~second), settings, settings.n_triple_columns)
    return HeldOutPairs.of_documents(usable.where(second), W)


def make_pairs_and_projection(
    documents: DocumentBatch, settings: EngineSettings
) -> tuple[HeldOutPairs | None, Array]:
    """Return pairs as `make_held_out_pairs`, and the projection of all documents.

    It is the one of the half, sharpened by all: two power steps fewer on as many documents.
    """
    usable = documents.sharing(documents.usable)
    second = half_of(0, len(usable)) == 1
    if second.sum() < 2:
        return None, first_projection(documents, settings)
    W = first_projection(usable.where(~second), settings)
    pairs = HeldOutPairs.of_documents(usable.where(second), W[:, : settings.n_triple_columns])
    return pairs, _sharpened(W, documents, settings)


def better_projection(moments: Moments, settings: EngineSettings) -> Array:
    """Return the projection that sums lead to, for the round after them; time O(d m^2)."""
    return _projection(moments.first_moment(), moments.pair_moment(), moments.whitening, settings)


def _projection(first: Array, pairs: Array, whitening: Array, settings: EngineSettings) -> Array:
    # It only has to span the topics roughly, whatever alpha_0 will be.
    centred = centre_pairs(first, pairs, whitening, settings.working_alpha_0, out=pairs)
    return next_projection(centred, whitening, word_scale(first))


def projection_digest(whitening: Array) -> str:
    """Return 16 hex digits that tell projections apart by content. Time O(d m)."""
    data = np.ascontiguousarray(whitening, dtype="<f8").view(np.uint8).data
    return blake2b(data, digest_size=8).hexdigest()
