"""Events and what they cost: against high precision, dp-accounting, and what was stored."""

import json
import math
import sys

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, MissingExtraError
from streamlda.guarantee.accounting import (
    DELTA_MARGIN,
    MAX_MU,
    MIN_DELTA,
    delta_of,
    epsilon_of,
    mu_of,
    noise_multiplier,
)
from streamlda.privacy.costs import cost, epsilon_spent
from streamlda.privacy.dp_event import to_dp_event
from streamlda.privacy.events import (
    Approximate,
    Composed,
    GaussianRelease,
    LaplaceRelease,
    from_json,
    to_json,
)
from tests.privacy.chance import MP, exact_delta

log_deltas = st.floats(-690, math.log(0.5))


@st.composite
def settings_in_range(draw):
    """Mu over nine decades, and an epsilon whose delta is between 1e-300 and 1."""
    mu = 10 ** draw(st.floats(-6, 3))
    tail = draw(st.floats(0, 1))
    return mu, max(0.0, mu * (mu / 2 + tail * (37 + mu / 2) - mu / 2))


def assert_margin(mu, epsilon):
    exact, ours = exact_delta(mu, epsilon), delta_of(mu, epsilon)
    assert exact <= ours <= max(exact * (1 + 1.1 * DELTA_MARGIN), MIN_DELTA)


@given(settings_in_range())
def test_delta_is_exact_to_its_margin_and_never_too_small(setting):
    assert_margin(*setting)


#: Either side of mu = 1, where the formula changes, and of a = 0, where it changes above 1.
CORNERS = [
    *((1e-6, 0.0), (1e-6, 1e-9), (1e-3, 1e-3), (0.1, 0.0), (0.1, 0.5), (0.999999, 0.5)),
    *((1.0, 0.0), (1.0, 0.5), (1.000001, 0.5), (1.000001, 30.0), (5.0, 1e-9), (5.0, 12.5)),
    *((5.0, 30.0), (40.0, 1.0), (40.0, 800.0), (1e3, 0.0), (1e3, 1e3)),
]


def test_delta_and_mu_at_the_corners():
    for corner in CORNERS:
        assert_margin(*corner)
    assert exact_delta(1e-6, 1.0) < MIN_DELTA == delta_of(1e-6, 1.0)
    assert delta_of(0.0, 0.0) == 0.0
    assert mu_of(1e6, 0.5) == MAX_MU
    assert exact_delta(MAX_MU, 1e6) < 0.5
    one = np.int64(1)
    assert delta_of(np.float64(1), one) == delta_of(1, 1)
    assert noise_multiplier(1, 1e-5, 4 * one) == noise_multiplier(1, 1e-5, 4)


@settings(max_examples=30)
@given(st.floats(-6, 3), st.floats(0, 1e3), log_deltas, st.integers(1, 10**6))
def test_epsilon_mu_and_noise_meet_delta_and_no_more(log_mu, epsilon, log_delta, releases):
    mu, delta = 10**log_mu, math.exp(log_delta)
    found = epsilon_of(mu, delta)
    assert exact_delta(mu, found) <= delta
    assert found == 0 or exact_delta(mu, found) >= delta * (1 - 1e-9)
    assert delta * (1 - 1e-9) <= exact_delta(mu_of(epsilon, delta), epsilon) <= delta
    together = MP.sqrt(releases) / MP.mpf(noise_multiplier(epsilon, delta, releases))
    # Delta falls by up to 1500 times the relative headroom of the noise.
    assert delta * (1 - 1e-7) <= exact_delta(together, epsilon) <= delta


@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-40])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_equals_dp_accounting(epsilon, delta):
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert noise_multiplier(epsilon, delta) == pytest.approx(sigma, rel=1e-9)
    for z in (sigma, 0.7 * sigma):
        theirs = dp_accounting.get_epsilon_gaussian(z, delta)
        ours = epsilon_spent(GaussianRelease(z), delta)
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def gaussians(*values):
    return Composed([GaussianRelease(z) for z in values])


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_cost_is_rounded_up_and_ignores_order_and_nesting(zs, random):
    exact = sum(1 / MP.mpf(z) ** 2 for z in zs)
    whole = cost(gaussians(*zs)).mu_squared
    assert exact <= whole <= exact * (1 + MP.mpf("1e-14"))
    assert all(cost(GaussianRelease(z)).mu_squared >= 1 / MP.mpf(z) ** 2 for z in zs)
    assert cost(gaussians(*random.sample(zs, len(zs)))) == cost(gaussians(*zs))
    halves = Composed([gaussians(*zs[:3]), gaussians(*zs[3:])])
    assert cost(halves).mu_squared == pytest.approx(whole, rel=1e-14)


def test_what_drawn_noise_takes_of_delta_adds_up():
    assert cost(Composed([])) == (0, 0, 0, 0, 0)
    drawn = [
        Approximate(GaussianRelease(2), 2**-50, 2**-30),
        Approximate(GaussianRelease(5), 2**-40),
    ]
    assert cost(Composed(drawn))[3:] == pytest.approx((2**-40 + 2**-50, 2**-30), rel=1e-14)
    with pytest.raises(InvalidSettingError, match="is not exact"):
        epsilon_spent(Composed(drawn), 1e-6)


@given(st.floats(1e-9, 30), st.floats(0, 1))
def test_pure_release_as_gdp_covers_its_worst_case(epsilon, part):
    mu = math.sqrt(cost(LaplaceRelease(epsilon)).mu_squared)
    # Randomised response: nothing that is epsilon-DP tells more.
    e, wanted = MP.mpf(epsilon), MP.mpf(epsilon * part)
    worst = (MP.exp(e) - MP.exp(wanted)) / (1 + MP.exp(e))
    assert exact_delta(mu, epsilon * part) >= worst * (1 - MP.mpf("1e-30"))
    # And no smaller mu would do: at the corner the two curves meet.
    assert exact_delta(mu, 0.0) == pytest.approx(float(MP.tanh(e / 2)), rel=1e-3)
    corner = MP.sqrt(8) * MP.erfinv(MP.tanh(e / 2))
    assert corner <= mu <= corner * (1 + MP.mpf("2e-10"))


@pytest.mark.parametrize(("pure", "z"), [(0.01, 40.0), (0.1, 5.0), (2.0, 0.8), (2.0, 40.0)])
def test_mixed_composition_is_a_valid_bound(pure, z):
    spent = Composed([GaussianRelease(z), LaplaceRelease(pure), LaplaceRelease(pure)])
    ours = epsilon_spent(spent, 1e-5)
    assert ours <= 1.000001 * (epsilon_of(1 / z, 1e-5) + 2 * pure)
    # Optimistic, so a lower bound of what Laplace noise really costs.
    pld = dp_accounting.pld.privacy_loss_distribution
    laplace = pld.from_laplace_mechanism(1 / pure, pessimistic_estimate=False)
    gaussian = pld.from_gaussian_mechanism(z, pessimistic_estimate=False)
    truth = gaussian.compose(laplace).compose(laplace)
    assert truth.get_epsilon_for_delta(1e-5) <= ours * (1 + 1e-9)
    mu = math.sqrt(cost(spent).mu_squared)
    for epsilon in (pure, 2.5 * pure, 2.5 * pure + 1):
        # The truncation of its tails, where delta is next to nothing.
        assert delta_of(mu, epsilon) >= truth.get_delta_for_epsilon(epsilon) - 1e-9


events = st.recursive(
    st.builds(GaussianRelease, st.floats(1e-3, 1e150))
    | st.builds(LaplaceRelease, st.floats(1e-150, 1e3)),
    lambda inner: st.builds(Composed, st.lists(inner, max_size=3)),
    max_leaves=8,
)

#: As version 1 wrote them. These lines are never to be changed.
STORED = [
    ('{"kind": "gaussian", "noise_multiplier": 3.5}', GaussianRelease(3.5)),
    ('{"kind": "laplace", "epsilon": 0.25}', LaplaceRelease(0.25)),
    (
        '{"kind": "composed", "events": [{"kind": "gaussian", "noise_multiplier": 2}]}',
        Composed([GaussianRelease(2)]),
    ),
]


@given(events)
def test_json_gives_the_same_event_again(event):
    again = from_json(json.loads(json.dumps(to_json(event))))
    assert (again, type(again), hash(again)) == (event, type(event), hash(event))


def test_what_was_stored_keeps_its_meaning():
    for text, event in STORED:
        assert from_json(json.loads(text)) == event
        assert to_json(event) == json.loads(text)


def test_export_to_dp_accounting(monkeypatch):
    gaussian, laplace = GaussianRelease(2), LaplaceRelease(0.25)
    theirs = dp_accounting.ComposedDpEvent(
        [dp_accounting.GaussianDpEvent(2.0), dp_accounting.LaplaceDpEvent(4.0)]
    )
    relations = dp_accounting.NeighboringRelation
    for name, relation in (
        *(("zero-out", relations.REPLACE_SPECIAL), ("add-remove", relations.REPLACE_SPECIAL)),
        ("replace-one", relations.REPLACE_ONE),
    ):
        assert to_dp_event(Composed([gaussian, laplace]), name) == (theirs, relation)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"extra accounting"):
        to_dp_event(gaussian, "zero-out")


@pytest.mark.parametrize(
    ("call", "arguments", "found"),
    [
        (delta_of, (1e3 + 1, 1), "^mu must .*got mu="),
        (delta_of, (1, -1e-9), "^epsilon must .*got epsilon="),
        (epsilon_of, (1, 0), "^delta must .*got delta="),
        (mu_of, ("1", 1e-5), "^epsilon must"),
        (noise_multiplier, (1, 1e-5, 0), "^releases must .*got releases="),
        (epsilon_spent, (Composed([GaussianRelease(1e-3)] * 2), 1e-5), "^mu must"),
        *((GaussianRelease, (z,), "^noise_multiplier must") for z in (0.9e-3, 1e151, True)),
        *((LaplaceRelease, (e,), "^epsilon must") for e in (1e-151, 1001, math.nan, 10**400)),
        *((call, (np.float64(0.5),), "type='float64'") for call in (cost, to_json)),
        (Composed, ([1.0],), "type='float'"),
        (from_json, ({"kind": "renyi", "alpha": 2},), "kind='renyi'"),
        (from_json, ({"noise_multiplier": 2.0},), "kind=None"),
        (from_json, ({"kind": "gaussian"},), "other values than noise_multiplier"),
        (from_json, ({"kind": "laplace", "epsilon": 2.0, "count": 3},), "other values than"),
        (from_json, ({"kind": "composed", "events": "gaussian"},), "events must be a list"),
        (from_json, ({"kind": "composed", "events": [{"kind": "zcdp"}]},), "kind='zcdp'"),
    ],
)
def test_what_is_out_of_range_or_not_known_is_refused(call, arguments, found):
    with pytest.raises(InvalidSettingError, match=found):
        call(*arguments)
