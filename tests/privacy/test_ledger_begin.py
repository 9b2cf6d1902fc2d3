"""Step 1, `begin`: what a release costs, and which documents it may read."""

from dataclasses import replace
from fractions import Fraction

import pytest

from streamlda.errors import BudgetExceededError, InvalidSettingError, LedgerError
from streamlda.privacy.accounting import cost, mu_of, noise_multiplier
from streamlda.privacy.events import Composed, GaussianRelease
from streamlda.privacy.ledger import Ledger, LedgerReader
from tests.privacy.ledger_cases import EVENT, PRICE, TERMS, cohort_of, release


def test_disjoint_documents_do_not_add_up_but_the_same_do(ledger):
    release(ledger, 0, 10)
    release(ledger, 10, 20)
    assert ledger.spent == PRICE
    release(ledger, 10, 20, replay=True)
    assert ledger.spent == 2 * PRICE
    release(ledger, 15, 40, replay=True)
    assert Fraction(ledger.spent) >= 3 * Fraction(PRICE)
    assert ledger.spent == pytest.approx(3 * PRICE, rel=1e-15)
    assert ledger.remaining == pytest.approx(mu_of(1.0, 1e-6) ** 2, rel=1e-14)


def test_all_releases_of_a_user_add_up(folder):
    terms = replace(TERMS, privacy_unit="user")
    with Ledger.open(folder / "ledger", terms, create=True) as ledger:
        for i in range(3):
            release(ledger, 10 * i, 10 * i + 10)
        assert ledger.spent == pytest.approx(3 * PRICE, rel=1e-15)
        assert ledger.remaining == pytest.approx(mu_of(1.0, 1e-6) ** 2 - 3 * PRICE)
        with pytest.raises(BudgetExceededError):
            ledger.check(Composed([EVENT] * 3))
        assert isinstance(ledger.to_event(), Composed)


def test_planned_releases_fit_exactly_and_one_more_is_refused(ledger):
    event = GaussianRelease(noise_multiplier(1.0, 1e-6, releases=7))
    for i in range(7):
        release(ledger, 0, 10, event, replay=i > 0)
    entries = ledger.report()["entries"]
    cohort = cohort_of(ledger, 0, 10)
    for attempt in (
        lambda: ledger.check(event, cohort, replay=True),
        lambda: ledger.begin(cohort, event, replay=True),
    ):
        with pytest.raises(BudgetExceededError, match="must fit into the privacy budget") as caught:
            attempt()
        assert caught.value.requested == cost(event).mu_squared
        assert caught.value.spent == ledger.spent
        assert 0 <= caught.value.remaining < 1e-9
        assert caught.value.spent + caught.value.remaining <= mu_of(1.0, 1e-6) ** 2 * (1 + 1e-15)
    assert ledger.report()["entries"] == entries
    # The documents are used up, the stream is not.
    ledger.check(event)
    release(ledger, 10, 20, event)


def test_check_of_new_documents_refuses_more_than_the_whole_budget(ledger):
    ledger.check(GaussianRelease(noise_multiplier(1.0, 1e-6)))
    with pytest.raises(BudgetExceededError) as caught:
        ledger.check(GaussianRelease(4.0))
    assert caught.value.spent == 0
    with pytest.raises(InvalidSettingError, match="must cost something"):
        ledger.check(Composed([]))


def test_documents_are_released_once_unless_asked_for(ledger):
    release(ledger, 0, 10)
    for again in (cohort_of(ledger, 0, 10), cohort_of(ledger, 9, 12)):
        with pytest.raises(LedgerError, match="replay=True"):
            ledger.begin(again, EVENT)
    ledger.begin(cohort_of(ledger, 10, 12), EVENT)
    ledger.recover()
    # A lost release has drawn noise for all the ledger knows.
    with pytest.raises(LedgerError, match="replay=True"):
        ledger.begin(cohort_of(ledger, 10, 12), EVENT)
    with pytest.raises(LedgerError, match="keep its documents"):
        ledger.begin(cohort_of(ledger, 50, 60, name="c0-10"), EVENT)


def test_prefix_sums_end_at_the_horizon_and_take_no_document_twice(folder):
    terms = replace(TERMS, mode="prefix", horizon=2)
    with Ledger.open(folder / "ledger", terms, create=True) as ledger:
        release(ledger, 0, 10)
        with pytest.raises(LedgerError, match="only once"):
            ledger.begin(cohort_of(ledger, 5, 15), EVENT, replay=True)
        release(ledger, 10, 20)
        with pytest.raises(BudgetExceededError, match="horizon=2"):
            ledger.check(EVENT)
        assert ledger.spent == PRICE


def test_state_from_before_a_release_is_refused(ledger):
    ledger.check_epoch(0, ledger.ledger_id)
    old = cohort_of(ledger, 10, 20)
    release(ledger, 0, 10)
    ledger.check_epoch(1)
    with pytest.raises(LedgerError, match="from before a release"):
        ledger.check_epoch(0)
    with pytest.raises(LedgerError, match="from before a release"):
        ledger.begin(old, EVENT)
    with pytest.raises(LedgerError, match=r"must not be older.*used up"):
        ledger.check_epoch(2)
    with pytest.raises(LedgerError, match="its own ledger"):
        ledger.check_epoch(1, "another")
    with pytest.raises(LedgerError, match="path="):
        LedgerReader(ledger.path).check_epoch(0)


@pytest.mark.parametrize("step", ["intent:begin", "intent:inserted", "intent:durable"])
def test_failed_write_stops_all_until_opened_again(folder, step):
    def fail(name):
        if name == step:
            raise OSError(28, "No space left on device")

    path = folder / "ledger"
    with Ledger.open(path, TERMS, create=True, on_step=fail) as ledger:
        with pytest.raises(LedgerError, match="No space left"):
            ledger.begin(cohort_of(ledger, 0, 10), EVENT)
        with pytest.raises(LedgerError, match="opened again"):
            ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    with Ledger.open(path, TERMS) as ledger:
        assert ledger.generation == (step == "intent:durable")
        assert ledger.spent == (PRICE if step == "intent:durable" else 0)
