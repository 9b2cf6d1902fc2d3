"""The one function that documents pass: measured, clipped, counted, on the grid, added."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.guarantee import sums as sums_module
from streamlda.guarantee.mechanism import NEIGHBORING_RELATIONS, Block, JointGaussian
from streamlda.guarantee.sums import Contribution, Sums, clip_factors
from streamlda.guarantee.users import UserBound
from tests.privacy.neighbours import distance

ROWS, WIDTH, LENGTH, BOUND = 5, 3, 4, 0.3
BLOCKS = [
    Block("rows", (ROWS, WIDTH), BOUND, 2.0, scaled_with="a"),
    Block("kept", (), 1.0, 0.1, nonnegative=True, scaled_with="a"),
    Block("dense", (LENGTH,), 0.05, 1.0),
    Block("cells", (ROWS,), 2.0, 0.5, nonnegative=True),
]

#: Doubles of any kind, ordinary ones most often.
VALUES = st.floats(-2, 2) | st.sampled_from([0.0, 1e-300, 1e160, 1e300, math.inf, math.nan, -1e9])


def document(rng, scale=1.0, value=None):
    """Return doubles by block, of rows that rise, from a generator or all of one value."""

    def drawn(*shape):
        return rng.normal(size=shape) * scale if value is None else np.full(shape, value)

    rows = np.sort(rng.permutation(ROWS)[: rng.integers(0, ROWS + 1)])
    cells = np.sort(rng.permutation(ROWS)[: rng.integers(0, ROWS + 1)])
    return {
        "rows": (rows, drawn(len(rows), WIDTH)),
        "kept": (None, np.ones((1, 1))),
        "dense": (None, drawn(1, LENGTH)),
        "cells": (cells, np.abs(drawn(len(cells), 1))),
    }


BLANK = {
    "rows": (np.zeros(0, int), np.zeros((0, WIDTH))),
    "kept": (None, np.zeros((1, 1))),
    "dense": (None, np.zeros((1, LENGTH))),
    "cells": (np.zeros(0, int), np.zeros((0, 1))),
}


def join(documents):
    found = {}
    for name in BLANK:
        values = np.concatenate([d[name][1] for d in documents])
        if documents[0][name][0] is None:
            found[name] = Contribution(values)
            continue
        lengths = [len(d[name][0]) for d in documents]
        rows = np.concatenate([d[name][0] for d in documents])
        found[name] = Contribution(values, rows, np.cumsum([0, *lengths]))
    return found


def mechanism(relation="zero-out", g=1, n_max=50, z=4.0):
    how = {"neighboring_relation": relation, "documents_per_unit": g, "n_max": n_max}
    return JointGaussian(BLOCKS, z, **how)


def sum_of(documents, made=None, users=None, cuts=()):
    found = Sums(made or mechanism(), by_user=users is not None)
    ends = [0, *sorted(cuts), len(documents)]
    for start, stop in itertools.pairwise(ends):
        if start < stop:
            whose = None if users is None else users[start:stop]
            found.add(join(documents[start:stop]), stop - start, whose)
    return found


def apart(here, there, made, users=(None, None)):
    """How far two streams are apart, over what the mechanism says at most."""
    one, other = (sum_of(d, made, u).aggregates for d, u in zip((here, there), users, strict=True))
    return distance(made, one, other) / made.l2_sensitivity


GENERATORS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def streams(draw):
    rng, scales = draw(GENERATORS), st.sampled_from([1e-12, 0.1, 1.0, 1e6, 1e200])
    documents = draw(st.lists(scales | VALUES.map(lambda v: [v]), min_size=1, max_size=8))
    return [
        document(rng, value=s[0]) if isinstance(s, list) else document(rng, s) for s in documents
    ]


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@given(stream=streams(), other=streams(), slot=st.integers(0, 7), z=st.sampled_from([0.01, 4, 1e6]))
def test_no_neighbours_are_farther_apart_than_the_sensitivity(relation, stream, other, slot, z):
    changed = list(stream)
    changed[slot % len(stream)] = BLANK if relation == "zero-out" else other[0]
    assert apart(stream, changed, mechanism(relation, z=z)) <= 1


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@given(stream=streams(), others=streams(), names=st.text("uuab", min_size=8, max_size=8))
def test_no_neighbours_by_user_are_farther_apart_than_the_sensitivity(
    relation, stream, others, names
):
    here = list(names[: len(stream)])
    there, changed = list(stream), list(here)
    for slot, name in enumerate(here):
        if name == "u":
            replaced = relation == "replace-one" and slot < len(others)
            there[slot], changed[slot] = (others[slot], "v") if replaced else (BLANK, None)
    assert apart(stream, there, mechanism(relation, g=2), (here, changed)) <= 1


def at_all_bounds(sign=1.0, row=0):
    """Return a document that is far beyond the bound of each block, in one cell."""
    return {
        "rows": (np.array([0]), sign * BOUND * np.eye(WIDTH)[:1]),
        "kept": (None, np.ones((1, 1))),
        "dense": (None, sign * 1e3 * np.eye(LENGTH)[:1]),
        "cells": (np.array([row]), np.array([[1e3]])),
    }


def test_a_document_at_all_bounds_attains_the_sensitivity():
    rest = [document(np.random.default_rng(k)) for k in range(3)]
    for g in (1, 3):
        users = None if g == 1 else [*"uuuuu", "a", "b", "c"]
        own = [at_all_bounds()] * (1 if g == 1 else 5)
        blanks = None if g == 1 else [*[None] * 5, "a", "b", "c"]
        found = apart([*own, *rest], [BLANK] * len(own) + rest, mechanism(g=g), (users, blanks))
        assert 1 - 1e-5 < found <= 1
    opposite = [at_all_bounds(), *rest], [at_all_bounds(-1.0, 1), *rest]
    # The count is 1 in both: 0.1 of 3.6, with a factor of 2.
    assert 0.98 < apart(*opposite, mechanism("replace-one")) <= 1


def test_whole_numbers_are_those_of_exact_arithmetic():
    """Below the bound nothing is scaled but by the margin; above it, to the bound."""
    made, rng = mechanism(z=1.0), np.random.default_rng(5)
    for scale in (1e-3, 1.0, 1e5):
        one = document(rng, scale)
        found = sum_of([one], made).aggregates
        norm = math.sqrt(sum(Fraction(x) ** 2 for x in one["rows"][1].ravel().tolist()))
        factor = min(1.0, BOUND / norm) if norm else 1.0
        rows, values = one["rows"]
        expected = np.zeros((ROWS, WIDTH))
        expected[rows] = values * factor / made.steps["rows"]
        np.testing.assert_allclose(found["rows"], expected, rtol=2e-6, atol=1)
        assert found["kept"] == pytest.approx(factor / made.steps["kept"], rel=2e-6, abs=1)
        exact = sum(Fraction(int(n)) ** 2 for n in found["rows"].ravel())
        assert exact * Fraction(made.steps["rows"]) ** 2 <= Fraction(BOUND) ** 2


@given(stream=streams(), cuts=st.sets(st.integers(0, 8), max_size=4), rng=GENERATORS)
def test_sums_depend_neither_on_the_cut_into_batches_nor_on_the_order(stream, cuts, rng):
    whole = sum_of(stream).aggregates
    mixed = [stream[i] for i in rng.permutation(len(stream))]
    for other in (sum_of(stream, cuts={c for c in cuts if c <= len(stream)}), sum_of(mixed)):
        assert other.slots == len(stream)
        for name, counts in whole.items():
            np.testing.assert_array_equal(counts, other.aggregates[name])


def test_what_is_not_a_number_adds_nothing_and_moves_nobody():
    rest = [document(np.random.default_rng(k)) for k in range(4)]
    for bad in (math.nan, math.inf, -math.inf, 1e200):
        found = sum_of([*rest, document(np.random.default_rng(9), value=bad)])
        for name in ("rows", "dense", "cells"):
            np.testing.assert_array_equal(found.aggregates[name], sum_of(rest).aggregates[name])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dense", Contribution(np.zeros((2, LENGTH)))),
        ("dense", Contribution(np.zeros((1, LENGTH), dtype=np.float32))),
        ("cells", Contribution(np.ones((2, 1)), np.array([1, 1]), np.array([0, 2]))),
        ("cells", Contribution(np.ones((2, 1)), np.array([2, 1]), np.array([0, 2]))),
        ("cells", Contribution(np.ones((1, 1)), np.array([ROWS]), np.array([0, 1]))),
        ("cells", Contribution(np.ones((1, 1)), np.array([-1]), np.array([0, 1]))),
        ("cells", Contribution(np.ones((1, 1)), np.array([1]), np.array([0, 2]))),
        ("cells", Contribution(np.ones((1, 1)), np.array([1]), np.array([0, 1, 1]))),
        ("rows", Contribution(np.ones((1, 2)), np.array([1]), np.array([0, 1]))),
        ("rows", Contribution(np.ones((1, WIDTH)), np.array([1]), None)),
    ],
)
def test_doubles_that_are_not_those_of_a_block_are_refused(name, wrong):
    good = join([BLANK])
    for given_, match in (
        (good | {name: wrong}, f"block='{name}'"),
        ({n: c for n, c in good.items() if n != name}, "not those of the blocks"),
    ):
        found = Sums(mechanism())
        with pytest.raises(InvalidSettingError, match=match):
            found.add(given_, 1)
        assert not any(counts.any() for counts in found.aggregates.values())
    full = Sums(mechanism(n_max=2))
    full.skip(2)
    with pytest.raises(InvalidSettingError, match="slots must lie in 0"):
        full.add(good, 1)


clip = clip_factors


def worst():
    rng, rest = np.random.default_rng(2), [document(np.random.default_rng(k)) for k in range(3)]
    streams = [at_all_bounds(), *(document(rng, scale) for scale in (0.1, 1.0, 50.0))]
    found = [apart([one, *rest], [BLANK, *rest], mechanism()) for one in streams]
    users = [*"uuuu", "a", "b", "c"], [*[None] * 4, "a", "b", "c"]
    by_user = [at_all_bounds()] * 4 + rest, [BLANK] * 4 + rest
    return max(*found, apart(*by_user, mechanism(g=2), users))


def no_clipping(norms, bound):
    return np.ones(np.shape(norms))


def mean_clipping(norms, bound):
    return clip(np.full(np.shape(norms), np.mean(norms)), bound)


def half_as_much_again(norms, bound):
    return 1.5 * clip(norms, bound)


def norm_of_the_first_number(self):
    return np.abs(
        np.resize(self.values[:, 0], 1 if self.pointers is None else len(self.pointers) - 1)
    )


def every_document_of_a_user(self, users):
    return np.ones(len(users), dtype=bool)


def added_twice(self, block, found, factors):
    for _ in range(2):
        put(self, block, found, factors)


put = Sums._put
BUGS = [
    *((sums_module, "clip_factors", bug) for bug in (no_clipping, mean_clipping)),
    (sums_module, "clip_factors", half_as_much_again),
    (Contribution, "norms", norm_of_the_first_number),
    (UserBound, "accept", every_document_of_a_user),
    (Sums, "_put", added_twice),
    (sums_module, "_check", lambda *given_: None),
]


@pytest.mark.parametrize(("where", "name", "bug"), BUGS)
def test_planted_bug_is_found(where, name, bug, monkeypatch):
    def repeated():
        """A row that comes twice has a norm of its own."""
        made = JointGaussian(BLOCKS[3:], 4.0, n_max=9)
        found = Sums(made)
        again = Contribution(np.full((4, 1), 1e3), np.array([1, 1, 1, 1]), np.array([0, 4]))
        try:
            found.add({"cells": again}, 1)
        except InvalidSettingError:
            return 0.0
        return distance(made, found.aggregates, Sums(made).aggregates)

    def found():
        return max(worst(), repeated()) if name == "_check" else worst()

    assert found() <= 1
    monkeypatch.setattr(where, name, bug)
    assert found() > 1.05


bounds = st.floats(1e-100, 1e100)


def least_computed(norm):
    """Return the smallest double that a computed norm may be for a true one of `norm`."""
    exact = Fraction(norm) * (1 - Fraction(sums_module.MARGIN) / 4)
    found = float(exact)
    return found if Fraction(found) >= exact else math.nextafter(found, math.inf)


def exceeds(factors, true_norms, bound):
    """Return how many true norms are above the bound after scaling, in exact arithmetic."""
    return sum(
        Fraction(factor) * Fraction(norm) > Fraction(bound)
        for factor, norm in zip(factors.tolist(), true_norms, strict=True)
    )


@given(bounds, st.lists(st.floats(1e-300, 1e300), max_size=20))
def test_no_clipped_norm_exceeds_the_bound_although_norms_are_computed_too_small(bound, norms):
    near = [bound * (1 + k * 2.0**-52) for k in (-4, -1, 0, 1, 4, 2**30, 2**32, 2**33)]
    norms = norms + near
    factors = clip_factors([least_computed(norm) for norm in norms], bound)
    assert exceeds(factors, norms, bound) == 0
    left, kept = factors * np.array(norms), factors > 0
    assert np.all(left[kept] >= np.minimum(norms, bound)[kept] * (1 - 3e-6))
    assert kept[-len(near) :].all()


def test_a_planted_factor_without_margin_exceeds_the_bound():
    true = np.random.default_rng(0).lognormal(size=1000)
    computed = [least_computed(norm) for norm in true]
    assert exceeds(np.minimum(1, 0.5 / np.array(computed)), true, 0.5) > 500
    assert exceeds(clip_factors(computed, 0.5), true, 0.5) == 0


@given(st.lists(st.floats(), max_size=30), bounds)
def test_factors_never_raise_and_what_has_no_norm_contributes_nothing(norms, bound):
    norms = [*norms, 0.0, -0.0, math.nan, math.inf, -1.0, 5e-324]
    factors = clip_factors(norms, bound)
    assert np.all((factors >= 0) & (factors <= 1))
    for norm, factor in zip(norms, factors.tolist(), strict=True):
        if not (math.isfinite(norm) and norm >= 0):
            assert factor == 0
        elif norm <= bound * 0.999:
            assert factor == 1
