"""Data association: additions of a batch of documents to the pair and triple statistics.

Symbols (`streamlda/README.md`): c is a document's count vector, l its length, W the current probe
matrix (d x m), y = W^T c. The statistics are those of Wang & Anandkumar (2016), Algorithm 2,
with the corrections for words that are drawn together with themselves. Neither a d x d nor a
d x d x d array is ever formed.

Sums over documents are taken word by word in document order, so they do not depend on the number
of threads, nor on how the stream was cut into batches. ``counts``, ``word_ids`` and
``row_pointers`` are those of a `DocumentBatch`; ``word_counts``, ``documents`` and
``word_pointers`` are the same counts by word. Totals are added to, other outputs overwritten.
"""

from __future__ import annotations

import numpy as np

from streamlda.kernels import (
    F64_1D,
    F64_2D,
    F64_3D,
    I32_1D,
    I64_1D,
    OUT_F64_1D,
    OUT_F64_2D,
    OUT_F64_3D,
    OUT_I64_1D,
    kernel,
    parallel_kernel,
)

#: Words are dealt to this many tasks in turn, so that a vocabulary sorted by frequency is balanced.
TASKS = 64


@parallel_kernel(lambda counts, ids, rows, probes, out: (len(rows) - 1, len(ids) * out.shape[1]))
def project(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    probes: F64_2D,
    projections: OUT_F64_2D,
) -> None:
    """Project each document on the probe vectors, y = W^T c, with W of shape (d, m).

    Equivalent to ``projections[:] = csr @ probes``. Time O(nnz m), parallel over documents.
    """
    n_probes = probes.shape[1]
    for n in range(first, last):
        for j in range(n_probes):
            projections[n, j] = 0.0
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            # Without a sign, so that it is not looked at in the loop over probes.
            word = np.uint32(word_ids[entry])
            count = counts[entry]
            for j in range(n_probes):
                projections[n, j] += count * probes[word, j]


@parallel_kernel(lambda counts, ids, ends, y, q, out: (TASKS, len(counts) * y.shape[1] * len(out)))
def associate_projections(
    first: int,
    last: int,
    word_counts: F64_1D,
    documents: I32_1D,
    word_pointers: I64_1D,
    projections: F64_2D,
    weights: F64_2D,
    totals: OUT_F64_3D,
) -> None:
    """Add each word's association with the projections of its documents, q sets of weights.

    Equivalent to ``totals[i] += csr.T @ (weights[:, i, None] * projections)`` for each column i of
    ``weights``, of shape (n_documents, q); ``totals`` has shape (q, d, m). This is the cross term
    of the pair statistic (weights 1/(l(l-1))) and the B of the whitened triple statistic (weights
    1/(l(l-1)(l-2))). Time O(nnz m q), parallel over words.
    """
    n_words = len(word_pointers) - 1
    n_probes = projections.shape[1]
    for task in range(first, last):
        for word in range(task, n_words, TASKS):
            for entry in range(word_pointers[word], word_pointers[word + 1]):
                n = documents[entry]
                for i in range(weights.shape[1]):
                    weight = word_counts[entry] * weights[n, i]
                    for j in range(n_probes):
                        totals[i, word, j] += weight * projections[n, j]


@parallel_kernel(lambda counts, *rest: (TASKS, 4 * len(counts) * rest[-1].shape[1]))
def associate_triples(
    first: int,
    last: int,
    word_counts: F64_1D,
    documents: I32_1D,
    word_pointers: I64_1D,
    probes: F64_2D,
    projections: F64_2D,
    square_projections: F64_2D,
    weights: F64_1D,
    totals: OUT_F64_2D,
) -> None:
    """Add the triple association P3(I, v, v) of each document for L probe vectors v at once.

    Equivalent to, for each document and probe with s = c.v,
    ``totals[:, j] += weight * (s**2 * c - 2 * s * c * v - (c @ v**2) * c + 2 * c * v**2)``
    (Wang & Anandkumar 2016, Algorithm 2, on documents). Weights are 1/(l(l-1)(l-2)), times the clip
    factor where contributions are clipped; projections are those on v and on its squares. Time
    O(nnz L), parallel over words.
    """
    n_words = len(word_pointers) - 1
    n_probes = probes.shape[1]
    for task in range(first, last):
        for word in range(task, n_words, TASKS):
            for entry in range(word_pointers[word], word_pointers[word + 1]):
                n = documents[entry]
                weight = word_counts[entry] * weights[n]
                for j in range(n_probes):
                    v = probes[word, j]
                    s = projections[n, j]
                    others = s * s - square_projections[n, j] + 2.0 * v * (v - s)
                    totals[word, j] += weight * others


@kernel
def list_pairs(
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    weights: F64_1D,
    n_features: int,
    pointers: I64_1D,
    cells: OUT_I64_1D,
    values: OUT_F64_1D,
) -> None:
    """List the entries of the upper triangle of c c' - diag c of each document, weighted.

    Those of document n are ``cells`` and ``values`` from ``pointers[n]`` on, by rising cells:
    places in the upper triangle of a d x d matrix, row by row. Entries off the diagonal are times
    sqrt(2).
    Time O(sum of nnz^2 over documents), serial.
    """
    twice = np.sqrt(2.0)
    for n in range(len(row_pointers) - 1):
        at = pointers[n]
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            word, count = word_ids[entry], counts[entry]
            begin = word * n_features - word * (word - 1) // 2 - word
            cells[at] = begin + word
            values[at] = weights[n] * count * (count - 1.0)
            at += 1
            for other in range(entry + 1, row_pointers[n + 1]):
                cells[at] = begin + word_ids[other]
                values[at] = weights[n] * twice * count * counts[other]
                at += 1


@parallel_kernel(
    lambda counts, ids, rows, probes, weights, scales, triples, *rest: (
        len(rows) - 1,
        (len(ids) + len(rows)) * len(scales),
    )
)
def moments_through(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    probes: F64_2D,
    weights: F64_2D,
    scales: F64_1D,
    triples: OUT_F64_2D,
    pairs: OUT_F64_2D,
    firsts: OUT_F64_2D,
) -> None:
    """Project the first three moments of each document on t vectors, P3(W, W, W), W'P2 W and W'P1.

    Weights are those of `document_weights`. Of symmetric arrays entries i <= j (<= k) are kept,
    row by row, times the square root of how often they occur: `scales` for triples. Time
    O(nnz t^3 / 6), parallel over documents.
    """
    t = probes.shape[1]
    twice = np.sqrt(2.0)
    for n in range(first, last):
        triples[n] = 0.0
        pairs[n] = 0.0
        firsts[n] = 0.0
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            word = word_ids[entry]
            count = counts[entry]
            pair = triple = 0
            for i in range(t):
                once = count * probes[word, i]
                firsts[n, i] += once
                for j in range(i, t):
                    both = once * probes[word, j]
                    pairs[n, pair] += both
                    pair += 1
                    for k in range(j, t):
                        triples[n, triple] += 2.0 * both * probes[word, k]
                        triple += 1
        # Row i of the packed pairs begins at i t - i (i - 1) / 2 - i, less its first columns.
        triple = 0
        for i in range(t):
            row = i * t - i * (i - 1) // 2 - i
            for j in range(i, t):
                other = j * t - j * (j - 1) // 2 - j
                for k in range(j, t):
                    found = triples[n, triple] + firsts[n, i] * firsts[n, j] * firsts[n, k]
                    found -= pairs[n, row + j] * firsts[n, k] + pairs[n, row + k] * firsts[n, j]
                    found -= pairs[n, other + k] * firsts[n, i]
                    triples[n, triple] = weights[n, 2] * scales[triple] * found
                    triple += 1
        pair = 0
        for i in range(t):
            for j in range(i, t):
                found = firsts[n, i] * firsts[n, j] - pairs[n, pair]
                pairs[n, pair] = weights[n, 1] * found * (1.0 if i == j else twice)
                pair += 1
        for i in range(t):
            firsts[n, i] *= weights[n, 0]


@parallel_kernel(
    lambda counts, ids, rows, probes, directions, *rest: (
        len(rows) - 1,
        len(ids) * probes.shape[1] * directions.shape[1],
    )
)
def images_through(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    probes: F64_2D,
    directions: F64_2D,
    powers: F64_3D,
    weights: F64_1D,
    images: OUT_F64_2D,
) -> None:
    """Project P3(I, v, v) of each document on t vectors W, for L vectors v: W'P3(I, v, v).

    Powers are projections on v and on its squares, weights 1/(l(l-1)(l-2)); ``images`` has a row
    of t L numbers a document. Time O(nnz t L), parallel over documents.
    """
    t, n_directions = probes.shape[1], directions.shape[1]
    for n in range(first, last):
        images[n] = 0.0
        for entry in range(row_pointers[n], row_pointers[n + 1]):
            word = word_ids[entry]
            for j in range(n_directions):
                v = directions[word, j]
                s = powers[0, n, j]
                others = s * s - powers[1, n, j] + 2.0 * v * (v - s)
                weight = weights[n] * counts[entry] * others
                for i in range(t):
                    images[n, i * n_directions + j] += weight * probes[word, i]
