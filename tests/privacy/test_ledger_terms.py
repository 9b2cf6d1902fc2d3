"""Terms, cohorts, exact losses and rounding: the arithmetic behind a ledger."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.privacy.ledger import Cohort, DocumentRange
from streamlda.privacy.ledger.terms import Losses, round_down, round_up, sqrt_down, sqrt_up
from tests.privacy.ledger_cases import TERMS


@pytest.mark.parametrize(
    "values",
    [
        {"epsilon": 0},
        {"epsilon": float("nan")},
        {"delta": 0},
        {"delta": 1},
        {"privacy_unit": "word"},
        {"neighboring_relation": "near"},
        {"mode": "tree"},
        {"mode": "prefix"},
        {"horizon": 3},
        {"mode": "prefix", "horizon": 3, "privacy_unit": "user"},
    ],
)
def test_wrong_terms_are_refused(values):
    with pytest.raises(InvalidSettingError, match=next(reversed(values)) + "|horizon|document"):
        replace(TERMS, **values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DocumentRange("s", 5, 5),
        lambda: DocumentRange("s", -1, 5),
        lambda: DocumentRange("s", 0, 2**63),
        lambda: DocumentRange("s", 0.0, 5),
        lambda: Cohort("c", (), 0),
        lambda: Cohort("c", (DocumentRange("s", 0, 5), DocumentRange("s", 4, 6)), 0),
        lambda: Cohort("c", (DocumentRange("s", 0, 5),), 0, {"offset": float("nan")}),
        lambda: Cohort("c", (DocumentRange("s", 0, 5),), 0, {"offset": {1}}),
    ],
)
def test_wrong_cohorts_are_refused(make):
    with pytest.raises(InvalidSettingError):
        make()


ranges = st.tuples(
    st.sampled_from("ab"), st.integers(0, 12), st.integers(1, 8), st.sampled_from([0.1, 0.25, 1.0])
)


@given(st.lists(ranges, max_size=12), st.booleans())
def test_losses_equal_those_kept_per_document(parts, parallel):
    losses, naive = Losses(parallel=parallel), defaultdict(Fraction)
    total = Fraction(0)
    for stream, start, length, price in parts:
        cohort = Cohort("c", (DocumentRange(stream, start, start + length),), 0)
        slots = [(stream, slot) for slot in range(start, start + length)]
        largest = max(naive[slot] for slot in slots)
        assert losses.of(cohort) == (largest if parallel else total)
        assert losses.touches(cohort) == (largest > 0)
        losses.add(cohort, price)
        for slot in slots:
            naive[slot] += Fraction(price)
        total += Fraction(price)
        assert losses.spent == (max(naive.values()) if parallel else total)
    assert losses.of(None) == (0 if parallel else total)


def test_memory_is_bounded_for_windows_of_one_price():
    losses = Losses(parallel=True)
    for i in range(3000):
        losses.add(Cohort("c", (DocumentRange("s", 7 * i, 7 * i + 7),), 0), 0.1)
    assert len(losses._steps["s"][0]) == 2
    assert losses.spent == Fraction(0.1)


@given(st.fractions(0, 1000, max_denominator=10**30))
def test_rounding_never_takes_the_wrong_side(value):
    assert Fraction(round_down(value)) <= value <= Fraction(round_up(value))
    assert round_up(value) - round_down(value) <= 2.3e-16 * round_up(value)
    assert Fraction(sqrt_down(value)) ** 2 <= value <= Fraction(sqrt_up(value)) ** 2
    assert sqrt_up(value) - sqrt_down(value) <= 1e-15 * sqrt_up(value)
