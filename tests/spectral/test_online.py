"""The online power method against slow twins: Algorithm 2 line by line, dense moments, batches."""

import numpy as np
import pytest

from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.spectral.associations import DocumentAssociation, VectorAssociation
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import DeflatedPower
from tests import oracle
from tests.corpora import batch_of, corpus
from tests.spectral import twins
from tests.spectral.checks import orthonormal, state_bytes

quiet = pytest.mark.filterwarnings("ignore:a component should come from enough documents")


def skewed(rng, vectors, eigenvalues, n, noise=0.5):
    """Return n vectors x with E x^(x3) = sum_i lambda_i v_i^(x3) exactly.

    x = sum_i s_i v_i + noise g: independent s_i of mean 0 that are 3 c_i with probability 1/10,
    else -c_i / 3 (third moment 8/3 c_i^3), and g of random signs, whose third moments are 0.
    """
    scale = np.cbrt(3 * np.asarray(eigenvalues) / 8)
    drawn = np.where(rng.random((n, len(scale))) < 0.1, 3.0, -1 / 3) * scale
    signs = rng.integers(0, 2, (n, len(vectors))) * 2.0 - 1.0
    return drawn @ vectors.T + noise * signs


def distance(found, vectors):
    """Return the largest distance of a planted vector to the nearest found one."""
    gaps = np.linalg.norm(found[:, :, None] - vectors[:, None, :], axis=0)
    return gaps.min(axis=0).max()


@quiet
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
    assert found.finished.all()
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
    images, values = sums.answer()
    inner = X @ U
    np.testing.assert_allclose(images, X.T @ inner ** (order - 1) / 1500, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(values, np.mean(inner**order, axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(sums.spread(), np.std(inner**order, axis=0), rtol=1e-10)
    sums.begin(U, values_only=True)
    sums.add(X, 100, 300)
    assert sums.documents == 300
    assert sums.answer()[0] is None
    np.testing.assert_allclose(sums.answer()[1], np.mean(inner[100:400] ** order, axis=0))


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
    images, values = sums.answer()
    V = W @ U
    moment = triples - oracle.triples_without(first, pairs, a)
    expected = np.einsum("abc,am,bl,cl->ml", moment, W, V, V)
    np.testing.assert_allclose(images, expected, atol=1e-10)
    np.testing.assert_allclose(values, np.einsum("ml,ml->l", U, expected), atol=1e-10)
    single = [np.einsum("abc,al,bl,cl->l", oracle.statistic(t, d, 3), V, V, V) for t in usable]
    np.testing.assert_allclose(sums.spread(), np.std(single, axis=0), atol=1e-7)
    sums.begin(U, values_only=True)
    sums.add(batch_of(documents, d))
    assert sums.answer()[0] is None
    np.testing.assert_allclose(sums.answer()[1], values, atol=1e-12)


def online(**settings):
    """Return an online method of 2 components in 5 dimensions, and a stream for it."""
    X = skewed(np.random.default_rng(13), orthonormal(5, 2, 0), [2, 1], 9000)
    method = DeflatedPower(5, 2, n_restarts=8, n_iterations=8, seed=11, **settings)
    return OnlinePower(method, VectorAssociation(5), 300), X


@quiet
def test_what_cannot_be_added_is_refused_and_changes_nothing():
    refusing, X = online()
    refusing.add(X[:650])
    before = state_bytes(refusing)
    bad = X[:2000].copy()
    bad[1500, 2] = np.nan
    for batch, message in ((bad, "row=1500"), (X[:, :3], "shape="), (X[0], "shape=")):
        with pytest.raises(InvalidDocumentsError, match=message):
            refusing.add(batch)
    assert state_bytes(refusing) == before
    with pytest.raises(InvalidDocumentsError, match="n_features=5 expected=4"):
        words().check(batch_of([[0, 1, 4]], 5))
    # A round that overflows begins again.
    before = state_bytes(refusing.method)
    with pytest.raises(InvalidDocumentsError, match="round=2"):
        refusing.add(X[:300] * 1e120)
    assert refusing.remaining == 300
    assert state_bytes(refusing.method) == before
    refusing.add(X[600:9000])
    assert distance(refusing.components().eigenvectors, orthonormal(5, 2, 0)) < 0.3


def words(alpha_0=1.0, scale=1.0, size=4):
    return DocumentAssociation(scale * np.eye(4), alpha_0, np.full(4, 0.25), np.zeros((size, size)))


METHOD = DeflatedPower(5, 2, n_restarts=2, n_iterations=2)


def restored(sums, **changes):
    state = OnlinePower(METHOD, VectorAssociation(5), 10).state() | changes
    kept = {name: array for name, array in state.items() if array is not None}
    return OnlinePower.from_state(kept, DeflatedPower.from_state, sums)


REFUSED = {
    "documents_per_round=0": lambda: OnlinePower(METHOD, VectorAssociation(5), 0),
    "method=3 association=4": lambda: OnlinePower(METHOD, VectorAssociation(5, 4), 10),
    "dimension=4": lambda: OnlinePower(METHOD, VectorAssociation(4), 10),
    "order=2": lambda: VectorAssociation(5, 2),
    "pair_moment=": lambda: words(size=3),
    "alpha_0=-1": lambda: words(alpha_0=-1.0),
    "NaN": lambda: words(scale=np.nan),
    "association=4": lambda: restored(VectorAssociation(5, 4)),
    "dimension=": lambda: restored(VectorAssociation(6)),
    "array='totals'": lambda: restored(VectorAssociation(5), **{"association.totals": None}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_settings_and_states_are_refused(message):
    with pytest.raises(InvalidSettingError, match=message):
        REFUSED[message]()
    with pytest.raises(InsufficientDataError, match="documents=0"):
        VectorAssociation(5).answer()
