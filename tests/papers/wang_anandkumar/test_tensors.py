"""Tensors answer as their definition says; operator norms are those of brute force."""

import math
from itertools import permutations

import numpy as np
import pytest

from bench.papers.wa16 import noise_tensor
from streamlda.papers.wang_anandkumar.tensors import (
    DenseTensor,
    FactoredTensor,
    SymmetricTensor,
    operator_norm,
    symmetrised,
    z_eigenpairs,
)
from tests.spectral.checks import orthonormal


def symmetric(d, p, seed):
    raw = np.random.default_rng(seed).standard_normal((d,) * p)
    orders = list(permutations(range(p)))
    return sum(raw.transpose(order) for order in orders) / len(orders)


def image_of(array, u):
    for _ in range(array.ndim - 1):
        array = array @ u
    return array


def powered(value, vector, p):
    product = np.array(value)
    for _ in range(p):
        product = np.multiply.outer(product, vector)
    return product


@pytest.mark.parametrize(("d", "p"), [(1, 3), (2, 3), (5, 3), (4, 4), (3, 5), (2, 6)])
def test_dense_tensor_equals_its_definition(d, p):
    array, u = symmetric(d, p, 0), np.random.default_rng(1).standard_normal((d, 4))
    tensor = DenseTensor(array)
    images, values = tensor.apply(u)
    assert (tensor.dimension, tensor.order) == (d, p)
    expected = np.array([image_of(array, column) for column in u.T]).T
    np.testing.assert_allclose(images, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(values, np.sum(u * expected, axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", [3, 4, 5])
def test_factored_and_implicit_tensors_equal_the_dense_one(p):
    rng = np.random.default_rng(2)
    # Neither orthogonal nor positive: any sum of powers.
    values, vectors, u = rng.standard_normal(3), rng.standard_normal((4, 3)), np.eye(4)[:, :2] + 0.3
    array = sum(powered(value, v, p) for value, v in zip(values, vectors.T, strict=True))
    dense = DenseTensor(array)
    factored = FactoredTensor(values, vectors, p)
    implicit = SymmetricTensor(4, lambda columns: dense.apply(columns)[0], p)
    for tensor in (factored, implicit):
        assert (tensor.dimension, tensor.order) == (4, p)
        for found, expected in zip(tensor.apply(u), dense.apply(u), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def binary_form_values(array):
    """Return T(u, ..., u) wherever it is stationary on the circle, by roots of a polynomial."""
    p = array.ndim
    # T(u, ..., u) = sum_j C(p, j) a_j cos^(p-j) sin^j; its derivative over cos^p is a polynomial
    # in tan, of degree p.
    binomials = np.array([math.comb(p, j) for j in range(p + 1)])
    c = binomials * [array[(0,) * (p - j) + (1,) * j] for j in range(p + 1)]
    derivative = np.append(np.arange(1, p + 1) * c[1:], 0.0)
    derivative[1:] -= np.arange(p, 0, -1) * c[:-1]
    roots = np.polynomial.polynomial.polyroots(derivative)
    angles = np.append(np.arctan(roots[np.abs(roots.imag) < 1e-9].real), np.pi / 2)
    units = np.array([np.cos(angles), np.sin(angles)])
    return np.array([u @ image_of(array, u) for u in units.T])


@pytest.mark.parametrize("p", [3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(4))
def test_norm_and_eigenpairs_equal_brute_force_in_two_dimensions(p, seed):
    array = symmetric(2, p, seed)
    values = binary_form_values(array)
    assert operator_norm(DenseTensor(array), 20) == pytest.approx(np.abs(values).max(), rel=1e-10)
    every = np.concatenate([values, -values]) if p % 2 else values
    for sign in (1, -1):
        found = z_eigenpairs(DenseTensor(array), 20, sign=sign)
        assert found.settled.all()
        assert np.abs(found.eigenvalues[:, None] - every).min(axis=1).max() < 1e-10
        for value, u in zip(found.eigenvalues, found.eigenvectors.T, strict=True):
            np.testing.assert_allclose(image_of(array, u), value * u, rtol=0, atol=1e-7)


@pytest.mark.parametrize("p", [3, 4, 5])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_operator_norm_of_an_orthogonal_tensor_is_its_largest_eigenvalue(p, sign):
    """Where p is even, a negative eigenvalue is found by the other sign alone."""
    tensor = FactoredTensor([1.0, 2.0, 3.0 * sign, 0.5], orthonormal(8, 4, 4), p)
    assert operator_norm(tensor) == pytest.approx(3.0, rel=1e-12)
    assert operator_norm(FactoredTensor([0.0], np.eye(3)[:, :1], p)) == 0


def test_the_closed_forms_of_the_bench_equal_dense_tensors():
    rng, d = np.random.default_rng(8), 6
    eye = np.eye(d)
    pull = sum(np.einsum("a,b,c->abc", eye[1], e, e) for e in eye)
    pull = pull + pull.transpose(1, 0, 2) + pull.transpose(1, 2, 0)
    rest = sum(powered(1.0, e, 3) for e in eye[3:])
    u = rng.standard_normal((d, 5))
    for kind, array in (("adversarial", pull), ("weakly correlated", rest)):
        tensor, norm = noise_tensor(kind, d, rng)
        dense = DenseTensor(array)
        np.testing.assert_allclose(tensor.apply(u)[0], dense.apply(u)[0], rtol=1e-12, atol=1e-12)
        assert operator_norm(dense) == pytest.approx(norm, rel=1e-12)


def test_eigenvectors_of_an_embedding_are_singular_triples():
    sides, value = (3, 4, 5), 3.0
    factors = [orthonormal(d, 3, d) for d in sides]
    array = np.einsum("n,an,bn,cn->abc", [value, 2.0, 1.0], *factors)
    top = z_eigenpairs(symmetrised(array), 20)
    assert top.eigenvalues[0] == pytest.approx(2 * value / 3**0.5, rel=1e-10)
    parts = np.split(top.eigenvectors[:, 0] * 3**0.5, [3, 7])
    cosines = [u @ factor[:, 0] for u, factor in zip(parts, factors, strict=True)]
    np.testing.assert_allclose(np.abs(cosines), 1, rtol=1e-7)
    # Two of them may be turned around, not one or three.
    assert np.prod(cosines) > 0
