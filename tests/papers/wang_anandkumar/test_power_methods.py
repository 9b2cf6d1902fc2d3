"""Algorithm 1 as printed, and random-marginal whitening."""

import numpy as np
import pytest

from streamlda.papers.wang_anandkumar.algorithm_1 import (
    random_marginal_power,
    robust_tensor_power,
    suggest_iterations,
    suggest_restarts,
)
from streamlda.papers.wang_anandkumar.tensors import FactoredTensor, SymmetricTensor, operator_norm
from streamlda.spectral.joint_power import apply_pairs
from tests.spectral import twins
from tests.spectral.checks import check_recovers, compose, orthonormal, symmetric_noise

NOTHING = "no eigenvalue above zero"


@pytest.mark.parametrize(("d", "k"), [(1, 1), (8, 8), (20, 5)])
@pytest.mark.parametrize("order", [3, 5])
def test_robust_tensor_power_is_exact_without_noise(d, k, order):
    values, vectors = np.linspace(1, 2, k), orthonormal(d, k, seed=d)
    found = robust_tensor_power(FactoredTensor(values, vectors, order), k, seed=1)
    check_recovers(found, values, vectors, atol=1e-8)
    assert found.status == ("found",) * k
    assert found.found.all()
    assert (found.n_restarts, found.n_iterations) == (suggest_restarts(k), suggest_iterations(d))


def test_robust_tensor_power_equals_the_printed_algorithm():
    values, vectors = np.linspace(1.0, 2.0, 6), orthonormal(10, 6, 20)
    noise = symmetric_noise(10, 20, 0.2)
    tensor = compose(values, vectors) + noise
    found = robust_tensor_power(tensor.tolist(), 4, 6, 20, seed=3)
    twin_values, twin_vectors = twins.algorithm_1(tensor, 4, 6, 20, 3)
    order = np.argsort(-twin_values)
    np.testing.assert_allclose(found.eigenvalues, twin_values[order], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.eigenvectors, twin_vectors[:, order], rtol=0, atol=1e-9)


def test_what_the_tensor_does_not_hold_is_not_called_found():
    tensor = FactoredTensor([2.0, 1.0, 0.01], orthonormal(6, 3, 22))
    found = robust_tensor_power(tensor, 5, noise_floor=0.1)
    assert found.status == ("found", "found", "below noise floor", NOTHING, NOTHING)
    np.testing.assert_allclose(found.eigenvalues, [2, 1, 0.01, 0, 0], rtol=0, atol=1e-10)
    assert robust_tensor_power(tensor, 3).status == ("found",) * 3
    zero = robust_tensor_power(np.zeros((3, 3, 3)), 2)
    assert zero.status == (NOTHING, NOTHING)
    assert not zero.eigenvalues.any()
    # Of an even order, no sign of the vector makes a negative eigenvalue positive.
    vectors = orthonormal(4, 2, 23)
    found = robust_tensor_power(FactoredTensor([-3.0, 1.0], vectors, order=4), 3)
    assert found.status == ("found", "found", NOTHING)
    np.testing.assert_allclose(found.eigenvalues[:2], [-3.0, 1.0])
    np.testing.assert_allclose(np.abs(found.eigenvectors[:, :2].T @ vectors), np.eye(2), atol=1e-8)
    found = random_marginal_power(FactoredTensor([1.0], orthonormal(6, 1, 3)), 3)
    assert found.status == ("found", NOTHING, NOTHING)


def test_a_component_cut_short_is_unfinished():
    tensor = FactoredTensor(np.linspace(1.0, 1.2, 10), orthonormal(10, 10, 24))
    assert "unfinished" in robust_tensor_power(tensor, 3, 5, 2).status
    assert robust_tensor_power(tensor, 3, 5, 40).status == ("found",) * 3


def test_noise_alone_is_below_its_operator_norm():
    """Once the signal is deflated, noise is left, and the floor says so."""
    noise = symmetric_noise(10, 25, 0.5)
    floor = operator_norm(SymmetricTensor(10, lambda u: apply_pairs(noise, u)))
    tensor = compose(np.linspace(1.0, 1.4, 3), orthonormal(10, 3, 25)) + noise
    found = robust_tensor_power(tensor, 4, noise_floor=1.1 * floor)
    assert found.status == ("found", "found", "found", "below noise floor")
    assert robust_tensor_power(tensor, 4).status[3] != "below noise floor"


@pytest.mark.parametrize(("d", "k"), [(1, 1), (5, 5), (12, 3)])
def test_random_marginals_are_exact_without_noise(d, k):
    values, vectors = np.linspace(1, 2, k), orthonormal(d, k, d)
    found = random_marginal_power(compose(values, vectors), k, seed=1)
    check_recovers(found, values, vectors)
    assert found.status == ("found",) * k
    assert (np.diff(found.eigenvalues) <= 0).all()
