"""Power methods pass the suite, which finds wrong ones; the tensor method is exact and steady."""

from functools import partial
from itertools import repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.papers.wang_anandkumar.tensors import FactoredTensor
from streamlda.spectral.power import DeflatedPower, SimultaneousPower
from streamlda.spectral.tensor_power import apply_pairs, tensor_power
from tests.spectral import checks, twins
from tests.spectral.checks import check_recovers, composed, noisy, orthonormal

COUNTS = {"n_restarts": 40, "n_iterations": 25}


def deflated(d, k, *, cls=DeflatedPower, **settings):
    return cls(d, k, **(COUNTS | settings))


def simultaneous(d, k, **settings):
    return SimultaneousPower(d, k, **({"n_iterations": 60} | settings))


SOLVERS = {
    "deflated": (deflated, lambda array, k, seed: twins.algorithm_1(array, k, 40, 25, seed)),
    "without eigenvalue round": (
        partial(deflated, eigenvalue_round=False),
        lambda array, k, seed: twins.algorithm_2(repeat(array), k, 40, 25, seed),
    ),
    "simultaneous": (
        simultaneous,
        lambda array, k, seed: twins.simultaneous(array, k, 60, seed),
    ),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_power_methods_pass_all_checks(solver):
    make, twin = SOLVERS[solver]
    counts = ("n_iterations",) if make is simultaneous else ("n_restarts", "n_iterations")
    checks.check_solver(make, twin, counts)


class ForgetsDeflation(DeflatedPower):
    def advance(self, images, values):
        kept, self._values = self._values, np.zeros_like(self._values)
        super().advance(images, values)
        if not self._found or kept[: self._found - 1].any():
            self._values[: self._found - 1] = kept[: self._found - 1]


class TakesFirstRestart(DeflatedPower):
    def advance(self, images, values):
        if self.wants_values_only:
            values = values.copy()
            values[0] = 1e3
        super().advance(images, values)


class ForgetsIteration(DeflatedPower):
    @classmethod
    def from_state(cls, state):
        restored = super().from_state(state)
        restored._iteration = 0
        return restored


class TakesAnything(DeflatedPower):
    def advance(self, images, values):
        super().advance(None if images is None else np.nan_to_num(images), values)


class LendsItsState(DeflatedPower):
    def state(self):
        return super().state() | {"probes": self.probes}


class SquaresWrongly(DeflatedPower):
    def advance(self, images, values):
        super().advance(images, values * 1.001)


PLANTED = {
    "no deflation": (ForgetsDeflation, lambda make: checks.check_exact(make, 3)),
    "first restart": (TakesFirstRestart, lambda make: checks.check_exact(make, 3)),
    "eigenvalue": (SquaresWrongly, lambda make: checks.check_exact(make, 3)),
    "forgets iteration": (ForgetsIteration, checks.check_resume),
    "takes anything": (TakesAnything, checks.check_bad_answers),
    "lends its state": (LendsItsState, checks.check_resume),
    "twin": (TakesFirstRestart, lambda make: checks.check_twin(make, SOLVERS["deflated"][1])),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug):
    cls, check = PLANTED[bug]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(lambda d, k, **settings: deflated(d, k, cls=cls, **settings))


def test_refining_reports_the_eigenvalue_of_the_vector_it_keeps():
    """A step of odd order turns a vector of negative value around; its value turns with it."""
    vectors = checks.orthonormal(5, 2, 1)
    solver = deflated(5, 2)
    checks.drive(solver, FactoredTensor([2.0, 1.0], vectors))
    checks.answer(solver, FactoredTensor([2.0, 1.0], -vectors))
    checks.check_recovers(solver.components(), np.array([2.0, 1.0]), -vectors)


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
    before = tensor.tobytes()
    found = [tensor_power(tensor, 6, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)]
    one, two, other = (each.eigenvectors.tobytes() for each in found)
    assert one == two != other
    assert tensor.tobytes() == before


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
    ("arguments", "message"),
    [
        ((spoilt(np.nan), 2), "must be finite"),
        ((spoilt(1e-6), 2), r"=1e-06 .*first_entry=\(0, 1, 1\) unlike=\(1, 0, 1\)"),
        ((spoilt(1e-6, (1, 1, 0)), 2), "symmetric, got largest_difference=1e-06"),
        ((np.ones((2, 2, 3)), 1), r"three equal sides, got shape=\(2, 2, 3\)"),
        ((np.ones((0, 0, 0)), 1), "n_components=1 side=0"),
        ((CUBE, 4), "n_components=4 side=3"),
    ],
)
def test_tensor_power_refuses(arguments, message):
    with pytest.raises(InvalidSettingError, match=message):
        tensor_power(*arguments, rng=np.random.default_rng(0))
