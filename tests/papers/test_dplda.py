"""DP-LDA: cuts of the flow graph, shared budgets, bounds that may fail, topics that come back."""

import itertools
import math
from dataclasses import replace
from graphlib import TopologicalSorter

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.model.evaluation import matched_l1_error
from streamlda.papers.dplda.calibration import make_plan, procedure_1
from streamlda.papers.dplda.configurations import (
    NOT_PROVEN,
    DPLDASettings,
    Edges,
    fit_dp_lda,
    release,
)
from streamlda.papers.dplda.flow import CONFIGURATIONS, DOCUMENTS, EDGES, OUTPUT, configuration
from streamlda.papers.dplda.moments import LDAMoments
from streamlda.papers.dplda.sensitivity import (
    BY_L2,
    Facts,
    pairs_l1,
    pairs_l2,
    triples_l1,
    triples_l2,
    unmet,
)
from streamlda.papers.dplda.spectral import FULL_EIGENPAIRS, SpectralSteps, symmetrised, unwhiten
from streamlda.papers.laplace import TV_DISTANCE_BOUND
from streamlda.papers.symmetric import count_free, pack, unpack
from streamlda.privacy.costs import epsilon_spent
from streamlda.privacy.events import Composed, GaussianRelease, LaplaceRelease
from tests.papers.corpora import planted


def test_graph_is_that_of_the_paper_and_configurations_are_minimal_cuts():
    sources, targets = map(set, zip(*EDGES.values(), strict=True))
    assert sources - targets == {DOCUMENTS}
    assert targets - sources == {OUTPUT}
    graph = {node: {a for a, b in EDGES.values() if b == node} for node in targets}
    assert len(list(TopologicalSorter(graph).static_order())) == 9
    for found in CONFIGURATIONS.values():
        assert set(found.edges) <= set(BY_L2)
        for left_out in (None, *found.edges):
            reached = {DOCUMENTS}
            for name, (source, target) in EDGES.items():
                if source in reached and (name == left_out or name not in found.edges):
                    reached.add(target)
            assert (OUTPUT in reached) == (left_out is not None)


def plan_of(name="1", epsilon=1.0, delta=1e-5, mechanism="gaussian", accounted="exact", parts=None):
    cells = {"gaussian_cells": 1000, "laplace_cells": 2, "parts": parts}
    chosen = {"mechanism": mechanism, "accounted": accounted}
    return make_plan(configuration(name), epsilon, delta, **chosen, **cells)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_gaussian_plans_cost_what_they_may(name, epsilon):
    chosen = configuration(name)
    exact, paper = (plan_of(name, epsilon, accounted=a) for a in ("exact", "paper"))
    for plan in (exact, paper):
        gaussian = [e for e in plan.event.events if isinstance(e, GaussianRelease)]
        pure = [e for e in plan.event.events if isinstance(e, LaplaceRelease)]
        assert (len(gaussian), len(pure)) == (len(chosen.edges), len(chosen.bounds))
        left = 1e-5 - len(pure) * plan.failure - plan.sampler_delta
        assert epsilon_spent(plan.event, left) <= epsilon
        if plan is exact:
            # The rest of the budget is used: 2 % less noise would not fit.
            less = Composed([GaussianRelease(0.98 * e.noise_multiplier) for e in gaussian])
            assert epsilon_spent(less, left) > epsilon - sum(plan.pure.values())
        else:
            releases = len(gaussian) + len(pure)
            multiplier = math.sqrt(2 * math.log(1.25 / plan.failure)) / (epsilon / releases)
            assert gaussian[0].noise_multiplier == pytest.approx(multiplier)
            assert plan.failure * releases + plan.sampler_delta <= 1e-5
    for edge in chosen.edges:
        assert exact.multipliers[edge] < 0.95 * paper.multipliers[edge]


@pytest.mark.parametrize("accounted", ["exact", "paper"])
def test_parts_of_a_budget_are_those_of_its_releases(accounted):
    parts = {"sigma_k": 0.1, "e5": 0.3, "e6": 0.6}
    plan = plan_of("2", 1.0, accounted=accounted, parts=parts)
    assert plan.pure == {"sigma_k": pytest.approx(0.1)}
    # Noise falls as the part rises; together they cost no more than before.
    assert plan.multipliers["e5"] == pytest.approx(2 * plan.multipliers["e6"])
    spent = epsilon_spent(plan.event, 1e-5 - plan.failure - plan.sampler_delta)
    assert spent <= 1.0
    assert spent > 0.99 or accounted == "paper"
    pure = plan_of("1", 1.0, 0.0, "laplace", parts={"e2": 0.5, "e3": 0.25, "e5": 0.25})
    assert pure.pure == {"e2": 0.5, "e3": 0.25, "e5": 0.25}
    even = plan_of("1", 0.9, 0.0, "laplace")
    assert even.event.events == (LaplaceRelease(0.9 / 3),) * 3
    assert even.by_l1
    assert even.sampler_delta >= (1 + math.exp(0.9)) * 2 * TV_DISTANCE_BOUND


@pytest.mark.statistical
@pytest.mark.parametrize("accounted", ["exact", "paper"])
def test_lower_bounds_fail_with_probability_delta_1(accounted):
    """Of 3000 draws, failures are binomial with delta_1 = 0.05: within 1e-6 of both tails.

    The Laplace noise exceeds the margin with exactly that probability, so half of it or twice it
    would be noticed. Sensitivities are those of M2 and M3.
    """
    # A delta this large makes delta_1 = delta / 4 = 0.05.
    plan = plan_of("3", 1.0, 0.2, accounted=accounted)
    facts = Facts(1000, 5, 1.0, sigma_k=0.5, gamma_s=0.5)
    noise = SeededNoise(11)
    found = [procedure_1(configuration("3"), facts, plan, noise) for _ in range(3000)]
    l1 = accounted == "paper"
    moved = {"sigma_k": pairs_l1 if l1 else pairs_l2, "gamma_s": triples_l1 if l1 else triples_l2}
    for name, sensitivity in moved.items():
        values = [getattr(bounds, name) for bounds in found]
        failed = sum(value > 0.5 for value in values)
        law = stats.binom(3000, plan.failure)
        assert law.ppf(1e-6) <= failed <= law.isf(1e-6)
        assert failed < stats.binom(3000, 2 * plan.failure).ppf(1e-6)
        if (name, accounted) != ("gamma_s", "paper"):  # cut off at 0
            spread = math.sqrt(2) * sensitivity(facts) / plan.pure[name]
            assert np.std(values) == pytest.approx(spread, rel=0.15)


LOUD = {"n_components": 2, "alpha_0": 0.5, "epsilon": 12.0, "delta": 1e-3}


@pytest.fixture(scope="module")
def corpus():
    truth, documents = planted(30_000)
    return truth, SpectralSteps(LDAMoments(documents, 0.5), 2)


def test_steps_without_noise_find_the_topics(corpus):
    truth, steps = corpus
    assert matched_l1_error(truth.components, steps.topics).mean < 0.02
    whitened = steps.leading_pairs.whitening.T @ steps.pairs @ steps.leading_pairs.whitening
    np.testing.assert_allclose(whitened, np.eye(2), atol=1e-10)
    both = steps.leading_pairs.whitening.T @ steps.leading_pairs.unwhitening
    np.testing.assert_allclose(both, np.eye(2), atol=1e-12)
    # lambda_i^2 = 4 a (a + 1) / ((a + 2)^2 alpha_i)
    values = np.sqrt(4 * 0.5 * 1.5 / (2.5**2 * np.sort(truth.alpha)))
    np.testing.assert_allclose(steps.factors.values, values, rtol=0.03)
    assert steps.factors.gap == pytest.approx((values[0] - values[1]) / 4, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"configuration": "1"}, 0.05),
        ({"configuration": "1", "accounting": "exact", "mechanism": "laplace"}, 0.05),
        ({"configuration": "2"}, 0.10),
        ({"configuration": "3"}, 0.20),
        ({"configuration": "4"}, 0.20),
    ],
)
def test_topics_come_back_where_noise_is_small(corpus, changes, limit):
    truth, steps = corpus
    found = release(steps, DPLDASettings(**{**LOUD, **changes}), SeededNoise(1))
    assert matched_l1_error(truth.components, found.components).mean < limit
    np.testing.assert_allclose(found.components.sum(axis=1), 1)
    assert found.components.min() >= 0
    assert found.alpha.sum() == pytest.approx(0.5)
    if changes["configuration"] in "12":
        np.testing.assert_allclose(np.sort(found.alpha), np.sort(truth.alpha), rtol=0.15)


SENSITIVITIES = {
    ("gaussian", "exact"): (pairs_l2, triples_l2),
    ("gaussian", "paper"): (pairs_l1, triples_l1),
    ("laplace", "exact"): (pairs_l1, triples_l1),
}


def covers(steps, kind, pairs, triples):
    """Return whether the scale of the noise is multiplier x sensitivity on each edge, or more."""
    mechanism, accounted = kind
    settings = DPLDASettings(
        **LOUD | {"epsilon": 1.0, "delta": 1e-5}, mechanism=mechanism, accounting=accounted
    )
    scales = release(steps, settings, SeededNoise(2)).scales
    plan = plan_of(mechanism=mechanism, accounted=accounted)
    multiplier = plan.multipliers["e2"] if plan.multipliers else 1 / plan.pure["e2"]
    wanted = {"e2": pairs, "e3": triples, "e5": pairs}
    return all(scales[edge] >= multiplier * moved for edge, moved in wanted.items())


@pytest.mark.parametrize("kind", SENSITIVITIES)
def test_noise_of_configuration_1_covers_its_proven_sensitivities(corpus, kind, monkeypatch):
    steps = corpus[1]
    pairs, triples = (f(Facts(30_000, 2, 0.5)) for f in SENSITIVITIES[kind])
    assert covers(steps, kind, pairs, triples)
    assert not covers(steps, kind, 1.02 * pairs, triples)
    assert not covers(steps, kind, pairs, 1.02 * triples)
    if kind == ("gaussian", "exact"):
        # A planted bug, as if centring were free: the sensitivity of the raw moments.
        for edge in ("e2", "e3", "e5"):
            monkeypatch.setitem(BY_L2, edge, lambda facts: math.sqrt(2) / facts.n_documents)
        assert not covers(steps, kind, pairs, triples)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_symmetric_noise_has_its_scale_in_every_entry(mechanism):
    """Mean square of the noise of 1000 releases, per multiplicity: z-score within 4.9 (1e-6).

    2/3 and 3/2 of the scale are rejected. Only free entries are noised; the array is symmetric.
    """
    edges = Edges(plan_of(mechanism=mechanism), {"e3": 1.0}, 1000, SeededNoise(8))
    values = np.full((3, 3, 3), 2.0)
    drawn = np.array([edges.symmetric("e3", values, 42.0) - 2.0 for _ in range(1000)])
    for order in itertools.permutations((1, 2, 3)):
        np.testing.assert_array_equal(drawn, drawn.transpose(0, *order))
    power, variance, kurtosis = (0.5, 1.0, 3.0) if mechanism == "gaussian" else (1.0, 2.0, 6.0)
    for entry, times in (((0, 0, 0), 1), ((0, 0, 1), 3), ((0, 1, 2), 6)):
        scaled = drawn[:, *entry] * times**power / edges.scales["e3"]
        sigma = variance * math.sqrt((kurtosis - 1) / len(drawn))
        assert abs(np.mean(scaled**2) - variance) < 4.9 * sigma
        for wrong in (2 / 3, 3 / 2):
            assert abs(np.mean((scaled * wrong) ** 2) - variance) > 4.9 * sigma


@pytest.mark.parametrize("ndim", [2, 3])
def test_packing_keeps_norms_and_comes_back(ndim):
    array = np.random.default_rng(3).standard_normal((4,) * ndim)
    array = array + array.T if ndim == 2 else symmetrised(array)
    half, whole = pack(array, 0.5), pack(array, 1.0)
    assert len(half) == len(whole) == count_free(4, ndim)
    assert np.linalg.norm(half) == pytest.approx(np.linalg.norm(array))
    assert np.abs(whole).sum() == pytest.approx(np.abs(array).sum())
    assert pack(array, 0.0)[1] == array[(0,) * (ndim - 1) + (1,)]
    for power, packed in ((0.5, half), (1.0, whole), (0.0, pack(array, 0.0))):
        np.testing.assert_allclose(unpack(packed, 4, ndim, power), array, rtol=1e-14)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_statements_say_what_is_proven(corpus, name):
    settings = DPLDASettings(**LOUD, configuration=name)
    seeded, secure = (release(corpus[1], settings, n) for n in (SeededNoise(1), SecureNoise()))
    assert not seeded.private
    assert secure.proven == secure.private == (name == "1")
    if name == "1":
        assert "private: epsilon 12, delta 0.001; document, replace-one" in secure.statement
        assert "30,000 slots" in secure.statement
        assert seeded.statement.startswith("not private: the noise was seeded")
    else:
        for found in (seeded, secure):
            assert found.statement.startswith(NOT_PROVEN)
            assert "Theorem" in found.statement
    pure = DPLDASettings(**LOUD | {"epsilon": 1.0, "delta": 0.0, "mechanism": "laplace"})
    found = release(corpus[1], pure)
    assert 0 < found.sampler_delta < 1e-11
    assert f"delta {found.sampler_delta:.3g}; document" in found.statement
    assert "laplace noise" in found.statement


@pytest.mark.parametrize("name", ["2", "3", "4"])
def test_nothing_is_published_where_no_bound_is_left(name):
    quiet = DPLDASettings(**LOUD | {"epsilon": 0.1, "delta": 1e-6, "configuration": name})
    found = fit_dp_lda(planted(300)[1], quiet, SeededNoise(3))
    assert found.bounds.sigma_k == 0
    assert found.components.shape == (0, 12)
    assert len(found.alpha) == 0
    assert math.isinf(found.scales[CONFIGURATIONS[name].edges[-1]])


def test_many_words_go_without_the_triple_moment():
    """600 words: leading pairs by Lanczos agree with all of them, and M3 is refused."""
    truth, documents = planted(3000, d=600, k=3, concentration=0.01)
    steps = SpectralSteps(LDAMoments(documents, 0.5), 3)
    assert truth.n_features > FULL_EIGENPAIRS
    values, vectors = np.linalg.eigh(steps.moments.pairs())
    np.testing.assert_allclose(steps.leading_pairs.values, values[:-4:-1], rtol=1e-6)
    cosines = np.abs(steps.leading_pairs.vectors.T @ vectors[:, :-4:-1])
    np.testing.assert_allclose(cosines, np.eye(3), atol=1e-4)
    options = {"n_components": 3, "alpha_0": 0.5, "epsilon": 5.0, "delta": 1e-4}
    settings = DPLDASettings(**options, configuration="2")
    assert release(steps, settings, SeededNoise(1)).components.shape == (3, 600)
    with pytest.raises(InvalidSettingError, match="n_features=600; take a configuration"):
        release(steps, DPLDASettings(**options))


def test_topics_of_negative_sign_are_changed_back():
    basis = np.array([[0.5, 0.1], [0.3, 0.2], [0.2, 0.7]])
    for signs in ((1, 1), (-1, 1), (-1, -1)):
        np.testing.assert_allclose(unwhiten(basis, np.diag(signs)), basis.T, atol=1e-15)


FOOTNOTE = ("gamma_s lambda_k", "gamma_s /", "alpha_0 gamma_s^2")
PRECONDITIONS = [
    ({}, False, ()),
    ({"sigma_next": 0.1999}, True, ()),
    ({"lambda_k": 0.01}, False, FOOTNOTE[:1]),
    ({"alpha_0": 0.1}, False, FOOTNOTE[2:]),
    ({"lambda_k": 100.0, "gamma_s": 0.1}, False, FOOTNOTE[1:]),
    ({"sigma_next": 0.1999, "gamma_s": 0.001}, True, FOOTNOTE),
]


@pytest.mark.parametrize(("changes", "gap", "moved"), PRECONDITIONS)
def test_preconditions_are_those_of_the_footnote(changes, gap, moved):
    """Delta_2 is sqrt(2 + 4 s^2) / N = sqrt(3) / 10,000, Delta_T 8 / (10,000 x 0.0894) = 0.0089.

    The limits of Delta_T are 0.0625, 0.042 and 0.0625.
    """
    facts = Facts(10_000, 4, 1.0, sigma_k=0.2, gamma_s=0.5, sigma_next=0.0, lambda_k=1.0)
    facts = replace(facts, **changes)
    first = ("Delta_2 <= (sigma_k - sigma_(k+1)) / 2",) if gap else ()
    for number, wanted in {"1": (), "2": (), "3": moved, "4": moved}.items():
        found = unmet(CONFIGURATIONS[number].bounds, facts)
        of_sigma = () if number == "1" else first
        assert found[: len(of_sigma)] == of_sigma
        parts = zip(found[len(of_sigma) :], wanted, strict=True)
        assert all(one.startswith(f"Delta_T <= {limit}") for one, limit in parts)


def test_what_is_published_outside_the_theorems_says_so(corpus):
    settings = DPLDASettings(**LOUD)
    few = SpectralSteps(LDAMoments(planted(300)[1], 0.5), 2)
    for number in "1234":
        chosen = replace(settings, configuration=number)
        outside, inside = (release(steps, chosen, SeededNoise(1)) for steps in (few, corpus[1]))
        assert bool(outside.unmet) == (number in "34")
        assert len(inside.unmet) < len(outside.unmet) or not outside.unmet
        assert ("Not met: Delta_T" in outside.statement) == (number in "34")
        assert ("Not met" in inside.statement) == bool(inside.unmet)
    assert few.sigma_next == pytest.approx(np.linalg.eigvalsh(few.pairs)[-3])
