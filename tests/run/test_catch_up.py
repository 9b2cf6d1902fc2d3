"""Private runs: behind which release they continue."""

import json
from contextlib import ExitStack, closing, contextmanager

import pytest

from streamlda.errors import InvalidSettingError, LedgerError
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.storage.store import Store
from tests.run.opened import run_settings, save
from tests.service.daemon_process import texts


@contextmanager
def opened_run(folder, stream, **more):
    """Open a run over documents of its own."""
    documents = folder / f"{stream}.jsonl"
    if not documents.exists():
        rows = texts(2000)[:1000] if stream == "one" else texts(2000)[1000:]
        documents.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    with ExitStack() as opened:
        flags = {
            "vocabulary.hash_bits": 5,
            "privacy.epsilon": 12.0,
            "privacy.delta": 1e-3,
            "privacy.ledger": str(folder / "ledger"),
            "snapshots.every": 1000,
            "source.files": [str(documents)],
            "checkpoint.folder": str(folder / stream),
            **more,
        }
        settings = run_settings("private", folder, flags)
        store = opened.enter_context(Store.open(folder / stream))
        output = opened.enter_context(Store.open(output=folder / f"{stream}-out", private=True))
        ledger = open_ledger(settings, opened, output, print)
        run = open_pipeline(settings, store, ledger)
        yield run, store, opened.enter_context(closing(run.open_source(settings)))


def crash_behind_releases(folder, stream, releases, *, saved, **more):
    """Make releases, a checkpoint behind each but the last or behind none, and end there."""
    with opened_run(folder, stream, **more) as (run, store, source):
        pipeline = run.pipeline
        for number in range(releases):
            pipeline.add(source.poll(pipeline.due))
            pipeline.release()
            if saved and number < releases - 1:
                save(pipeline, store)


def taken_up(folder, stream, **more):
    with opened_run(folder, stream, **more) as (run, _, _):
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


def test_seeds_are_those_of_the_run(tmp_path):
    seeds = {"topics.seeds": ("mine: orbit launch",)}
    crash_behind_releases(tmp_path, "one", 4, saved=True, **seeds)
    for other in ({}, {"topics.seeds": ("mine: orbit nasa",)}):
        with pytest.raises(InvalidSettingError, match=r"not seed_topics=.* \(saved: "):
            taken_up(tmp_path, "one", **other)
    assert taken_up(tmp_path, "one", **seeds).released.model.names[0] == "mine"
