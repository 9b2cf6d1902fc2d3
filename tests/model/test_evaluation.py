"""Held-out likelihood, diversity and matching."""

import itertools
import math

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError
from streamlda.model.evaluation import document_completion, matched_l1_error, topic_diversity
from streamlda.simulate import PlantedLDA

pytestmark = pytest.mark.kernels


def test_completion_equals_a_computation_by_hand():
    """The split is repeated here; fold-in and score are computed with dense arrays."""
    planted = PlantedLDA(5, 80, alpha_0=0.5, seed=2)
    batch, components, alpha = planted.documents(10), planted.components, planted.alpha
    background = alpha @ components / alpha.sum()
    observed = np.random.default_rng(7).binomial(batch.counts.astype(np.int64), 0.5)
    held_out = batch.counts - observed
    mixed = 0.9 * components + 0.1 * background
    nats, unigram, documents = 0.0, 0.0, 0
    for first, last in itertools.pairwise(batch.row_pointers):
        seen, left, ids = observed[first:last], held_out[first:last], batch.word_ids[first:last]
        if not seen.any() or not left.any():
            continue
        gamma = np.ones(5)
        for _ in range(3000):
            share = gamma[:, None] * mixed[:, ids]
            gamma = alpha + (share / share.sum(axis=0)) @ seen
        nats += left @ np.log(gamma / gamma.sum() @ mixed[:, ids])
        unigram += left @ np.log(background[ids])
        documents += 1
    settings = {"seed": 7, "smoothing": 0.1, "tolerance": 0.0}
    result = document_completion(batch, components, alpha, background, **settings)
    assert result.documents == documents
    assert result.held_out_tokens == held_out.sum()
    assert result.log_likelihood_nats == pytest.approx(nats, rel=1e-9)
    assert result.unigram_log_likelihood_nats == pytest.approx(unigram, rel=1e-12)
    assert result.perplexity == pytest.approx(math.exp(-nats / held_out.sum()), rel=1e-9)


def test_completion_scores_only_documents_and_tokens_that_it_can():
    flat, background = np.full((2, 3), 1 / 3), np.full(3, 1 / 3)
    rows = np.zeros((2001, 3), dtype=int)
    rows[:1000, 0], rows[1000:2000, 1] = 1, 2
    halves = document_completion(DocumentBatch.from_matrix(rows), flat, np.ones(2), background)
    # Only a pair of tokens can fall on both sides, with probability 1/2: 500 +- 5 sigma.
    assert 420 < halves.documents == halves.held_out_tokens < 580
    single = DocumentBatch.from_matrix(rows[:1000])
    with pytest.raises(InsufficientDataError, match="held_out_tokens=0"):
        document_completion(single, flat, np.ones(2), background)
    # A word outside all topics, without smoothing and with it.
    batch = DocumentBatch.from_matrix(np.full((5, 3), 20))
    one = batch, np.array([[0.5, 0.5, 0.0]]), np.ones(1), background
    bare, mixed = document_completion(*one, smoothing=0.0), document_completion(*one)
    assert bare.perplexity == math.inf
    assert mixed.perplexity < 100
    assert bare.unigram_perplexity == mixed.unigram_perplexity == pytest.approx(3.0)
    result = document_completion(batch, flat, np.ones(2), np.array([0.5, 0.5, 0.0]))
    assert abs(result.held_out_tokens - 100) < 40
    assert result.unigram_perplexity == pytest.approx(2.0)


def test_topic_diversity_counts_distinct_words():
    rows = {1.0: [[0, 1], [2, 3]], 0.5: [[0, 1], [1, 0]], 0.75: [["a", "b"], ["b", "c"]]}
    assert [topic_diversity(top) for top in rows.values()] == list(rows)


def test_matched_error_finds_the_best_of_all_permutations():
    rng = np.random.default_rng(5)
    true, estimated = rng.dirichlet(np.ones(8), size=(2, 4))

    def errors(order):
        return np.abs(true - estimated[list(order)]).sum(axis=1)

    best = min(itertools.permutations(range(4)), key=lambda order: errors(order).sum())
    found = matched_l1_error(true, estimated)
    assert found.permutation.tolist() == list(best)
    np.testing.assert_allclose(found.per_topic, errors(best))
    assert found.mean == pytest.approx(errors(best).mean())
    order = [2, 0, 3, 1]
    exact = matched_l1_error(true, true[order])
    assert (exact.mean, [order[column] for column in exact.permutation]) == (0.0, [0, 1, 2, 3])
