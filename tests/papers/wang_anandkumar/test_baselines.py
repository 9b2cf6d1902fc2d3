"""Random-marginal whitening: exact without noise, and worse than the power method with it."""

import numpy as np
import pytest

from streamlda.papers.wang_anandkumar.algorithm_1 import robust_tensor_power
from streamlda.papers.wang_anandkumar.baselines import random_marginal, random_marginal_power
from streamlda.papers.wang_anandkumar.eigenpairs import operator_norm
from streamlda.papers.wang_anandkumar.tensors import DenseTensor, FactoredTensor
from tests.spectral.checks import check_recovers, noisy_array, orthonormal


def test_random_marginal_equals_its_definition():
    array, theta = noisy_array(5, 0), np.random.default_rng(1).standard_normal(5)
    found = random_marginal(DenseTensor(array), theta)
    np.testing.assert_allclose(found, array @ theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (5, 5), (12, 3), (30, 6)])
@pytest.mark.parametrize("n_marginals", [1, 5])
def test_orthogonal_tensor_is_decomposed_exactly(d, k, n_marginals):
    values, vectors = np.linspace(1, 2, k), orthonormal(d, k, d)
    tensor = FactoredTensor(values, vectors)
    found = random_marginal_power(tensor, k, n_marginals=n_marginals, seed=1)
    check_recovers(found, values, vectors)
    assert found.status == ("found",) * k
    assert (np.diff(found.eigenvalues) <= 0).all()


def test_an_array_is_taken_and_a_seed_repeats():
    array = noisy_array(6, 2)
    one, two, other = (random_marginal_power(array, 3, seed=s) for s in (1, 1, 2))
    assert one.eigenvectors.tobytes() == two.eigenvectors.tobytes()
    assert one.eigenvectors.tobytes() != other.eigenvectors.tobytes()


def span_errors(n_marginals, method=None, d=40, sigma=0.1):
    """Return the distance of v_hat's span from the truth, in many draws of noise."""
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        raw = rng.standard_normal((d, d, d))
        orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        raw = sum(raw.transpose(order) for order in orders) / 6
        scale = sigma / operator_norm(DenseTensor(raw), 3, tolerance=1e-2)
        v = np.eye(d)[:, :3]
        array = scale * raw + np.einsum("n,an,bn,cn->abc", [1.0, 0.75, 0.5], v, v, v)
        if n_marginals:
            found = random_marginal_power(array, 3, n_marginals=n_marginals, seed=seed)
        else:
            found = robust_tensor_power(array, 3, seed=seed)
        across = found.eigenvectors - v @ (v.T @ found.eigenvectors)
        errors.append(np.linalg.norm(across, 2))
    return float(np.median(errors))


def test_whitening_stands_less_noise_than_the_power_method():
    """Noise of size 0.1 is below l_min = 0.5, and not below l_min / sqrt d = 0.08."""
    power, one, many = (span_errors(n) for n in (0, 1, 20))
    assert power < 0.2
    assert one > 3 * power
    # More marginals help, and make up for it only in part.
    assert power < many < one


def test_nothing_above_zero_is_said():
    found = random_marginal_power(FactoredTensor([1.0], orthonormal(6, 1, 3)), 3)
    assert found.status == ("found", *["no eigenvalue above zero"] * 2)
