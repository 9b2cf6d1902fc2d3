"""The three steps of a release, `begin`, `publish` and `recover`, and crashes at any moment."""

import math
from dataclasses import replace

import pytest

from streamlda.errors import BudgetExceededError, InvalidSettingError, LedgerError
from streamlda.guarantee.accounting import epsilon_of, mu_of, noise_multiplier
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Approximate, Composed, GaussianRelease
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, LedgerReader, budget_table
from tests.privacy.ledger_cases import EVENT, PRICE, TERMS, cohort_of, create, publish, release


def test_disjoint_documents_do_not_add_up(ledger):
    release(ledger, 0, 10)
    release(ledger, 20, 30, GaussianRelease(5.0))
    release(ledger, 10, 20)
    assert ledger.spent == 4 * PRICE
    assert ledger.epsilon_left == 1.0
    assert 0 < ledger.epsilon_spent < 1.0


def test_all_releases_of_a_user_add_up(folder):
    with create(folder, privacy_unit="user") as ledger:
        for i in range(3):
            release(ledger, 10 * i, 10 * i + 10)
        assert ledger.spent == pytest.approx(3 * PRICE, rel=1e-15)
        left = ledger.report()["left_for_new_documents"]["mu_squared"]
        assert left == pytest.approx(mu_of(1.0, 1e-6) ** 2 - 3 * PRICE)
        assert 0 < ledger.epsilon_left < 1
        with pytest.raises(BudgetExceededError):
            ledger.check(Composed([EVENT] * 3))


def test_planned_releases_fit_exactly_and_one_more_is_refused(folder):
    event = GaussianRelease(noise_multiplier(1.0, 1e-6, releases=7))
    with create(folder, privacy_unit="user") as ledger:
        for i in range(7):
            release(ledger, 10 * i, 10 * i + 10, event)
        report, cohort = ledger.report(), cohort_of(ledger, 70, 80)
        for attempt in (ledger.check, lambda event, cohort: ledger.begin(cohort, event)):
            with pytest.raises(BudgetExceededError, match="fit into the privacy budget") as caught:
                attempt(event, cohort)
            assert caught.value.requested == cost(event).mu_squared
            assert caught.value.spent == ledger.spent
            assert 0 <= caught.value.remaining < 1e-9
            both = caught.value.spent + caught.value.remaining
            assert both <= mu_of(1.0, 1e-6) ** 2 * (1 + 1e-15)
        assert ledger.report() == report


def test_a_release_costs_something_and_no_more_than_the_budget(ledger):
    release(ledger, 0, 10)
    ledger.check(GaussianRelease(noise_multiplier(1.0, 1e-6)))
    with pytest.raises(BudgetExceededError) as caught:
        ledger.check(GaussianRelease(4.0))
    assert caught.value.spent == 0
    with pytest.raises(InvalidSettingError, match="must cost something"):
        ledger.check(Composed([]))


def test_what_is_set_aside_is_spent_and_known_to_the_next_writer(folder):
    """A user is in all releases: the first says how much each mu^2 may take of delta beside."""
    drawn = Approximate(EVENT, 1e-10, 2e-8)
    with create(folder, privacy_unit="user") as ledger:
        release(ledger, 0, 10, drawn)
        alone = ledger.last_intent
        assert alone.set_aside == pytest.approx(2e-8 + (1 + math.e) * 1e-10)
    with Ledger.open(folder / "ledger", ledger.terms) as ledger:
        more = replace(drawn, tv_distance=2e-10)
        with pytest.raises(LedgerError, match="must set no more of delta aside"):
            ledger.begin(cohort_of(ledger, 10, 20), more)
        # As much for each mu^2, or less, is allowed, and counted as much.
        release(ledger, 10, 20, drawn)
        release(ledger, 20, 30, EVENT)
        report = ledger.report()
        assert report["spent"]["set_aside"] == pytest.approx(3 * alone.set_aside)
        left = 1e-6 - 3 * alone.set_aside
        epsilon = epsilon_of(math.sqrt(3 * PRICE), left)
        assert ledger.epsilon_spent == pytest.approx(epsilon, rel=1e-9)
    # There is room for it in mu^2, and in delta for one, not for two.
    full = Approximate(EVENT, 0.0, 0.6e-6)
    assert mu_of(1.0, 0.4e-6) ** 2 > 2 * PRICE
    (folder / "new").mkdir()
    with create(folder / "new", privacy_unit="user") as ledger:
        release(ledger, 0, 10, full)
        with pytest.raises(BudgetExceededError, match="set_aside=6"):
            ledger.check(full)


@pytest.mark.parametrize("unit", ["document", "user"])
def test_documents_are_released_once(folder, unit):
    with create(folder, privacy_unit=unit) as ledger:
        release(ledger, 0, 10)
        ledger.begin(cohort_of(ledger, 10, 12), EVENT)
        ledger.recover()
        # A lost release has drawn noise for all the ledger knows.
        for again in ((0, 10), (9, 12), (10, 12), (5, 15)):
            with pytest.raises(LedgerError, match="two releases"):
                ledger.begin(cohort_of(ledger, *again), EVENT)


def test_prefix_sums_end_at_the_horizon(folder):
    with create(folder, mode="prefix", horizon=2) as ledger:
        for made in (0, 1):
            report = ledger.report()
            left = report["left_for_new_documents"]["epsilon"], report["releases_left"]
            assert left == (1.0, 2 - made)
            release(ledger, 10 * made, 10 * made + 10)
        assert "releases left: 1" in "\n".join(budget_table(report))
        with pytest.raises(BudgetExceededError, match="horizon=2"):
            ledger.check(EVENT)
        report = ledger.report()
        assert report["left_for_new_documents"]["mu_squared"] == 0
        assert (ledger.spent, report["releases_left"]) == (PRICE, 0)
        assert "the horizon is reached" in "\n".join(budget_table(report))


def test_state_that_does_not_go_with_the_ledger_is_refused(ledger):
    ledger.check_epoch(0, ledger.ledger_id)
    old = cohort_of(ledger, 10, 20)
    release(ledger, 0, 10)
    ledger.check_epoch(1)
    for attempt, match in (
        (lambda: ledger.check_epoch(0), "from before a release"),
        (lambda: ledger.begin(old, EVENT), "from before a release"),
        (lambda: ledger.check_epoch(2), r"must not be older.*used up"),
        (lambda: ledger.check_epoch(1, "another"), "its own ledger"),
        (lambda: LedgerReader(ledger.path).check_epoch(0), "path="),
    ):
        with pytest.raises(LedgerError, match=match):
            attempt()


@pytest.mark.parametrize(("step", "spent"), [("begin", 0), ("inserted", PRICE), ("durable", PRICE)])
def test_failed_write_stops_all_until_opened_again(folder, step, spent):
    def fail(name):
        if name == f"intent:{step}":
            raise OSError(28, "No space left on device")

    with create(folder, on_step=fail) as ledger:
        for match in ("No space left", "opened again"):
            with pytest.raises(LedgerError, match=match):
                ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    with Ledger.open(folder / "ledger", TERMS) as ledger:
        assert (ledger.generation, ledger.spent) == (int(spent > 0), spent)


def test_release_is_paid_then_published_then_committed(ledger, folder):
    cohort = Cohort("c", (DocumentRange("a", 0, 5), DocumentRange("b", 3, 4)), 0, slots=(3, 9))
    intent = ledger.begin(cohort, EVENT, config_hash="h", description="first")
    reader = LedgerReader(folder / "ledger", TERMS)
    for each in (ledger, reader):
        assert (each.spent, each.generation, each.pending) == (PRICE, 1, intent)
    with pytest.raises(LedgerError, match="one release must end"):
        ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    final = publish(ledger, intent)
    assert final.read_bytes() == b"noise 1"
    assert not (folder / "temporary").exists()
    assert (ledger.pending, ledger.generation) == (None, 1)
    assert ledger.last_intent == LedgerReader(folder / "ledger").last_intent == intent
    with pytest.raises(LedgerError, match="each release has one"):
        publish(ledger, intent, "another")
    second = ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    for wrong in (intent, replace(second, ledger_id="other")):
        with pytest.raises(LedgerError, match="release that is pending"):
            publish(ledger, wrong)
    assert not (folder / "another").exists()


def test_artifact_must_be_a_file_with_another_place_to_go(ledger, folder):
    intent = ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    (folder / "there").mkdir()
    (folder / "a").write_bytes(b"a")
    (folder / "link").symlink_to(folder / "a")
    for pair in ("missing b", "there b", "link b", "a a", "a there", "a nowhere/b"):
        with pytest.raises(LedgerError, match="artefact"):
            ledger.publish(intent, *(folder / name for name in pair.split()))
    ledger.publish(intent, folder / "a", folder / "b")


def test_old_copy_of_both_files_is_found_by_what_is_newer(ledger, folder):
    publish(ledger, ledger.begin(cohort_of(ledger, 0, 10), EVENT), "model")
    kept = {name: (folder / name).read_bytes() for name in ("ledger", "ledger.marker")}
    publish(ledger, ledger.begin(cohort_of(ledger, 10, 20), EVENT), "model")
    ledger.check_target(folder / "model")
    newest = ledger.generation
    ledger.close()
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    with Ledger.open(folder / "ledger", TERMS) as older:
        with pytest.raises(LedgerError, match="old copy"):
            older.check_target(folder / "model")
        with pytest.raises(LedgerError, match="must not be older"):
            older.check_epoch(newest)
        intent = older.begin(cohort_of(older, 10, 20), EVENT)
        with pytest.raises(LedgerError, match="old copy"):
            publish(older, intent, "model")
        assert (folder / "model").read_bytes() == b"noise 2"


class Stopped(Exception):
    """Thrown where a crash would be."""


def interrupted(folder, wanted):
    """Leave a ledger whose second release of the artefact ``model`` ended at a step."""

    def stop(name):
        if name == wanted:
            raise Stopped

    with create(folder) as ledger:
        publish(ledger, ledger.begin(cohort_of(ledger, 0, 10), EVENT), "model")
    with Ledger.open(folder / "ledger", TERMS, on_step=stop) as ledger:
        intent = ledger.begin(cohort_of(ledger, 10, 20), EVENT)
        with pytest.raises(Stopped):
            publish(ledger, intent, "model")
    return folder / "ledger"


@pytest.mark.parametrize(
    ("step", "outcome", "content"),
    [
        ("publish:checked", "lost", b"noise 1"),
        ("written:begin", "lost", b"noise 1"),
        ("written:inserted", "committed", b"noise 2"),
        ("written:durable", "committed", b"noise 2"),
        ("publish:renamed", "committed", b"noise 2"),
    ],
)
def test_recovery_publishes_stored_bytes_or_none(folder, step, outcome, content):
    path = interrupted(folder, step)
    with Ledger.open(path, TERMS) as ledger:
        recovery = ledger.recover()
        assert (recovery.intent.number, recovery.outcome) == (2, outcome)
        assert (folder / "model").read_bytes() == content
        assert recovery.path == (folder / "model" if outcome == "committed" else None)
        assert ledger.recover() is None
        assert ledger.spent == PRICE
        with pytest.raises(LedgerError, match="two releases"):
            ledger.begin(cohort_of(ledger, 10, 20), EVENT)


@pytest.mark.parametrize(
    ("name", "content"), [("temporary", b"noise 3"), ("temporary", None), ("model", b"newer")]
)
def test_recovery_gives_up_what_is_not_as_recorded(folder, name, content):
    path = interrupted(folder, "written:marked")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    left = (folder / "model").read_bytes()
    with Ledger.open(path, TERMS) as ledger:
        recovery = ledger.recover()
        assert (recovery.intent.number, recovery.outcome, recovery.path) == (2, "lost", None)
        assert (folder / "model").read_bytes() == left
        assert ledger.report()["snapshots"][1]["reason"]


def test_folder_can_be_moved_in_the_middle_of_a_release(folder):
    (folder / "old").mkdir()
    interrupted(folder / "old", "written:marked")
    (folder / "old").rename(folder / "new")
    with Ledger.open(folder / "new" / "ledger", TERMS) as ledger:
        recovery = ledger.recover()
        assert recovery.path == folder / "new" / "model"
        assert recovery.path.read_bytes() == b"noise 2"


@pytest.mark.long
def test_killed_at_every_step(folder, crashes):
    counted = crashes.run("every-step", folder)
    assert counted["steps"] >= 40
    assert counted["recovered committed"] > 20
    assert counted["recovered lost"] > 20


def test_killed_at_any_moment(folder, crashes):
    counted = crashes.run("any-moment", folder, 20, 20261121)
    assert counted["killed pending"] > 3
    assert counted["artifacts"] > 20


@pytest.mark.soak
def test_killed_at_any_moment_a_thousand_times(tmp_path, folder, crashes):
    for where, kills in ((folder, 700), (tmp_path, 300)):
        counted = crashes.run("any-moment", where, kills, 7)
        assert counted["killed pending"] > 20


def test_full_disk_spends_but_never_gives_back(folder, crashes):
    counted = crashes.run("full-disk", folder)
    assert counted["0"] > 0
    assert counted["3"] > 3
    assert counted["0"] + counted["3"] + counted["4"] == counted.total()
