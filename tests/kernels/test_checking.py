"""The kernel that looks at every entry of a batch, against its slow twin."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamlda.kernels import checking
from tests import oracle

CODES = ("OUTSIDE", "FALLING", "NOT_FINITE", "NEGATIVE", "ZERO", "LONG", "FRACTIONAL")

counts = st.sampled_from([1.0, 2.0, 7.0, 0.0, -0.0, -1.0, -2.5, 0.5, 6.0, np.nan, np.inf, -np.inf])
documents = st.lists(st.lists(st.tuples(st.integers(-2, 6), counts), max_size=5), max_size=6)


@given(documents)
def test_faults_are_those_of_the_twin(rows):
    words = np.array([word for row in rows for word, _ in row], dtype=np.int32)
    weights = np.array([count for row in rows for _, count in row], dtype=np.float64)
    pointers = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    faults = np.full(len(rows), -1, dtype=np.int32)
    checking.find_faults(weights, words, pointers, 5, 9.0, faults)
    found = [{name for name in CODES if fault & getattr(checking, name)} for fault in faults]
    assert found == oracle.find_faults(rows, 5, 9.0)


def test_codes_are_powers_of_two_each_once():
    assert sorted(getattr(checking, name) for name in CODES) == [2**i for i in range(len(CODES))]
