"""Clip bounds: largest norms of a document's blocks, and ways to find them privately.

A bound may be a public number, the worst case over all documents, or a quantile of the norms. The
last is read off the documents, so it is a release like any other: the norms of an earlier stage
are counted into public bins (`norm_edges`), the counts are released with noise, and
`private_quantile` of the noisy counts is post-processing. The bound then serves *later* stages
only: a bound that depends on the documents it clips has no sensitivity that could be stated.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from streamlda.errors import between, one_of
from streamlda.privacy.events import CLIP_SOURCES
from streamlda.utils.arrays import Array

#: Bins of a histogram of norms, by factors of sqrt(2): down to 2^-24 of the largest norm.
N_BINS = 49

Source = Literal["fixed", "private-quantile", "worst-case"]


def norm_edges(largest: float) -> Array:
    """Return the upper edges of `N_BINS` bins of norms, rising, of which the top one is `largest`.

    Bin i holds the norms in (edges[i-1], edges[i]]; an edge is sqrt(2) times the one below, the top
    edge the worst-case norm, a public number. Norms below the lowest edge are counted in the lowest
    bin, those above the top, by rounding, and those that are not finite, in the top bin. Empty bins
    cost nothing: see `private_quantile`.
    """
    between(1e-50, 1e50, largest=largest)
    return float(largest) * math.sqrt(2.0) ** -np.arange(N_BINS - 1.0, -1.0, -1.0)


def private_quantile(noisy_counts: ArrayLike, edges: ArrayLike, q: float, stddev: float) -> float:
    """Return about the q-quantile of norms, by their noisy counts in the bins of `norm_edges`.

    Post-processing: it costs no privacy. `stddev` is that of the noise in each count. The quantile
    is taken of the positive counts between the first and the last bin that hold documents,
    interpolated on the scale of logarithms.

    *Which bins hold documents* is found from either end by a cumulative sum that each bin moves by
    its noisy count less one `stddev` and that never falls below 0 (CUSUM, Page 1954). In empty bins
    it falls back to 0 again and again; when it exceeds 5 `stddev` there are documents, and they
    begin where it last left 0. Fewer than some 10 `stddev` documents far above all others go
    unseen: they will be clipped hard. If none are seen, `largest` is returned, the bound that is
    always right.
    """
    counts, upper = np.asarray(noisy_counts, np.float64), np.asarray(edges, np.float64)
    first = _first_occupied(counts, stddev)
    last = _first_occupied(counts[::-1], stddev)
    if first is None or last is None:
        return float(upper[-1])
    # A run found from one end is found from the other, so only rounding could cross the two.
    low, high = first, max(first, len(counts) - 1 - last)
    below = np.cumsum(np.maximum(counts[low : high + 1], 0.0))
    rank = q * below[-1]
    bin_ = min(int(np.searchsorted(below, rank)), high - low)
    before = float(below[bin_ - 1]) if bin_ else 0.0
    part = (rank - before) / (float(below[bin_]) - before)
    edge = upper[low + bin_]
    width = edge / upper[low + bin_ - 1] if low + bin_ else upper[1] / upper[0]
    return float(min(edge * width ** (part - 1), upper[-1]))


@dataclass(frozen=True, slots=True)
class ClipBounds:
    """Largest norms, after clipping, of a document's p1, P2 W and P3(W, W, W) (Frobenius).

    `source` says where they came from: public numbers ("fixed"), a private quantile of earlier
    documents, or the worst case, which is 1, w and w^3 for the longest row w of a public W: p1,
    P2 W and P3(W, W, W) are means, over ordered choices of one, two, three different tokens of a
    document, of e_i, of e_i W_j' and of the outer product of W_i, W_j and W_k, where i, j, k are
    their words. Each of these has norm at most 1, w, w^3, and so has their mean. A document of one
    word, that of the longest row, attains all three. This is the infinity-norm scaling of Wang and
    Anandkumar (2016), with documents in place of entries of a tensor. Computed norms may be above
    by rounding: clip all the same.
    """

    first: float
    pair: float
    triple: float
    source: Source

    def __post_init__(self) -> None:
        for name in ("first", "pair", "triple"):
            # As of `Block.l2_clip_norm`.
            between(1e-100, 1e100, **{name: getattr(self, name)})
        one_of(CLIP_SOURCES, source=self.source, remedy="say fixed for numbers that are public")


def holds_documents(noisy_counts: Array, stddev: float) -> bool:
    """Return whether noisy counts of norms show a document; see `private_quantile`."""
    return _first_occupied(noisy_counts, stddev) is not None


def _first_occupied(counts: Array, stddev: float) -> int | None:
    """Return the first bin that seems to hold documents, or None; see `private_quantile`."""
    excess, begin = 0.0, 0
    for bin_, count in enumerate(counts.tolist()):
        if excess == 0.0:
            begin = bin_
        excess = max(0.0, excess + count - stddev)
        if excess > 5.0 * stddev:
            return begin
    return None
