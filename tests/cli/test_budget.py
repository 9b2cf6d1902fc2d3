"""``streamlda budget``: what it shows, checks and refuses."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger
from tests.cli.conftest import refused, run
from tests.privacy import ledger_cases
from tests.privacy.ledger_cases import EVENT, TERMS, cohort_of, finished, publish, release

# Fixtures, which pytest finds by their names here.
folder, ledger = ledger_cases.folder, ledger_cases.ledger

ROOT = Path(__file__).parents[2]


def budget(*arguments):
    return run("budget", *arguments)


def test_table_shows_terms_amounts_releases_and_what_to_do(ledger):
    ledger.begin(cohort_of(0, 10), EVENT)
    ledger.recover()
    release(ledger, 10, 20)
    ledger.begin(cohort_of(20, 30, "a" * 200), EVENT)
    shown = budget(ledger.path).stdout
    for wanted in (
        "epsilon 1, delta 1e-06, per document, zero-out, window",
        "3: 1 committed, 1 pending, 1 lost",
        "e^epsilon = 2.719 times as likely",
        "with a document as with a blank in its place, but for a probability of delta",
        "not hidden  the number of records, blank ones too",
        "slots are numbers of records in their stream, from 0",
    ):
        assert wanted in shown
    assert all(len(line) <= 120 for line in shown.splitlines())
    rows = {cells[0]: cells for cells in map(str.split, shown.splitlines()) if cells}
    assert [rows[n][-3] for n in "123"] == ["lost", "committed", "pending"]
    assert rows["2"][3:6] == ["-", "stream", "10..19"]
    assert rows["3"][4].startswith("...aaa")


def test_amounts_left_are_those_of_the_unit_and_mode(folder):
    users, sums = replace(TERMS, privacy_unit="user"), replace(TERMS, mode="prefix")
    shown, left = [], []
    for name, terms in (("users", users), ("sums", sums), ("windows", TERMS)):
        (folder / name).mkdir()
        with Ledger.open(folder / name / "ledger", terms, create=True) as ledger:
            assert "none yet" in budget(ledger.path).stdout
            release(ledger, 0, 10)
            left.append(ledger.epsilon_left)
        shown.append(budget(folder / name / "ledger").stdout)
    assert 0.1 < left[0] < 0.99
    assert left[1:] == 2 * [pytest.approx(1.0, abs=1e-6)]
    assert "for any user, old or new documents" in shown[0]
    assert "left        " not in shown[0]
    assert "left (new)  epsilon 1.000" not in shown[0]
    assert ", prefix" in shown[1]


def keys_of(value):
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def test_json_is_the_report_and_the_page_names_its_keys(ledger):
    release(ledger, 0, 10)
    ledger.begin(cohort_of(10, 20), EVENT)
    report = json.loads(budget(ledger.path, "--json").stdout)
    assert report == ledger.report()
    report["snapshots"] = [{**shot, "event": None} for shot in report["snapshots"]]
    page = (ROOT / "streamlda/privacy/releases.md").read_text("utf-8")
    words = set(re.findall(r"`(\w+)`", page))
    assert keys_of(report) - words == set()
    assert {"mu_squared", "epsilon_spent_after"} <= keys_of(report)


def test_names_cannot_command_the_terminal(ledger):
    documents = (DocumentRange("s\x1b[2J", 0, 5), DocumentRange("t", 7, 1007))
    intent = ledger.begin(Cohort(documents, (0, 5)), EVENT, description="c\r\n\x9b")
    publish(ledger, intent)
    shown = budget(ledger.path).stdout
    assert all(line.isprintable() for line in shown.splitlines())
    for wanted in ("c\\r\\n\\x9b", "0..4 and 1 more"):
        assert wanted in shown
    assert json.loads(budget(ledger.path, "--json").stdout) == ledger.report()


def test_a_ledger_that_cannot_be_trusted_counts_as_used_up(folder):
    path = folder / "ledger"
    message = refused("budget", path)
    assert "there is no ledger of that name" in message
    assert "copy" not in message
    assert "no regular file" in refused("budget", folder)
    for other in (folder, Path(__file__)):
        message = refused("budget", other)
        assert "cannot be trusted: it is " in message
        assert message.endswith("; name the file that a private run had as its ledger\n")
    with Ledger.open(path, TERMS, create=True):
        older = path.read_bytes()
    newest = finished(folder).read_bytes()
    for content in (older, newest[:500], newest.replace(b"[0,10]", b"[0,11]"), b""):
        path.write_bytes(content)
        assert "counts as used up" in refused("budget", path, "--json")
    path.unlink()
    assert "it is gone" in refused("budget", path)
