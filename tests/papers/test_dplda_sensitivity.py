"""Sensitivities of M2 and M3: attained, and never exceeded by any pattern of equal words."""

import math

import numpy as np
import pytest

from streamlda.papers.dplda.moments import LDAMoments, coefficients
from streamlda.papers.dplda.sensitivity import (
    CLAIMED,
    CONSTANT_ONE,
    PROOF_CONSTANTS,
    Facts,
    pairs_l1,
    pairs_l2,
    triples_l1,
    triples_l2,
)
from tests import oracle
from tests.corpora import batch_of
from tests.papers.corpora import random_documents, sym3, vector_partitions

ALPHAS = (0.01, 0.3, 0.5, 1.0, 2.0, 3.4, 3.6, 10.0, 1e4)


def statistics(counts, place, orders):
    """Return p1, P2, P3 of the document at a place of a pattern, zeros for a blank."""
    tokens = [word for word, part in enumerate(counts) for _ in range(part[place])]
    d = 10
    if not tokens:
        return [np.zeros((d,) * order) for order in orders]
    return [oracle.drawn(tokens, d, order) for order in orders]


def triple_terms():
    """Return (u3, mixed, cubed) parts of N times the difference of M3, for every pattern.

    A pattern is three tokens (or none) of either neighbour and two (or none) of two others.
    """
    rows = []
    for sizes in (
        (3, 3, 2, 2),
        (3, 0, 2, 2),
        (3, 3, 2, 0),
        (3, 0, 2, 0),
        (3, 3, 0, 0),
        (3, 0, 0, 0),
    ):
        for pattern in vector_partitions(sizes):
            one, other = (statistics(pattern, place, (1, 2, 3)) for place in (0, 1))
            u1, u2, u3 = (a - b for a, b in zip(one, other, strict=True))
            (pm, Pm), (pn, Pn) = (statistics(pattern, place, (1, 2)) for place in (2, 3))
            mixed = sym3(u2, (pm + pn) / 2) + sym3((Pm + Pn) / 2, u1)
            both = (np.outer(pm, pn) + np.outer(pn, pm)) / 2
            rows.append([u3, mixed, sym3(both, u1)])
    return np.array(rows).reshape(len(rows), 3, 1000)


@pytest.fixture(scope="module")
def all_triples():
    return triple_terms()


def largest(terms, alpha_0, norm):
    _, mixed, cubed = coefficients(alpha_0)
    moved = terms[:, 0] + mixed * terms[:, 1] + cubed * terms[:, 2]
    if norm == 1:
        return float(np.abs(moved).sum(axis=1).max())
    return float(np.sqrt((moved**2).sum(axis=1).max()))


@pytest.mark.parametrize("alpha_0", ALPHAS)
def test_triple_sensitivity_is_the_largest_over_all_patterns(all_triples, alpha_0):
    facts = Facts(3, 1, alpha_0)
    assert len(all_triples) > 2000
    assert 3 * triples_l2(facts) == pytest.approx(largest(all_triples, alpha_0, 2), rel=1e-12)
    assert 3 * triples_l1(facts) == pytest.approx(largest(all_triples, alpha_0, 1), rel=1e-12)


@pytest.mark.parametrize("alpha_0", ALPHAS)
def test_pair_sensitivity_is_the_largest_over_all_patterns(alpha_0):
    s = coefficients(alpha_0).squared
    norms = []
    for sizes in ((3, 3, 2), (3, 0, 2), (3, 3, 0), (3, 0, 0)):
        for pattern in vector_partitions(sizes):
            one, other = (statistics(pattern, place, (1, 2)) for place in (0, 1))
            u1, u2 = (a - b for a, b in zip(one, other, strict=True))
            (pm,) = statistics(pattern, 2, (1,))
            moved = u2 - s * (np.outer(u1, pm) + np.outer(pm, u1))
            norms.append((np.abs(moved).sum(), np.linalg.norm(moved)))
    facts = Facts(3, 1, alpha_0)
    assert 3 * pairs_l1(facts) == pytest.approx(max(n for n, _ in norms), rel=1e-12)
    assert 3 * pairs_l2(facts) == pytest.approx(max(n for _, n in norms), rel=1e-12)


OTHERS = {"one word": [[2] * 3, [2] * 4], "two": [[2] * 3, [3] * 3], "same": [[0] * 3, [1] * 5]}


def moved_by(neighbours, alpha_0, d=4):
    """Return the differences of M2 and M3 of two corpora."""
    one, other = (LDAMoments(batch_of(documents, d), alpha_0) for documents in neighbours)
    return one.pairs() - other.pairs(), one.triples() - other.triples()


@pytest.mark.parametrize(("others", "alpha_0"), [("one word", 0.2), ("two", 1.0), ("same", 8.0)])
def test_documents_attain_the_sensitivities(others, alpha_0):
    neighbours = [[[word] * 6, *OTHERS[others]] for word in (0, 1)]
    _, triples = moved_by(neighbours, alpha_0)
    facts = Facts(3, 1, alpha_0)
    assert np.linalg.norm(triples) == pytest.approx(triples_l2(facts), rel=1e-12)
    pairs, triples = moved_by([[[word] * 6, *OTHERS["two"]] for word in (0, 1)], alpha_0)
    assert np.abs(triples).sum() == pytest.approx(triples_l1(facts), rel=1e-12)
    assert np.abs(pairs).sum() == pytest.approx(pairs_l1(facts), rel=1e-12)
    pairs, _ = moved_by([[[word] * 6, *OTHERS["one word"]] for word in (0, 1)], alpha_0)
    assert np.linalg.norm(pairs) == pytest.approx(pairs_l2(facts), rel=1e-12)


@pytest.mark.parametrize("n", [3, 6, 20])
def test_no_random_neighbours_exceed_the_sensitivities(n):
    rng = np.random.default_rng(n)
    for alpha_0 in (0.05, 1.0, 20.0):
        facts = Facts(n, 1, alpha_0)
        for _ in range(30):
            one, *others = random_documents(n, 4, rng)
            other = random_documents(1, 4, rng)[0]
            pairs, triples = moved_by([[one, *others], [other, *others]], alpha_0)
            assert np.linalg.norm(pairs) <= pairs_l2(facts) * (1 + 1e-12)
            assert np.linalg.norm(triples) <= triples_l2(facts) * (1 + 1e-12)
            assert np.abs(pairs).sum() <= pairs_l1(facts) * (1 + 1e-12)
            assert np.abs(triples).sum() <= triples_l1(facts) * (1 + 1e-12)


def test_planted_bugs_are_exceeded():
    """Printed, the mixed term counts once; others forget the cube, or all but the raw moment."""
    _, mixed, cubed = coefficients(1.0)
    _, triples = moved_by([[[word] * 6, *OTHERS["two"]] for word in (0, 1)], 1.0)
    found = 3 * np.abs(triples).sum()
    assert found > 2 + 4 * abs(mixed) + 6 * cubed + 1
    assert found > 2 + 12 * abs(mixed) + 1
    assert 3 * np.linalg.norm(triples) > math.sqrt(2) + 0.3  # raw moments only


def test_leading_terms_are_those_of_the_paper():
    facts = Facts(1000, 4, 1.0, sigma_k=0.01, gamma_s=0.02, sigma_1=0.09, lambda_1=2.0)
    whitened = 4**1.5 / (1000 * 0.01**1.5)
    assert CONSTANT_ONE.whitened(facts) == pytest.approx(whitened)
    assert CONSTANT_ONE.factors(facts) == pytest.approx(4**2 / (0.02 * 1000 * 0.01**1.5))
    assert CONSTANT_ONE.topics(facts) == pytest.approx(4**2 * 0.3 / (0.02 * 1000 * 0.01**1.5))
    # The proofs end in no less; their leading term is Delta_3 (2 k / sigma_k)^(3/2).
    assert PROOF_CONSTANTS.whitened(facts) >= triples_l1(facts) * (8 / 0.01) ** 1.5
    assert PROOF_CONSTANTS.factors(facts) == pytest.approx(
        2 * 2 / 0.02 * PROOF_CONSTANTS.whitened(facts)
    )
    for bounds in CLAIMED.values():
        for claim in ("whitened", "factors", "topics"):
            # Ten times as many documents: a tenth.
            many, more = (Facts(n, 4, 1.0, 0.01, 0.02, 0.09, 2.0) for n in (10**7, 10**8))
            ratio = getattr(bounds, claim)(many) / getattr(bounds, claim)(more)
            assert ratio == pytest.approx(10, rel=0.01)
            assert math.isinf(getattr(bounds, claim)(Facts(1000, 4, 1.0, sigma_1=1.0, lambda_1=1)))
    assert math.isinf(CONSTANT_ONE.topics(Facts(1000, 4, 1.0, sigma_k=0.01, sigma_1=0.09)))


def test_theorem_5_is_wrong_by_first_order():
    """What its cube of W - W' leaves out: the tensor moves in proportion to a small change of W."""
    rng = np.random.default_rng(5)
    documents = random_documents(40, 4, rng, longest=12)
    moments = LDAMoments(batch_of(documents, 4), 1.0)
    W, change = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    moved = [
        np.linalg.norm(moments.triples_through(W + h * change) - moments.triples_through(W))
        for h in (1e-3, 1e-4)
    ]
    assert moved[0] / moved[1] == pytest.approx(10, rel=0.02)  # the third order: 1000
