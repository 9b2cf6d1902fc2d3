"""The wording of errors, and what each check takes and refuses."""

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

TAKEN = [
    lambda: at_least(1, n=1),
    lambda: at_least(0, n=np.int64(0), m=5),
    lambda: above(0, x=1e-300, y=np.float32(2)),
    lambda: between(0, 1, x=0, y=1.0),
    lambda: between(0, 1, ends=False, x=0.5),
    lambda: one_of(("a", "b"), kind="a"),
    lambda: require(True, "a rule"),
]
REFUSED = [
    (lambda: at_least(1, n=0), "n must be a whole number >= 1, got n=0"),
    (lambda: at_least(1, n=2, m=0, remedy="ask for more"), "m=0; ask for more"),
    (lambda: at_least(1, n=1.0), "n=1.0"),
    (lambda: at_least(1, n=True), "n=True"),
    (lambda: at_least(1, n="3"), "n='3'"),
    (lambda: at_least(1, n=None), "n=None"),
    (lambda: above(0, x=0), "x must be > 0 and finite, got x=0"),
    (lambda: above(0, x=math.inf), "x=inf"),
    (lambda: above(0, x=math.nan), "x=nan"),
    (lambda: above(0, x="1"), "x='1'"),
    (lambda: above(0, x=None), "x=None"),
    (lambda: above(0, x=10**400), "x=1000"),
    (lambda: between(0, 1, x=1.5), "x must lie in 0..1, got x=1.5"),
    (lambda: between(0, 1, ends=False, x=1), "x must lie in 0..1, ends excluded, got x=1"),
    (lambda: one_of(("a", "b"), kind="c"), "kind must be one of a, b, got kind='c'"),
    (
        lambda: require(1 > 2, "low must be below high", low=2, high=1, remedy="swap them"),
        "low must be below high, got low=2 high=1; swap them",
    ),
]


@pytest.mark.parametrize("check", TAKEN)
def test_what_keeps_the_rule_is_taken(check):
    assert check() is None


@pytest.mark.parametrize(("check", "message"), REFUSED)
def test_what_breaks_it_is_refused_in_the_same_words(check, message):
    with pytest.raises(InvalidSettingError) as caught:
        check()
    assert message in str(caught.value)


def test_the_class_of_the_error_is_chosen():
    assert isinstance(failure("a rule", error=VocabularyError), VocabularyError)
    with pytest.raises(VocabularyError, match="n=0"):
        at_least(1, n=0, error=VocabularyError)
