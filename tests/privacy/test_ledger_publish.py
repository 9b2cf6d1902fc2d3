"""Step 2, `publish`: artefacts get their final names, each once."""

from dataclasses import replace

import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, LedgerReader
from tests.privacy.ledger_cases import EVENT, PRICE, TERMS, cohort_of, publish


def test_release_is_paid_then_published_then_committed(ledger, folder):
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


def test_one_release_at_a_time_and_one_artifact_each(ledger, folder):
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


def test_old_copy_of_both_files_is_found_by_what_is_newer(ledger, folder):
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


def test_artifact_must_be_a_file_with_another_place_to_go(ledger, folder):
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
