"""Algorithm 1 as printed: exact without noise, equal to a slow twin, honest on what it found."""

import numpy as np
import pytest

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.papers.wang_anandkumar.algorithm_1 import (
    robust_tensor_power,
    suggest_iterations,
    suggest_restarts,
)
from streamlda.papers.wang_anandkumar.eigenpairs import operator_norm
from streamlda.papers.wang_anandkumar.tensors import FactoredTensor, ImplicitTensor
from streamlda.spectral.tensor_power import apply_pairs, tensor_power
from tests.spectral import twins
from tests.spectral.checks import orthonormal
from tests.spectral.test_tensor_power import CUBE, check_recovers, composed, noisy, spoilt


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 2), (8, 8), (20, 5)])
@pytest.mark.parametrize("order", [3, 5])
def test_robust_tensor_power_is_exact_without_noise(d, k, order):
    values, vectors = np.linspace(1, 2, k), orthonormal(d, k, seed=d)
    found = robust_tensor_power(FactoredTensor(values, vectors, order), k, seed=1)
    check_recovers(found, values, vectors, atol=1e-8)
    assert found.status == ("found",) * k
    assert found.found.all()
    assert (found.n_restarts, found.n_iterations) == (suggest_restarts(k), suggest_iterations(d))


def test_robust_tensor_power_equals_the_printed_algorithm():
    values, vectors, noise, _ = noisy(20, 0.2)
    tensor = composed(values, vectors) + noise
    found = robust_tensor_power(tensor, 4, 6, 20, seed=3)
    twin_values, twin_vectors = twins.algorithm_1(tensor, 4, 6, 20, 3)
    order = np.argsort(-twin_values)
    np.testing.assert_allclose(found.eigenvalues, twin_values[order], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.eigenvectors, twin_vectors[:, order], rtol=0, atol=1e-9)


def test_both_power_methods_find_the_same_without_noise():
    values, vectors = np.linspace(1, 2, 5), orthonormal(9, 5, 21)
    tensor = composed(values, vectors)
    fast = tensor_power(tensor, 5, rng=np.random.default_rng(0))
    printed = robust_tensor_power(tensor, 5)
    np.testing.assert_allclose(printed.eigenvalues, fast.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(printed.eigenvectors, fast.eigenvectors, rtol=0, atol=1e-10)


def test_restarts_follow_equation_3():
    assert [suggest_restarts(k) for k in (1, 10, 11, 100)] == [24, 24, 27, 461]
    assert suggest_iterations(1) == 20
    assert suggest_iterations(1000) == 48


def test_what_the_tensor_does_not_hold_is_not_called_found():
    tensor = FactoredTensor([2.0, 1.0, 0.01], orthonormal(6, 3, 22))
    nothing = "no eigenvalue above zero"
    found = robust_tensor_power(tensor, 5, noise_floor=0.1)
    assert found.status == ("found", "found", "below noise floor", nothing, nothing)
    np.testing.assert_allclose(found.eigenvalues, [2, 1, 0.01, 0, 0], rtol=0, atol=1e-10)
    assert robust_tensor_power(tensor, 3).status == ("found",) * 3
    zero = robust_tensor_power(np.zeros((3, 3, 3)), 2)
    assert zero.status == (nothing, nothing)
    assert not zero.eigenvalues.any()
    assert not zero.found.any()


def test_negative_eigenvalues_of_even_order_are_not_called_found():
    """No sign of the vector makes them positive."""
    tensor = FactoredTensor([-3.0, 1.0], orthonormal(4, 2, 23), order=4)
    found = robust_tensor_power(tensor, 3)
    assert found.status == ("found", *["no eigenvalue above zero"] * 2)
    assert found.eigenvalues[0] == pytest.approx(1.0)


def test_a_component_cut_short_is_unfinished():
    values, vectors = np.linspace(1.0, 1.2, 10), orthonormal(10, 10, 24)
    tensor = FactoredTensor(values, vectors)
    assert "unfinished" in robust_tensor_power(tensor, 3, 5, 2).status
    assert robust_tensor_power(tensor, 3, 5, 40).status == ("found",) * 3


def test_noise_alone_is_below_its_operator_norm():
    """What is left once the signal is deflated is noise, and the floor says so."""
    values, vectors, noise, _ = noisy(25, 0.5)
    floor = operator_norm(ImplicitTensor(10, lambda u: apply_pairs(noise, u)))
    tensor = composed(values[:3], vectors[:, :3]) + noise
    found = robust_tensor_power(tensor, 4, noise_floor=1.1 * floor)
    assert found.status == ("found", "found", "found", "below noise floor")
    assert robust_tensor_power(tensor, 4).status[3] != "below noise floor"


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_robust_tensor_power_takes_any_unit(scale):
    values, vectors = np.linspace(1, 2, 3), orthonormal(5, 3, 26)
    found = robust_tensor_power(scale * composed(values, vectors), 3)
    np.testing.assert_allclose(found.eigenvalues / scale, values[::-1], rtol=1e-10)
    assert found.status == ("found",) * 3


@pytest.mark.parametrize(
    ("tensor", "settings", "message"),
    [
        (CUBE, {"n_components": 4}, "n_components=4 dimension=3"),
        (CUBE, {"n_restarts": 0}, "n_restarts=0"),
        (CUBE, {"n_iterations": 0}, "n_iterations=0"),
        (CUBE, {"noise_floor": float("nan")}, "noise_floor=nan"),
        (spoilt(1e-6), {}, r"first_entry=\(0, 1, 1\)"),
    ],
)
def test_robust_tensor_power_refuses(tensor, settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        robust_tensor_power(tensor, **({"n_components": 2} | settings))


def test_a_tensor_that_answers_nan_is_refused():
    broken = ImplicitTensor(3, lambda u: np.full(u.shape, np.nan))
    with pytest.raises(InvalidDocumentsError, match="finite"):
        robust_tensor_power(broken, 1)
