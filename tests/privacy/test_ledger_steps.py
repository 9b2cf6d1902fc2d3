"""The three steps of a release, `begin`, `publish` and `recover`, and crashes at any moment."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import BudgetExceededError, LedgerError
from streamlda.guarantee.accounting import epsilon_of, mu_of, noise_multiplier
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Approximate, GaussianRelease
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, LedgerReader
from tests.privacy.ledger_cases import EVENT, PRICE, TERMS, cohort_of, create, publish, release


def test_planned_releases_fit_exactly_and_one_more_is_refused(folder):
    event = GaussianRelease(noise_multiplier(1.0, 1e-6, releases=7))
    with create(folder, privacy_unit="user") as ledger:
        for i in range(7):
            release(ledger, 10 * i, 10 * i + 10, event)
        report, cohort = ledger.report(), cohort_of(70, 80)
        for attempt in (ledger.check, lambda event, cohort: ledger.begin(cohort, event)):
            with pytest.raises(BudgetExceededError, match="more than the privacy budget") as caught:
                attempt(event, cohort)
            assert caught.value.requested == cost(event).mu_squared
            assert caught.value.spent == report["spent"]["mu_squared"]
            assert 0 <= caught.value.remaining < 1e-9
            both = caught.value.spent + caught.value.remaining
            assert both <= mu_of(1.0, 1e-6) ** 2 * (1 + 1e-15)
        assert ledger.report() == report


def test_what_is_set_aside_is_spent_and_known_to_the_next_writer(folder):
    """A user is in all releases: the first says how much each mu^2 may take of delta beside."""
    drawn = Approximate(EVENT, 1e-10, 2e-8)
    with create(folder, privacy_unit="user") as ledger:
        release(ledger, 0, 10, drawn)
        alone = ledger.last_release
        assert float(alone.price.set_aside) == pytest.approx(2e-8 + (1 + math.e) * 1e-10)
    with Ledger.open(folder / "ledger", ledger.terms) as ledger:
        more = replace(drawn, tv_distance=2e-10)
        with pytest.raises(LedgerError, match="more of delta aside"):
            ledger.begin(cohort_of(10, 20), more)
        # As much for each mu^2, or less, is allowed, and counted as much.
        release(ledger, 10, 20, drawn)
        release(ledger, 20, 30, EVENT)
        report = ledger.report()
        assert report["spent"]["set_aside"] == pytest.approx(3 * float(alone.price.set_aside))
        left = 1e-6 - 3 * float(alone.price.set_aside)
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
        ledger.begin(cohort_of(10, 12), EVENT)
        ledger.recover()
        # A lost release has drawn noise for all the ledger knows.
        for again in ((0, 10), (9, 12), (10, 12), (5, 15)):
            with pytest.raises(LedgerError, match="two releases"):
                ledger.begin(cohort_of(*again), EVENT)


def test_a_tenth_of_repeats_is_warned_of_once(ledger):
    said = []
    ledger.warn = said.append
    inside = [*range(1000, 1090), *[1000] * 10]
    for number, texts in enumerate((range(100), [*range(9), *range(200, 291)], inside, inside)):
        cohort = cohort_of(10 * number, 10 * number + 10)
        ledger.begin(replace(cohort, values=np.array(texts, dtype=np.uint64)), EVENT)
        ledger.recover()
        assert len(said) == (number >= 2)
    assert "repeated=10 documents=100 release=3" in said[0]
    # Documents that were in a release, ten of them twice here.
    ledger.warn = said.append
    again = np.array([*range(1000, 1090), *range(1000, 1010)], dtype=np.uint64)
    ledger.begin(replace(cohort_of(40, 50), values=again), EVENT)
    assert "repeated=100 documents=100 release=5" in said[1]


def test_state_that_does_not_go_with_the_ledger_is_refused(ledger):
    own = ledger.ledger_id
    ledger.check_epoch(0, own)
    release(ledger, 0, 10)
    ledger.check_epoch(1, own)
    for epoch, name, match in (
        (0, own, "from before a release"),
        (2, own, r"is older than.*used up"),
        (1, "another", "of another ledger"),
    ):
        for reader in (ledger, LedgerReader(ledger.path)):
            with pytest.raises(LedgerError, match=match):
                reader.check_epoch(epoch, name)


@pytest.mark.parametrize(("step", "spent"), [("begin", 0), ("inserted", PRICE), ("durable", PRICE)])
def test_failed_write_stops_all_until_opened_again(folder, step, spent):
    def fail(name):
        if name == f"intent:{step}":
            raise OSError(28, "No space left on device")

    with create(folder, on_step=fail) as ledger:
        for match in ("No space left", "open it again"):
            with pytest.raises(LedgerError, match=match):
                ledger.begin(cohort_of(0, 10), EVENT)
    with Ledger.open(folder / "ledger", TERMS) as ledger:
        assert (ledger.generation, ledger.loss.mu_squared) == (int(spent > 0), spent)


def test_release_is_paid_then_published_then_committed(ledger, folder):
    cohort = Cohort((DocumentRange("a", 0, 5), DocumentRange("b", 3, 4, "seal")), (3, 9), "run")
    paid = ledger.begin(cohort, EVENT, config_hash="h", description="first")
    assert paid.cohort == cohort
    reader = LedgerReader(folder / "ledger", TERMS)
    for each in (ledger, reader):
        assert (each.loss.mu_squared, each.generation, each.pending) == (PRICE, 1, paid)
    with pytest.raises(LedgerError, match="release before has not ended"):
        ledger.begin(cohort_of(10, 20), EVENT)
    final = publish(ledger, paid)
    assert final.read_bytes() == b"noise 1"
    assert not (folder / "artifact-1.new").exists()
    assert (ledger.pending, ledger.generation) == (None, 1)
    assert ledger.last_release == LedgerReader(folder / "ledger").last_release
    assert ledger.last_release.cohort == cohort
    with pytest.raises(LedgerError, match="of the release that is pending"):
        publish(ledger, paid, "another")
    ledger.begin(cohort_of(10, 20), EVENT)
    with pytest.raises(LedgerError, match="release that is pending"):
        publish(ledger, paid)
    assert not (folder / "another").exists()


def test_old_copy_of_both_files_is_found_by_what_is_newer(ledger, folder):
    publish(ledger, ledger.begin(cohort_of(0, 10), EVENT), "one")
    kept = {name: (folder / name).read_bytes() for name in ("ledger", "ledger.documents")}
    publish(ledger, ledger.begin(cohort_of(10, 20), EVENT), "two")
    ledger.check_target(folder / "two")
    newest, own = ledger.generation, ledger.ledger_id
    ledger.close()
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    with Ledger.open(folder / "ledger", TERMS) as older:
        older.check_target(folder / "one")
        with pytest.raises(LedgerError, match="old copy"):
            older.check_target(folder / "two")
        with pytest.raises(LedgerError, match="is older than"):
            older.check_epoch(newest, own)
        paid = older.begin(cohort_of(10, 20), EVENT)
        with pytest.raises(LedgerError, match="old copy"):
            publish(older, paid, "two")
        assert (folder / "two").read_bytes() == b"noise 2"


def test_each_step_is_on_the_disk_before_the_next(folder, monkeypatch):
    """Steps, and the files and folders that are forced to the disk, as they come."""
    seen, forced = [], os.fsync

    def fsync(descriptor):
        seen.append(os.fstat(descriptor).st_ino)
        forced(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with create(folder, on_step=seen.append) as ledger:
        release(ledger, 0, 10)
    names = {path.stat().st_ino: path.name for path in folder.iterdir()}
    names[folder.stat().st_ino] = "folder"
    assert [names.get(each, each) for each in seen] == [
        *("ledger.documents", "folder", "create:written", "ledger", "folder", "create:synced"),
        *("intent:begin", "intent:inserted", "ledger", "intent:durable"),
        *("ledger.documents", "documents:kept"),
        *("artifact-1", "folder", "publish:checked"),
        *("written:begin", "written:inserted", "ledger", "written:durable"),
        *("publish:renamed", "folder", "publish:synced"),
        *("committed:begin", "committed:inserted", "ledger", "committed:durable"),
    ]


class Stopped(Exception):
    """Thrown where a crash would be."""


def interrupt_at(folder, wanted):
    """Leave a ledger whose second release, of the artefact ``model``, ended at a step."""

    def stop(name):
        if name == wanted:
            raise Stopped

    with create(folder) as ledger:
        release(ledger, 0, 10)
    with Ledger.open(folder / "ledger", TERMS, on_step=stop) as ledger:
        intent = ledger.begin(cohort_of(10, 20), EVENT)
        with pytest.raises(Stopped):
            publish(ledger, intent, "model")
    return folder / "ledger"


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        ("publish:checked", "lost"),
        ("written:begin", "lost"),
        ("written:inserted", "committed"),
        ("written:durable", "committed"),
        ("publish:renamed", "committed"),
    ],
)
def test_recovery_publishes_stored_bytes_or_none(folder, step, outcome):
    path = interrupt_at(folder, step)
    with Ledger.open(path, TERMS) as ledger:
        ended = ledger.recover()
        assert (ended.number, ended.state) == (2, outcome)
        assert (folder / "model").exists() == (outcome == "committed")
        if outcome == "committed":
            assert (folder / "model").read_bytes() == b"noise 2"
            ledger.check_target(folder / "model")
        assert ledger.recover() is None
        assert ledger.loss.mu_squared == PRICE
        with pytest.raises(LedgerError, match="two releases"):
            ledger.begin(cohort_of(10, 20), EVENT)


@pytest.mark.parametrize(
    ("name", "content"), [("model.new", b"noise 3"), ("model.new", None), ("model", b"newer")]
)
def test_recovery_gives_up_what_is_not_as_recorded(folder, name, content):
    path = interrupt_at(folder, "written:durable")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    left = {each.name: each.read_bytes() for each in folder.glob("model")}
    with Ledger.open(path, TERMS) as ledger:
        ended = ledger.recover()
        assert (ended.number, ended.state) == (2, "lost")
        assert {each.name: each.read_bytes() for each in folder.glob("model")} == left


def test_folder_can_be_moved_in_the_middle_of_a_release(folder):
    (folder / "old").mkdir()
    interrupt_at(folder / "old", "written:durable")
    (folder / "old").rename(folder / "new")
    with Ledger.open(folder / "new" / "ledger", TERMS) as ledger:
        assert ledger.recover().state == "committed"
        assert (folder / "new" / "model").read_bytes() == b"noise 2"


def test_killed_at_any_moment(folder, crashes):
    counted = crashes.run("any-moment", folder, 20, 20261121)
    assert counted["killed pending"] > 3
    assert counted["artifacts"] > 20


def test_full_disk_spends_but_never_gives_back(folder, crashes):
    counted = crashes.run("full-disk", folder)
    assert counted["0"] > 0
    assert counted["3"] > 3
    assert counted["0"] + counted["3"] + counted["4"] == counted.total()


def test_a_disk_too_full_to_count_repeats_costs_no_release(folder, crashes):
    counted = crashes.run("full-disk-for-repeats", folder)
    assert counted == {"0": 2, "3": 2, "charged": 2}
