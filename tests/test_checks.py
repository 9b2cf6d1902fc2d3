"""Checks of values: what is refused, in the words that all errors have."""

import math

import numpy as np
import pytest

from streamlda.errors import (
    InvalidSettingError,
    VocabularyError,
    above,
    at_least,
    between,
    failure,
    one_of,
    require,
)

REFUSED = [
    (lambda: at_least(1, n=0), "n must be a whole number >= 1, got n=0"),
    (lambda: at_least(1, n=2, m=0, remedy="ask for more"), "m=0; ask for more"),
    (lambda: at_least(1, n=True), "n=True"),
    (lambda: at_least(1, n="3"), "n='3'"),
    (lambda: above(0, x=0), "x must be > 0 and finite, got x=0"),
    (lambda: above(0, x=math.nan), "x=nan"),
    (lambda: above(0, x="1"), "x='1'"),
    (lambda: above(0, x=10**400), "x=1000"),
    (lambda: between(0, 1, x=1.5), "x must lie in 0..1, got x=1.5"),
    (lambda: between(0, 1, ends=False, x=1), "x must lie in 0..1, ends excluded, got x=1"),
    (lambda: one_of(("a", "b"), kind="c"), "kind must be one of a, b, got kind='c'"),
    (
        lambda: require(1 > 2, "low must be below high", low=2, high=1, remedy="swap them"),
        "low must be below high, got low=2 high=1; swap them",
    ),
]


@pytest.mark.parametrize(("check", "message"), REFUSED)
def test_what_breaks_it_is_refused_in_the_same_words(check, message):
    with pytest.raises(InvalidSettingError) as caught:
        check()
    assert message in str(caught.value)

    assert at_least(0, n=np.int64(0), m=5) is above(0, x=1e-300) is between(0, 1, x=0, y=1.0)
    assert isinstance(failure("a rule", error=VocabularyError), VocabularyError)
