"""Power methods pass the suite, which finds wrong ones; the tensor method is exact and steady."""

from functools import partial
from itertools import repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.spectral.power import DeflatedPower, SimultaneousPower
from streamlda.spectral.tensor_power import tensor_power
from tests.spectral import checks, twins
from tests.spectral.checks import check_recovers, composed, orthonormal

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
        if not self.n_found or kept[: self.n_found - 1].any():
            self._values[: self.n_found - 1] = kept[: self.n_found - 1]


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


def check_found(found, values, vectors):
    assert (np.diff(found.eigenvalues) <= 0).all()
    check_recovers(found, values, vectors)


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
