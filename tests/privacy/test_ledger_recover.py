"""Step 3, `recover`, and what holds after a crash at any moment."""

import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Ledger
from tests.privacy.ledger_cases import EVENT, PRICE, TERMS, cohort_of, publish


class Stopped(Exception):
    """Thrown where a crash would be."""


def stop_at(wanted):
    def on_step(name):
        if name == wanted:
            raise Stopped

    return on_step


def interrupted(folder, step):
    """Leave a ledger whose second release of the artefact ``model`` ended at a step."""
    path = folder / "ledger"
    with Ledger.open(path, TERMS, create=True) as ledger:
        publish(ledger, ledger.begin(cohort_of(ledger, 0, 10), EVENT), "model")
    with Ledger.open(path, TERMS, on_step=stop_at(step)) as ledger:
        intent = ledger.begin(cohort_of(ledger, 10, 20), EVENT)
        with pytest.raises(Stopped):
            publish(ledger, intent, "model")
    return path


@pytest.mark.parametrize(
    ("step", "outcome", "content"),
    [
        ("publish:checked", "lost", b"noise 1"),
        ("written:begin", "lost", b"noise 1"),
        ("written:inserted", "lost", b"noise 1"),
        ("written:durable", "committed", b"noise 2"),
        ("written:marked", "committed", b"noise 2"),
        ("publish:renamed", "committed", b"noise 2"),
        ("publish:synced", "committed", b"noise 2"),
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
        with pytest.raises(LedgerError, match="replay=True"):
            ledger.begin(cohort_of(ledger, 10, 20), EVENT)


@pytest.mark.parametrize("change", ["edit", "remove", "take place"])
def test_recovery_gives_up_what_is_not_as_recorded(folder, change):
    path = interrupted(folder, "written:marked")
    if change == "edit":
        (folder / "temporary").write_bytes(b"noise 3")
    elif change == "remove":
        (folder / "temporary").unlink()
    else:
        (folder / "model").write_bytes(b"newer")
    left = (folder / "model").read_bytes()
    with Ledger.open(path, TERMS) as ledger:
        recovery = ledger.recover()
        assert (recovery.outcome, recovery.path) == ("lost", None)
        assert recovery.intent.number == 2
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
