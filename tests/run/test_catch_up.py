"""Private runs: behind which release they go on."""

from contextlib import ExitStack, contextmanager

import pytest

from streamlda.errors import LedgerError
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.publishing import Publisher
from streamlda.stream.source import RecordBatch
from tests.run.opened import run_settings, save
from tests.service.daemon_process import texts


@contextmanager
def opened_run(folder, stream):
    with ExitStack() as opened:
        flags = {
            "vocabulary.hash_bits": 5,
            "privacy.epsilon": 12.0,
            "privacy.delta": 1e-3,
            "privacy.ledger": str(folder / "ledger"),
            "snapshots.every": 1000,
            "source.stream": stream,
            "checkpoint.folder": str(folder / stream),
        }
        settings = run_settings("private", folder, flags)
        store = opened.enter_context(Checkpoints.open(folder / stream))
        publisher = opened.enter_context(Publisher(folder / f"{stream}-out", None, private=True))
        ledger = open_ledger(settings, opened, print, publisher)
        yield open_pipeline(settings, store, ledger), store


def crash_behind_releases(folder, stream, releases, *, saved):
    """Make releases, a checkpoint behind each but the last or behind none, and end there."""
    rows = texts(1000)
    with opened_run(folder, stream) as (run, store):
        pipeline = run.pipeline
        for number in range(releases):
            pipeline.add(RecordBatch(rows[pipeline.records : pipeline.records + pipeline.due]))
            pipeline.release()
            if saved and number < releases - 1:
                save(pipeline, store)


def taken_up(folder, stream):
    with opened_run(folder, stream) as (run, _):
        return run


def test_a_release_behind_the_checkpoint_is_skipped(tmp_path):
    crash_behind_releases(tmp_path, "one", 4, saved=True)
    found = taken_up(tmp_path, "one")
    # The last stage: it gives the topics, which nobody has seen yet.
    assert found.slots_to_skip == 120
    assert (found.pipeline.records, found.pipeline.since_release) == (1000, 0)

    assert found.released.model.settings["places"] == 1000
    # Releases of other streams in the ledger do not count.
    crash_behind_releases(tmp_path, "two", 1, saved=False)
    found = taken_up(tmp_path, "two")
    assert (found.slots_to_skip, found.pipeline.records) == (15, 15)


def test_two_releases_without_a_checkpoint_are_refused(tmp_path):
    crash_behind_releases(tmp_path, "one", 2, saved=False)
    with pytest.raises(LedgerError, match=r"releases=2 path=.*bring the folder back"):
        taken_up(tmp_path, "one")
