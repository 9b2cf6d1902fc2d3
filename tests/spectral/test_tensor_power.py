"""Tensor power method: exact on orthogonal tensors, steady under noise, strict about input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.papers.wang_anandkumar.eigenpairs import operator_norm
from streamlda.spectral.tensor_power import (
    apply_pairs,
    robust_tensor_power,
    suggest_iterations,
    suggest_restarts,
    tensor_power,
)
from streamlda.spectral.tensors import FactoredTensor, ImplicitTensor
from tests.spectral import twins


def orthonormal(d, k, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0][:, :k]


def composed(values, vectors):
    return np.einsum("n,an,bn,cn->abc", values, vectors, vectors, vectors)


def symmetrised(tensor):
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    return sum(tensor.transpose(p) for p in orders) / 6


def check_recovers(found, values, vectors, atol):
    """Compare as sets, largest first; equal eigenvalues may come in any order."""
    order = np.argsort(-values, kind="stable")
    np.testing.assert_allclose(found.eigenvalues, values[order], rtol=atol, atol=0)
    assert (np.diff(found.eigenvalues) <= 0).all()
    np.testing.assert_allclose(np.linalg.norm(found.eigenvectors, axis=0), 1.0, rtol=1e-12)
    cosines = vectors.T @ found.eigenvectors
    matched = np.argmax(cosines, axis=0)
    assert sorted(matched.tolist()) == list(range(len(values)))
    np.testing.assert_allclose(values[matched], found.eigenvalues, rtol=atol, atol=0)
    np.testing.assert_allclose(found.eigenvectors, vectors[:, matched], rtol=0, atol=atol)


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 1), (2, 2), (5, 3), (8, 8), (20, 12), (30, 30)])
def test_orthogonal_tensor_is_decomposed_exactly(d, k, equal):
    rng = np.random.default_rng(0)
    values = np.full(k, 1.7) if equal else np.sort(rng.uniform(1, 6, k))
    vectors = orthonormal(d, k, seed=d)
    found = tensor_power(composed(values, vectors), k, rng=rng)
    check_recovers(found, values, vectors, atol=1e-8)


@pytest.mark.fuzz
@given(
    d=st.integers(1, 7),
    data=st.data(),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([1e-200, 1e-9, 1.0, 1e9, 1e200]),
)
def test_any_small_orthogonal_tensor_is_decomposed_exactly(d, data, seed, scale):
    """At any scale, and with eigenvalues a factor of 100 apart."""
    k = data.draw(st.integers(1, d))
    rng = np.random.default_rng(seed)
    values, vectors = scale * 10 ** rng.uniform(-1, 1, k), orthonormal(d, k, seed + 1)
    check_recovers(tensor_power(composed(values, vectors), k, rng=rng), values, vectors, 1e-8)


def test_fewer_components_than_the_tensor_holds_are_its_largest():
    values, vectors = np.array([1.0, 5.0, 3.0, 0.5]), orthonormal(6, 4, 1)
    found = tensor_power(composed(values, vectors), 2, rng=np.random.default_rng(2))
    check_recovers(found, values[1:3], vectors[:, 1:3], atol=1e-8)


def test_more_components_than_the_tensor_holds_have_eigenvalues_near_zero():
    values, vectors = np.array([2.0, 1.0]), orthonormal(5, 2, 3)
    found = tensor_power(composed(values, vectors), 4, rng=np.random.default_rng(4))
    np.testing.assert_allclose(found.eigenvalues, [2, 1, 0, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.eigenvectors[:, :2], vectors, rtol=0, atol=1e-8)


def test_nothing_is_found_in_a_zero_tensor():
    found = tensor_power(np.zeros((3, 3, 3)), 2, rng=np.random.default_rng(5))
    assert not found.eigenvalues.any()
    assert not found.eigenvectors.any()


@pytest.mark.parametrize("d", [1, 4])
def test_sign_is_carried_by_the_vector(d):
    """lambda v x v x v is the same as -lambda (-v) x (-v) x (-v): eigenvalues come positive."""
    values, vectors = np.linspace(-3, -1, d), orthonormal(d, d, 6)
    found = tensor_power(composed(values, vectors), d, rng=np.random.default_rng(7))
    check_recovers(found, -values, -vectors, atol=1e-8)


def noisy(seed, level):
    rng = np.random.default_rng(seed)
    values, vectors = np.linspace(1.0, 2.0, 6), orthonormal(10, 6, seed)
    noise = symmetrised(rng.standard_normal((10, 10, 10)))
    noise *= level / np.linalg.norm(noise)
    return values, vectors, noise, rng


def first_order_errors(level, seed, **settings):
    """Return the errors of a noisy decomposition over what perturbation theory says, worst case.

    To first order a component with noise e = E(I, v, v) turns by the part of e across v over
    lambda, and its eigenvalue grows by e.v.
    """
    values, vectors, noise, rng = noisy(seed, level)
    found = tensor_power(composed(values, vectors) + noise, 6, rng=rng, **settings)
    matched = np.argmax(vectors.T @ found.eigenvectors, axis=0)
    assert sorted(matched.tolist()) == list(range(6))
    e = apply_pairs(noise, vectors)
    along = np.sum(vectors * e, axis=0)
    turned = vectors + (e - vectors * along) / values
    vector_gap = np.linalg.norm(found.eigenvectors - turned[:, matched], axis=0)
    value_gap = np.abs(found.eigenvalues - (values + along)[matched])
    return float(max(vector_gap.max(), value_gap.max()))


@pytest.mark.parametrize("seed", range(5))
def test_error_under_noise_is_what_first_order_theory_says(seed):
    # What is left is of second order: ten times less noise, a hundred times less of it.
    assert first_order_errors(0.1, seed) < 2 * 0.1**2
    assert first_order_errors(0.01, seed) < 2 * 0.01**2
    assert first_order_errors(0.001, seed) < 2 * 0.001**2


def test_polish_removes_what_deflation_hands_down():
    """Components that are not quite orthogonal, as whitening with estimated moments leaves them."""
    rng = np.random.default_rng(8)
    vectors = orthonormal(8, 8, 9) + 0.04 * rng.standard_normal((8, 8))
    vectors /= np.linalg.norm(vectors, axis=0)
    tensor = composed(np.linspace(1, 2, 8), vectors)

    def misfit(n_refinements):
        found = tensor_power(tensor, 8, n_refinements=n_refinements, rng=np.random.default_rng(10))
        return np.linalg.norm(tensor - composed(*found))

    assert misfit(10) < 0.3 * misfit(0)


def test_result_depends_on_the_generator_alone():
    values, vectors, noise, _ = noisy(11, 0.05)
    tensor = composed(values, vectors) + noise
    before = tensor.copy()
    one, two, other = (tensor_power(tensor, 6, rng=np.random.default_rng(s)) for s in (1, 1, 2))
    assert one.eigenvalues.tobytes() == two.eigenvalues.tobytes()
    assert one.eigenvectors.tobytes() == two.eigenvectors.tobytes()
    assert one.eigenvectors.tobytes() != other.eigenvectors.tobytes()
    np.testing.assert_array_equal(tensor, before)


def test_start_is_used():
    """One step from the answer: enough for a start at it, not for a single random one."""
    values, vectors = np.ones(30), orthonormal(30, 30, 12)
    tensor = composed(values, vectors)
    few = {"n_restarts": 1, "n_iterations": 1, "n_refinements": 0}
    started = tensor_power(tensor, 30, start=vectors, rng=np.random.default_rng(13), **few)
    check_recovers(started, values, vectors, atol=1e-8)
    blind = tensor_power(tensor, 30, rng=np.random.default_rng(13), **few)
    assert np.linalg.norm(tensor - composed(*blind)) > 1


def test_whole_numbers_and_other_layouts_are_taken():
    tensor = np.zeros((2, 2, 2), dtype=int)
    tensor[0, 0, 0], tensor[1, 1, 1] = 3, 2
    found = tensor_power(np.asfortranarray(tensor), 2, rng=np.random.default_rng(14))
    np.testing.assert_allclose(found.eigenvalues, [3, 2], rtol=1e-12)
    np.testing.assert_allclose(found.eigenvectors, np.eye(2), rtol=0, atol=1e-12)


def test_apply_pairs_equals_its_definition():
    rng = np.random.default_rng(15)
    tensor, vectors = symmetrised(rng.standard_normal((4, 4, 4))), rng.standard_normal((4, 3))
    expected = np.einsum("abc,bn,cn->an", tensor, vectors, vectors)
    np.testing.assert_allclose(apply_pairs(tensor, vectors), expected, rtol=1e-12, atol=1e-13)


def spoilt(value, index=(0, 1, 1)):
    tensor = composed(np.ones(3), np.eye(3))
    tensor[index] = value
    return tensor


CUBE = composed(np.ones(3), np.eye(3))
REFUSED = {
    "NaN": ((spoilt(np.nan), 2), {}, "must be finite"),
    "infinite": ((spoilt(np.inf, (1, 1, 1)), 2), {}, "must be finite"),
    "not symmetric": ((spoilt(1e-6), 2), {}, "symmetric, got largest_difference=1e-06"),
    "first entry": ((spoilt(1e-6), 2), {}, r"first_entry=\(0, 1, 1\) unlike=\(1, 0, 1\)"),
    "not symmetric at the end": ((spoilt(1e-6, (1, 1, 0)), 2), {}, "largest_difference=1e-06"),
    "matrix": ((np.eye(3), 1), {}, r"three equal sides, got shape=\(3, 3\)"),
    "unequal": ((np.ones((2, 2, 3)), 1), {}, r"three equal sides, got shape=\(2, 2, 3\)"),
    "empty": ((np.ones((0, 0, 0)), 1), {}, "n_components=1 side=0"),
    "too many": ((CUBE, 4), {}, "n_components=4 side=3"),
    "none": ((CUBE, 0), {}, "n_components=0"),
    "no restarts": ((CUBE, 2), {"n_restarts": 0}, "n_restarts=0"),
    "no iterations": ((CUBE, 2), {"n_iterations": 0}, "n_iterations=0"),
    "negative sweeps": ((CUBE, 2), {"n_refinements": -1}, "n_refinements=-1"),
    "short start": ((CUBE, 2), {"start": np.ones((2, 1))}, r"shape=\(2, 1\) side=3"),
    "flat start": ((CUBE, 2), {"start": np.ones(3)}, r"shape=\(3,\) side=3"),
    "NaN start": ((CUBE, 2), {"start": np.full((3, 1), np.nan)}, "must be finite columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tensor_power_refuses(case):
    arguments, settings, message = REFUSED[case]
    with pytest.raises(InvalidSettingError, match=message) as raised:
        tensor_power(*arguments, rng=np.random.default_rng(0), **settings)
    text = str(raised.value)
    # Rule, value, remedy.
    assert " must " in text
    assert text.index("got ") < text.index(";")


def test_asymmetry_of_rounding_is_taken():
    values = np.array([2.0, 1.0, 0.5])
    tensor = composed(values, np.eye(3))
    tensor[0, 1, 1] += 1e-9
    found = tensor_power(tensor, 3, rng=np.random.default_rng(16))
    np.testing.assert_allclose(found.eigenvalues, values, rtol=0, atol=1e-8)


# Algorithm 1 as printed


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
        (CUBE, {"noise_floor": -1.0}, "noise_floor=-1.0"),
        (CUBE, {"noise_floor": float("nan")}, "noise_floor=nan"),
        (spoilt(np.nan), {}, "must be finite"),
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
