"""``streamlda budget``: in this process, and as a process beside a writer."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamlda.cli import commands
from streamlda.errors import BudgetExceededError
from streamlda.privacy.accounting import cost, noise_multiplier
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.ledger import (
    Cohort,
    DocumentRange,
    Intent,
    Ledger,
    LedgerReader,
    LedgerTerms,
)
from streamlda.privacy.ledger.file import Head, LedgerFile, _connect, _insert
from tests.privacy import ledger_cases
from tests.privacy.ledger_cases import EVENT, TERMS, cohort_of, finished, publish, release

# Fixtures, which pytest finds by their names here.
folder, ledger = ledger_cases.folder, ledger_cases.ledger

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "streamlda", "budget"]


def budget(*arguments: Any, code: int = 0) -> Result:
    result = CliRunner().invoke(commands, ["budget", *map(str, arguments)])
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


def refused(*arguments: Any) -> str:
    """Return the one line of an error with exit code 78."""
    result = budget(*arguments, code=78)
    assert result.stdout == ""
    assert result.stderr.startswith("streamlda: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_table_shows_terms_amounts_releases_and_what_to_do(ledger: Ledger) -> None:
    ledger.begin(cohort_of(ledger, 0, 10), EVENT)
    ledger.recover()
    release(ledger, 10, 20)
    ledger.begin(cohort_of(ledger, 20, 30, "a" * 200), EVENT)
    shown = budget(ledger.path).stdout
    assert "epsilon 1, delta 1e-06, per document, add-remove, window" in shown
    assert "c0ffee" in shown
    assert "3: 1 committed, 1 pending, 1 lost" in shown
    assert "record slots of the stream stream" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    cells = [line.split() for line in shown.splitlines() if line]
    rows = {row[0]: row for row in cells}
    assert [rows[n][-2:] for n in "123"] == [
        ["lost", "-"],
        ["committed", "artifact-2"],
        ["pending", "-"],
    ]
    assert rows["2"][3:5] == ["c10-20", "10..19"]
    assert rows["3"][3].startswith("...aaa")
    assert "pending: release 3 is paid for" in shown
    assert "Ledger.recover()" in shown
    assert "lost:    1 ended without an artefact (1)" in shown


def test_empty_ledger_has_all_of_its_budget_left(ledger: Ledger) -> None:
    shown = budget(ledger.path).stdout
    assert "none yet" in shown
    assert "left (new)  epsilon 1.000 " in shown
    assert "spent       epsilon 0 " in shown
    assert json.loads(budget(ledger.path, "--json").stdout)["snapshots"] == []


def test_amounts_left_are_those_of_the_unit_and_mode(folder: Path) -> None:
    users = replace(TERMS, privacy_unit="user")
    sums = replace(TERMS, mode="prefix", horizon=1)
    shown = {}
    for name, terms in (("users", users), ("sums", sums)):
        (folder / name).mkdir()
        with Ledger.open(folder / name / "ledger", terms, create=True) as ledger:
            release(ledger, 0, 10)
        shown[name] = budget(folder / name / "ledger").stdout
    assert "for any user, old or new documents" in shown["users"]
    assert "left        " not in shown["users"]
    assert "left (new)  epsilon 1.000" not in shown["users"]
    assert "horizon 1" in shown["sums"]
    assert "left (new)  epsilon 0 " in shown["sums"]
    budget(folder / "sums" / "ledger", "--check", "1e-6", code=1)
    budget(folder / "users" / "ledger", "--check", "0.1")


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def test_json_is_the_report_and_the_help_names_its_keys(ledger: Ledger) -> None:
    release(ledger, 0, 10)
    ledger.begin(cohort_of(ledger, 10, 20), EVENT)
    told = json.loads(budget(ledger.path, "--json").stdout)
    assert told == ledger.report()
    told["snapshots"] = [{**shot, "event": None} for shot in told["snapshots"]]
    words = set(budget("--help").stdout.replace(",", " ").replace("(", " ").split())
    assert keys_of(told) - words == set()
    assert {"mu_squared", "releases_left", "epsilon_spent_after"} <= keys_of(told)


def test_names_cannot_command_the_terminal(ledger: Ledger, folder: Path) -> None:
    documents = (DocumentRange("s\x1b[2J", 0, 5), DocumentRange("t", 7, 1007))
    intent = ledger.begin(Cohort("c\r\n\x9b", documents, 0), EVENT)
    publish(ledger, intent, os.fsdecode(b"model\n\xff\x07"))
    shown = budget(folder / "ledger").stdout
    assert all(line.isprintable() for line in shown.splitlines())
    assert "c\\r\\n\\x9b" in shown
    assert "model\\n\\udcff\\x07" in shown
    assert "1,005 in 2 ranges" in shown
    assert json.loads(budget(folder / "ledger", "--json").stdout) == ledger.report()


@pytest.mark.parametrize("fits", [True, False])
def test_check_agrees_with_begin(ledger: Ledger, fits: bool) -> None:
    release(ledger, 0, 10)
    epsilon = 1.0 if fits else 1.0 + 1e-8
    event = GaussianRelease(noise_multiplier(epsilon, TERMS.delta))
    result = budget(ledger.path, "--check", repr(epsilon), code=0 if fits else 1)
    assert "left (new)" in result.stdout
    if fits:
        assert result.stderr == ""
        ledger.check(event)
    else:
        assert result.stderr.startswith("streamlda: warning: a release of epsilon=1.00000001")
        with pytest.raises(BudgetExceededError):
            ledger.check(event)


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf", "much"])
def test_check_of_no_epsilon_is_wrong_usage(ledger: Ledger, epsilon: str) -> None:
    code = 78 if epsilon in ("nan", "inf") else 2
    assert "streamlda: error: " in budget(ledger.path, "--check", epsilon, code=code).stderr


# What is no ledger, or cannot be trusted.


def test_missing_damaged_or_older_ledger_counts_as_used_up(folder: Path) -> None:
    assert "counts as used up" in refused(folder / "none")
    with Ledger.open(folder / "ledger", TERMS, create=True):
        older = (folder / "ledger").read_bytes()
    newest = finished(folder).read_bytes()
    for content in (older, newest[:5000], newest.replace(b"c0-10", b"c0-11"), b"", b"words\n" * 99):
        (folder / "ledger").write_bytes(content)
        assert "counts as used up" in refused(folder / "ledger")
        assert "counts as used up" in refused(folder / "ledger", "--json")
    (folder / "ledger").unlink()
    assert "must not go missing" in refused(folder / "ledger")


def test_folder_is_no_ledger(folder: Path) -> None:
    assert "Is a directory" in refused(folder)


@contextmanager
def nothing_readable(folder: Path) -> Iterator[None]:
    """Act as a user who may not read the files; root may always, so become another."""
    for path in folder.iterdir():
        path.chmod(0)
    folder.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_ledger_that_may_not_be_read_is_said_to_be_so(folder: Path) -> None:
    path = finished(folder)
    with nothing_readable(folder):
        assert "Permission denied" in refused(path)


# Many releases.


def many(path: Path, terms: LedgerTerms, releases: int) -> None:
    """Make a ledger of many committed releases by one write, not three durable ones for each."""
    Ledger.open(path, terms, create=True).close()
    file = LedgerFile(path)
    file.lock()
    file.load(lambda row: None)
    event, at = GaussianRelease(1000.0), "2026-11-21T14:00:00+00:00"
    price, digest = cost(event).mu_squared, "0" * 64
    head = file.head
    with closing(_connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        for i in range(releases):
            places = (DocumentRange("stream", 1000 * i, 1000 * i + 1000),)
            cohort, n = Cohort(f"c{i}", places, i), i + 1
            intent = Intent(n, file.ledger_id, cohort, event, price, "", "", False, at)
            place = f"model-{n}"
            written = {"intent": n, "digest": digest, "final_path": place, "temp_path": "t"}
            done = {"intent": n, "digest": digest, "at": at}
            for kind, subject, body in (
                ("intent", f"c{i}", intent.to_json()),
                ("written", place, written),
                ("committed", place, done),
            ):
                row = _insert(database, head, kind, subject, body)
                head = Head(row.seq, row.chain)
        database.execute("COMMIT")
    file.head = head
    file._write_marker()
    file.unlock()


def numbers(shown: str) -> list[int]:
    lines = [line.split() for line in shown.splitlines()]
    return [int(cells[0]) for cells in lines if cells and cells[0].isdigit()]


@pytest.mark.parametrize("releases", [22, 23, 24, 40])
def test_of_many_releases_the_first_and_last_are_shown(folder: Path, releases: int) -> None:
    many(folder / "ledger", TERMS, releases)
    shown = budget(folder / "ledger").stdout
    everything = list(range(1, releases + 1))
    assert numbers(shown) == (everything if releases <= 23 else [1, 2, 3, *everything[-20:]])
    lines = shown.splitlines()
    gap = [i for i, line in enumerate(lines) if "are not shown" in line]
    assert len(gap) == (releases > 23)
    if gap:
        assert lines[gap[0]].startswith(f"... {releases - 23} releases")
        assert lines[gap[0] - 1].split()[0] == "3"
    assert numbers(budget(folder / "ledger", "--all").stdout) == everything
    report = json.loads(budget(folder / "ledger", "--json").stdout)
    assert [shot["intent"] for shot in report["snapshots"]] == everything


def test_ten_thousand_releases_of_users_take_seconds(folder: Path) -> None:
    """About 1 s: an epsilon for each release, of which each has another, would take 30 s."""
    many(folder / "ledger", replace(TERMS, privacy_unit="user"), 10_000)
    start = time.perf_counter()
    shown = budget(folder / "ledger").stdout
    assert time.perf_counter() - start < 8
    assert "... 9,977 releases in between are not shown" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


# As a process.


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_process_reads_a_ledger_that_another_process_writes(folder: Path) -> None:
    program = (
        "import sys\n"
        "from tests.privacy.ledger_cases import *\n"
        "with Ledger.open(sys.argv[1], TERMS, create=True) as ledger:\n"
        "    release(ledger, 0, 10)\n"
        "    ledger.begin(cohort_of(ledger, 10, 20), EVENT)\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    path = folder / "ledger"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        beside = run(path)
        as_json = run(path, "--json")
        assert writer.poll() is None
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
        writer.communicate("")
    assert writer.returncode == 0
    assert (beside.returncode, beside.stderr) == (0, "")
    assert "2: 1 committed, 1 pending" in beside.stdout
    assert json.loads(as_json.stdout) == LedgerReader(path).report()
    assert run(path).stdout == beside.stdout
    too_much = run(path, "--check", "2")
    assert too_much.returncode == 1
    assert too_much.stderr.count("\n") == 1


def test_process_refuses_what_is_missing(folder: Path) -> None:
    done = run(folder / "none")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("streamlda: error: a ledger must not go missing")
    assert "counts as used up" in done.stderr
    assert done.stderr.count("\n") == 1
