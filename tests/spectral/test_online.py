"""The online power method against slow twins: Algorithm 2 line by line, dense moments, batches."""

import numpy as np
import pytest

from streamlda.spectral.associations import DocumentAssociation, VectorAssociation
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import DeflatedPower
from tests import oracle
from tests.corpora import batch_of, corpus
from tests.spectral import twins
from tests.spectral.checks import orthonormal


def skewed(rng, vectors, eigenvalues, n, noise=0.5):
    """Return n vectors x with E x^(x3) = sum_i lambda_i v_i^(x3) exactly.

    x = sum_i s_i v_i + noise g: independent s_i of mean 0 that are 3 c_i with probability 1/10,
    else -c_i / 3 (third moment 8/3 c_i^3), and g of random signs, whose third moments are 0.
    """
    scale = np.cbrt(3 * np.asarray(eigenvalues) / 8)
    drawn = np.where(rng.random((n, len(scale))) < 0.1, 3.0, -1 / 3) * scale
    signs = rng.integers(0, 2, (n, len(vectors))) * 2.0 - 1.0
    return drawn @ vectors.T + noise * signs


def test_online_power_equals_algorithm_2_line_by_line():
    d, k, L, R, n = 4, 3, 3, 4, 40
    X = skewed(np.random.default_rng(1), orthonormal(d, k, 0), [3, 2, 1], k * R * n)
    settings = {"n_restarts": L, "n_iterations": R, "eigenvalue_round": False, "seed": 5}
    online = OnlinePower(DeflatedPower(d, k, **settings), VectorAssociation(d), n)
    online.add(X)
    found = online.components()
    tensors = [np.einsum("na,nb,nc->abc", x, x, x) / n for x in np.split(X, k * R)]
    values, vectors = twins.algorithm_2(iter(tensors), k, L, R, 5)
    assert online.finished
    np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-10)
    np.testing.assert_allclose(found.eigenvectors, vectors, atol=1e-10)
    # As printed, line 7 deflates by the wrong projections: the comparison sees that.
    values, vectors = twins.algorithm_2(iter(tensors), k, L, R, 5, xi_of_next=True)
    assert np.abs(found.eigenvectors - vectors).max() > 0.01


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3], [1024, 1025]])
def test_vector_sums_equal_definition_whatever_the_cut(order, cuts):
    rng = np.random.default_rng(2)
    X, U = rng.standard_normal((1500, 6)), orthonormal(6, 4, seed=3)
    sums = VectorAssociation(6, order)
    sums.begin(U)
    for part in np.split(X, cuts):
        assert sums.add(part) == len(part)
    expected = X.T @ (X @ U) ** (order - 1) / 1500
    np.testing.assert_allclose(sums.answer(), expected, rtol=1e-10, atol=1e-12)
    sums.begin(U)
    assert sums.add(X, 100, 300) == 400
    assert sums.documents == 300
    expected = X[100:400].T @ (X[100:400] @ U) ** (order - 1) / 300
    np.testing.assert_allclose(sums.answer(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["random", "repeated word", "three tokens"])
@pytest.mark.parametrize("a", [0.0, 0.5, 10.0])
def test_document_answers_equal_dense_moment(kind, a):
    documents, d, m = corpus(kind), 9, 4
    rng = np.random.default_rng(6)
    W, U = rng.uniform(-1, 1, (d, m)), orthonormal(m, 3, seed=7)
    usable = [tokens for tokens in documents if len(tokens) >= 3]
    first, pairs, triples = (
        np.mean([oracle.statistic(t, d, order) for t in usable], axis=0) for order in (1, 2, 3)
    )
    sums = DocumentAssociation(W, a, first, W.T @ pairs @ W)
    sums.begin(U)
    sums.add(batch_of(documents, d))
    V = W @ U
    moment = triples - oracle.triples_without(first, pairs, a)
    expected = np.einsum("abc,am,bl,cl->ml", moment, W, V, V)
    np.testing.assert_allclose(sums.answer(), expected, atol=1e-10)


@pytest.mark.parametrize("restarts", [1, 8])
def test_a_residual_tells_whether_a_component_is_one(restarts):
    """Of one iteration from few starts it is not, of more it is."""
    vectors, method = orthonormal(5, 2, 0), {"n_restarts": restarts, "seed": 3}
    found = []
    for n_iterations in (1, 8):
        power = DeflatedPower(5, 2, n_iterations=n_iterations, **method)
        found.append(OnlinePower(power, VectorAssociation(5), 2000))
        assert np.isinf(found[-1].residuals).all()
        while not found[-1].finished:
            found[-1].add(skewed(np.random.default_rng(found[-1].rounds), vectors, [2, 1], 2000))
        values, each = found[-1].components().eigenvalues, found[-1].components().eigenvectors
        far = np.linalg.norm(each[:, :, None] - vectors[:, None, :], axis=0).min(axis=1)
        turned = found[-1].residuals / values
        assert (turned[far > 0.7] > 0.5).all()
    assert (turned < 0.5).all()
    assert (far < 0.3).all()
