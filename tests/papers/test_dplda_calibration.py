"""Cuts of the flow graph, what is proven, how budgets are shared, and how often bounds fail."""

import math
from graphlib import TopologicalSorter

import numpy as np
import pytest
from scipy import stats

from streamlda.papers.dplda.calibration import make_plan, procedure_1
from streamlda.papers.dplda.flow import (
    CONFIGURATIONS,
    DOCUMENTS,
    EDGES,
    OUTPUT,
    Configuration,
    configuration,
    is_cut,
)
from streamlda.papers.dplda.sensitivity import Facts, pairs_l1, pairs_l2, triples_l2
from streamlda.papers.laplace import TV_DISTANCE_BOUND
from streamlda.privacy.accounting import epsilon_spent
from streamlda.privacy.events import GaussianRelease, LaplaceRelease
from streamlda.privacy.noise import SeededNoise


def test_graph_is_that_of_the_paper():
    assert list(EDGES) == [f"e{i}" for i in range(10)]
    sources, targets = ({getattr(e, end) for e in EDGES.values()} for end in ("source", "target"))
    assert sources - targets == {DOCUMENTS}
    assert targets - sources == {OUTPUT}
    graph = {node: {e.source for e in EDGES.values() if e.target == node} for node in targets}
    assert len(list(TopologicalSorter(graph).static_order())) == 9
    assert configuration(1) is CONFIGURATIONS["1"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_are_minimal_cuts(name):
    edges = CONFIGURATIONS[name].edges
    assert is_cut(edges)
    for left_out in edges:
        assert not is_cut(set(edges) - {left_out})
    assert all(EDGES[edge].sensitivity is not None for edge in edges)


def test_what_is_no_cut_is_found():
    assert not is_cut(("e0", "e2"))  # the paper's own example
    assert not is_cut(())
    assert is_cut(("e0", "e1"))


def test_only_configuration_1_is_proven():
    assert [name for name, found in CONFIGURATIONS.items() if found.proven] == ["1"]
    for name, expected in {"2": ["Theorem 5"], "3": ["Theorem 6", "Lemma 9"]}.items():
        claims = " ".join(CONFIGURATIONS[name].open_claims)
        assert all(claim in claims for claim in expected)
    assert "Theorem 7" in CONFIGURATIONS["4"].open_claims[0]
    for edge in EDGES.values():
        if edge.sensitivity is not None:
            assert edge.sensitivity.proven == (edge.sensitivity.reason == "")
            assert edge.sensitivity.proven == (edge.sensitivity.scope == "global")


def test_one_open_reason_is_enough_to_be_unproven():
    assert Configuration("x", ("e2", "e3", "e5"), ()).proven
    assert not Configuration("x", ("e2", "e3", "e5"), (), ("open",)).proven
    assert not Configuration("x", ("e9",), ()).proven


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
