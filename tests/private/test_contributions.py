"""Contributions of a document: dense twins from the definition, norms in bins, packing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.privacy.clipping import N_BINS, norm_edges
from streamlda.private.contributions import (
    FirstStatistic,
    NormStatistic,
    PairStatistic,
    TripleStatistic,
    View,
)
from streamlda.private.packing import unpack_pairs, unpack_triples
from streamlda.private.power import PowerStatistic
from streamlda.spectral.whitening import random_projection
from tests import oracle
from tests.corpora import KINDS, batch_of, corpus, small_corpora
from tests.oracle import pack_pairs, pack_triples
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


def dense(documents, d, order, W=None):
    """The statistic of each document from its definition; zeros below three tokens."""
    none = np.zeros((d,) * order)
    found = [oracle.statistic(t, d, order) if len(t) >= 3 else none for t in documents]
    return [part if W is None else oracle.through(part, W) for part in found]


def arrays_of(statistic, documents, d):
    view, found = View(batch_of(documents, d)), {}
    contributions = statistic.contributions(view)
    for block in statistic.blocks():
        values, rows, pointers = contributions[block.name]
        found[block.name] = np.zeros((len(documents), *block.shape))
        for n, array in enumerate(found[block.name]):
            if rows is None:
                found[block.name][n] = values[n].reshape(block.shape)
                continue
            own = slice(pointers[n], pointers[n + 1])
            array.reshape(-1, values.shape[1])[rows[own]] = values[own]
    return found


def check(documents, W):
    d, one = len(W), np.random.default_rng(3)
    probes = np.linalg.qr(one.normal(size=(W.shape[1], 2)))[0]
    # Rounding of a sum whose terms are as large as the largest document's.
    scale = max(1.0, float(np.linalg.norm(W, axis=1).max())) ** 3
    triples = dense(documents, d, 3, W)
    images = [np.einsum("abc,bl,cl->al", T, probes, probes) for T in triples]
    expected = {
        "first": (FirstStatistic(d, 1.0, 1.0), dense(documents, d, 1)),
        "pair": (PairStatistic(d, W, 1.0, 1.0), dense(documents, d, 2, W)),
        "triple": (TripleStatistic(W), [pack_triples(T) for T in triples]),
        "triple_pair": (
            TripleStatistic(W),
            [pack_pairs(W.T @ pairs) for pairs in dense(documents, d, 2, W)],
        ),
        "triple_first": (TripleStatistic(W), [W.T @ p for p in dense(documents, d, 1)]),
        "images": (PowerStatistic(W, probes, 1.0), images),
        "values": (
            PowerStatistic(W, probes, 1.0, values_only=True),
            [np.sum(image * probes, axis=0) for image in images],
        ),
    }
    whole = PairStatistic(d, None, 1.0, 1.0), [pack_pairs(p) for p in dense(documents, d, 2)]
    usable = np.array([len(tokens) >= 3 for tokens in documents], dtype=float)
    for name, (statistic, wanted) in [*expected.items(), ("pair", whole)]:
        found = arrays_of(statistic, documents, d)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-9, atol=1e-12 * scale)
        (kept,) = (array for block, array in found.items() if block.endswith("_kept"))
        np.testing.assert_array_equal(kept, usable)
        if hasattr(statistic, "largest_norm") and name == statistic.name:
            norms = np.array([np.linalg.norm(array) for array in wanted])
            assert np.all(norms <= statistic.largest_norm)


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("documents", [each for each in ADVERSARIAL if each])
def test_contributions_are_those_of_the_definition(documents, name):
    check(documents, PROJECTIONS[name])


@pytest.mark.fuzz
@given(small_corpora())
def test_contributions_are_those_of_the_definition_on_any_small_corpus(drawn):
    documents, W = drawn
    W[0] += 1e-3  # no projection of zeros alone
    if documents:
        check(documents, W)


def test_norm_histograms_count_the_documents_in_the_bins_of_their_norms():
    documents = ADVERSARIAL[0] + ADVERSARIAL[-1]
    usable = np.array([len(tokens) >= 3 for tokens in documents])
    for part, name in (
        (FirstStatistic(D, 1.0, 1.0), "first"),
        (PairStatistic(D, PROJECTIONS["random"], 1.0, 1.0), "pair"),
    ):
        (counts,) = arrays_of(NormStatistic(part, 0.5), documents, D).values()
        norms = [np.linalg.norm(array) for array in arrays_of(part, documents, D)[name]]
        edges = norm_edges(part.largest_norm)
        for row, norm, counted in zip(counts, norms, usable, strict=True):
            expected = np.zeros(N_BINS)
            expected[next((i for i, edge in enumerate(edges) if norm <= edge), -1)] = counted
            np.testing.assert_array_equal(row, expected)


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
