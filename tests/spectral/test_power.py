"""Power methods pass the suite, which finds wrong ones."""

from functools import partial
from itertools import repeat

import numpy as np
import pytest

from streamlda.spectral.power import DeflatedPower, SimultaneousPower
from tests.spectral import checks, twins

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
