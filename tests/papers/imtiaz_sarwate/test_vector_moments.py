"""Second and third moments of vectors: sums by definition, and how much a sample can move them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.papers.imtiaz_sarwate.plain_moments import (
    paper_components,
    plain_pairs,
    plain_triples,
    symmetric_pairs,
    symmetric_triples,
)
from streamlda.papers.imtiaz_sarwate.vector_moments import (
    BLOCK_SAMPLES,
    SECOND_RATIO,
    clipped,
    packed_second,
    second_block,
    second_sum,
    third_sum,
)
from tests.papers.imtiaz_sarwate.neighbours import shift

RADIUS = 1.5
VECTORS = st.lists(st.floats(-3, 3), min_size=4, max_size=4)


def second_of(sample):
    return {"second": packed_second(clipped(np.array([sample]), RADIUS))}


def test_sums_equal_their_definition_over_more_than_one_block() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BLOCK_SAMPLES + 10, 3))
    f = rng.random(len(x))
    assert second_sum(x) == pytest.approx(np.einsum("na,nb->ab", x, x))
    assert third_sum(x) == pytest.approx(np.einsum("na,nb,nc->abc", x, x, x))
    assert third_sum(x, f) == pytest.approx(np.einsum("n,na,nb,nc->abc", f, x, x, x))


def test_samples_are_scaled_to_the_radius_and_unusable_ones_are_left_out() -> None:
    x = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 1.0], [1e300, 1e300]])
    found = clipped(x, RADIUS)
    assert np.linalg.norm(found, axis=1).max() <= RADIUS
    assert found[0] == pytest.approx([0.9, 1.2], rel=1e-5)
    assert found[1].tolist() == [0.3, 0.4]
    assert not found[2:4].any()
    assert np.isfinite(found).all()


@given(VECTORS, VECTORS)
def test_two_samples_differ_by_no_more_than_is_stated(a: list[float], b: list[float]) -> None:
    block = second_block(4, RADIUS)
    assert shift(second_of(a), second_of(b), [block]) <= SECOND_RATIO
    # The paper's coordinates.
    x, y = (clipped(np.array([v]), RADIUS) / RADIUS for v in (a, b))
    plain = plain_pairs(second_sum(x)) - plain_pairs(second_sum(y))
    assert np.linalg.norm(plain) <= SECOND_RATIO


def test_orthogonal_samples_on_the_sphere_attain_the_bound() -> None:
    a, b = np.array([5.0, 0, 0, 0]), np.array([0, 0, -5.0, 0])
    moved = shift(second_of(a), second_of(b), [second_block(4, RADIUS)])
    assert moved == pytest.approx(SECOND_RATIO, rel=1e-5)
    # A planted bug, the bound of the paper, would be exceeded.
    assert moved > 1.4
    # As would any bound if samples were not scaled down.
    raw = {"second": packed_second(np.array([a]))}
    assert shift(raw, second_of(b), [second_block(4, RADIUS)]) > 2 * SECOND_RATIO


def test_free_entries_and_back() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 4))
    pairs, triples = second_sum(x), third_sum(x)
    assert plain_pairs(pairs)[:4].tolist() == pytest.approx(pairs[0].tolist())
    assert symmetric_pairs(plain_pairs(pairs), 4) == pytest.approx(pairs)
    assert plain_triples(triples)[1] == pytest.approx(triples[0, 0, 1])
    assert symmetric_triples(plain_triples(triples), 4) == pytest.approx(triples)


def test_the_papers_decomposition_is_exact_without_noise() -> None:
    rng = np.random.default_rng(2)
    a, w = rng.standard_normal((3, 6)), np.array([0.5, 0.3, 0.2])
    pairs = np.einsum("k,ka,kb->ab", w, a, a)
    triples = np.einsum("k,ka,kb,kc->abc", w, a, a, a)
    vectors, values = paper_components(pairs, triples, 3, rng)
    assert values == pytest.approx(w[::-1] ** -0.5)
    assert vectors == pytest.approx(a[::-1])
    assert math.isclose(float((values**-2).sum()), 1)
