"""Checkpoints: state and positions of one moment, whatever dies; two generations, no older one."""

import hashlib
import json
import os
import resource
import sqlite3
import stat
import time
from contextlib import closing

import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import (
    FencedError,
    InvalidSettingError,
    LedgerError,
    ModelFileError,
    NewerFormatError,
    OlderFormatError,
    SourceRefusedError,
)
from streamlda.guarantee.noise import SeededNoise
from streamlda.kernels import load_kernels
from streamlda.learner import feed
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import FORMAT_VERSION
from streamlda.storage.merge import load_projection, save_projection
from streamlda.storage.partitions import (
    PROJECTION,
    Agreement,
    count_saved,
    find_partitions,
    open_shared_folder,
    take_lease,
)
from streamlda.storage.store import Claim, Store
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.exit_codes import IO, exit_code
from tests.crashes import KILLED, CrashProcess, die_at, fork, kill_at_steps, serve, wait

ROWS, BATCH = 1200, 100
WORDS = Vocabulary.given([f"w{i}" for i in range(30)])
#: All documents stay in the warm-up of scenes: no time is lost with topics.
IN_WARM_UP = EngineSettings(n_components=3, n_features=30)


def position_of(learned):
    return {"news/0": learned // 2, "news/1": learned - learned // 2}


def learned_at(position):
    return sum(position.values())


def digest(learner):
    arrays, values = learner.state()
    content = b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
    return hashlib.blake2b(content + json.dumps(values, sort_keys=True).encode()).hexdigest()


def make_documents():
    return PlantedLDA(3, 30, seed=4, topic_concentration=0.1).documents(ROWS)


def planted():
    """Return documents, and the digest of the state after each number of them, without a kill."""
    documents = make_documents()
    engine, found = Engine(IN_WARM_UP), {}
    for start in range(0, ROWS + 1, BATCH):
        found[start] = digest(engine)
        engine.add(documents.rows(start, start + BATCH))
    return documents, found


def work(folder, documents, batches, on_step=None):
    """Continue from the newest checkpoint for some batches, with a checkpoint after each."""
    with Store.open(folder, on_step=on_step) as store:
        newest = store.newest()
        learned = learned_at(newest.position) if newest else 0
        engine = newest.restore() if newest else Engine(IN_WARM_UP)
        for _ in range(batches):
            engine.add(documents.rows(learned, learned + BATCH))
            learned = min(ROWS, learned + BATCH)
            store.write(store.capture(engine, position_of(learned), WORDS, {"documents": learned}))


def verify(folder, undisturbed):
    """Assert that what is loaded is whole and of one moment; return documents and generation."""
    with Store.open(folder) as store:
        newest = store.newest()
        if newest is None:
            return 0, 0
        assert newest.skipped == ()
        learned = learned_at(newest.position)
        assert digest(newest.restore()) == undisturbed[learned]
        assert newest.about == {"documents": learned}
        assert newest.vocabulary == WORDS
        kinds = [path.name.split("-")[0] for path in folder.iterdir()]
        assert kinds.count("state") <= 2
        assert set(kinds) == {"index", "lock", "state"}, "nothing is left behind"
        return learned, newest.generation


def every_step(scratch):
    """Kill at every step of making a folder and two checkpoints, then continue."""
    documents, undisturbed = planted()
    seen, last = set(), 0

    def kill(step):
        return wait(fork(lambda: work(scratch / str(step), documents, 2, die_at(step))))

    for step, status in kill_at_steps(kill):
        folder, last = scratch / str(step), step
        learned, generation = verify(folder, undisturbed)
        assert learned == generation * BATCH
        seen.add(generation)
        if status == KILLED:
            # 3 steps to make the folder, 6 for each checkpoint, of which the fifth commits.
            assert generation == max(0, step - 3 + 2) // 6
        work(folder, documents, 1)
        assert verify(folder, undisturbed) == (learned + BATCH, generation + 1)
    assert seen == {0, 1, 2}
    return {"steps": last}


SETTINGS = EngineSettings(n_components=3, n_features=30, warmup_documents=250)


@pytest.fixture(scope="module")
def documents():
    return make_documents()


def test_killed_at_every_step_it_continues_with_a_whole_generation(tmp_path):
    with closing(CrashProcess(__name__)) as process:
        assert process.run("every-step", tmp_path) == {"steps": 3 + 2 * 6}


def test_what_changes_while_a_checkpoint_is_written_is_not_in_it(tmp_path, documents):
    engine = Engine(SETTINGS)
    engine.add(documents.rows(0, 600))
    about = {"account": {"begins": {"a": 1}}}
    before = {name: array.tobytes() for name, array in engine.state()[0].items()}
    with Store.open(tmp_path) as store:
        pending = store.capture(engine, {}, WORDS, about)
        engine.add(documents.rows(600, 900))
        # As where a challenger takes over, and a partition begins.
        engine.following.lineage.ids[0] = 99
        about["account"]["begins"]["b"] = 2
        store.write(pending)
        newest = store.newest()
    written, now = (each.state()[1]["following"] for each in (newest.restore(), engine))
    assert written["lineage"]["ids"] != now["lineage"]["ids"]
    found = newest.restore().state()[0]
    assert {name: array.tobytes() for name, array in found.items()} == before
    assert newest.about == {"account": {"begins": {"a": 1}}}


def edit(folder, statement):
    with sqlite3.connect(folder / "index") as database:
        database.execute(statement)
    database.close()


def test_the_second_newest_is_taken_with_its_own_position(tmp_path, documents):
    work(tmp_path, documents, 3)
    older, newest = tmp_path / "state-000002", tmp_path / "state-000003"
    assert sorted(tmp_path.glob("state-*")) == [older, newest]
    data = newest.read_bytes()
    with Store.open(tmp_path) as store:
        # Damaged, or whole but of another generation: the position is that of the state.
        for content, skipped in ((data[:-1] + bytes([data[-1] ^ 1]), 1), (older.read_bytes(), 0)):
            newest.write_bytes(content)
            found = store.newest()
            assert learned_at(found.position) == found.restore().documents_seen == 2 * BATCH
            assert ["generation 3" in problem for problem in found.skipped] == [True] * skipped
            assert found.vocabulary == WORDS
        newest.unlink()
        older.unlink()
        with pytest.raises(ModelFileError, match="none of 2 checkpoints is whole"):
            store.newest()
        store.write(store.capture(Engine(SETTINGS), position_of(0), WORDS))
        assert store.newest().generation == 4


def test_an_index_that_is_lost_edited_or_not_ours_is_refused(tmp_path, documents):
    work(tmp_path, documents, 2)
    index = tmp_path / "index"
    index.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelFileError, match="has no index"):
        Store.open(tmp_path)
    (tmp_path / "elsewhere").rename(index)
    edit(tmp_path, "UPDATE generations SET name = 'state-000007' WHERE number = 2")
    with Store.open(tmp_path) as store:
        assert store.newest().generation == 1
    # Which files are in use is not known: nothing is removed.
    assert (tmp_path / "state-000002").exists()
    # In this order: of another program is what has another identity, of whatever version.
    for pragma, error in (
        (f"user_version={FORMAT_VERSION + 1}", NewerFormatError),
        (f"user_version={FORMAT_VERSION - 1}", OlderFormatError),
        ("application_id=7", ModelFileError),
    ):
        edit(tmp_path, f"PRAGMA {pragma}")
        with pytest.raises(error):
            Store.open(tmp_path)
    index.write_bytes(b"no database" * 100)
    with pytest.raises(ModelFileError, match="index"):
        Store.open(tmp_path)


def test_one_daemon_has_the_folder_and_only_its_owner_reads_it(tmp_path):
    folder = tmp_path / "checkpoints"
    with Store.open(folder) as store:
        with pytest.raises(InvalidSettingError, match=r"holds the lock.*checkpoint\.folder"):
            Store.open(folder)
        with pytest.raises(InvalidSettingError, match="plain JSON"):
            store.write(store.capture(Engine(SETTINGS), {"news/0": object()}, WORDS))
        assert store.newest() is None
        assert list(folder.glob("state-*")) == [], "refused before anything is written"
        store.write(store.capture(Engine(SETTINGS), {}, WORDS))
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with pytest.raises(AssertionError):
        store.write(store.capture(Engine(SETTINGS), {}, WORDS))
    Store.open(folder).close()


def test_a_store_that_is_refused_holds_no_lock(tmp_path):
    folders = {"folder": tmp_path / "checkpoints", "output": tmp_path / "out"}
    with (
        Store.open(output=tmp_path / "out"),
        pytest.raises(InvalidSettingError, match=r"lock.*output\.folder"),
    ):
        Store.open(**folders)
    with Store.open(**folders) as store:
        assert store.newest() is None
        assert store.newest_summary() is None


def test_files_that_a_crash_left_beside_snapshots_are_removed(tmp_path):
    left, writes, foreign = (
        tmp_path / f".streamlda-{name}.tmp" for name in ("0" * 16, "f" * 16, "x")
    )
    for path, age in ((left, 60), (writes, -3600), (foreign, 60)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    Store.open(output=tmp_path).close()
    assert sorted(tmp_path.glob(".*")) == sorted([writes, foreign])


def test_a_folder_that_cannot_be_made_is_refused_and_a_full_disk_is_not(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/below", "missing/below"):
        with pytest.raises(InvalidSettingError, match="cannot be made"):
            Store.open(tmp_path / name)
        with pytest.raises(InvalidSettingError, match="cannot be made"):
            open_shared_folder(tmp_path / name)
    folder, limits = tmp_path / "checkpoints", resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file can be longer than that: for SQLite the disk is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            Store.open(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert exit_code(caught.value) == IO
    Store.open(folder).close()


PRIVATE = PrivateSettings(
    n_components=3, n_features=30, epsilon=10.0, delta=1e-4, documents_per_snapshot=1000
)


def private(ledger):
    return PrivateLearner(PRIVATE, ReleaseManager(SeededNoise(3), ledger), vocabulary="public")


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "ledger", PRIVATE) as ledger:
        yield ledger


def test_a_private_run_continues_and_an_older_generation_is_refused(tmp_path, documents, ledger):
    learner = private(ledger)
    with Store.open(tmp_path / "checkpoints") as store:
        learner.add(documents.rows(0, 10))  # The first stage has 15 slots.
        store.write(store.capture(learner, position_of(10), WORDS))
        found = store.newest(ledger)
        again = found.restore(private(ledger))
        assert again.slots == 10
        assert digest(again) == digest(learner)
        feed(learner, documents.rows(10, 20))
        assert ledger.generation == 1
        with pytest.raises(LedgerError, match="before a release"):
            store.newest(ledger)
        store.write(store.capture(learner, position_of(20), WORDS))
        assert store.newest(ledger).restore(private(ledger)).slots == 20
        # The newest is lost: the one before is whole, but its documents were released.
        (tmp_path / "checkpoints" / "state-000002").unlink()
        with pytest.raises(LedgerError, match="before a release"):
            store.newest(ledger)


def test_a_private_checkpoint_needs_its_ledger(tmp_path, ledger):
    with Store.open(tmp_path / "checkpoints") as store:
        store.write(store.capture(private(ledger), {}, WORDS))
        with pytest.raises(InvalidSettingError, match="without its ledger"):
            store.newest()
        with (
            open_ledger(tmp_path / "other", PRIVATE) as other,
            pytest.raises(LedgerError, match="of another ledger"),
        ):
            store.newest(other)
        store.write(store.capture(Engine(SETTINGS), {}, WORDS))
        with pytest.raises(InvalidSettingError, match="without its ledger"):
            store.newest(ledger)


LOG = {"cluster": "c", "topic": "news", "topic_id": "1"}


def save(store, places):
    engine = Engine(EngineSettings(n_components=3, n_features=WORDS.n_features))
    return store.write(store.capture(engine, {"offset": places}, WORDS, {"places": places}))


def position_in(path):
    with Store.open(path) as store:
        found = store.newest()
    assert found.skipped == ()
    return found.position["offset"]


def overtake(path, claim):
    """Open a folder whose lock is held, as where locks of another machine do not hold."""
    (path / "lock").unlink()
    return Store.open(path, claim=claim)


def test_what_another_has_claimed_is_not_written(tmp_path):
    slow = Store.open(tmp_path, claim=Claim(4))
    assert save(slow, 100) == 1
    fast = overtake(tmp_path, Claim(5))
    with pytest.raises(FencedError, match=r"another daemon has taken over.*taken_in=5"):
        save(slow, 900)
    assert save(fast, 200) == 2
    fast.index.note_letters({"to": 900})
    with pytest.raises(FencedError):
        slow.index.note_letters({"to": 500})
    assert fast.index.letters() == {"to": 900}
    with pytest.raises(FencedError):
        save(slow, 901)
    assert save(fast, 300) == 3
    slow.close()
    fast.close()
    assert position_in(tmp_path) == 300


def test_what_one_that_was_overtaken_writes_and_removes_harms_nobody(tmp_path):
    """Its files are there before the index refuses it, and it may still remove what is left."""
    slow = Store.open(tmp_path, claim=Claim(4))
    engine = Engine(EngineSettings(n_components=3, n_features=WORDS.n_features))
    late = slow.capture(engine, {"offset": 1}, WORDS, {"places": 1})
    fast = overtake(tmp_path, Claim(4))
    save(fast, 200)
    with pytest.raises(FencedError):
        slow.write(late)
    slow._remove_leftovers()
    assert save(fast, 300) == 2
    fast.close()
    assert position_in(tmp_path) == 300


def test_an_older_generation_comes_too_late_unless_the_group_began_again(tmp_path):
    with Store.open(tmp_path, claim=Claim(7)) as store:
        save(store, 100)
    with pytest.raises(FencedError, match="generation=3 taken_in=7"):
        Store.open(tmp_path, claim=Claim(3))
    with Store.open(tmp_path, claim=Claim(7)) as store:
        save(store, 200)
    with Store.open(tmp_path, claim=Claim(3, reset=True)) as store:
        save(store, 300)
    with Store.open(tmp_path, claim=Claim(None)) as store:
        save(store, 400)
    # By hand there are no generations: what was before does not count.
    with Store.open(tmp_path, claim=Claim(1)) as store:
        save(store, 500)
    assert position_in(tmp_path) == 500


@pytest.fixture
def folder(tmp_path):
    folder = open_shared_folder(tmp_path / "shared")
    for number in (10, 2):
        with Store.open(folder, partition=number, claim=Claim(1)) as store:
            save(store, 100 + number)
    Store.open(folder, partition=3).close()
    return folder


def test_saved_are_partitions_with_a_checkpoint_by_number_and_one_holds_the_lease(folder):
    found = {path.name: places for path, places in count_saved(folder).items()}
    assert found == {"partition-2": 102, "partition-10": 110}
    assert list(found) == ["partition-2", "partition-10"]
    assert [path.name for path in find_partitions(folder)][1] == "partition-3"
    lease = take_lease(folder)
    assert take_lease(folder) is None
    lease.free()
    assert take_lease(folder).is_held


def test_the_beginning_says_where_partitions_begin_and_of_which_topic(folder):
    given = Agreement("b", {"k": 1}, LOG, {"4": 17})
    engine = Engine(EngineSettings(n_components=3, n_features=WORDS.n_features))
    engine.add(PlantedLDA(3, WORDS.n_features, seed=1).documents(500))
    save_projection(folder / PROJECTION, engine, WORDS, daemons=given)
    found = load_projection(folder / PROJECTION).daemons
    assert found == given
    own = {"partitions": [4], "offsets": {"4": 17}, "lost": {}, "gaps": {}}
    assert found.find_position(4) == LOG | own
    assert found.find_position(5) is None
    found.check_log(LOG | {"offsets": {}})
    with pytest.raises(SourceRefusedError, match="of another topic"):
        found.check_log(LOG | {"topic_id": "2"})


def test_one_state_of_several_partitions_and_a_state_for_each_do_not_mix(tmp_path, folder):
    with pytest.raises(InvalidSettingError, match="has a state for each partition"):
        Store.open(folder)
    with Store.open(tmp_path / "one") as store:
        save(store, 1)
    with pytest.raises(InvalidSettingError, match=r"one state of several.*or begin in an"):
        open_shared_folder(tmp_path / "one")


if __name__ == "__main__":
    load_kernels()
    serve({"every-step": every_step})
