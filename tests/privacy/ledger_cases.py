"""Parts that tests of the privacy ledger share: a scratch folder, a ledger, whole releases."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from streamlda.privacy.costs import cost
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, LedgerTerms
from streamlda.privacy.ledger.ledger import unpublished_path
from tests.crashes import CrashProcess

TERMS = LedgerTerms(epsilon=1.0, delta=1e-6)
EVENT = GaussianRelease(10.0)
PRICE = cost(EVENT).mu_squared


@pytest.fixture
def folder(tmp_path):
    """A folder in memory where there is one: these tests kill processes, not the power."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        memory = tmp_path
    scratch = Path(tempfile.mkdtemp(prefix="ledger-", dir=memory))
    yield scratch
    scratch.chmod(0o700)
    shutil.rmtree(scratch)


def create(folder, on_step=None, **terms):
    return Ledger.open(folder / "ledger", replace(TERMS, **terms), create=True, on_step=on_step)


@pytest.fixture
def ledger(folder):
    with create(folder) as opened:
        yield opened


def cohort_of(start, stop, stream="stream"):
    return Cohort((DocumentRange(stream, start, stop),), (start, stop))


def release(ledger, start, stop, event=EVENT):
    intent = ledger.begin(cohort_of(start, stop), event)
    publish(ledger, intent)
    return intent


def publish(ledger, intent, name=""):
    final = ledger.path.parent / (name or f"artifact-{intent.number}")
    unpublished_path(final).write_bytes(b"noise %d" % intent.number)
    ledger.publish(intent, final)
    return final


def finished(folder):
    """Return a closed ledger with two releases, one of them pending."""
    with create(folder) as ledger:
        release(ledger, 0, 10)
        ledger.begin(cohort_of(10, 20), EVENT)
    return folder / "ledger"


@pytest.fixture(scope="session")
def crashes():
    process = CrashProcess("tests.privacy.ledger_crash")
    yield process
    process.close()


@contextmanager
def reading_only(folder):
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
