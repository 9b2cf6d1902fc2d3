"""Counts and reports of a ledger: terms, exact losses, the report, its table, the event tree."""

import json
import math
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import BudgetExceededError, InvalidSettingError, LedgerError
from streamlda.guarantee.accounting import epsilon_of, mu_of
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Approximate, Composed, GaussianRelease, to_json
from streamlda.privacy.ledger import Cohort, LedgerReader, LedgerTerms, read_report
from streamlda.privacy.ledger.budget_table import figure
from streamlda.privacy.ledger.records import ReleasedRecords
from streamlda.privacy.ledger.state import describe_left, describe_spent
from streamlda.privacy.ledger.terms import (
    NOTHING,
    Loss,
    cap,
    round_down,
    round_up,
    sqrt_down,
    sqrt_up,
)
from tests.privacy.chance import MP, exact_delta
from tests.privacy.ledger_cases import EVENT, PRICE, TERMS, cohort_of, create, release

UNITS = ({}, {"privacy_unit": "user"})


def test_report_says_all_in_plain_json(ledger):
    ledger.begin(cohort_of(0, 10), EVENT, description="lost one")
    ledger.recover()
    release(ledger, 10, 20)
    ledger.begin(cohort_of(20, 30), Composed([EVENT, EVENT]))
    report = ledger.report()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["budget"]["epsilon"] == 1.0
    mu_squared = mu_of(1.0, 1e-6) ** 2
    assert report["budget"]["mu_squared"] == pytest.approx(mu_squared, rel=1e-15)
    twice = cost(Composed([EVENT, EVENT])).mu_squared
    assert report["spent"]["mu_squared"] == ledger.loss.mu_squared == twice
    assert report["spent"]["epsilon"] == epsilon_of(sqrt_up(Fraction(twice)), 1e-6)
    assert report["left_for_new_documents"]["mu_squared"] == report["budget"]["mu_squared"]
    assert report["left_for_new_documents"]["epsilon"] == pytest.approx(1.0, abs=1e-12)
    assert (report["generation"], report["pending"], report["lost"]) == (3, [3], [1])
    assert [shot["state"] for shot in report["snapshots"]] == ["lost", "committed", "pending"]
    assert [shot["artifact"] for shot in report["snapshots"]] == [None, "artifact-2", None]
    assert report["snapshots"][0]["description"] == "lost one"
    assert report["snapshots"][2]["event"] == to_json(Composed([EVENT, EVENT]))
    assert report["snapshots"][2]["epsilon"] == pytest.approx(epsilon_of(twice**0.5, 1e-6))
    spent_after = [shot["epsilon_spent_after"] for shot in report["snapshots"]]
    assert spent_after[0] == spent_after[1] < spent_after[2]
    assert report == LedgerReader(ledger.path).report() == read_report(ledger.path)


def delta_of_squared(mu_squared, epsilon):
    mu = MP.sqrt(MP.mpf(mu_squared.numerator) / mu_squared.denominator)
    return exact_delta(mu, MP.mpf(epsilon.numerator) / epsilon.denominator)


@pytest.mark.parametrize(("mode", "times"), [("window", 5), ("prefix", 9)])
def test_records_of_one_text_cost_what_one_document_would(folder, mode, times):
    """Twice in one release and once in another: 2^2 + 1^2 in mu^2, or (2 + 1)^2."""
    with create(folder, mode=mode) as ledger:
        for start, texts in ((0, [7, 9, 7]), (10, [8, 7])):
            values = np.array(texts, dtype=np.uint64)
            ledger.begin(replace(cohort_of(start, start + 10), values=values), EVENT)
            ledger.recover()
        found = ledger.report()["documents"]
    assert (found["records"], found["repeated"], found["most"]) == (5, 3, 3)
    assert found["spent"]["mu_squared"] == pytest.approx(times * PRICE)


@given(st.floats(0.0, 1e9), st.booleans())
def test_figure_has_four_digits_on_the_safe_side(value, upward):
    shown = Fraction(figure(value, upward=upward))
    assert shown >= Fraction(value) if upward else shown <= Fraction(value)
    assert abs(shown - Fraction(value)) <= Fraction(value) / 999


@given(st.floats(1e-3, 50.0), st.sampled_from([1e-300, 1e-30, 1e-6, 0.1, 0.999, 1 - 1e-12]))
def test_epsilon_of_what_is_left_is_rounded_down(mu, delta):
    terms = LedgerTerms(epsilon=1e5, delta=delta)
    mu_squared = Fraction(mu) ** 2
    epsilon = describe_left(mu_squared, terms)["epsilon"]
    above = describe_spent(Loss(mu_squared, Fraction(0)), terms)["epsilon"]
    assert 0 <= epsilon <= above
    # So near 1 that the margin of delta reaches beyond it, nothing is said to be left.
    assert above - epsilon <= 1e-6 * above + 1e-9 or delta > 0.99
    if epsilon:
        assert delta_of_squared(mu_squared, Fraction(epsilon)) >= delta
    if above:
        assert delta_of_squared(mu_squared, Fraction(above)) <= delta


@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda values=values: replace(TERMS, **values)
            for values in [
                *({"epsilon": 0}, {"epsilon": float("nan")}, {"delta": 0}, {"delta": 1}),
                *({"privacy_unit": "word"}, {"neighboring_relation": "near"}, {"mode": "tree"}),
            ]
        ),
        lambda: Cohort((), (0, 0)),
    ],
)
def test_wrong_terms_and_cohorts_are_refused(make):
    with pytest.raises(InvalidSettingError, match=r"must|charged to no"):
        make()


ranges = st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(1, 6))


@given(st.lists(ranges, max_size=16))
def test_released_records_equal_those_kept_one_by_one(parts):
    records, naive = ReleasedRecords(), set()
    for stream, start, length in parts:
        cohort = cohort_of(start, start + length, stream)
        slots = {(stream, slot) for slot in range(start, start + length)}
        assert records.touches(cohort) == bool(slots & naive)
        if not slots & naive:
            records.add(cohort)
            naive |= slots
        for name in "ab":
            last = max((slot for found, slot in naive if found == name), default=-1)
            assert records.reach(name) == last + 1


priced = st.tuples(st.integers(1, 6), st.floats(6.0, 300.0), st.sampled_from([0.0, 1e-9, 2e-6]))


@settings(max_examples=30)
@given(st.lists(priced, min_size=1, max_size=8), st.booleans())
def test_spent_is_that_of_the_worst_unit(releases, users):
    """A document is in one release, a user in all; the first rate is raised by a hair (`terms`)."""
    start, paid = 0, []
    with TemporaryDirectory() as folder, create(Path(folder), **UNITS[users]) as ledger:
        for length, z, rate in releases:
            event = Approximate(GaussianRelease(z), 0.0, rate / z**2)
            with suppress(BudgetExceededError, LedgerError):
                ledger.begin(cohort_of(start, start + length), event)
                ledger.recover()
                paid.append(Loss.of(cost(event).mu_squared, rate / z**2))
            start += length
        total = NOTHING
        for price in paid:
            total = total.plus(price)
        wanted = [total] if users else [NOTHING.plus(price) for price in paid]
        epsilons = [describe_spent(loss, ledger.terms)["epsilon"] for loss in wanted]
        assert ledger.epsilon_spent == max(epsilons)
        assert ledger.loss in wanted
        assert ledger.before == (total if users else NOTHING)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(1e-3, 2.0), st.floats(0.0, 1.2)), min_size=1, max_size=6))
def test_what_is_covered_keeps_epsilon_and_delta(releases):
    """A pair is covered only if all releases keep the promise, and if they clearly keep it."""
    epsilon, delta = 1.0, 1e-6
    terms, before = LedgerTerms(epsilon, delta, "user"), NOTHING
    paid, mp_factor = [], 1 + MP.exp(1)
    for part, aside in releases:
        z, tv = 1 / math.sqrt(part * 0.05), aside * part * delta / 4
        tv = tv if tv > 1e-30 else 0.0
        price = terms.price(cost(Approximate(GaussianRelease(z), tv, tv / 3)))
        after = before.plus(price)
        now = [*paid, (1 / MP.mpf(z) ** 2, MP.mpf(tv) / 3 + mp_factor * MP.mpf(tv))]
        B, L = (sum(column) for column in zip(*now, strict=True))
        exact = exact_delta(MP.sqrt(B), MP.mpf(epsilon)) + L
        allowed = before.allows(price)
        if allowed and terms.covers(after):
            assert exact <= delta
        # At the rate of the first nothing is set aside without need.
        first = now[0][1] / now[0][0]
        clearly = exact_delta(MP.sqrt(B), MP.mpf(epsilon)) + first * B <= delta * (1 - 1e-9)
        if clearly and all(x[1] <= first * x[0] for x in now):
            assert allowed
            assert terms.covers(after)
            assert cap(terms, after.rate) >= after.mu_squared * (1 - Fraction(1, 2**30))
        before, paid = after, now


@given(st.floats(1e-3, 600.0), st.floats(0.0, 0.1), st.one_of(st.just(0.0), st.floats(1e-20, 1e-3)))
def test_the_price_of_a_release_is_rounded_up(epsilon, failure, tv):
    terms = LedgerTerms(epsilon, 1e-6)
    price = terms.price(cost(Approximate(GaussianRelease(2.0), tv, failure)))
    exact = MP.mpf(failure) + (1 + MP.exp(MP.mpf(epsilon))) * MP.mpf(tv)
    found = MP.mpf(price.set_aside.numerator) / price.set_aside.denominator
    assert exact <= found <= exact * (1 + MP.mpf("1e-12"))
    assert price.mu_squared == Fraction(cost(GaussianRelease(2.0)).mu_squared)


likely = st.fractions(Fraction(1, 2), Fraction(19, 20), max_denominator=20)
unlikely = st.fractions(Fraction(1, 20), Fraction(1, 3), max_denominator=20)
small = st.fractions(0, Fraction(1, 64), max_denominator=2**10)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(likely, unlikely), min_size=7, max_size=7),
    st.lists(st.tuples(small, small), min_size=1, max_size=3),
)
def test_what_is_set_aside_covers_any_sampler_and_failure(laws, distances):
    """One to three bits, each drawn by what came before, moved the worst way; e^epsilon is 2."""
    exact, drawn = {"": (Fraction(1), Fraction(1))}, {"": (Fraction(1), Fraction(1))}
    nodes = iter(laws)
    terms = LedgerTerms(math.log(2) * (1 - 1e-15), 0.5)
    set_aside = Fraction(0)
    for tv, failure in distances:
        moved, failed = Fraction(float(tv)), Fraction(float(failure))
        event = Approximate(GaussianRelease(1.0), float(tv), float(failure))
        set_aside += terms.price(cost(event)).set_aside
        for before in [name for name in exact if len(name) == len(max(exact, key=len))]:
            pair = next(nodes)
            worst = (min(pair[0] + moved, 1), max(pair[1] - moved, 0))
            # A failure shows under D what D' never does.
            for bit in "01":
                p = [x if bit == "1" else 1 - x for x in pair]
                q = [x if bit == "1" else 1 - x for x in worst]
                exact[before + bit] = tuple(a * b for a, b in zip(exact[before], p, strict=True))
                drawn[before + bit] = tuple(
                    a * b * (1 - failed) for a, b in zip(drawn[before], q, strict=True)
                )
            drawn[before + "!"] = drawn[before][0] * failed, Fraction(0)

    def most(outcomes, leaf):
        return sum(max(p - 2 * q, Fraction(0)) for name, (p, q) in outcomes.items() if leaf(name))

    depth = len(distances)
    found = most(drawn, lambda name: len(name) == depth or name.endswith("!"))
    assert found <= most(exact, lambda name: len(name) == depth) + set_aside


@given(st.fractions(0, 1000, max_denominator=10**30))
def test_rounding_never_takes_the_wrong_side(value):
    assert Fraction(round_down(value)) <= value <= Fraction(round_up(value))
    assert round_up(value) - round_down(value) <= 2.3e-16 * round_up(value)
    assert Fraction(sqrt_down(value)) ** 2 <= value <= Fraction(sqrt_up(value)) ** 2
    assert sqrt_up(value) - sqrt_down(value) <= 1e-15 * sqrt_up(value)
