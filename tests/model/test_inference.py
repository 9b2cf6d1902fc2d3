"""Fold-in: against its slow twin, row by row, and against the proportions drawn from."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.kernels.inference import fold_in, word_probabilities
from streamlda.model.inference import topic_proportions
from streamlda.simulate import PlantedLDA
from streamlda.utils.threads import limit_threads
from tests import oracle_text

pytestmark = pytest.mark.kernels


ONE = np.eye(1, 20, dtype=int)
BATCHES = {
    "random": np.random.default_rng(1).poisson(0.4, (30, 20)),
    "no documents": np.zeros((0, 20), dtype=int),
    "empty": np.zeros((2, 20), dtype=int),
    "one word": ONE,
    "repeated word": 50 * ONE,
    "three tokens": 2 * ONE + ONE[:, ::-1],
    "100,000 tokens": np.random.default_rng(1).multinomial(100_000, np.full(20, 1 / 20))[None],
}


@pytest.mark.parametrize(
    ("kind", "n_components", "until"),
    [
        *((kind, 4, (12, 1e-6)) for kind in BATCHES),
        *(("random", K, (12, 1e-6)) for K in (1, 3, 9)),
        *(("random", K, (40, tolerance)) for K in (1, 9) for tolerance in (1e-5, 1e-3, 2.0)),
    ],
)
def test_kernels_equal_oracle(kind, n_components, until):
    rng = np.random.default_rng(0)
    components = rng.dirichlet(np.full(20, 0.3), size=n_components)
    alpha = rng.uniform(0.05, 1.5, n_components)
    batch = DocumentBatch.from_matrix(BATCHES[kind])
    words = np.ascontiguousarray(components.T)
    arguments = (batch.counts, batch.word_ids, batch.row_pointers, words, alpha, *until)
    expected = np.reshape(
        oracle_text.fold_in(*(getattr(a, "tolist", lambda a=a: a)() for a in arguments)),
        (len(batch), n_components),
    )
    found = np.empty_like(expected)
    fold_in(*arguments, found)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)

    theta = np.random.default_rng(2).dirichlet(alpha, size=len(batch))
    arguments = (batch.word_ids, batch.row_pointers, words, theta)
    expected = oracle_text.word_probabilities(*(a.tolist() for a in arguments))
    found = np.empty(len(batch.counts))
    word_probabilities(*arguments, found)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def documents_of(share, n_components=8, n_documents=20):
    """Return 150-token documents of topics that have this share of their words in common."""
    rng = np.random.default_rng(4)
    common, own = rng.dirichlet(np.full(200, 0.1)), rng.dirichlet(np.full(200, 0.1), n_components)
    components, alpha = share * common + (1 - share) * own, np.full(n_components, 1 / n_components)
    words = rng.dirichlet(alpha, n_documents) @ components
    return DocumentBatch.from_matrix(rng.multinomial(150, words)), components, alpha


@pytest.mark.parametrize("share", [0, 0.5, 0.95, 0.99])
def test_proportions_are_as_near_the_optimum_as_the_tolerance_says(share):
    batch, components, alpha = documents_of(share)
    rows = batch.to_csr().toarray()
    best = np.array([oracle_text.optimum(row, components, alpha) for row in rows])
    for tolerance in (1e-3, 1e-4):
        found = topic_proportions(batch, components, alpha, tolerance=tolerance)
        distance = np.abs(found - best).sum(axis=1)
        assert distance.mean() < 1.5 * tolerance
        assert distance.max() < 10 * tolerance


def test_rows_do_not_depend_on_neighbours_order_or_threads():
    planted = PlantedLDA(8, 300, mean_length=40, seed=5)
    batch = planted.documents(60)
    whole = topic_proportions(batch, planted.components, planted.alpha)
    for n in (0, 17, 59):
        alone = topic_proportions(batch.rows(n, n + 1), planted.components, planted.alpha)
        assert np.array_equal(alone[0], whole[n])
    backwards = DocumentBatch.from_matrix(batch.to_csr()[::-1])
    turned = topic_proportions(backwards, planted.components, planted.alpha)
    assert np.array_equal(turned[::-1], whole)
    with limit_threads(1):
        assert np.array_equal(topic_proportions(batch, planted.components, planted.alpha), whole)
