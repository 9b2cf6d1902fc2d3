"""Folders that daemons share: the owner of a partition, and the beginning of all."""

import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import FencedError, InvalidSettingError, SourceRefusedError
from streamlda.simulate import PlantedLDA
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
from tests.storage.test_checkpoint import WORDS

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
    # It holds no lock, and has changed nothing.
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
    assert take_lease(folder).held


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
    with pytest.raises(SourceRefusedError, match="must be of one topic"):
        found.check_log(LOG | {"topic_id": "2"})


def test_one_state_of_several_partitions_and_a_state_for_each_do_not_mix(tmp_path, folder):
    with pytest.raises(InvalidSettingError, match="has a state for each partition"):
        Store.open(folder)
    with Store.open(tmp_path / "one") as store:
        save(store, 1)
    with pytest.raises(InvalidSettingError, match=r"one state of several.*or begin in an"):
        open_shared_folder(tmp_path / "one")
