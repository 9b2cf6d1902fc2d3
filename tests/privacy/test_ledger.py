import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import BudgetExceededError, InvalidSettingError, LedgerError
from streamlda.privacy.accounting import cost, epsilon_of, mu_of, noise_multiplier
from streamlda.privacy.events import Composed, Event, GaussianRelease, Parallel, to_json
from streamlda.privacy.ledger import Cohort, DocumentRange, Intent, Ledger, LedgerTerms
from streamlda.privacy.ledger_reader import LedgerReader
from streamlda.privacy.ledger_terms import Losses, round_down, round_up, sqrt_down, sqrt_up

TERMS = LedgerTerms(epsilon=1.0, delta=1e-6, config_hash="c0ffee")
EVENT = GaussianRelease(10.0)
PRICE = cost(EVENT).mu_squared


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these tests kill processes, not the power."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        memory = tmp_path
    scratch = Path(tempfile.mkdtemp(prefix="ledger-", dir=memory))
    yield scratch
    scratch.chmod(0o700)
    shutil.rmtree(scratch)


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with Ledger.open(folder / "ledger", TERMS, create=True) as opened:
        yield opened


def cohort_of(ledger: LedgerReader, start: int, stop: int, name: str = "") -> Cohort:
    documents = (DocumentRange("stream", start, stop),)
    return Cohort(name or f"c{start}-{stop}", documents, ledger.generation)


def release(
    ledger: Ledger, start: int, stop: int, event: Event = EVENT, *, replay: bool = False
) -> Intent:
    intent = ledger.begin(cohort_of(ledger, start, stop), event, replay=replay)
    publish(ledger, intent)
    return intent


def publish(ledger: Ledger, intent: Intent, name: str = "") -> Path:
    temporary = ledger.path.parent / "temporary"
    temporary.write_bytes(b"noise %d" % intent.number)
    final = ledger.path.parent / (name or f"artifact-{intent.number}")
    ledger.publish(intent, temporary, final)
    return final


def crash_run(task: str, folder: Path, *numbers: int) -> Counter[str]:
    """Run a task of `tests.privacy.ledger_crash`, and return what it counted."""
    command = [sys.executable, "-m", "tests.privacy.ledger_crash", task, str(folder)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [*command, *map(str, numbers)], cwd=root, capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout))


# A release, and what it costs.


def test_release_is_paid_then_published_then_committed(ledger: Ledger, folder: Path) -> None:
    cohort = Cohort("c", (DocumentRange("a", 0, 5), DocumentRange("b", 3, 4)), 0, {"offset": 7})
    intent = ledger.begin(cohort, EVENT, config_hash="h", description="first")
    assert ledger.pending == intent
    assert ledger.spent == PRICE
    reader = LedgerReader(folder / "ledger", TERMS)
    assert (reader.spent, reader.generation, reader.pending) == (PRICE, 1, intent)
    final = publish(ledger, intent)
    assert final.read_bytes() == b"noise 1"
    assert not (folder / "temporary").exists()
    assert ledger.pending is None
    assert ledger.generation == 1
    assert ledger.last_intent == intent
    assert LedgerReader(folder / "ledger").last_intent == intent


def test_report_says_all_in_plain_json(ledger: Ledger) -> None:
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


def test_disjoint_documents_do_not_add_up_but_the_same_do(ledger: Ledger) -> None:
    release(ledger, 0, 10)
    release(ledger, 10, 20)
    assert ledger.spent == PRICE
    release(ledger, 10, 20, replay=True)
    assert ledger.spent == 2 * PRICE
    release(ledger, 15, 40, replay=True)
    assert Fraction(ledger.spent) >= 3 * Fraction(PRICE)
    assert ledger.spent == pytest.approx(3 * PRICE, rel=1e-15)
    assert ledger.remaining == pytest.approx(mu_of(1.0, 1e-6) ** 2, rel=1e-14)


def test_all_releases_of_a_user_add_up(folder: Path) -> None:
    terms = replace(TERMS, privacy_unit="user")
    with Ledger.open(folder / "ledger", terms, create=True) as ledger:
        for i in range(3):
            release(ledger, 10 * i, 10 * i + 10)
        assert ledger.spent == pytest.approx(3 * PRICE, rel=1e-15)
        assert ledger.remaining == pytest.approx(mu_of(1.0, 1e-6) ** 2 - 3 * PRICE)
        with pytest.raises(BudgetExceededError):
            ledger.check(Composed([EVENT] * 3))
        assert isinstance(ledger.to_event(), Composed)


def test_planned_releases_fit_exactly_and_one_more_is_refused(ledger: Ledger) -> None:
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


def test_check_of_new_documents_refuses_more_than_the_whole_budget(ledger: Ledger) -> None:
    ledger.check(GaussianRelease(noise_multiplier(1.0, 1e-6)))
    with pytest.raises(BudgetExceededError) as caught:
        ledger.check(GaussianRelease(4.0))
    assert caught.value.spent == 0
    with pytest.raises(InvalidSettingError, match="must cost something"):
        ledger.check(Composed([]))


def test_documents_are_released_once_unless_asked_for(ledger: Ledger) -> None:
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


def test_one_release_at_a_time_and_one_artifact_each(ledger: Ledger, folder: Path) -> None:
    intent = ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    with pytest.raises(LedgerError, match="one release must end"):
        ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    publish(ledger, intent)
    with pytest.raises(LedgerError, match="each release has one"):
        publish(ledger, intent, "another")
    second = ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    with pytest.raises(LedgerError, match="release that is pending"):
        publish(ledger, intent)
    with pytest.raises(LedgerError, match="release that is pending"):
        publish(ledger, replace(second, ledger_id="other"))
    assert not (folder / "another").exists()


def test_prefix_sums_end_at_the_horizon_and_take_no_document_twice(folder: Path) -> None:
    terms = replace(TERMS, mode="prefix", horizon=2)
    with Ledger.open(folder / "ledger", terms, create=True) as ledger:
        release(ledger, 0, 10)
        with pytest.raises(LedgerError, match="only once"):
            ledger.begin(cohort_of(ledger, 5, 15), EVENT, replay=True)
        release(ledger, 10, 20)
        with pytest.raises(BudgetExceededError, match="horizon=2"):
            ledger.check(EVENT)
        assert ledger.spent == PRICE


def test_event_tree_costs_what_was_spent(ledger: Ledger) -> None:
    release(ledger, 0, 10)
    release(ledger, 20, 30, Composed([EVENT, EVENT]))
    release(ledger, 10, 20)
    release(ledger, 10, 20, replay=True)
    release(ledger, 12, 13, replay=True)
    tree = ledger.to_event()
    assert tree == Parallel([EVENT, Composed([EVENT, EVENT]), Composed([EVENT, EVENT, EVENT])])
    assert cost(tree).mu_squared == pytest.approx(ledger.spent, rel=1e-14)


# Terms, epochs and places.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 2.0),
        ("delta", 1e-5),
        ("privacy_unit", "user"),
        ("neighboring_relation", "replace-one"),
        ("config_hash", "beef"),
    ],
)
def test_other_terms_are_refused_by_name(ledger: Ledger, name: str, value: Any) -> None:
    ledger.close()
    other = replace(TERMS, **{name: value})
    for attempt in (Ledger.open, LedgerReader):
        with pytest.raises(LedgerError, match=rf"{name}={value!r} \(ledger: "):
            attempt(ledger.path, other)
    Ledger.open(ledger.path, TERMS).close()


@pytest.mark.parametrize(
    "values",
    [
        {"epsilon": 0},
        {"epsilon": float("nan")},
        {"delta": 0},
        {"delta": 1},
        {"privacy_unit": "word"},
        {"neighboring_relation": "near"},
        {"mode": "tree"},
        {"mode": "prefix"},
        {"horizon": 3},
        {"mode": "prefix", "horizon": 3, "privacy_unit": "user"},
    ],
)
def test_wrong_terms_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError, match=next(reversed(values)) + "|horizon|document"):
        replace(TERMS, **values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DocumentRange("s", 5, 5),
        lambda: DocumentRange("s", -1, 5),
        lambda: DocumentRange("s", 0, 2**63),
        lambda: DocumentRange("s", 0.0, 5),
        lambda: Cohort("c", (), 0),
        lambda: Cohort("c", (DocumentRange("s", 0, 5), DocumentRange("s", 4, 6)), 0),
        lambda: Cohort("c", (DocumentRange("s", 0, 5),), 0, {"offset": float("nan")}),
        lambda: Cohort("c", (DocumentRange("s", 0, 5),), 0, {"offset": {1}}),
    ],
)
def test_wrong_cohorts_are_refused(make: Any) -> None:
    with pytest.raises(InvalidSettingError):
        make()


def test_state_from_before_a_release_is_refused(ledger: Ledger) -> None:
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


def test_old_copy_of_both_files_is_found_by_what_is_newer(ledger: Ledger, folder: Path) -> None:
    publish(ledger, ledger.begin(cohort_of(ledger, 0, 10), EVENT), "model")
    files = ("ledger", "ledger.marker")
    kept = {name: (folder / name).read_bytes() for name in files}
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


def test_artifact_must_be_a_file_with_another_place_to_go(ledger: Ledger, folder: Path) -> None:
    intent = ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    (folder / "there").mkdir()
    (folder / "a").write_bytes(b"a")
    (folder / "link").symlink_to(folder / "a")
    for source, target in [
        ("missing", "b"),
        ("there", "b"),
        ("link", "b"),
        ("a", "a"),
        ("a", "there"),
        ("a", "nowhere/b"),
    ]:
        with pytest.raises(LedgerError, match="artefact"):
            ledger.publish(intent, folder / source, folder / target)
    ledger.publish(intent, folder / "a", folder / "b")


# Recovery in one process; crashes are below.


class Stopped(Exception):
    """Thrown where a crash would be."""


def stop_at(wanted: str) -> Any:
    def on_step(name: str) -> None:
        if name == wanted:
            raise Stopped

    return on_step


def interrupted(folder: Path, step: str) -> Path:
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
def test_recovery_publishes_stored_bytes_or_none(
    folder: Path, step: str, outcome: str, content: bytes
) -> None:
    path = interrupted(folder, step)
    with Ledger.open(path, TERMS) as ledger:
        recovery = ledger.recover()
        assert recovery is not None
        assert (recovery.intent.number, recovery.outcome) == (2, outcome)
        assert (folder / "model").read_bytes() == content
        assert recovery.path == (folder / "model" if outcome == "committed" else None)
        assert ledger.recover() is None
        assert ledger.spent == PRICE
        with pytest.raises(LedgerError, match="replay=True"):
            ledger.begin(cohort_of(ledger, 10, 20), EVENT)


@pytest.mark.parametrize("change", ["edit", "remove", "take place"])
def test_recovery_gives_up_what_is_not_as_recorded(folder: Path, change: str) -> None:
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
        assert recovery is not None
        assert (recovery.outcome, recovery.path) == ("lost", None)
        assert recovery.intent.number == 2
        assert (folder / "model").read_bytes() == left
        assert ledger.report()["snapshots"][1]["reason"]


def test_folder_can_be_moved_in_the_middle_of_a_release(folder: Path) -> None:
    (folder / "old").mkdir()
    interrupted(folder / "old", "written:marked")
    (folder / "old").rename(folder / "new")
    with Ledger.open(folder / "new" / "ledger", TERMS) as ledger:
        recovery = ledger.recover()
        assert recovery is not None
        assert recovery.path == folder / "new" / "model"
        assert recovery.path.read_bytes() == b"noise 2"


@pytest.mark.parametrize("step", ["intent:begin", "intent:inserted", "intent:durable"])
def test_failed_write_stops_all_until_opened_again(folder: Path, step: str) -> None:
    def fail(name: str) -> None:
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


# Crashes.


def test_killed_at_every_step(folder: Path) -> None:
    counted = crash_run("every-step", folder)
    assert counted["steps"] >= 40
    assert counted["recovered committed"] > 20
    assert counted["recovered lost"] > 20


def test_killed_at_any_moment(folder: Path) -> None:
    counted = crash_run("any-moment", folder, 40, 20261121)
    assert counted["killed pending"] > 5
    assert counted["artifacts"] > 40


@pytest.mark.soak
def test_killed_at_any_moment_a_thousand_times(tmp_path: Path, folder: Path) -> None:
    for where, kills in ((folder, 700), (tmp_path, 300)):
        counted = crash_run("any-moment", where, kills, 7)
        assert counted["killed pending"] > 20


def test_full_disk_spends_but_never_gives_back(folder: Path) -> None:
    counted = crash_run("full-disk", folder)
    assert counted["0"] > 0
    assert counted["3"] > 3
    assert counted["0"] + counted["3"] + counted["4"] == counted.total()


# Writers and readers.


def test_second_writer_is_told_who_holds_the_ledger(ledger: Ledger, folder: Path) -> None:
    (folder / "other").symlink_to(folder / "ledger")
    for name in ("ledger", "other"):
        with pytest.raises(LedgerError, match=f"one writer.*pid={os.getpid()};"):
            Ledger.open(folder / name, TERMS)
    assert LedgerReader(folder / "other").spent == 0
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="open for writing"):
        ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    Ledger.open(folder / "ledger", TERMS).close()


def test_writers_that_race_take_turns(folder: Path) -> None:
    assert crash_run("many-writers", folder)["refused"] > 0


def test_forked_child_neither_writes_nor_holds_the_lock(folder: Path) -> None:
    assert crash_run("forked-writer", folder)["status"] == -9


def test_lost_lock_file_stops_the_writer(ledger: Ledger, folder: Path) -> None:
    (folder / "ledger.lock").unlink()
    with (
        Ledger.open(folder / "ledger", TERMS) as other,
        pytest.raises(LedgerError, match="another lock file"),
    ):
        release(ledger, 0, 10)
    assert other.spent == 0


def test_replaced_file_is_noticed_by_the_writer(ledger: Ledger, folder: Path) -> None:
    kept = (folder / "ledger").read_bytes()
    release(ledger, 0, 10)
    (folder / "ledger").write_bytes(kept)
    with pytest.raises(LedgerError, match="changed or replaced"):
        release(ledger, 10, 20)


def test_files_are_for_their_owner_only(ledger: Ledger, folder: Path) -> None:
    release(ledger, 0, 10)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("ledger*")}
    assert modes == dict.fromkeys(["ledger", "ledger.marker", "ledger.lock"], 0o600)


@contextmanager
def reading_only(folder: Path) -> Iterator[None]:
    """Act as a user who may read and not write; root may always write, so become another."""
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_reader_needs_no_right_to_write(folder: Path) -> None:
    with Ledger.open(folder / "ledger", TERMS, create=True) as ledger:
        release(ledger, 0, 10)
        ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with reading_only(folder):
        assert LedgerReader(folder / "ledger", TERMS).report()["pending"] == [2]
        for name in ("ledger", "new"):
            with pytest.raises(LedgerError, match=r"lockable.*Permission denied"):
                Ledger.open(folder / name, TERMS, create=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_right_to_write_lost_while_open_is_reported(ledger: Ledger, folder: Path) -> None:
    with (
        reading_only(folder),
        pytest.raises(LedgerError, match="readonly database"),
    ):
        ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    assert LedgerReader(folder / "ledger").spent == 0


def test_half_written_transaction_is_undone_by_a_writer_only(ledger: Ledger, folder: Path) -> None:
    release(ledger, 0, 10)
    ledger.close()
    (folder / "crashed").mkdir()
    with closing(sqlite3.connect(folder / "ledger", isolation_level=None)) as database:
        database.execute("PRAGMA cache_size=1")
        database.execute("BEGIN IMMEDIATE")
        for seq in range(5, 200):
            row = (seq, "intent", '""', "x" * 3000, "y")
            database.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
        for path in folder.glob("ledger*"):
            shutil.copy(path, folder / "crashed" / path.name)
        database.execute("ROLLBACK")
    path = folder / "crashed" / "ledger"
    assert path.stat().st_size > 2 * (folder / "ledger").stat().st_size
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="nothing may be released"):
        LedgerReader(path)
    assert path.read_bytes() == before
    with Ledger.open(path, TERMS) as recovered:
        assert recovered.report() == LedgerReader(folder / "ledger").report()


# Damage.


def finished(folder: Path) -> Path:
    """Return a closed ledger with two releases, one of them pending."""
    with Ledger.open(folder / "ledger", TERMS, create=True) as ledger:
        release(ledger, 0, 10)
        ledger.begin(cohort_of(ledger, 0, 10), EVENT, replay=True)
    return folder / "ledger"


def refuse(path: Path, match: str) -> None:
    """Assert that nobody can open the ledger, and that no fresh one takes its place."""
    for attempt in (
        lambda: Ledger.open(path, TERMS),
        lambda: Ledger.open(path, TERMS, create=True),
        lambda: LedgerReader(path, TERMS),
    ):
        with pytest.raises(LedgerError, match=match) as caught:
            attempt()
        assert "counts as used up" in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 50, 100, 512, 4096, 5000, 8192])
def test_cut_file_is_no_fresh_budget(folder: Path, size: int) -> None:
    path = finished(folder)
    os.truncate(path, size)
    refuse(path, "whole")


def test_missing_file_is_no_fresh_budget(folder: Path) -> None:
    path = finished(folder)
    path.unlink()
    refuse(path, "must not go missing")


def test_missing_file_is_found_without_marker_when_it_must_be_there(folder: Path) -> None:
    with pytest.raises(LedgerError, match="must not go missing"):
        Ledger.open(folder / "ledger", TERMS)
    assert not (folder / "ledger").exists()
    with pytest.raises(InvalidSettingError, match="must have terms"):
        Ledger.open(folder / "ledger", create=True)
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.open(folder / "nowhere" / "ledger", TERMS, create=True)


def test_missing_marker_is_found_once_anything_was_spent(folder: Path) -> None:
    path = folder / "ledger"
    Ledger.open(path, TERMS, create=True).close()
    (folder / "ledger.marker").unlink()
    finished(folder)
    (folder / "ledger.marker").unlink()
    refuse(path, "marker")


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"check":1}', "[" * 100_000])
def test_damaged_marker_is_found(folder: Path, text: str) -> None:
    path = finished(folder)
    (folder / "ledger.marker").write_text(text)
    refuse(path, "marker file is damaged")


def test_older_copy_of_the_file_alone_is_found(folder: Path) -> None:
    path = folder / "ledger"
    with Ledger.open(path, TERMS, create=True):
        kept = path.read_bytes()
    finished(folder)
    path.write_bytes(kept)
    refuse(path, "marker")


def test_marker_of_another_ledger_is_refused(folder: Path) -> None:
    path = finished(folder)
    (folder / "b").mkdir()
    other = finished(folder / "b")
    shutil.copy(other.with_name("ledger.marker"), path.with_name("ledger.marker"))
    refuse(path, "marker")


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def test_rows_cannot_be_changed_or_removed(folder: Path) -> None:
    path = finished(folder)
    for statement in ("DELETE FROM entries", "UPDATE entries SET body = '{}' WHERE seq = 2"):
        with pytest.raises(sqlite3.IntegrityError, match="a ledger only grows"):
            sql(path, statement)
    assert LedgerReader(path).spent == 2 * PRICE


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM entries WHERE seq = 5",
        "DELETE FROM entries WHERE seq = 3",
        "DELETE FROM entries",
        "UPDATE entries SET body = replace(body, '0.01', '0.00') WHERE seq = 2",
        "UPDATE entries SET kind = 'lost' WHERE seq = 4",
        "UPDATE entries SET subject = '1' WHERE seq = 4",
        "UPDATE entries SET seq = 9 WHERE seq = 5",
        "UPDATE entries SET body = x'00' WHERE seq = 5",
        "INSERT INTO entries SELECT 6, kind, subject, body, chain FROM entries WHERE seq = 3",
    ],
)
def test_edited_rows_are_found_even_with_triggers_put_back(folder: Path, edit: str) -> None:
    path = finished(folder)
    with closing(sqlite3.connect(path)) as database:
        triggers = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        ).fetchall()
    drops = [f"DROP TRIGGER {name}" for name, _ in triggers]
    sql(path, *drops, edit, *[text for _, text in triggers])
    refuse(path, "chain of checksums|marker|damaged")


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA application_id=1", "another program"),
        ("PRAGMA user_version=2", "format_version=2"),
        ("PRAGMA user_version=0", "format_version=0"),
        ("PRAGMA journal_mode=WAL", "journal mode"),
        ("CREATE TABLE other (a)", "tables"),
        ("DROP TRIGGER entries_keep", "tables"),
        ("DROP INDEX entries_by_subject", "tables"),
    ],
)
def test_foreign_and_later_files_are_refused(folder: Path, statement: str, match: str) -> None:
    path = finished(folder)
    sql(path, statement)
    refuse(path, match)


def amounts(path: Path) -> tuple[Any, ...]:
    reader = LedgerReader(path)
    report = reader.report()
    return (reader.terms, reader.spent, reader.remaining, reader.generation, report)


def flip(folder: Path, name: str, positions: Iterator[int] | Any, rng: np.random.Generator) -> int:
    """Change one byte at a time; each change must be found or be without effect."""
    before = amounts(folder / "ledger")
    content = (folder / name).read_bytes()
    found = 0
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        (folder / name).write_bytes(damaged)
        try:
            after = amounts(folder / "ledger")
        except LedgerError:
            found += 1
        else:
            assert after == before, position
    (folder / name).write_bytes(content)
    return found


@pytest.mark.parametrize("name", ["ledger", "ledger.marker"])
def test_flipped_byte_gives_no_budget(folder: Path, name: str) -> None:
    size = finished(folder).with_name(name).stat().st_size
    rng = np.random.default_rng(20261121)
    positions = range(size) if name == "ledger.marker" else rng.integers(size, size=400)
    found = flip(folder, name, positions, rng)
    assert found > (50 if name == "ledger" else size - 3)


@pytest.mark.soak
@pytest.mark.fuzz
def test_any_flipped_byte_gives_no_budget(folder: Path) -> None:
    size = finished(folder).stat().st_size
    assert flip(folder, "ledger", range(size), np.random.default_rng(1)) > 2000


@pytest.mark.fuzz
def test_scrambled_block_gives_no_budget(folder: Path) -> None:
    path = finished(folder)
    before, content = amounts(path), path.read_bytes()
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(150):
        damaged = bytearray(content)
        start, length = int(rng.integers(len(content))), int(rng.integers(1, 600))
        match rng.integers(4):
            case 0:
                damaged[start : start + length] = bytes(length)
            case 1:
                damaged[start : start + length] = rng.bytes(length)
            case 2:
                del damaged[start:]
            case _:
                other = int(rng.integers(len(content)))
                damaged[start : start + length] = content[other : other + length]
        path.write_bytes(damaged)
        try:
            assert amounts(path) == before
        except LedgerError:
            found += 1
    assert found > 50


# Arithmetic.


ranges = st.tuples(
    st.sampled_from("ab"), st.integers(0, 12), st.integers(1, 8), st.sampled_from([0.1, 0.25, 1.0])
)


@given(st.lists(ranges, max_size=12), st.booleans())
def test_losses_equal_those_kept_per_document(
    parts: list[tuple[str, int, int, float]], parallel: bool
) -> None:
    losses, naive = Losses(parallel=parallel), Counter[tuple[str, int]]()
    total = Fraction(0)
    for stream, start, length, price in parts:
        cohort = Cohort("c", (DocumentRange(stream, start, start + length),), 0)
        places = [(stream, place) for place in range(start, start + length)]
        largest = max(Fraction(naive[place]) for place in places)
        assert losses.of(cohort) == (largest if parallel else total)
        assert losses.touches(cohort) == (largest > 0)
        losses.add(cohort, price)
        for place in places:
            naive[place] += Fraction(price)
        total += Fraction(price)
        assert losses.spent == (max(naive.values()) if parallel else total)
    assert losses.of(None) == (0 if parallel else total)


def test_memory_is_bounded_for_windows_of_one_price() -> None:
    losses = Losses(parallel=True)
    for i in range(3000):
        losses.add(Cohort("c", (DocumentRange("s", 7 * i, 7 * i + 7),), 0), 0.1)
    assert len(losses._steps["s"][0]) == 2
    assert losses.spent == Fraction(0.1)


@given(st.fractions(0, 1000, max_denominator=10**30))
def test_rounding_never_takes_the_wrong_side(value: Fraction) -> None:
    assert Fraction(round_down(value)) <= value <= Fraction(round_up(value))
    assert round_up(value) - round_down(value) <= 2.3e-16 * round_up(value)
    assert Fraction(sqrt_down(value)) ** 2 <= value <= Fraction(sqrt_up(value)) ** 2
    assert sqrt_up(value) - sqrt_down(value) <= 1e-15 * sqrt_up(value)
