"""Data association: what a batch of documents adds to the pair and triple statistics.

Symbols (`streamlda/README.md`): c is a document's count vector, l its length, W the current probe
matrix (d x m), y = W^T c. The statistics are those of Wang & Anandkumar (2016), Algorithm 2,
with the corrections for words that are drawn together with themselves. Neither a d x d nor a
d x d x d array is ever formed.

Sums over documents are taken word by word in document order, so they do not depend on the number
of threads, nor on how the stream was cut into batches.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from streamlda.kernels import (
    F64_1D,
    F64_2D,
    I32_1D,
    I64_1D,
    OUT_F64_1D,
    OUT_F64_2D,
    OUT_F64_3D,
    OUT_I32_1D,
    OUT_I64_1D,
    kernel,
)

#: Words are dealt to this many tasks in turn, so that a vocabulary sorted by frequency is balanced.
_TASKS = 64

_F64_3D = types.Array(types.float64, 3, "C", readonly=True)


@kernel(types.void(F64_1D, I32_1D, I64_1D, F64_2D, OUT_F64_2D), parallel=True)
def project(
    counts: NDArray[np.float64],
    word_ids: NDArray[np.int32],
    row_pointers: NDArray[np.int64],
    probes: NDArray[np.float64],
    projections: NDArray[np.float64],
) -> None:
    """Project each document on the probe vectors: y = W^T c.

    Equivalent to ``projections[:] = csr @ probes``. Time O(nnz m), parallel over documents.

    Parameters
    ----------
    counts, word_ids, row_pointers : arrays of a `DocumentBatch`
    probes : ndarray of shape (d, m)
        W.
    projections : ndarray of shape (n_documents, m), output
        Overwritten.
    """
    n_probes = probes.shape[1]
    for n in numba.prange(len(row_pointers) - 1):
        for j in range(n_probes):
            projections[n, j] = 0.0
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            word = word_ids[entry]
            count = counts[entry]
            for j in range(n_probes):
                projections[n, j] += count * probes[word, j]


@kernel(types.void(F64_1D, I32_1D, I64_1D, F64_2D, OUT_F64_3D), parallel=True)
def project_powers(
    counts: NDArray[np.float64],
    word_ids: NDArray[np.int32],
    row_pointers: NDArray[np.int64],
    probes: NDArray[np.float64],
    powers: NDArray[np.float64],
) -> None:
    """Project each document on the probe vectors, on their squares and on their cubes.

    Equivalent to ``powers[:] = csr @ probes, csr @ probes**2, csr @ probes**3``, without the
    memory of the powers. Time O(nnz m), parallel over documents.

    Parameters
    ----------
    counts, word_ids, row_pointers : arrays of a `DocumentBatch`
    probes : ndarray of shape (d, m)
        The vectors v as columns.
    powers : ndarray of shape (3, n_documents, m), output
        Overwritten.
    """
    n_probes = probes.shape[1]
    for n in numba.prange(len(row_pointers) - 1):
        for power in range(3):
            for j in range(n_probes):
                powers[power, n, j] = 0.0
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            word = word_ids[entry]
            count = counts[entry]
            for j in range(n_probes):
                v = probes[word, j]
                powers[0, n, j] += count * v
                powers[1, n, j] += count * v * v
                powers[2, n, j] += count * v * v * v


@kernel(types.void(F64_1D, I32_1D, I64_1D, OUT_F64_1D, OUT_I32_1D, OUT_I64_1D))
def group_by_word(
    counts: NDArray[np.float64],
    word_ids: NDArray[np.int32],
    row_pointers: NDArray[np.int64],
    word_counts: NDArray[np.float64],
    documents: NDArray[np.int32],
    word_pointers: NDArray[np.int64],
) -> None:
    """Regroup a batch from documents to words, documents in order within each word.

    Equivalent to ``csc = csr.tocsc()``. Time O(nnz + d), serial.

    Parameters
    ----------
    counts, word_ids, row_pointers : arrays of a `DocumentBatch`
    word_counts, documents : ndarrays of shape (nnz,), output
        Count and document of each entry.
    word_pointers : ndarray of shape (d + 1,), output
        Word w owns the entries from ``word_pointers[w]`` to ``word_pointers[w + 1]``.
    """
    n_words = len(word_pointers) - 1
    for w in range(n_words + 1):
        word_pointers[w] = 0
    # Counting sort: slot w + 1 first holds the size of word w, then the place of its next entry.
    for entry in range(len(word_ids)):
        word_pointers[word_ids[entry] + 1] += 1
    for w in range(n_words):
        word_pointers[w + 1] += word_pointers[w]
    for n in range(len(row_pointers) - 1):
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            word = word_ids[entry]
            place = word_pointers[word]
            word_counts[place] = counts[entry]
            documents[place] = n
            word_pointers[word] = place + 1
    for w in range(n_words, 0, -1):
        word_pointers[w] = word_pointers[w - 1]
    word_pointers[0] = 0


@kernel(types.void(F64_1D, I32_1D, I64_1D, F64_2D, OUT_F64_2D), parallel=True)
def associate_words(
    word_counts: NDArray[np.float64],
    documents: NDArray[np.int32],
    word_pointers: NDArray[np.int64],
    weights: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None:
    """Add weighted counts to each word, for q sets of document weights at once.

    Equivalent to ``totals += csr.T @ weights``. Time O((nnz + d) q), parallel over words.

    Parameters
    ----------
    word_counts, documents, word_pointers : arrays from `group_by_word`
    weights : ndarray of shape (n_documents, q)
    totals : ndarray of shape (d, q), output
        Added to.
    """
    n_words = len(word_pointers) - 1
    for task in numba.prange(_TASKS):
        for word in range(task, n_words, _TASKS):
            for entry in range(word_pointers[word], word_pointers[word + 1]):
                for i in range(weights.shape[1]):
                    totals[word, i] += word_counts[entry] * weights[documents[entry], i]


@kernel(types.void(F64_1D, I32_1D, I64_1D, F64_2D, F64_2D, OUT_F64_3D), parallel=True)
def associate_projections(
    word_counts: NDArray[np.float64],
    documents: NDArray[np.int32],
    word_pointers: NDArray[np.int64],
    projections: NDArray[np.float64],
    weights: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None:
    """Add each word's association with the projections of its documents, q sets of weights.

    Equivalent to ``totals[i] += csr.T @ (weights[:, i, None] * projections)`` for each i.
    This is the cross term of the pair statistic (weights 1/(l(l-1))) and the B of the whitened
    triple statistic (weights 1/(l(l-1)(l-2))). Time O(nnz m q), parallel over words.

    Parameters
    ----------
    word_counts, documents, word_pointers : arrays from `group_by_word`
    projections : ndarray of shape (n_documents, m)
        Y, from `project`.
    weights : ndarray of shape (n_documents, q)
    totals : ndarray of shape (q, d, m), output
        Added to.
    """
    n_words = len(word_pointers) - 1
    n_probes = projections.shape[1]
    for task in numba.prange(_TASKS):
        for word in range(task, n_words, _TASKS):
            for entry in range(word_pointers[word], word_pointers[word + 1]):
                n = documents[entry]
                for i in range(weights.shape[1]):
                    weight = word_counts[entry] * weights[n, i]
                    for j in range(n_probes):
                        totals[i, word, j] += weight * projections[n, j]


@kernel(
    types.void(F64_1D, I32_1D, I64_1D, F64_1D, I32_1D, I64_1D, F64_1D, OUT_F64_2D), parallel=True
)
def associate_pairs(
    word_counts: NDArray[np.float64],
    documents: NDArray[np.int32],
    word_pointers: NDArray[np.int64],
    counts: NDArray[np.float64],
    word_ids: NDArray[np.int32],
    row_pointers: NDArray[np.int64],
    weights: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None:
    """Add c c' of each document, weighted, above and on the diagonal.

    Equivalent to ``totals += np.triu(csr.T @ diag(weights) @ csr)``: the pair statistic without a
    map, for vocabularies small enough. Time O(sum of nnz^2 over documents), parallel over words.

    Parameters
    ----------
    word_counts, documents, word_pointers : arrays from `group_by_word`
    counts, word_ids, row_pointers : arrays of a `DocumentBatch`
    weights : ndarray of shape (n_documents,)
    totals : ndarray of shape (d, d), output
        Added to; entries below the diagonal are left alone.
    """
    n_words = len(word_pointers) - 1
    for task in numba.prange(_TASKS):
        for word in range(task, n_words, _TASKS):
            for entry in range(word_pointers[word], word_pointers[word + 1]):
                n = documents[entry]
                weight = word_counts[entry] * weights[n]
                for other in range(row_pointers[n], row_pointers[n + 1]):
                    if word_ids[other] >= word:
                        totals[word, word_ids[other]] += weight * counts[other]


@kernel(
    types.void(F64_1D, I32_1D, I64_1D, F64_2D, F64_2D, F64_2D, F64_1D, OUT_F64_2D), parallel=True
)
def associate_triples(
    word_counts: NDArray[np.float64],
    documents: NDArray[np.int32],
    word_pointers: NDArray[np.int64],
    probes: NDArray[np.float64],
    projections: NDArray[np.float64],
    square_projections: NDArray[np.float64],
    weights: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None:
    """Add the triple association P3(I, v, v) of each document for L probe vectors v at once.

    Equivalent to, for each document and probe with s = c.v,
    ``totals[:, j] += weight * (s**2 * c - 2 * s * c * v - (c @ v**2) * c + 2 * c * v**2)``
    (Wang & Anandkumar 2016, Algorithm 2, on documents). Time O(nnz L), parallel over words.

    Parameters
    ----------
    word_counts, documents, word_pointers : arrays from `group_by_word`
    probes : ndarray of shape (d, L)
        The vectors v as columns.
    projections, square_projections : ndarrays of shape (n_documents, L)
        ``csr @ probes`` and ``csr @ probes**2``, from `project_powers`.
    weights : ndarray of shape (n_documents,)
        1/(l(l-1)(l-2)), times the clip factor where contributions are clipped.
    totals : ndarray of shape (d, L), output
        Added to.
    """
    n_words = len(word_pointers) - 1
    n_probes = probes.shape[1]
    for task in numba.prange(_TASKS):
        for word in range(task, n_words, _TASKS):
            for entry in range(word_pointers[word], word_pointers[word + 1]):
                n = documents[entry]
                weight = word_counts[entry] * weights[n]
                for j in range(n_probes):
                    v = probes[word, j]
                    s = projections[n, j]
                    others = s * s - square_projections[n, j] + 2.0 * v * (v - s)
                    totals[word, j] += weight * others


@kernel(types.void(_F64_3D, F64_1D, OUT_F64_2D))
def associate_values(
    powers: NDArray[np.float64], weights: NDArray[np.float64], totals: NDArray[np.float64]
) -> None:
    """Add P3(v, v, v) of each document, and its square, for L probe vectors v at once.

    Equivalent to, with s, s2, s3 = powers and ``x = weights[:, None] * (s**3 - 3*s*s2 + 2*s3)``,
    ``totals += x.sum(0), (x**2).sum(0)``. Time O(n_documents L), serial.

    Parameters
    ----------
    powers : ndarray of shape (3, n_documents, L)
        From `project_powers`.
    weights : ndarray of shape (n_documents,)
        As in `associate_triples`.
    totals : ndarray of shape (2, L), output
        Added to.
    """
    for n in range(len(weights)):
        for j in range(totals.shape[1]):
            s = powers[0, n, j]
            value = weights[n] * (s * (s * s - 3.0 * powers[1, n, j]) + 2.0 * powers[2, n, j])
            totals[0, j] += value
            totals[1, j] += value * value


@kernel(types.void(types.uint64, OUT_F64_2D), parallel=True)
def random_signs(seed: int, probes: NDArray[np.float64]) -> None:
    """Fill a d x m matrix with random signs / sqrt(m), a function of seed, word id and column only.

    So a row has unit norm, can be made again at any time from the word id, and is the same for
    every vocabulary size. Time O(d m), parallel over words.

    Parameters
    ----------
    seed : int
        64 bits.
    probes : ndarray of shape (d, m), output
        Overwritten.
    """
    n_probes = probes.shape[1]
    scale = 1.0 / np.sqrt(n_probes)
    for word in numba.prange(probes.shape[0]):
        for j in range(n_probes):
            # The finaliser of SplitMix64 over a counter made of the row and the column.
            z = np.uint64(seed) + np.uint64(word * 65536 + j + 1) * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            probes[word, j] = scale if z & np.uint64(1) else -scale
