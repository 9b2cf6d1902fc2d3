"""What a document adds: norms against dense twins, sums with clip factors, packing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.privacy.clipping import NORM_ERROR, clip_factors
from streamlda.private.contributions import (
    CANCELLATION,
    TRIPLE_FRACTIONS,
    FirstStatistic,
    NormStatistic,
    PairStatistic,
    TripleNorms,
    TripleStatistic,
    View,
)
from streamlda.private.packing import pack_pairs, pack_triples, unpack_pairs, unpack_triples
from streamlda.spectral.whitening import random_projection
from tests import oracle
from tests.corpora import KINDS, batch_of, corpus, small_corpora
from tests.private.streams import POOL, PROJECTION

D = 9


def nasty_projection(d):
    """Rows that repeat, cancel, vanish and tower above the others."""
    rows = [*PROJECTION, np.zeros(3), 30 * PROJECTION[0], -30 * PROJECTION[0]]
    return np.ascontiguousarray([row for row, _ in zip(itertools.cycle(rows), range(d))])


PROJECTIONS = {"random": random_projection(D, 4, 1), "nasty": nasty_projection(D)}

ADVERSARIAL = [
    *(corpus(kind) for kind in KINDS),
    [[w for w, n in document.items() for _ in range(min(n, 2000))] for document in POOL.values()],
    [list(range(D)), [w for w in range(D) for _ in range(11)], [6] * 500 + [7] * 499],
    [[4] * 100_000, [0, 0, 0], [0, 1, 2]],
]


#: Every corpus with half of its documents clipped; and all, half or none on either projection.
CASES = [(documents, "nasty", 0.5) for documents in ADVERSARIAL if documents]
CASES += [(ADVERSARIAL[0], name, q) for name in PROJECTIONS for q in (0.0, 2.0)]
CASES += [(ADVERSARIAL[-1], "random", q) for q in (0.0, 0.5, 2.0)]


def view_of(documents, d, active=None):
    batch = batch_of(documents, d)
    everyone = np.ones(len(documents), dtype=bool)
    return View(batch, everyone if active is None else active)


def dense(documents, d, order, W=None):
    """The statistic of each document from its definition; zeros below three tokens."""
    none = np.zeros((d,) * order)
    found = [oracle.statistic(t, d, order) if len(t) >= 3 else none for t in documents]
    return [part if W is None else oracle.through(part, W) for part in found]


def counts_of(tokens, W):
    return np.bincount(np.array(tokens, dtype=int), minlength=len(W)).astype(float)


def norms(arrays):
    return np.array([np.linalg.norm(array) for array in arrays])


def quarter_of_absolute_terms(documents, W):
    """What the pair norms are never below: a quarter of the absolute terms."""
    found = []
    for tokens in documents:
        c = counts_of(tokens, W)
        own = np.linalg.norm(c[:, None] * W)
        terms = np.linalg.norm(c) * np.linalg.norm(W.T @ c) + own
        found.append(terms / (len(tokens) * (len(tokens) - 1)) if len(tokens) >= 3 else 0.0)
    return np.array(found) / CANCELLATION


def check_norms(documents, W):
    d, view = len(W), view_of(documents, len(W))
    first = FirstStatistic(d, 1.0, 1.0).norms(view)
    np.testing.assert_allclose(first, norms(dense(documents, d, 1)), rtol=1e-9)

    part = PairStatistic(d, None, 1.0, 1.0)
    found, true = part.norms(view), norms(dense(documents, d, 2))
    # Without a projection nothing cancels: the quarter is never the larger.
    np.testing.assert_allclose(found, true, rtol=1e-9)
    assert np.all(found <= part.largest_norm)

    part = PairStatistic(d, W, 1.0, 1.0)
    found, true = part.norms(view), norms(dense(documents, d, 2, W))
    expected = np.maximum(true, quarter_of_absolute_terms(documents, W))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.all(found >= true * (1 - NORM_ERROR))
    assert np.all(found <= part.largest_norm)

    triples = TripleStatistic(W, 1.0, 1.0)
    found, true = triples.norms(view), norms(dense(documents, d, 3, W))
    # Rounding of a sum whose terms are as large as the largest document's.
    assert np.all(found >= true * (1 - NORM_ERROR) - 1e-12 * triples.largest_norm)
    assert np.all(found <= triples.largest_norm)
    one_word = np.array([len(t) >= 3 and len(set(t)) == 1 for t in documents], dtype=bool)
    np.testing.assert_allclose(found[one_word], true[one_word], rtol=1e-9)
    # So what is scaled to norm C has ||W'p1|| <= C^(1/3), whatever cancels.
    lower = norms([W.T @ p for p in dense(documents, d, 1)])
    assert np.all(lower**3 <= found * (1 + NORM_ERROR) + 1e-12 * triples.largest_norm)


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("documents", ADVERSARIAL)
def test_norms_are_those_of_the_dense_statistics(documents, name):
    check_norms(documents, PROJECTIONS[name])


@pytest.mark.fuzz
@given(small_corpora())
def test_norms_are_those_of_the_dense_statistics_on_any_small_corpus(drawn):
    documents, W = drawn
    W[0] += 1e-3  # no projection of zeros alone: its norms could not be bounds
    check_norms(documents, W)


def test_norms_with_terms_that_cancel_are_a_quarter_of_the_terms():
    """One word q + 1 times and q others once, all with its row turned round: y is that row."""
    q = 63
    W = np.ones((q + 1, 1))
    W[1:] = -1
    documents = [[0] * (q + 1) + list(range(1, q + 1))]
    true = norms(dense(documents, q + 1, 2, W))
    found = PairStatistic(q + 1, W, 1.0, 1.0).norms(view_of(documents, q + 1))
    assert found > 2 * true
    np.testing.assert_allclose(found, quarter_of_absolute_terms(documents, W), rtol=1e-9)


def check_sums(part, arrays, bounds, factors, documents, active):
    """Sums are those of the active documents' dense twins times factors that hold the bounds."""
    part.add(view_of(documents, D, active))
    sums = part.take()
    for name, dense_twins in arrays.items():
        true = norms(dense_twins)
        assert np.all(factors * true <= bounds[name]), name
        scale = max(1.0, float(true.max(initial=0.0))) * max(1, len(documents))
        expected = sum(f * array for f, array in zip(factors, dense_twins, strict=True))
        np.testing.assert_allclose(sums.pop(name), expected, rtol=0, atol=1e-11 * scale)
    ((kept, count),) = sums.items()
    assert kept == f"{next(iter(arrays))}_kept"
    assert float(count) == pytest.approx(factors.sum(), abs=1e-9)
    # And a second group begins with nothing.
    assert all(not array.any() for array in part.take().values())
    usable = active & (np.array([len(t) for t in documents]) >= 3)
    assert not factors[~usable].any()


def triple_factor(tokens, W, bounds):
    """The one factor of the triple statistic and its lower moments, without rounding."""
    c, n, rows = counts_of(tokens, W), len(tokens), np.linalg.norm(W, axis=1)
    if n < 3:
        return 0.0
    y = math.hypot(*(math.fsum(c * column) for column in W.T))
    once, twice, thrice = (math.fsum(c * rows**power) for power in (1, 2, 3))
    terms = (y**3 + 3 * y * twice + 2 * thrice) / (n * (n - 1) * (n - 2))
    of_pairs = min((once / n) ** 2, (y**2 + twice) / (n * (n - 1)))
    limits = {"triple": min((once / n) ** 3, terms), "triple_pair": of_pairs, "triple_first": y / n}
    return min(float(clip_factors(limits[name], bounds[name])) for name in limits)


def lower_moments(documents, W):
    """W'p1 and W'P2 W, packed, of each document."""
    first = [W.T @ p for p in dense(documents, len(W), 1)]
    return first, [pack_pairs(W.T @ pairs) for pairs in dense(documents, len(W), 2, W)]


def bound_of(arrays, quantile):
    """A bound that clips every document, half of them or none."""
    found = norms(arrays)
    positive = found[found > 0]
    bound = 1.0 if not len(positive) else float(np.quantile(positive, min(quantile, 1.0)))
    return bound * (0.5 if quantile == 0.0 else max(quantile, 1.0))


@pytest.mark.parametrize(("documents", "name", "quantile"), CASES)
def test_sums_are_dense_statistics_times_clip_factors(documents, name, quantile):
    W = PROJECTIONS[name]
    active = np.arange(len(documents)) % 4 != 1
    packed = [pack_pairs(array) for array in dense(documents, D, 2)]
    for part_of, block, arrays in (
        (lambda C: FirstStatistic(D, C, 1.0), "first", dense(documents, D, 1)),
        (lambda C: PairStatistic(D, None, C, 1.0), "pair", packed),
        (lambda C: PairStatistic(D, W, C, 1.0), "pair", dense(documents, D, 2, W)),
    ):
        bound = bound_of(arrays, quantile)
        part, view = part_of(bound), view_of(documents, D, active)
        factors = clip_factors(part.norms(view), bound) * view.active
        check_sums(part, {block: arrays}, {block: bound}, factors, documents, active)
        if quantile == 0.0:
            assert np.all(factors[norms(arrays) > 0] < 0.51)

    first, pairs = lower_moments(documents, W)
    triples = [pack_triples(array) for array in dense(documents, D, 3, W)]
    arrays = {"triple": triples, "triple_pair": pairs, "triple_first": first}
    bound = bound_of(triples, quantile)
    bounds = {"triple": bound, "triple_pair": bound ** (2 / 3), "triple_first": np.cbrt(bound)}
    factors = np.array([triple_factor(tokens, W, bounds) for tokens in documents]) * active
    check_sums(TripleStatistic(W, bound, 1.0), arrays, bounds, factors, documents, active)
    if quantile == 0.0:
        assert np.all(factors[norms(triples) > 0] < 0.51)


def test_one_word_of_the_longest_row_is_at_the_bounds_of_all_three_moments():
    W = PROJECTIONS["nasty"]
    longest = float(np.linalg.norm(W, axis=1).max())
    part = TripleStatistic(W, longest**3, 1.0)
    for n in (3, 4, 1000):
        part.add(view_of([[6] * n], D))
        sums = part.take()
        found = {name: float(np.linalg.norm(sums[name])) for name in TRIPLE_FRACTIONS}
        bounds = {b.name: b.l2_clip_norm for b in part.blocks() if b.name in TRIPLE_FRACTIONS}
        assert list(bounds.values()) == pytest.approx([longest**3, longest**2, longest])
        assert found == pytest.approx(bounds, rel=2e-6)
        assert all(found[name] <= bounds[name] for name in bounds)


@pytest.mark.parametrize("n", [4, 20, 100])
def test_pairs_of_rows_that_cancel_are_what_is_clipped_by(n):
    """y is 0 and so is P3(W, W, W), but W'P2 W is not: the factor of the tensor is too large."""
    W = PROJECTIONS["nasty"]
    documents = [[6] * (n // 2) + [7] * (n // 2)]
    view = view_of(documents, D)
    (norm,) = TripleStatistic(W, 1.0, 1.0).norms(view)
    part = TripleStatistic(W, norm, 1.0)
    part.add(view)
    sums = part.take()
    bound = norm ** (2 / 3)
    (true,) = norms(lower_moments(documents, W)[1])
    # (2 l / (l (l - 1) (l - 2)))^(2/3) against 1 / (l - 1): beyond l = 4 the pairs decide.
    assert (true > bound) == (n > 4)
    assert np.linalg.norm(sums["triple_pair"]) == pytest.approx(min(true, bound), rel=2e-6)
    assert np.linalg.norm(sums["triple_pair"]) <= bound
    assert float(sums["triple_kept"]) == pytest.approx(min(1.0, bound / true), rel=2e-6)


def test_norm_histograms_count_the_active_documents_in_the_bins_of_their_norms():
    documents = ADVERSARIAL[0] + ADVERSARIAL[-1]
    view = view_of(documents, D, np.arange(len(documents)) % 3 != 0)
    for part in (FirstStatistic(D, 1.0, 1.0), PairStatistic(D, PROJECTIONS["random"], 1.0, 1.0)):
        counted = NormStatistic(part, 0.5)
        for _ in range(2):
            counted.add(view)
        edges, found = counted.histogram.edges, part.norms(view)[view.active]
        expected = [np.sum((low < found) & (found <= up)) for low, up in itertools.pairwise(edges)]
        (counts,) = counted.take().values()
        np.testing.assert_array_equal(counts[1:], 2 * np.array(expected))
        assert counts.sum() == 2 * view.active.sum()
        assert not any(counts.any() for counts in counted.take().values())


def test_blocks_have_the_weights_and_signs_of_what_the_parts_return():
    W = PROJECTIONS["random"]
    triples = TripleStatistic(W, 0.5, 2.0)
    for part in (FirstStatistic(D, 0.5, 1.0), PairStatistic(D, None, 0.5, 1.0), triples):
        part.add(view_of(ADVERSARIAL[0], D))
        sums = part.take()
        assert all(sums[b.name].min() >= 0 for b in part.blocks() if b.nonnegative)
    assert [b.weight for b in triples.blocks()] == pytest.approx([1.6, 0.3, 0.1, 0.01])


@pytest.mark.parametrize("bound", [0.01, 1.0, 1e6])
def test_absolute_terms_stay_within_what_the_blocks_promise(bound):
    """`magnitude` and `sum_magnitude`, from the dense absolute terms; lower moments come near."""
    W = PROJECTIONS["nasty"]
    documents = [tokens for c in ADVERSARIAL for tokens in c if 3 <= len(tokens) <= 5000]
    documents += [[6, 6, 6]]  # Three times the word of the longest row.
    view = view_of(documents, D)
    largest = {"triple_pair": 0.0, "triple_first": 0.0}
    blocks = {block.name: block for block in TripleStatistic(W, bound, 1.0).blocks()}
    for part, order in ((PairStatistic(D, W, bound, 1.0), 2), (TripleStatistic(W, bound, 1.0), 3)):
        block = part.blocks()[0]
        factors = clip_factors(part.norms(view), bound)
        for tokens, factor in zip(documents, factors, strict=True):
            terms = absolute_terms(tokens, W, order)
            assert terms <= block.magnitude * bound
            assert factor * terms <= block.sum_magnitude * bound
    for tokens in documents:
        c, n = counts_of(tokens, W), len(tokens)
        # No factor: they hold before clipping, and so after it; inside y, too, nothing cancels.
        y = c @ np.abs(W)
        pairs = np.outer(y, y) + np.abs(W).T @ (c[:, None] * np.abs(W))
        found = {"triple_pair": pairs / (n * (n - 1)), "triple_first": y / n}
        for name, terms in found.items():
            largest[name] = max(largest[name], float(np.linalg.norm(terms)))
    for name, terms in largest.items():
        most = blocks[name].magnitude * blocks[name].l2_clip_norm
        assert blocks[name].sum_magnitude is None
        assert terms <= most
        assert blocks[name].magnitude == 1.0 or terms > 0.9 * most


def absolute_terms(tokens, W, order):
    """Return the norm of the sum of absolute terms that the part adds for one document.

    Sums over words are taken inside y = W'c before they are multiplied; then c c' W and the
    repeats, and y y y with its corrections, are what is added, each for itself.
    """
    c = np.bincount(tokens, minlength=len(W)).astype(float)
    y, length = W.T @ c, len(tokens)
    if order == 2:
        terms = np.abs(np.outer(c, y)) + c[:, None] * np.abs(W)
        return np.linalg.norm(terms) / (length * (length - 1))
    pairs = np.einsum("w,wi,wj->ij", c, np.abs(W), np.abs(W))
    repeats = np.einsum("ij,k->ijk", pairs, np.abs(y))
    terms = np.einsum("i,j,k->ijk", *[np.abs(y)] * 3) + 2 * np.einsum(
        "w,wi,wj,wk->ijk", c, *[np.abs(W)] * 3
    )
    terms += repeats + repeats.transpose(0, 2, 1) + repeats.transpose(2, 0, 1)
    return np.linalg.norm(terms) / (length * (length - 1) * (length - 2))


@pytest.mark.parametrize(
    ("order", "pack", "unpack"), [(2, pack_pairs, unpack_pairs), (3, pack_triples, unpack_triples)]
)
@given(rng=st.integers(0, 2**32 - 1).map(np.random.default_rng), d=st.integers(1, 6))
def test_packing_and_back_keeps_entries_and_norms(order, pack, unpack, rng, d):
    array = rng.normal(size=(d,) * order)
    array = sum(array.transpose(axes) for axes in itertools.permutations(range(order)))
    packed = pack(array)
    assert packed.shape == (math.comb(d + order - 1, order),)
    np.testing.assert_allclose(unpack(packed, d), array, rtol=1e-13, atol=1e-14)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(array), rel=1e-13)


@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", 16), ("int64", 2**32), ("float32", 1e-25), ("float32", 1e20)]
)
def test_a_projection_of_another_dtype_is_clipped_as_one_of_float64(dtype, value):
    """The attack: squares that overflow or vanish make a norm of 0, and a factor of 1."""
    W, view = np.full((D, 2), value, dtype=dtype), view_of([[0] * 9, list(range(D))], D)
    exact, found = TripleNorms(W.astype(np.float64)), TripleNorms(W)
    assert found.largest_norm == exact.largest_norm > 0
    np.testing.assert_array_equal(found.norms(view), exact.norms(view))
    longest = math.sqrt(2) * float(W[0, 0])
    bound = max(longest**3 / 1e3, 1e-90)
    part = TripleStatistic(W, bound, 1.0)
    part.add(view_of([[0] * 9], D))
    assert np.linalg.norm(part.take()["triple"]) <= bound


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        *((np.full((D, 2), value), "must be finite") for value in (np.nan, np.inf, 1e34)),
        *((bad, "matrix of real numbers") for bad in (np.ones(D), np.ones((D, 0)))),
        (np.ones((D, 2), dtype=bool), "matrix of real numbers"),
    ],
)
def test_what_is_no_projection_is_refused(bad, rule):
    for make in (TripleNorms, lambda W: PairStatistic(D, W, 1.0, 1.0)):
        with pytest.raises(InvalidSettingError, match=rule):
            make(bad)


def test_what_does_not_fit_the_documents_is_refused():
    with pytest.raises(InvalidSettingError, match=f"rows={D - 1} n_features={D}"):
        PairStatistic(D, np.ones((D - 1, 2)), 1.0, 1.0)
    for active in (np.ones(1, dtype=bool), np.array([2, 3])):
        with pytest.raises(InvalidDocumentsError, match="one boolean for each"):
            View(batch_of([[0, 1, 2], [3, 4, 5]], D), active)
