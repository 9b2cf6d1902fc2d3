"""Power methods pass the suite, which finds wrong ones."""

from functools import partial
from itertools import repeat

import pytest

from streamlda.spectral.power import DeflatedPower, SimultaneousPower
from tests.spectral import checks, twins

COUNTS = {"n_restarts": 40, "n_iterations": 25}


def deflated(d, k, **settings):
    return DeflatedPower(d, k, **(COUNTS | settings))


def simultaneous(d, k, **settings):
    return SimultaneousPower(d, k, **({"n_iterations": 60} | settings))


SOLVERS = {
    "deflated": (deflated, lambda array, k, seed: twins.algorithm_1(array, k, 40, 25, seed)),
    "without eigenvalue round": (
        partial(deflated, eigenvalue_round=False),
        lambda array, k, seed: twins.algorithm_2(repeat(array), k, 40, 25, seed),
    ),
    "simultaneous": (simultaneous, lambda array, k, seed: twins.simultaneous(array, k, 60, seed)),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_power_methods_pass_all_checks(solver):
    make, twin = SOLVERS[solver]
    checks.check_solver(make, twin)
    if make is not simultaneous:
        checks.check_resume(make)
