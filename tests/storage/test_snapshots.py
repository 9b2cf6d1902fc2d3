"""The folder of published models: what is published stays, once, and topic 3 stays topic 3."""

import json
import logging
import os
from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, ModelFileError, VocabularyError
from streamlda.model.diagnostics import DOUBTS, exclusivity, junk_topics
from streamlda.model.topic_model import load
from streamlda.storage.snapshots import NewestModel, Snapshots, fingerprint
from streamlda.storage.store import Store
from tests.model.test_matching import hellinger
from tests.service.planted import model, over_time, private, shifted, topics


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out" / "snapshots"


def publish(folder, *tables):
    made = Snapshots(folder)
    for number, table in enumerate(tables, 1):
        made.publish(number, model(table))
    return made


def index(folder, number):
    return folder / f"snapshot-{number:06d}.topics.json"


def damage(folder, number):
    path = folder / f"snapshot-{number:06d}"
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")


def ids(snapshots, number):
    return [topic.id for topic in snapshots.summary(number).topics]


def test_what_is_published_is_found_again_and_other_files_are_no_snapshots(folder):
    made = Snapshots(folder)
    assert (made.numbers(), made.latest()) == ([], None)
    for ask in (made.model, made.summary, made.topics):
        with pytest.raises(FileNotFoundError):
            ask(1)
    path = made.publish(3, model(topics(), documents_seen=7))
    made.publish(12, model(topics()))
    for name in ("snapshot-000000", "snapshot-0000002", "snapshot-2", ".streamlda-12.tmp", "x"):
        (folder / name).write_bytes(b"")
    (folder / "snapshot-000005").mkdir()
    assert path == folder / "snapshot-000003"
    assert load(path).documents_seen == 7
    for found in (made, Snapshots(folder)):
        assert (found.numbers(), found.latest()) == ([3, 12], 12)
        assert found.model(3).documents_seen == 7


def test_a_published_number_keeps_its_model(folder):
    made = publish(folder, topics())
    before = {p: (p.stat().st_ino, p.read_bytes()) for p in folder.iterdir()}
    with pytest.raises(InvalidSettingError, match=r"is published.*number=1"):
        made.publish(1, model(topics()))
    for number in (0, 10**9):
        with pytest.raises(InvalidSettingError, match=f"number={number}"):
            made.publish(number, model(topics()))
    assert {p: (p.stat().st_ino, p.read_bytes()) for p in folder.iterdir()} == before


def test_topics_for_viewers_are_plain_json(folder):
    made = publish(folder, topics())
    made.publish(2, model(shifted(topics(), 0.1), documents_seen=80))
    found = made.topics(2, 3)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["number"], found["documents"], found["private"]) == (2, 80, False)
    assert found["privacy_lines"] == ["privacy     not private"]
    assert found["created"].endswith("+00:00")
    assert [topic["prevalence"] for topic in found["topics"]] == [0.1, 0.2, 0.3, 0.4]
    expected = [[list(pair) for pair in pairs] for pairs in made.model(2).top_words(3)]
    assert [topic["words"] for topic in found["topics"]] == expected
    assert all(0 < topic["moved"] < 0.5 for topic in found["topics"])


def test_viewers_are_shown_interval_timeline_and_quality(folder):
    table = topics()
    table[3] = 0.9 * table[1] + 0.1 * table[3]
    about = over_time()
    made = Snapshots(folder)
    made.publish(1, model(table, **about))
    found = Snapshots(folder).topics(1)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["interval"] == made.summary(1).json()["interval"] == about["interval"].to_json()
    assert found["timeline"] == {
        **{"unit": "day", "starts": [0, 86400], "documents": [2, 0], "undated": 5},
        **{"ahead": 0, "late": 1},
        "shares": [[0.25, 0.0, 0.0, 0.75], [None] * 4],
    }
    assert found["slots"] is None
    assert [topic["npmi"] for topic in found["topics"]] == [0.5, -0.25, 0.0, 0.125]
    apart = hellinger(table, table)
    for k, topic in enumerate(found["topics"]):
        distance, other = min((apart[k][j], j) for j in range(4) if j != k)
        assert topic["nearest"] == {"id": other + 1, "distance": pytest.approx(distance)}
    own = exclusivity(table).tolist()
    assert [topic["exclusivity"] for topic in found["topics"]] == own
    marks = [{why: DOUBTS[why] for why in reasons} for reasons in junk_topics(made.model(1))]
    assert [topic["marks"] for topic in found["topics"]] == marks
    made.publish(2, model(topics(1)))
    alone = made.topics(2)
    assert (alone["timeline"], alone["interval"]) == (None, None)
    assert (alone["topics"][0]["nearest"], alone["topics"][0]["npmi"]) == (None, None)


def test_a_topic_keeps_its_id_wherever_it_stands_and_no_id_is_used_again(folder):
    table, order = topics(5, 80), [3, 0, 4, 1, 2]
    made = publish(folder, table, shifted(table, 0.2)[order], shifted(table, 0.3)[::-1])
    assert [ids(made, n) for n in (1, 2, 3)] == [[1, 2, 3, 4, 5], [4, 1, 5, 2, 3], [5, 4, 3, 2, 1]]
    moved = [[topic.moved for topic in made.summary(n).topics] for n in (1, 2)]
    expected = np.diagonal(hellinger(table, shifted(table, 0.2)))[order]
    assert moved == [[None] * 5, pytest.approx(expected)]
    table, parts = topics(6, 80), ([0, 1, 2], [1, 3], [0, 1, 3, 4], [5, 1])
    made = publish(folder / "b", *(table[rows] for rows in parts))
    assert [ids(made, n) for n in made.numbers()] == [[1, 2, 3], [2, 4], [5, 2, 4, 6], [7, 2]]
    assert [topic.moved for topic in made.summary(4).topics] == [None, 0]


def test_an_index_that_is_damaged_or_of_another_model_is_made_again(folder, caplog):
    made = publish(folder, topics(), topics()[::-1])
    for content in (b"{", b"[]", b'{"version":2}', b"\xff"):
        index(folder, 2).write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert ids(Snapshots(folder), 2) == [4, 3, 2, 1]
        assert "is made again: number=2" in caplog.text
    (folder / "snapshot-000001").unlink()
    made.publish(1, model(topics(3)))
    assert ids(made, 1) == ids(Snapshots(folder), 1) == [1, 2, 3]


def test_a_damaged_snapshot_is_skipped_and_the_rest_continues(folder, caplog):
    caplog.set_level(logging.WARNING)
    publish(folder, *[topics()] * 3)
    damage(folder, 2)
    for number in (2, 3):
        index(folder, number).unlink()
    found = Snapshots(folder)
    assert [summary.number for summary in found.summaries()] == [1, 3]
    assert "skipped, since it cannot be read: number=2" in caplog.text
    assert ids(found, 3) == [1, 2, 3, 4]
    with pytest.raises(ModelFileError):
        found.topics(2)
    damage(folder, 3)
    again = Snapshots(folder)
    again.publish(4, model(topics()))
    assert ids(again, 4) == [5, 6, 7, 8]


def test_only_a_statement_that_bears_out_its_claim_makes_private(folder):
    made = Snapshots(folder)
    for number, privacy in enumerate([private(), {}, private() | {"epsilon": 0.1}], 1):
        about = {"privacy": privacy} if privacy else {}
        made.publish(number, model(topics(), **about))
    cohort = private()["cohort"]
    for found in (made, Snapshots(folder)):
        assert [summary.private for summary in found.summaries()] == [True, False, False]
        assert found.summary(1).slots == [cohort["first"], cohort["last"]]


# A run publishes each release once, whatever a crash makes again.


def release(**settings):
    settings = {"stream": "news", "places": 1000, "K": 4, "bounds": (1, 2), **settings}
    return model(topics(), settings=settings)


def test_the_same_release_made_twice_is_one_snapshot_and_another_is_not(folder):
    with Store.open(output=folder, private=False) as store:
        assert store.publish(release()) == 1
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    # Made again after a restart, later: settings come back from the file as lists.
    store = Store.open(output=folder, private=False)
    assert store.publish(replace(release(), created="2027-01-01T00:00:00+00:00")) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    others = [release(places=2000), release(stream="mail"), release(K=5)]
    others += [replace(release(), privacy=private() | {"ledger": name}) for name in ("0a", "0b")]
    assert [store.publish(other) for other in others] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("keep", "left"), [(1, [9]), (3, [7, 8, 9]), (20, [*range(1, 10)]), (3600.0, [6, 7, 8, 9])]
)
def test_old_snapshots_are_removed_and_never_the_newest(folder, keep, left):
    plain = Store.open(output=folder, private=False)
    for number in range(1, 9):
        plain.publish(model(topics(), settings={"stream": "s", "number": number}))
        made = plain.snapshots.path(number)
        old = made.stat().st_mtime - 7200 * (number < 6)
        os.utime(made, (old, old))
    plain.close()
    with Store.open(output=folder, keep=keep) as store:
        ids = [topic["id"] for topic in store.snapshots.summary(8).json()["topics"]]
        assert store.publish(model(topics(), settings={"stream": "s", "number": 9})) == 9
        assert store.snapshots.numbers() == left
        found = store.snapshots.summaries()
        assert [summary.number for summary in found] == left
        assert [topic.id for topic in found[-1].topics] == ids
    assert {path.name for path in folder.glob("*.topics.json")} == {
        f"snapshot-{n:06d}.topics.json" for n in left
    }


def test_the_newest_is_a_file_as_it_is_now_or_the_snapshot_of_a_folder_that_came_last(tmp_path):
    snapshots, path = Snapshots(tmp_path), tmp_path / "model"
    folder, file = NewestModel(tmp_path), NewestModel(path)
    assert folder.find() is None
    with pytest.raises(FileNotFoundError):
        file.find()
    for seed in (1, 3):
        made = model(topics(seed=seed))
        snapshots.publish(seed, made)
        made.save(path)
        for newest, number, where in ((folder, seed, snapshots.path(seed)), (file, None, path)):
            found = newest.find()
            assert (found.number, found.digest) == (number, fingerprint(where))
            assert (found.model.components == made.components).all()
            assert newest.find() is found


def test_a_damaged_model_is_left_out_while_there_is_another(tmp_path, caplog):
    path = tmp_path / "model"
    path.write_bytes(b"no model")
    newest = NewestModel(path)
    with pytest.raises(ModelFileError):
        newest.find()
    model(topics()).save(path)
    first = newest.find()
    path.write_bytes(b"no model either")
    with caplog.at_level(logging.WARNING):
        assert newest.find() is newest.find() is first
    assert len(caplog.records) == 1
    path.unlink()
    assert newest.find() is first
    model(topics(seed=2)).save(path)
    assert newest.find().digest != first.digest


def test_other_words_are_refused_and_the_same_under_other_topics_are_not(tmp_path):
    snapshots = Snapshots(tmp_path)
    newest = NewestModel(tmp_path)
    snapshots.publish(1, model(topics(4)))
    newest.find()
    snapshots.publish(2, model(topics(5)))
    assert newest.find().number == 2
    snapshots.publish(3, model(topics(4, n_features=61)))
    with pytest.raises(VocabularyError, match="lacks words of the one before"):
        newest.find()
    # A vocabulary that grows may have others.
    growing = {"vocabulary_changes": {"entered": 1, "left": 0}}
    snapshots.publish(4, replace(model(topics(4, n_features=61)), settings=growing))
    assert newest.find().model.n_features == 61
