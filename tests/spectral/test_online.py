"""The online power method against slow twins: Algorithm 2 line by line, dense moments, batches."""

import math
import tracemalloc

import numpy as np
import pytest

from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.simulate import PlantedLDA
from streamlda.spectral.associations import DocumentAssociation, VectorAssociation
from streamlda.spectral.moments import Moments
from streamlda.spectral.online import OnlinePower, suggested_documents
from streamlda.spectral.power import DeflatedPower, SimultaneousPower
from streamlda.spectral.topics import RoundMoments, _WhitenedMoments
from tests import oracle
from tests.corpora import batch_of, corpus
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


def algorithm_2(X, starts, n, R, *, xi_of_next=False):
    """Wang & Anandkumar's Algorithm 2, line by line and vector by vector.

    Errata: line 6 adds x_l, line 7 means xi = v_j'u_t. With `xi_of_next` line 7 is as printed.
    """
    stream = iter(X)
    values, vectors = [], []
    for u in starts:  # lines 2 and 3
        L = u.shape[1]
        iterates = [u[:, tau].copy() for tau in range(L)]
        for _ in range(R):  # 4
            sums, lambdas = [np.zeros(len(u)) for _ in range(L)], [0.0] * L  # 5
            for _ in range(n):  # 6
                x = next(stream)
                for tau in range(L):
                    inner = sum(a * b for a, b in zip(x, iterates[tau], strict=True))
                    sums[tau] += inner**2 * x / n
                    lambdas[tau] += inner**3 / n
            for tau in range(L):  # 7
                before = sums[tau].copy() if xi_of_next else iterates[tau]
                for value, v in zip(values, vectors, strict=True):
                    xi = float(v @ before)
                    sums[tau] -= value * xi**2 * v
                    lambdas[tau] -= value * xi**3
            iterates = [total / math.sqrt(total @ total) for total in sums]  # 8
        best = max(range(L), key=lambda tau: lambdas[tau])  # 10
        values.append(lambdas[best])
        vectors.append(iterates[best])
    return np.array(values), np.array(vectors).T


@quiet
def test_online_power_equals_algorithm_2_line_by_line():
    d, k, L, R, n = 4, 3, 3, 4, 40
    X = skewed(np.random.default_rng(1), orthonormal(d, k, 0), [3, 2, 1], k * R * n)
    starts = [np.random.default_rng([5, i]).standard_normal((d, L)) for i in range(k)]
    starts = [u / np.linalg.norm(u, axis=0) for u in starts]
    settings = {"n_restarts": L, "n_iterations": R, "eigenvalue_round": False, "seed": 5}
    online = OnlinePower(DeflatedPower(d, k, **settings), VectorAssociation(d), n)
    online.add(X)
    found = online.components()
    values, vectors = algorithm_2(X, starts, n, R)
    assert online.finished
    assert found.finished.all()
    np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-10)
    np.testing.assert_allclose(found.eigenvectors, vectors, atol=1e-10)
    # As printed, line 7 deflates by the wrong projections: the comparison sees that.
    values, vectors = algorithm_2(X, starts, n, R, xi_of_next=True)
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


def test_vector_association_takes_no_memory_that_grows_with_the_batch():
    X = np.random.default_rng(4).standard_normal((200_000, 20)).astype(np.float32)
    sums = VectorAssociation(20)
    sums.begin(orthonormal(20, 5, 0))
    tracemalloc.start()
    sums.check(X)
    sums.add(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.05 * X.nbytes


def dense_moment(first, pairs, triples, a):
    """Return M3 from its definition."""
    mixed = sum(
        np.einsum(f"{x},{y}->abc", pairs, first) for x, y in (("ab", "c"), ("ac", "b"), ("bc", "a"))
    )
    cube = np.einsum("a,b,c->abc", first, first, first)
    return triples - a / (a + 2) * mixed + 2 * a**2 / ((a + 1) * (a + 2)) * cube


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
    moment = dense_moment(first, pairs, triples, a)
    expected = np.einsum("abc,am,bl,cl->ml", moment, W, V, V)
    np.testing.assert_allclose(images, expected, atol=1e-10)
    np.testing.assert_allclose(values, np.einsum("ml,ml->l", U, expected), atol=1e-10)
    single = [np.einsum("abc,al,bl,cl->l", oracle.statistic(t, d, 3), V, V, V) for t in usable]
    np.testing.assert_allclose(sums.spread(), np.std(single, axis=0), atol=1e-7)
    sums.begin(U, values_only=True)
    sums.add(batch_of(documents, d))
    assert sums.answer()[0] is None
    np.testing.assert_allclose(sums.answer()[1], values, atol=1e-12)


def whitened(corpus_, n, k, a):
    """Return the first n documents, and their moments whitened by the batch solver."""
    batch = corpus_.documents(n)
    d = batch.n_features
    W = np.random.default_rng(8).standard_normal((d, k + 3))
    moments = Moments(W)
    moments.add(batch)
    seen = RoundMoments.of(moments)
    return batch, seen, _WhitenedMoments(seen, k, a)


def association_of(seen, white, a):
    pairs = white.root.T @ (seen.whitening.T @ seen.pairs) @ white.root
    return DocumentAssociation(seen.whitening @ white.root, a, seen.first, pairs)


def methods(d, k, seed=11):
    deflated = {"n_restarts": 8, "n_iterations": 8, "seed": seed}
    return [
        DeflatedPower(d, k, **deflated),
        DeflatedPower(d, k, eigenvalue_round=False, **deflated),
        SimultaneousPower(d, k, n_iterations=15, seed=seed),
    ]


@pytest.mark.statistical
@pytest.mark.parametrize("which", range(3))
def test_online_lda_finds_planted_topics_in_one_pass(which):
    """Errors were 0.01 to 0.11 on 8 seeds, and 0.9 or more without the Dirichlet corrections.

    0.3 is more than 5 standard deviations above the right ones: a false alarm in 10^6 seeds, if
    errors are normal.
    """
    a, k, d = 2.0, 3, 40
    planted = PlantedLDA(k, d, alpha_0=a, topic_concentration=0.1, mean_length=60, seed=12)
    _, seen, white = whitened(planted, 20_000, k, a)

    def error(alpha_0):
        planted.seek(20_000)
        online = OnlinePower(methods(k, k)[which], association_of(seen, white, alpha_0), 5000)
        while not online.finished:
            online.add(planted.documents(4000))
        found = (white.centred @ white.root @ online.components().eigenvectors).T
        found /= found.sum(axis=1, keepdims=True)
        return np.abs(found[:, None] - planted.components).sum(axis=2).min(axis=0).max()

    assert error(a) < 0.3
    assert error(0.0) > 0.6


def states(d=5, k=2):
    """Yield a name, an online method, what makes another, and a stream for it."""
    X = skewed(np.random.default_rng(13), orthonormal(d, k, 0), [2, 1], 9000)
    for method in methods(d, k):
        name = type(method).__name__ + str(getattr(method, "eigenvalue_round", ""))
        yield name, OnlinePower(method, VectorAssociation(d), 300), lambda: VectorAssociation(5), X
    planted = PlantedLDA(3, 30, mean_length=4, seed=14)
    _, seen, white = whitened(planted, 3000, 3, 1.0)
    method = SimultaneousPower(3, 3, n_iterations=5)
    documents = planted.documents(4000)
    yield (
        "documents",
        OnlinePower(method, association_of(seen, white, 1.0), 300),
        lambda: association_of(seen, white, 1.0),
        documents,
    )


def rows(stream, start, stop):
    return stream[start:stop] if isinstance(stream, np.ndarray) else stream.rows(start, stop)


@quiet
@pytest.mark.parametrize(
    ("number", "size"), [(0, 1), (1, 7), (2, 299), (3, 1), (3, 7), (0, 1000), (3, 1000)]
)
def test_stream_equals_batch(number, size):
    _, whole, fresh, stream = list(states())[number]
    state, n = whole.state(), min(len(stream), 3100)
    other = OnlinePower.from_state(state, type(whole.method).from_state, fresh())
    whole.add(rows(stream, 0, n))
    for start in range(0, n, size):
        other.add(rows(stream, start, min(n, start + size)))
    assert whole.rounds == other.rounds > 5
    assert whole.remaining == other.remaining < 300
    for name, array in whole.state().items():
        found = other.state()[name]
        if number == 3:
            assert found.tobytes() == array.tobytes(), name
        np.testing.assert_allclose(found, array, rtol=1e-8, atol=1e-9, err_msg=name)


@quiet
@pytest.mark.parametrize(
    ("number", "cut"),
    [(0, 0), (0, 250), (0, 2650), (1, 300), (1, 5500), (2, 250), (2, 2400), (3, 250), (3, 3500)],
)
def test_resume_is_bit_for_bit(number, cut):
    _, online, fresh, stream = list(states())[number]
    online.add(rows(stream, 0, cut))
    state = {name: array.copy() for name, array in online.state().items()}
    resumed = OnlinePower.from_state(state, type(online.method).from_state, fresh())
    assert state_bytes(resumed) == state_bytes(online)
    for one in (online, resumed):
        one.add(rows(stream, cut, len(stream)))
    assert online.rounds == resumed.rounds > 0
    assert state_bytes(online) == state_bytes(resumed)


def test_short_documents_do_not_count():
    documents = [[0, 1, 2], [0], [1, 1, 2, 3], [], [2, 2], [3, 0, 0]]
    sums = DocumentAssociation(np.eye(4), 1.0, np.full(4, 0.25), np.zeros((4, 4)))
    sums.begin(np.eye(4))
    batch = batch_of(documents, 4)
    assert sums.add(batch, 0, 2) == 3
    assert sums.add(batch, 3, 5) == 6
    assert sums.documents == 3


@quiet
@pytest.mark.parametrize("number", range(3))
def test_a_stream_that_ends_early_leaves_an_unfinished_component(number):
    _, online, _, X = list(states())[number]
    assert len(online.components().eigenvalues) == (2 if number == 2 else 0)
    online.add(X[:650])
    early = online.components()
    assert not early.finished.any()
    if number == 2:
        return
    assert early.eigenvectors.shape == (5, 1)
    online.add(X[650 : 300 * 10])
    probes, first = online.method.probes.copy(), online.components()
    online.add(X[300 * 10 : 300 * 11])
    found = online.components()
    # Its value is that of the last whole round, at the iterates that the round began with.
    across = first.eigenvectors[:, 0] @ probes
    values = np.mean((X[300 * 10 : 300 * 11] @ probes) ** 3, axis=0)
    expected = np.max(values - first.eigenvalues[0] * across**3)
    assert found.eigenvalues[1] == pytest.approx(expected, rel=1e-10)
    assert found.finished.tolist() == [True, False]
    np.testing.assert_allclose(np.linalg.norm(found.eigenvectors, axis=0), 1.0)
    # The one in work is on its way to the other planted vector.
    assert distance(found.eigenvectors, orthonormal(5, 2, 0)) < 0.5
    assert found.eigenvalues[1] > 0.3


def test_refining_follows_a_stream_that_drifts():
    """By the central limit theorem a round of 4000 errs by 0.06 in norm or so, plus 0.02 of lag.

    0.3 would be a deviation of 5 times that in 5 dimensions, at a probability below 1e-20.
    """
    d, n, turn = 5, 4000, 0.02
    rng = np.random.default_rng(15)
    basis = orthonormal(d, 3, 0)

    def planted(angle):
        turned = math.cos(angle) * basis[:, 0] + math.sin(angle) * basis[:, 2]
        return np.column_stack([turned, basis[:, 1]])

    method = DeflatedPower(d, 2, n_restarts=6, n_iterations=6)
    online = OnlinePower(method, VectorAssociation(d), n)
    frozen, round_ = None, 0
    while round_ < 14 + 60:
        online.add(skewed(rng, planted(turn * round_), [2, 1.5], n))
        if online.finished:
            frozen = online.components() if frozen is None else frozen
            assert distance(online.components().eigenvectors, planted(turn * round_)) < 0.3
        round_ += 1
    assert distance(frozen.eigenvectors, planted(turn * round_)) > 0.9


def test_too_few_documents_warn_with_a_number_that_does_not():
    d, V = 5, orthonormal(5, 1, 0)

    def run(n):
        method = DeflatedPower(d, 1, n_restarts=10, n_iterations=4, eigenvalue_round=False)
        online = OnlinePower(method, VectorAssociation(d), n)
        online.add(skewed(np.random.default_rng(16), V, [2.0], 4 * n))
        return online

    with pytest.warns(UserWarning, match=r"component=0 documents_per_round=20 .* take") as caught:
        online = run(20)
    assert online.finished
    assert int(str(caught[0].message).split("=")[-1].split()[0]) > 20
    # The same stream with enough: warnings are errors here.
    assert distance(run(20_000).components().eigenvectors, V) < 0.1


def test_suggested_documents_is_the_larger_of_both_terms():
    assert suggested_documents(2.0, 10, 1.0, 0.01) == pytest.approx(
        10 * suggested_documents(2.0, 1, 1.0, 0.01), rel=1e-3
    )
    start = suggested_documents(2.0, 100, 1.0, 1.0)
    assert suggested_documents(2.0, 200, 1.0, 1.0) == pytest.approx(4 * start, abs=4)
    assert suggested_documents(0.0, 3, 1.0, 1.0) == 1
    for wrong in ((-1, 3, 1, 1), (1, 0, 1, 1), (1, 3, 0, 1), (1, 3, 1, math.nan)):
        with pytest.raises(InvalidSettingError, match=r"=(-1|0|nan)"):
            suggested_documents(*wrong)


def test_what_cannot_be_added_is_refused_and_changes_nothing():
    _, online, _, X = next(states())
    online.add(X[:100])
    before = state_bytes(online)
    bad = X[:2000].copy()
    bad[1500, 2] = np.nan
    for batch, message in ((bad, "row=1500"), (X[:, :3], "shape="), (X[0], "shape=")):
        with pytest.raises(InvalidDocumentsError, match=message):
            online.add(batch)
    assert state_bytes(online) == before
    sums = DocumentAssociation(np.eye(4), 1.0, np.full(4, 0.25), np.zeros((4, 4)))
    with pytest.raises(InvalidDocumentsError, match="n_features=5 expected=4"):
        sums.check(batch_of([[0, 1, 4]], 5))


@quiet
def test_a_round_that_overflows_begins_again():
    _, online, _, X = next(states())
    online.add(X[:650])
    before = state_bytes(online.method)
    huge = X[:300] * 1e120
    with pytest.raises(InvalidDocumentsError, match="round=2"):
        online.add(huge)
    assert online.remaining == 300
    assert state_bytes(online.method) == before
    online.add(X[600:9000])
    assert distance(online.components().eigenvectors, orthonormal(5, 2, 0)) < 0.3


def words(alpha_0=1.0, scale=1.0, size=4):
    return DocumentAssociation(scale * np.eye(4), alpha_0, np.zeros(4), np.zeros((size, size)))


METHOD = DeflatedPower(5, 2, n_restarts=2, n_iterations=2)
REFUSED = {
    "documents_per_round=0": lambda: OnlinePower(METHOD, VectorAssociation(5), 0),
    "documents_per_round=1.5": lambda: OnlinePower(METHOD, VectorAssociation(5), 1.5),
    "method=3 association=4": lambda: OnlinePower(METHOD, VectorAssociation(5, 4), 10),
    "dimension=4": lambda: OnlinePower(METHOD, VectorAssociation(4), 10),
    "order=2": lambda: VectorAssociation(5, 2),
    "pair_moment=": lambda: words(size=3),
    "alpha_0=-1": lambda: words(alpha_0=-1.0),
    "NaN": lambda: words(scale=np.nan),
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_settings_are_refused(message):
    with pytest.raises(InvalidSettingError, match=message):
        REFUSED[message]()


def test_a_state_of_other_sums_and_an_answer_of_none_are_refused():
    with pytest.raises(InsufficientDataError, match="documents=0"):
        VectorAssociation(5).answer()
    state = OnlinePower(METHOD, VectorAssociation(5), 10).state()
    for sums in (VectorAssociation(5, 4), VectorAssociation(6)):
        with pytest.raises(InvalidSettingError):
            OnlinePower.from_state(state, DeflatedPower.from_state, sums)
    del state["association.totals"]
    with pytest.raises(InvalidSettingError, match="array='totals'"):
        OnlinePower.from_state(state, DeflatedPower.from_state, VectorAssociation(5))
