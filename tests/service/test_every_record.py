"""Records in the state against those in the topic, on a machine that is busy, to the last one.

Each run has 60,000 records and a snapshot each 250, beside eight loops that take
all the processor they get. ``STREAMLDA_TEST_RUNS`` says how many runs there are of each kind.
"""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Ledger
from streamlda.storage.store import Store
from streamlda_connectors.kafka.partitions import BLOCK
from tests.kafka.topics import wait_until
from tests.service.daemon_process import Daemon, texts
from tests.service.long_stream import ending, topic_settings
from tests.service.test_kafka_daemon import releases_of
from tests.service.test_sharing import Shared, Truth, none_ended

RECORDS = int(os.environ.get("STREAMLDA_TEST_RECORDS", 60_000))
RUNS = int(os.environ.get("STREAMLDA_TEST_RUNS", 10))
LOOPS = int(os.environ.get("STREAMLDA_TEST_LOOPS", 8))

#: Longest wait for a daemon that shares a processor with the loops.
PATIENCE_SECONDS = 3600

HASHED = {"vocabulary.hash_bits": 10, "topics.warmup_documents": 2000}
runs = pytest.mark.parametrize("run", range(RUNS))
pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("busy")]


@pytest.fixture
def busy():
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def fill(topics, topic, settings, partitions, poison, n_records=RECORDS):
    """Send records to partitions by turns, poison among them; return what is to come of them."""
    topics.make(topic, partitions)
    truth, part = Truth(topics, topic, settings), n_records // 24
    while left := n_records - truth.records:
        # The last parts have no poison, so that there are as many records as wanted.
        bad, number = poison if left > 2 * part else 0.0, truth.records // part % partitions
        truth.send(texts(min(part, left), seed=left), number, bad)
    return truth


def run_undisturbed(settings):
    with Daemon(settings) as daemon:
        assert daemon.end(PATIENCE_SECONDS) == 0, b"".join(daemon.raw[-20:]).decode()
    assert not daemon.events("account-failed")


def check_account(model):
    account = model.diagnostics["account"]
    assert account["records"] == account["passed"] == model.settings["places"]


@runs
@pytest.mark.parametrize("poison", [0.0, 0.02], ids=["documents", "rejects"])
def test_a_daemon_has_each_record(run, poison, topics, topic, tmp_path):
    letters, folder = f"{topic}-letters", tmp_path / "d"
    topics.make(letters, 1)
    flags = {**HASHED, **ending(RECORDS, RECORDS // 250), "checkpoint.interval": "5 s"}
    flags["dead_letters.topic"] = letters
    settings = topic_settings(folder, topics.bootstrap, topic, **flags)
    truth = fill(topics, topic, settings, 2, poison)
    run_undisturbed(settings)
    with Store.open(folder / "checkpoints") as store:
        newest = store.newest()
    counts, rows = newest.about["counts"], newest.rows
    assert newest.about["places"] == sum(newest.position["offsets"].values()) == RECORDS
    documents, tokens, rejects = truth.learned()
    assert counts["documents"] - counts["short"] == documents
    assert (counts["tokens"], counts["rejects"]) == (tokens, rejects)
    waiting = 0 if rows is None else rows.n_documents
    assert newest.restore().documents_seen + waiting == documents
    assert len(topics.read(letters)) == rejects.total()
    models = [load(path) for path in sorted((folder / "snapshots").glob("snapshot-??????"))]
    assert (len(models), models[-1].settings["places"]) == (RECORDS // 250, RECORDS)
    for model in models:
        check_account(model)


@runs
def test_a_group_with_the_least_queue_has_each_record(run, topics, topic, tmp_path):
    shared = Shared(tmp_path, topics.bootstrap, topic)
    flags = {**HASHED, "snapshots.every": 250, "memory.queue": "1 MiB"}
    truth = fill(topics, topic, shared.settings("truth", **flags), 4, 0.02)
    with ExitStack() as opened:
        members = [Daemon(shared.settings(f"d{i}", **flags)) for i in range(2)]
        for daemon in members:
            opened.enter_context(daemon)
        wait_until(lambda: none_ended(members) or shared.records() >= RECORDS, PATIENCE_SECONDS)
        wait_until(lambda: none_ended(members) or shared.snapshots(), PATIENCE_SECONDS)
        for daemon in members:
            assert daemon.stop() == 0
            assert not daemon.events("account-failed")
    assert (shared.records(), shared.learned()) == (RECORDS, truth.learned())
    check_account(shared.snapshots()[-1])


@runs
def test_a_private_daemon_of_three_partitions_has_each_record(run, topics, topic, tmp_path):
    folder, releases = tmp_path / "d", RECORDS // 250
    promise = {"privacy.epsilon": 12.0, "privacy.delta": 1e-3, "vocabulary.hash_bits": 5}
    flags = {**promise, **ending(RECORDS, releases), "checkpoint.interval": "5 s"}
    flags["privacy.ledger"] = folder / "ledger"
    settings = topic_settings(folder, topics.bootstrap, topic, **flags)
    # Each partition has somewhat more than its part: private runs take blocks of them by turns.
    fill(topics, topic, settings, 3, 0.0, RECORDS + 6 * BLOCK)
    run_undisturbed(settings)
    paid, all_drawn = releases_of(settings, 3)
    # Each slot is in one stage of one window.
    first, last = zip(*(slots for _, slots, _ in paid), strict=True)
    assert (first, last) == ((0, *last[:-1]), (*first[1:], RECORDS))
    assert all_drawn
    with Store.open(folder / "checkpoints") as store, Ledger.open(folder / "ledger") as ledger:
        newest = store.newest(ledger)
    assert newest.about["places"] == sum(newest.position["offsets"].values()) == RECORDS
    assert newest.about["counts"]["documents"] == RECORDS
    snapshots = sorted((folder / "snapshots").glob("snapshot-??????"))
    assert (len(snapshots), load(snapshots[-1]).settings["places"]) == (releases, RECORDS)
