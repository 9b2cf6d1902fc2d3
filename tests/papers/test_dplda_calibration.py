"""Budgets are shared so that they hold, and lower bounds fail as rarely as they say."""

import math

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.papers.dplda.calibration import make_plan, procedure_1
from streamlda.papers.dplda.flow import CONFIGURATIONS, configuration
from streamlda.papers.dplda.sensitivity import Facts, pairs_l1, pairs_l2, triples_l2
from streamlda.papers.laplace import TV_DISTANCE_BOUND
from streamlda.privacy.accounting import epsilon_spent
from streamlda.privacy.events import GaussianRelease, LaplaceRelease
from streamlda.privacy.noise import SeededNoise

CELLS = {"gaussian_cells": 1000, "laplace_cells": 2}


def plan_of(name, epsilon=1.0, delta=1e-5, mechanism="gaussian", accounted="exact"):
    return make_plan(
        configuration(name), epsilon, delta, mechanism=mechanism, accounted=accounted, **CELLS
    )


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("accounted", ["exact", "paper"])
def test_gaussian_plans_cost_what_they_may(name, epsilon, accounted):
    plan, chosen = plan_of(name, epsilon, accounted=accounted), configuration(name)
    gaussian = [e for e in plan.event.events if isinstance(e, GaussianRelease)]
    pure = [e for e in plan.event.events if isinstance(e, LaplaceRelease)]
    assert (len(gaussian), len(pure)) == (len(chosen.edges), len(chosen.bounds))
    failures = len(chosen.bounds) * plan.failure
    spent = epsilon_spent(plan.event, 1e-5 - failures - plan.sampler_delta)
    assert spent <= epsilon
    if accounted == "exact":
        # The rest of the budget is used: 2 % less noise would not fit.
        less = [GaussianRelease(0.98 * e.noise_multiplier) for e in gaussian]
        gauss_only = type(plan.event)(less)
        left = epsilon - plan.pure_epsilon * len(pure)
        assert epsilon_spent(gauss_only, 1e-5 - failures - plan.sampler_delta) > left
    else:
        each = epsilon / (len(gaussian) + len(pure))
        multiplier = math.sqrt(2 * math.log(1.25 / plan.failure)) / each
        assert gaussian[0].noise_multiplier == pytest.approx(multiplier)
        assert plan.failure * (len(gaussian) + len(pure)) + plan.sampler_delta <= 1e-5


def test_exact_accounting_asks_for_less_noise_than_the_paper():
    for name in CONFIGURATIONS:
        exact, paper = (plan_of(name, accounted=a).noise_multiplier for a in ("exact", "paper"))
        assert exact < 0.95 * paper


def test_pure_plans_add_up():
    plan = plan_of("1", 0.9, 0.0, "laplace")
    assert plan.event.events == (LaplaceRelease(0.9 / 3),) * 3
    assert plan.noise_multiplier is None
    assert plan.by_l1
    assert plan.sampler_delta >= (1 + math.exp(0.9)) * 2 * TV_DISTANCE_BOUND


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("1", {"epsilon": 0.0}, "epsilon must lie in"),
        ("1", {"delta": 0.0}, "delta must lie in"),
        ("1", {"delta": 1e-17}, "delta must be at least 10 times what the samplers take"),
        ("2", {"mechanism": "laplace"}, "only configuration 1 has, got configuration=2"),
        ("1", {"mechanism": "uniform"}, "mechanism='uniform'"),
        ("1", {"accounted": "advanced"}, "accounting='advanced'; leave them"),
        ("4", {"accounted": "paper", "epsilon": 4.0}, "epsilon <= 1 a release only, got epsilon="),
    ],
)
def test_plans_that_cannot_be_are_refused(name, changes, message):
    with pytest.raises(InvalidSettingError, match=message):
        plan_of(name, **changes)


@pytest.mark.statistical
@pytest.mark.parametrize("accounted", ["exact", "paper"])
def test_lower_bounds_fail_with_probability_delta_1(accounted):
    """Of 3000 draws, failures are binomial with delta_1 = 0.05: within 1e-6 of both tails.

    The Laplace noise exceeds the margin with exactly that probability, so half of it or twice it
    would be told. Sensitivities are those of M2 and M3.
    """
    # A delta this large makes delta_1 = delta / 4 = 0.05.
    plan = plan_of("3", 1.0, 0.2, accounted=accounted)
    facts = Facts(1000, 5, 1.0, sigma_k=0.5, gamma_s=0.5)
    noise = SeededNoise(11)
    found = [procedure_1(configuration("3"), facts, plan, noise) for _ in range(3000)]
    for name in ("sigma_k", "gamma_s"):
        failed = sum(getattr(bounds, name) > 0.5 for bounds in found)
        law = stats.binom(3000, plan.failure)
        assert law.ppf(1e-6) <= failed <= law.isf(1e-6)
        assert not stats.binom(3000, 2 * plan.failure).ppf(1e-6) <= failed
    pairs = pairs_l1(facts) if accounted == "paper" else pairs_l2(facts)
    spread = np.std([bounds.sigma_k for bounds in found])
    assert spread == pytest.approx(math.sqrt(2) * pairs / plan.pure_epsilon, rel=0.15)
    if accounted == "exact":
        spread = np.std([bounds.gamma_s for bounds in found])
        assert spread == pytest.approx(
            math.sqrt(2) * triples_l2(facts) / plan.pure_epsilon, rel=0.15
        )


def test_lower_bounds_stop_at_zero_and_at_what_is_asked_for():
    plan = plan_of("2", 0.1)
    bounds = procedure_1(configuration("2"), Facts(100, 2, 1.0), plan, SeededNoise(1))
    assert bounds.sigma_k == 0.0
    assert math.isnan(bounds.gamma_s)
    nothing = procedure_1(configuration("1"), Facts(100, 2, 1.0), plan, SeededNoise(1))
    assert math.isnan(nothing.sigma_k)
