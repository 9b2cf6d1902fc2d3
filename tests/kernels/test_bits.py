"""Outputs of all kernels are the same to the last bit for every number of threads."""

import numpy as np
import pytest

from streamlda import kernels
from streamlda.kernels import (
    association,
    inference,
    refinement,
)
from streamlda.spectral.moments import group_by_word
from streamlda.utils.threads import limit_threads

M, K = 6, 11


class Batch:
    """Documents drawn by numbers of the generator alone: no library of mathematics has a say."""

    def __init__(self, seed, n_documents, n_words, n_topics):
        rng = np.random.default_rng(seed)
        documents = []
        for n, topic in zip(
            rng.integers(0, 60, n_documents), rng.integers(0, n_topics, n_documents), strict=True
        ):
            own = rng.integers(0, n_words, n)
            # Words of a topic are those of one remainder; some tokens are of any topic.
            planted = np.where(rng.random(n) < 0.8, own - own % n_topics + topic, own)
            documents.append(np.minimum(planted, n_words - 1).astype(np.int32))
        self.tokens = np.concatenate(documents)
        self.offsets = np.cumsum([0, *map(len, documents)])
        entries = [np.unique(tokens, return_counts=True) for tokens in documents]
        self.word_ids = np.concatenate([words for words, _ in entries])
        self.counts = np.concatenate([counts for _, counts in entries]).astype(np.float64)
        self.row_pointers = np.cumsum([0, *(len(words) for words, _ in entries)])
        self.token_pointers = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int64)
        self.rows = self.counts, self.word_ids, self.row_pointers
        self.n_documents, self.n_words, self.nnz = n_documents, n_words, len(self.counts)
        self.probes = rng.random((n_words, M)) - 0.5
        self.projections = rng.random((n_documents, M)) - 0.5
        self.squares = rng.random((n_documents, M))
        self.powers = rng.random((3, n_documents, M)) - 0.5
        self.weights = rng.random((n_documents, 2)) - 0.5
        self.weight = rng.random(n_documents) - 0.5
        self.entry_weights = rng.random(self.nnz) - 0.5
        self.totals = rng.random((n_words, K))
        self.scale, self.alpha = rng.random(K), rng.random(K) + 0.01
        self.background = rng.random(n_words)
        self.topics = rng.random((n_words, K)) + 1e-3
        self.single = self.topics.astype(np.float32)
        self.single_alpha = self.alpha.astype(np.float32)
        self.running = np.cumsum(self.single * self.single_alpha, axis=1, dtype=np.float32)
        self.responsibilities = rng.random((self.nnz, K)).astype(np.float32)
        self.token_topics = rng.integers(0, K, len(self.tokens)).astype(np.int16)
        self.theta = rng.random((n_documents, K))


def zeros(*shape, dtype=np.float64):
    return np.zeros(shape, dtype=dtype)


def grouped(b, weights, ids, pointers):
    return group_by_word(weights, ids, pointers, b.n_words)


def by_word(b):
    return grouped(b, *b.rows)


def entries_by_word(b):
    return grouped(b, b.entry_weights, b.word_ids, np.arange(b.nnz + 1))


def called(kernel, *inputs, out):
    """Return the outputs of a kernel."""
    with np.errstate(over="ignore"):
        kernel(*inputs, *out)
    return out


def resampled(b):
    topics, inputs = b.token_topics.copy(), (b.token_pointers, b.single, b.running)
    inputs += zeros(K, dtype=np.float32), b.single_alpha, 2**40 + 3, 9
    return called(refinement.resample_topics, *b.rows[1:], *inputs, 2, out=[topics])


#: What each kernel gives on a batch: a list of arrays.
CALLS = {
    "project": lambda b: called(
        association.project, *b.rows, b.probes, out=[zeros(b.n_documents, M)]
    ),
    "associate_projections": lambda b: called(
        *(association.associate_projections, *by_word(b), b.projections, b.weights),
        out=[np.stack([b.totals[:, :M]] * 2)],
    ),
    "associate_triples": lambda b: called(
        association.associate_triples,
        *(*by_word(b), b.probes, b.projections, b.squares, b.weight),
        out=[b.totals[:, :M].copy()],
    ),
    "fold_in": lambda b: called(
        *(inference.fold_in, *b.rows, b.topics, b.alpha, 60, 1e-3), out=[zeros(b.n_documents, K)]
    ),
    "word_probabilities": lambda b: called(
        inference.word_probabilities, *b.rows[1:], b.topics, b.theta, out=[zeros(b.nnz)]
    ),
    "expect_topics": lambda b: called(
        *(refinement.expect_topics, *b.rows, b.single, b.single_alpha, 3),
        out=[zeros(b.nnz, K, dtype=np.float32), zeros(0)],
    ),
    "score documents": lambda b: called(
        *(refinement.expect_topics, *b.rows, b.single, b.single_alpha, 3),
        out=[zeros(b.nnz, K, dtype=np.float32), zeros(b.n_documents)],
    ),
    "resample_topics": resampled,
    "add_responsibilities": lambda b: called(
        *(refinement.add_responsibilities, *entries_by_word(b), b.responsibilities),
        out=[b.totals.copy()],
    ),
}


@pytest.fixture(scope="module")
def batches():
    return Batch(3, 300, 257, 11), Batch(4, 40, 31, 1)


@pytest.mark.parametrize("name", CALLS)
def test_outputs_are_the_same_for_every_number_of_threads(name, batches, monkeypatch):
    monkeypatch.setattr(kernels, "FEW_OPERATIONS", 0)
    for batch in batches:
        found = set()
        for threads in (1, 2, 3, 7):
            with limit_threads(threads):
                found.add(b"".join(array.tobytes() for array in CALLS[name](batch)))
        assert len(found) == 1
