"""What a ledger says of its releases: the report, its table, and the event tree."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.privacy.accounting import cost, epsilon_of, mu_of
from streamlda.privacy.events import Composed, GaussianRelease, Parallel, to_json
from streamlda.privacy.ledger import (
    Cohort,
    DocumentRange,
    Intent,
    Ledger,
    LedgerReader,
    LedgerTerms,
    budget_table,
    figure,
    read_report,
)
from streamlda.privacy.ledger.file import FORMAT_VERSION, Row
from streamlda.privacy.ledger.state import ReportBuilder, describe
from tests.privacy.ledger_cases import EVENT, TERMS, cohort_of, release


def test_report_says_all_in_plain_json(ledger):
    ledger.begin(cohort_of(ledger, 0, 10), EVENT, description="lost one")
    ledger.recover()
    release(ledger, 10, 20)
    ledger.begin(cohort_of(ledger, 20, 30), Composed([EVENT, EVENT]))
    report = ledger.report()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["budget"]["epsilon"] == 1.0
    assert report["budget"]["config_hash"] == "c0ffee"
    assert report["budget"]["mu"] == pytest.approx(mu_of(1.0, 1e-6), rel=1e-15)
    twice = cost(Composed([EVENT, EVENT])).mu_squared
    assert report["spent"]["mu_squared"] == ledger.spent == twice
    assert report["spent"]["epsilon"] == epsilon_of(report["spent"]["mu"], 1e-6)
    left = report["left"]["mu_squared"]
    assert left == pytest.approx(report["budget"]["mu_squared"] - twice)
    assert report["left"]["epsilon"] == pytest.approx(epsilon_of(left**0.5, 1e-6))
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
    assert report == LedgerReader(ledger.path).report()


def test_event_tree_costs_what_was_spent(ledger):
    release(ledger, 0, 10)
    release(ledger, 20, 30, Composed([EVENT, EVENT]))
    release(ledger, 10, 20)
    release(ledger, 10, 20, replay=True)
    release(ledger, 12, 13, replay=True)
    tree = ledger.to_event()
    assert tree == Parallel([EVENT, Composed([EVENT, EVENT]), Composed([EVENT, EVENT, EVENT])])
    assert cost(tree).mu_squared == pytest.approx(ledger.spent, rel=1e-14)


# Figures against exact ones. `mpmath` with 60 digits shares no code with the accountant.


def exact_delta(mu_squared, epsilon):
    """Return delta of the Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(mu_squared.numerator) / mu_squared.denominator)
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        below = mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)
        return mpmath.ncdf(-e / mu + mu / 2) - below


def assert_not_below(text, mu_squared, delta):
    """Assert that an epsilon is enough for an exact loss, and with four digits no larger."""
    shown = Fraction(text)
    if mu_squared == 0:
        assert shown == 0
        return
    assert exact_delta(mu_squared, shown) <= delta
    if shown:
        assert exact_delta(mu_squared, shown * Fraction("0.99899")) > delta


def assert_not_above(text, mu_squared, delta):
    """Assert that an epsilon is covered by what is exactly left, and with four digits all of it."""
    shown = Fraction(text)
    if mu_squared == 0:
        assert shown == 0
        return
    if shown:
        assert exact_delta(mu_squared, shown) >= delta
    assert exact_delta(mu_squared, (shown or Fraction("1e-9")) * Fraction("1.00101")) < delta


def rows_of(terms, releases):
    """Yield the rows of lost releases of documents start, length, at a noise multiplier."""
    values = {"terms": terms.to_json(), "ledger_id": "id", "format_version": FORMAT_VERSION}
    yield Row(1, "created", "", values, "")
    for i, (start, length, z) in enumerate(releases):
        event = GaussianRelease(z)
        cohort = Cohort(f"c{i}", (DocumentRange("s", start, start + length),), i)
        price = cost(event).mu_squared
        at = "2026-11-21T14:00:00+00:00"
        intent = Intent(i + 1, "id", cohort, event, price, "", "", True, at)
        yield Row(2 * i + 2, "intent", f"c{i}", intent.to_json(), "")
        yield Row(2 * i + 3, "lost", "", {"intent": i + 1, "reason": "", "at": at}, "")


def amount(lines, label):
    """Return epsilon and mu^2 that a line of the table shows."""
    line = next(line for line in lines if line[:12].strip() == label)
    found = re.match(r".{12}epsilon (\S+) +mu\^2 (\S+) ", line)
    assert found is not None, line
    return found[1], found[2]


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8), st.floats(6.0, 300.0)), max_size=5),
    st.booleans(),
)
def test_table_never_shows_too_little_spent_or_too_much_left(releases, users):
    terms = replace(TERMS, privacy_unit="user" if users else "document")
    builder = ReportBuilder(0, 10)
    for row in rows_of(terms, releases):
        builder.add(row)
    lines = budget_table(builder.finish())

    paid = [Fraction(cost(GaussianRelease(z)).mu_squared) for *_, z in releases]
    loss = dict.fromkeys(range(16), Fraction(0))
    spent_after = []
    for (start, length, _), price in zip(releases, paid, strict=True):
        for slot in loss if users else range(start, start + length):
            loss[slot] += price
        spent_after.append(max(loss.values()))
    spent = max(loss.values())
    budget = Fraction(mu_of(1.0, 1e-6)) ** 2
    new = max(budget - (spent if users else 0), Fraction(0))

    epsilon, mu_squared = amount(lines, "spent")
    assert spent <= Fraction(mu_squared) <= spent * Fraction("1.00101")
    assert_not_below(epsilon, spent, 1e-6)
    left = {"left (new)": new}
    if releases and not users:
        left["left"] = max(budget - spent, Fraction(0))
    for label, exact in left.items():
        epsilon, mu_squared = amount(lines, label)
        assert exact * Fraction("0.99899") <= Fraction(mu_squared) <= exact
        if exact == budget:
            # All of it: epsilon is the budget's own.
            assert epsilon == "1.000"
        else:
            assert_not_above(epsilon, exact, 1e-6)
    table = [line.split() for line in lines if re.match(r" *\d+  2026", line)]
    assert len(table) == len(releases)
    for cells, price, after in zip(table, paid, spent_after, strict=True):
        assert_not_below(cells[5], price, 1e-6)
        assert_not_below(cells[6], after, 1e-6)


@given(st.floats(0.0, 1e9), st.booleans())
def test_figure_has_four_digits_on_the_safe_side(value, upward):
    shown = Fraction(figure(value, upward=upward))
    assert shown >= Fraction(value) if upward else shown <= Fraction(value)
    assert abs(shown - Fraction(value)) <= Fraction(value) / 999


@given(st.floats(1e-3, 50.0), st.sampled_from([1e-300, 1e-30, 1e-6, 0.1, 0.999, 1 - 1e-12]))
def test_epsilon_of_what_is_left_is_rounded_down(mu, delta):
    terms = LedgerTerms(epsilon=1e5, delta=delta)
    mu_squared = Fraction(mu) ** 2
    epsilon = describe(mu_squared, terms, upward=False)["epsilon"]
    above = describe(mu_squared, terms, upward=True)["epsilon"]
    assert 0 <= epsilon <= above
    # So near 1 that the margin of delta reaches beyond it, nothing is said to be left.
    assert above - epsilon <= 1e-6 * above + 1e-9 or delta > 0.99
    if epsilon:
        assert exact_delta(mu_squared, Fraction(epsilon)) >= delta
    if above:
        assert exact_delta(mu_squared, Fraction(above)) <= delta


def test_prefix_sums_have_nothing_left_for_old_documents_or_after_the_horizon(folder):
    terms = replace(TERMS, mode="prefix", horizon=2)
    with Ledger.open(folder / "ledger", terms, create=True) as ledger:
        whole = ledger.report()
        assert whole["left"] == whole["left_for_new_documents"]
        assert (whole["left"]["epsilon"], whole["releases_left"]) == (1.0, 2)
        release(ledger, 0, 10)
        begun = ledger.report()
        assert begun["left"]["mu_squared"] == 0
        assert begun["left_for_new_documents"]["epsilon"] == 1.0
        assert begun["releases_left"] == 1
        assert "releases left: 1" in "\n".join(budget_table(begun))
        release(ledger, 10, 20)
        ended = ledger.report()
        assert ended["left_for_new_documents"]["mu_squared"] == ledger.remaining == 0
        assert ended["releases_left"] == 0
        assert "the horizon is reached" in "\n".join(budget_table(ended))


def test_report_of_some_releases_is_part_of_the_whole_report(ledger):
    for i in range(6):
        release(ledger, 10 * i, 10 * i + 10)
    whole = ledger.report()
    assert read_report(ledger.path) == whole
    some = read_report(ledger.path, first=1, last=2)
    assert some.pop("snapshots") == [whole["snapshots"][i] for i in (0, 4, 5)]
    assert some.items() <= whole.items()
