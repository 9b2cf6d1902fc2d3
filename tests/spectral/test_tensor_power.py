"""Tensor power method: exact on orthogonal tensors, steady under noise, strict about input."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.spectral.tensor_power import apply_pairs, tensor_power
from tests.spectral.checks import check_recovers, orthonormal


def composed(values, vectors):
    return np.einsum("n,an,bn,cn->abc", values, vectors, vectors, vectors)


def check_found(found, values, vectors):
    assert (np.diff(found.eigenvalues) <= 0).all()
    check_recovers(found, values, vectors)


@pytest.mark.parametrize(("d", "k"), [(8, 8), (20, 12), (30, 30)])
def test_equal_eigenvalues_are_decomposed_exactly(d, k):
    values, vectors = np.full(k, 1.7), orthonormal(d, k, seed=d)
    found = tensor_power(composed(values, vectors), k, rng=np.random.default_rng(0))
    check_found(found, values, vectors)


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
    check_found(tensor_power(composed(values, vectors), k, rng=rng), values, vectors)


def test_fewer_components_than_the_tensor_holds_are_its_largest_and_more_are_near_zero():
    values, vectors = np.array([1.0, 5.0, 3.0, 0.5]), orthonormal(6, 4, 1)
    found = tensor_power(composed(values, vectors), 2, rng=np.random.default_rng(2))
    check_found(found, values[1:3], vectors[:, 1:3])
    found = tensor_power(composed(values, vectors), 6, rng=np.random.default_rng(4))
    np.testing.assert_allclose(found.eigenvalues, [5, 3, 1, 0.5, 0, 0], rtol=0, atol=1e-12)
    nothing = tensor_power(np.zeros((3, 3, 3)), 2, rng=np.random.default_rng(5))
    assert not nothing.eigenvalues.any()
    assert not nothing.eigenvectors.any()


def test_sign_is_carried_by_the_vector():
    """lambda v x v x v is the same as -lambda (-v) x (-v) x (-v): eigenvalues come positive."""
    values, vectors = np.linspace(-3, -1, 4), orthonormal(4, 4, 6)
    found = tensor_power(composed(values, vectors), 4, rng=np.random.default_rng(7))
    check_found(found, -values, -vectors)


def noisy(seed, level):
    rng = np.random.default_rng(seed)
    values, vectors = np.linspace(1.0, 2.0, 6), orthonormal(10, 6, seed)
    noise = sum(map(rng.standard_normal((10, 10, 10)).transpose, permutations(range(3))))
    noise *= level / np.linalg.norm(noise)
    return values, vectors, noise, rng


def first_order_errors(level, seed):
    """Return the errors of a noisy decomposition over what perturbation theory says, worst case.

    To first order a component with noise e = E(I, v, v) turns by the part of e across v over
    lambda, and its eigenvalue grows by e.v.
    """
    values, vectors, noise, rng = noisy(seed, level)
    found = tensor_power(composed(values, vectors) + noise, 6, rng=rng)
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
    for level in (0.1, 0.01, 0.001):
        assert first_order_errors(level, seed) < 2 * level**2


def test_refinement_removes_what_deflation_hands_down():
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
    check_found(started, values, vectors)
    blind = tensor_power(tensor, 30, rng=np.random.default_rng(13), **few)
    assert np.linalg.norm(tensor - composed(*blind)) > 1


def test_int_other_layouts_and_asymmetry_of_rounding_are_taken():
    tensor = np.zeros((2, 2, 2), dtype=int)
    tensor[0, 0, 0], tensor[1, 1, 1] = 3, 2
    uneven = tensor.astype(float)
    uneven[0, 1, 1] += 1e-9
    for each in (np.asfortranarray(tensor), uneven):
        found = tensor_power(each, 2, rng=np.random.default_rng(14))
        np.testing.assert_allclose(found.eigenvalues, [3, 2], rtol=0, atol=1e-8)
        np.testing.assert_allclose(found.eigenvectors, np.eye(2), rtol=0, atol=1e-8)


def spoilt(value, index=(0, 1, 1)):
    tensor = composed(np.ones(3), np.eye(3))
    tensor[index] = value
    return tensor


CUBE = composed(np.ones(3), np.eye(3))


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((spoilt(np.nan), 2), {}, "must be finite"),
        ((spoilt(1e-6), 2), {}, r"=1e-06 .*first_entry=\(0, 1, 1\) unlike=\(1, 0, 1\)"),
        ((spoilt(1e-6, (1, 1, 0)), 2), {}, "symmetric, got largest_difference=1e-06"),
        ((np.ones((2, 2, 3)), 1), {}, r"three equal sides, got shape=\(2, 2, 3\)"),
        ((np.ones((0, 0, 0)), 1), {}, "n_components=1 side=0"),
        ((CUBE, 4), {}, "n_components=4 side=3"),
        ((CUBE, 2), {"n_restarts": 0}, "n_restarts=0"),
        ((CUBE, 2), {"n_iterations": 0}, "n_iterations=0"),
        ((CUBE, 2), {"n_refinements": -1}, "n_refinements=-1"),
        ((CUBE, 2), {"start": np.ones((2, 1))}, r"shape=\(2, 1\) side=3"),
        ((CUBE, 2), {"start": np.full((3, 1), np.nan)}, "must be finite columns"),
    ],
)
def test_tensor_power_refuses(arguments, settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        tensor_power(*arguments, rng=np.random.default_rng(0), **settings)
