"""The measures of the paper, against their definitions."""

import numpy as np
import pytest

from streamlda.papers.imtiaz_sarwate.metrics import (
    captured_energy,
    component_error,
    matched_component_error,
)


def test_captured_energy_is_a_trace_and_largest_for_the_leading_eigenvectors() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6))
    A = A @ A.T
    values, vectors = np.linalg.eigh(A)
    assert captured_energy(vectors[:, -2:], A) == pytest.approx(values[-2:].sum())
    V = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    assert captured_energy(V, A) == pytest.approx(np.trace(V.T @ A @ V))
    assert captured_energy(V, A) < values[-2:].sum()


def test_component_errors_by_hand() -> None:
    true = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert component_error(true, true[::-1]) == matched_component_error(true, true[::-1]) == 0
    # Both estimates are at the first component; one of them has to be matched with the second.
    twice = np.zeros((2, 2))
    assert component_error(true, twice) == 0
    assert matched_component_error(true, twice) == pytest.approx(2.5)
    moved = true + np.array([[1.0, 0.0], [0.0, 2.0]])
    assert component_error(true, moved) == pytest.approx(1.5)
