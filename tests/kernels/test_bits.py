"""Outputs of all kernels are the same to the last bit for every number of threads."""

import numpy as np
import pytest

from streamlda import kernels
from streamlda.kernels import association, inference, refinement
from streamlda.spectral.moments import group_by_word
from streamlda.utils.threads import limit_threads
from tests.corpora import batch_of

M, K = 6, 11


class Batch:
    def __init__(self, seed, n_documents, n_words):
        rng = np.random.default_rng(seed)
        documents = [rng.integers(0, n_words, n).tolist() for n in rng.integers(0, 60, n_documents)]
        batch = batch_of(documents, n_words)
        self.rows = batch.counts, batch.word_ids, batch.row_pointers
        self.word_ids, self.nnz = batch.word_ids, len(batch.counts)
        self.token_pointers = np.concatenate(([0], np.cumsum(batch.counts))).astype(np.int64)
        self.n_documents, self.n_words = n_documents, n_words
        self.probes = rng.random((n_words, M)) - 0.5
        self.projections = rng.random((n_documents, M)) - 0.5
        self.squares = rng.random((n_documents, M))
        self.weights = rng.random((n_documents, 2)) - 0.5
        self.weight = rng.random(n_documents) - 0.5
        self.entry_weights = rng.random(self.nnz) - 0.5
        self.totals = rng.random((n_words, K))
        self.alpha = rng.random(K) + 0.01
        self.topics = rng.random((n_words, K)) + 1e-3
        self.single = self.topics.astype(np.float32)
        self.single_alpha = self.alpha.astype(np.float32)
        self.running = np.cumsum(self.single * self.single_alpha, axis=1, dtype=np.float32)
        self.responsibilities = rng.random((self.nnz, K)).astype(np.float32)
        self.token_topics = rng.integers(0, K, self.token_pointers[-1]).astype(np.int16)
        self.theta = rng.random((n_documents, K))


def zeros(*shape, dtype=np.float64):
    return np.zeros(shape, dtype=dtype)


def by_word(b):
    return group_by_word(*b.rows, b.n_words)


def entries_by_word(b):
    return group_by_word(b.entry_weights, b.word_ids, np.arange(b.nnz + 1), b.n_words)


def call_kernel(kernel, *inputs, out):
    with np.errstate(over="ignore"):
        kernel(*inputs, *out)
    return out


#: What each kernel gives on a batch: a list of arrays.
CALLS = {
    "project": lambda b: call_kernel(
        association.project, *b.rows, b.probes, out=[zeros(b.n_documents, M)]
    ),
    "associate_projections": lambda b: call_kernel(
        *(association.associate_projections, *by_word(b), b.projections, b.weights),
        out=[np.stack([b.totals[:, :M]] * 2)],
    ),
    "associate_triples": lambda b: call_kernel(
        association.associate_triples,
        *(*by_word(b), b.probes, b.projections, b.squares, b.weight),
        out=[b.totals[:, :M].copy()],
    ),
    "fold_in": lambda b: call_kernel(
        *(inference.fold_in, *b.rows, b.topics, b.alpha, 60, 1e-3), out=[zeros(b.n_documents, K)]
    ),
    "word_probabilities": lambda b: call_kernel(
        inference.word_probabilities, *b.rows[1:], b.topics, b.theta, out=[zeros(b.nnz)]
    ),
    "expect_topics": lambda b: call_kernel(
        *(refinement.expect_topics, *b.rows, b.single, b.single_alpha, 3),
        out=[zeros(b.nnz, K, dtype=np.float32), zeros(0)],
    ),
    "score documents": lambda b: call_kernel(
        *(refinement.expect_topics, *b.rows, b.single, b.single_alpha, 3),
        out=[zeros(b.nnz, K, dtype=np.float32), zeros(b.n_documents)],
    ),
    "expect_few_topics": lambda b: call_kernel(
        *(refinement.expect_few_topics, *b.rows, b.single, b.single.sum(axis=1), b.single_alpha, 3),
        out=[
            *(zeros(b.n_documents, 3, dtype=np.int16), zeros(b.nnz, 3, dtype=np.float32)),
            zeros(b.n_documents),
        ],
    ),
    "resample_topics": lambda b: call_kernel(
        *(refinement.resample_topics, *b.rows[1:], b.token_pointers, b.single, b.running),
        *(zeros(K, dtype=np.float32), b.single_alpha, 2**40 + 3, 9, 2),
        out=[b.token_topics.copy()],
    ),
    "add_responsibilities": lambda b: call_kernel(
        *(refinement.add_responsibilities, *entries_by_word(b), b.responsibilities),
        out=[b.totals.copy()],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_outputs_are_the_same_for_every_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(kernels, "FEW_OPERATIONS", 0)
    for batch in (Batch(3, 300, 257), Batch(4, 40, 31)):
        found = set()
        for threads in (1, 2, 3, 7):
            with limit_threads(threads):
                found.add(b"".join(array.tobytes() for array in CALLS[name](batch)))
        assert len(found) == 1
