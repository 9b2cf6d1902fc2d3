"""Kernels of checks and association against slow twins, for every cut and input dtype."""

import math

import numpy as np
import pytest
from hypothesis import given

from streamlda.kernels.association import (
    associate_projections,
    associate_triples,
    list_pairs,
    project,
)
from streamlda.spectral.moments import group_by_word
from streamlda.spectral.whitening import random_projection
from tests import oracle
from tests.corpora import KINDS, batch_of, corpus, small_corpora
from tests.oracle import pack_pairs

#: Rounding of some thousand additions, each within 1.1e-16 of a sum bounded by the scale given.
ROUNDING = 1e-12


def close(found, expected, scale):
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * max(scale, 1.0))


def arrays(batch):
    return batch.counts, batch.word_ids, batch.row_pointers


def projected(batch, W):
    # NaN: a cell that the kernel leaves alone is seen.
    found = np.full((batch.n_documents, W.shape[1]), np.nan)
    project(*arrays(batch), W, found)
    return found


def grouped(batch):
    return group_by_word(*arrays(batch), batch.n_features)


def signs(seed, d, m):
    return random_projection(d, m, seed)


def check_sums(documents, W):
    """Two sets of random weights on words and on projections; what is there already stays."""
    batch, rng = batch_of(documents, len(W)), np.random.default_rng(1)
    by_word, y = grouped(batch), projected(batch, W)
    weights = rng.uniform(-1, 1, (len(documents), 2))
    before = rng.uniform(-1, 1, (2, *W.shape))
    found = before.copy()
    associate_projections(*by_word, y, weights, found)
    for i in range(2):
        weighted = weights[:, [i]] * oracle.projections(documents, W)
        expected = before[i] + oracle.word_sums(documents, len(W), weighted)
        close(found[i], expected, sum(len(t) ** 2 for t in documents))


def check_pairs(documents, d):
    """Cells rise within a document, and values are those of the definition, packed."""
    batch, rng = batch_of(documents, d), np.random.default_rng(9)
    weights = rng.uniform(-1, 1, len(documents))
    n = np.diff(batch.row_pointers)
    pointers = np.concatenate([[0], np.cumsum(n * (n + 1) // 2)])
    cells, values = np.empty(pointers[-1], np.int64), np.empty(pointers[-1])
    list_pairs(*arrays(batch), weights, d, pointers, cells, values)
    for document, weight, start, stop in zip(
        documents, weights, pointers[:-1], pointers[1:], strict=True
    ):
        counts = np.bincount(np.array(document, dtype=int), minlength=d).astype(float)
        expected = pack_pairs(np.outer(counts, counts) - np.diag(counts)) * weight
        found = np.zeros(len(expected))
        found[cells[start:stop]] = values[start:stop]
        assert np.all(np.diff(cells[start:stop]) > 0)
        close(found, expected, len(document) ** 2)


def check_triples(documents, W):
    """With clip factors, so that documents do not all weigh the same."""
    batch, rng = batch_of(documents, len(W)), np.random.default_rng(2)
    clip = rng.uniform(0.1, 1, len(documents))
    weights, before = np.zeros(len(documents)), rng.uniform(-1, 1, W.shape)
    expected = before.copy()
    for n, tokens in enumerate(documents):
        if len(tokens) >= 3:
            weights[n] = clip[n] / math.perm(len(tokens), 3)
            own = np.einsum("abc,bj,cj->aj", clip[n] * oracle.statistic(tokens, len(W), 3), W, W)
            expected += own
    found, y, y2 = before.copy(), projected(batch, W), projected(batch, W**2)
    associate_triples(*grouped(batch), W, y, y2, weights, found)
    close(found, expected, len(documents))


def check_all(documents, W):
    check_sums(documents, W)
    check_pairs(documents, len(W))
    check_triples(documents, W)


@pytest.mark.parametrize("kind", [*KINDS, "many words"])
def test_kernels_equal_oracle(kind):
    rng = np.random.default_rng(3)
    if kind == "many words":
        documents = corpus("100,000 tokens", d=40) + corpus("random", d=40)
        check_all(documents, rng.uniform(-1, 1, (40, 3)))
    else:
        for m in (1, 5):
            check_all(corpus(kind), rng.uniform(-1, 1, (9, m)))


@pytest.mark.fuzz
@given(small_corpora())
def test_kernels_equal_oracle_on_any_small_corpus(drawn):
    check_all(*drawn)


def test_random_signs_depend_on_seed_word_and_column_alone():
    for seed in (0, 1, 2**63, 2**64 - 1):
        expected = [[oracle.random_sign(seed, word, j) for j in range(9)] for word in range(70)]
        np.testing.assert_allclose(signs(seed, 70, 9) * 3, expected, rtol=1e-15)
    large = signs(3, 500, 16)
    np.testing.assert_array_equal(signs(3, 200, 16), large[:200])
    np.testing.assert_array_equal(np.sign(signs(3, 500, 5)), np.sign(large[:, :5]))
    assert not np.array_equal(signs(4, 500, 16), large)
