"""The folder of published models: what is published stays, and topic 3 stays topic 3."""

import json
import logging
import math
import threading

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.model.topic_model import load
from streamlda.storage import snapshots as module
from streamlda.storage.identity import FARTHEST, distances
from streamlda.storage.snapshots import CACHED_MODELS, Snapshots
from streamlda.text.vocabulary import Vocabulary
from tests.service.planted import model, private, shifted, topics, words


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out" / "snapshots"


def ids(snapshots, number):
    return [topic.id for topic in snapshots.summary(number).topics]


def moved(snapshots, number):
    return [topic.moved for topic in snapshots.summary(number).topics]


def hellinger(p, q):
    """Return the distance by its definition, one word after the other."""
    shared = sum(math.sqrt(a * b) for a, b in zip(p, q, strict=True))
    return math.sqrt(max(0.0, 1 - shared))


def test_what_is_published_is_found_again(folder):
    made = Snapshots(folder)
    assert (made.numbers(), made.latest()) == ([], None)
    path = made.publish(3, model(topics(), documents_seen=7))
    made.publish(12, model(topics()))
    assert path == folder / "snapshot-000003"
    assert load(path).documents_seen == 7
    for found in (made, Snapshots(folder)):
        assert found.numbers() == [3, 12]
        assert found.latest() == 12
        assert found.model(3).documents_seen == 7


def test_other_files_are_no_snapshots(folder):
    made = Snapshots(folder)
    made.publish(1, model(topics()))
    for name in ("snapshot-000000", "snapshot-0000002", "snapshot-2", ".streamlda-12.tmp", "x"):
        (folder / name).write_bytes(b"")
    (folder / "snapshot-000005").mkdir()
    assert made.numbers() == [1]


@pytest.mark.parametrize("number", [0, -1, 10**9])
def test_a_number_out_of_range_is_refused(folder, number):
    with pytest.raises(InvalidSettingError, match=f"number={number}"):
        Snapshots(folder).publish(number, model(topics()))


def test_publishing_again_changes_nothing(folder):
    made = Snapshots(folder)
    path = made.publish(1, model(topics()))
    before = {p: (p.stat().st_ino, p.read_bytes()) for p in folder.iterdir()}
    assert Snapshots(folder).publish(1, model(topics())) == path
    assert {p: (p.stat().st_ino, p.read_bytes()) for p in folder.iterdir()} == before


def test_another_model_under_a_published_number_is_refused(folder):
    made = Snapshots(folder)
    path = made.publish(1, model(topics()))
    content = path.read_bytes()
    with pytest.raises(InvalidSettingError, match=r"must not change.*number=1"):
        made.publish(1, model(topics(seed=5)))
    assert path.read_bytes() == content


def test_a_publication_that_failed_half_way_is_made_whole_by_another(folder):
    made = Snapshots(folder)
    made.publish(1, model(topics()))
    obstacle = folder / "snapshot-000002.topics.json"
    obstacle.mkdir()
    with pytest.raises(OSError, match="directory"):
        made.publish(2, model(shifted(topics(), 0.1)))
    obstacle.rmdir()
    made.publish(2, model(shifted(topics(), 0.1)))
    assert ids(made, 2) == [1, 2, 3, 4]


def test_topics_for_viewers_are_plain_json(folder):
    made = Snapshots(folder)
    made.publish(1, model(topics(), documents_seen=40))
    made.publish(2, model(shifted(topics(), 0.1), documents_seen=80))
    told = made.topics(2, 3)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["number"], told["documents"], told["private"]) == (2, 80, False)
    assert told["privacy"] == {"statement": "not private"}
    assert told["privacy_lines"] == ["privacy     not private"]
    assert told["created"].endswith("+00:00")
    assert [topic["prevalence"] for topic in told["topics"]] == [0.1, 0.2, 0.3, 0.4]
    assert sum(topic["prevalence"] for topic in told["topics"]) == pytest.approx(1)
    expected = made.model(2).top_words(3)
    assert [topic["words"] for topic in told["topics"]] == [
        [list(pair) for pair in pairs] for pairs in expected
    ]
    assert all(0 < topic["moved"] < 0.5 for topic in told["topics"])


def test_distances_equal_the_definition():
    one, other = topics(3, 40, seed=1), topics(5, 40, seed=2)
    found = distances(model(one), model(other))
    expected = [[hellinger(p, q) for q in other] for p in one]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.diagonal(distances(model(one), model(one))).tolist() == [0, 0, 0]


def test_distances_do_not_depend_on_the_blocks(monkeypatch):
    one, other = model(topics(3, 50)), model(topics(3, 50, seed=2))
    whole = distances(one, other)
    monkeypatch.setattr("streamlda.model.diagnostics._BLOCK_COLUMNS", 7)
    np.testing.assert_allclose(distances(one, other), whole, atol=1e-12)


def test_words_that_one_snapshot_lacks_count_as_not_shared():
    names = words(30)
    one, other = topics(2, 20, seed=1), topics(2, 20, seed=2)
    before = model(one, vocabulary=Vocabulary.given(names[:20]))
    after = model(other, vocabulary=Vocabulary.given(names[29:9:-1]))
    wide_one, wide_other = np.zeros((2, 30)), np.zeros((2, 30))
    wide_one[:, :20], wide_other[:, 10:] = one, other[:, ::-1]
    expected = [[hellinger(p, q) for q in wide_other] for p in wide_one]
    np.testing.assert_allclose(distances(before, after), expected, atol=1e-12)


def test_columns_that_mean_different_things_have_nothing_in_common():
    kinds = [
        (Vocabulary.hashed(6), Vocabulary.given(words(64))),
        (None, Vocabulary.given(words(64))),
        (Vocabulary.hashed(6), None),
    ]
    table = topics(2, 64)
    for one, other in kinds:
        found = distances(model(table, vocabulary=one), model(table, vocabulary=other))
        assert found.tolist() == [[1, 1], [1, 1]]
    wider = model(topics(2, 128), vocabulary=Vocabulary.hashed(7))
    assert distances(model(table, vocabulary=Vocabulary.hashed(6)), wider).min() == 1
    assert distances(model(table, vocabulary=None), model(topics(2, 65), vocabulary=None)).min()
    same = Vocabulary.hashed(6), Vocabulary.hashed(6)
    found = distances(*(model(table, vocabulary=each) for each in same))
    assert np.diagonal(found).tolist() == [0, 0]


def test_a_topic_keeps_its_id_wherever_it_stands(folder):
    made = Snapshots(folder)
    table, order = topics(5, 80), [3, 0, 4, 1, 2]
    made.publish(1, model(table))
    made.publish(2, model(shifted(table, 0.2)[order]))
    made.publish(3, model(shifted(table, 0.3)[::-1]))
    assert ids(made, 1) == [1, 2, 3, 4, 5]
    assert ids(made, 2) == [4, 1, 5, 2, 3]
    assert ids(made, 3) == [5, 4, 3, 2, 1]
    assert moved(made, 1) == [None] * 5
    expected = [hellinger(table[k], shifted(table, 0.2)[k]) for k in order]
    assert moved(made, 2) == pytest.approx(expected)


def test_ids_of_topics_that_went_are_never_used_again(folder):
    made = Snapshots(folder)
    table = topics(6, 80)
    for number, rows in enumerate(([0, 1, 2], [1, 3], [0, 1, 3, 4], [5, 1]), 1):
        made.publish(number, model(table[rows]))
    found = [ids(made, number) for number in made.numbers()]
    assert found == [[1, 2, 3], [2, 4], [5, 2, 4, 6], [7, 2]]
    assert moved(made, 4) == [None, 0]


@pytest.mark.statistical
def test_topics_estimated_again_stay_and_others_do_not():
    """Topics counted from 3,000 tokens of their own, against others of the same kind.

    Over ten seeds the farthest estimate was at 0.178 (standard deviation 0.003), the nearest of
    400 pairs of strangers at 0.883 (0.005): false alarms are rarer than 1e-6, the seed being fixed.
    """
    draw = np.random.default_rng(8)
    table = topics(20, 2000, concentration=0.05)
    again = np.array([draw.multinomial(3000, row) / 3000 for row in table])
    found = distances(model(table, vocabulary=None), model(again, vocabulary=None))
    strangers = distances(
        model(table, vocabulary=None),
        model(topics(20, 2000, seed=9, concentration=0.05), vocabulary=None),
    )
    assert np.diagonal(found).max() < 0.2 < FARTHEST
    assert strangers.min() > 0.83 > FARTHEST


def test_ids_are_the_same_after_a_restart_and_without_the_index(folder):
    made = Snapshots(folder)
    table = topics(4, 60)
    for number in range(1, 5):
        made.publish(number, model(np.roll(shifted(table, 0.05 * number), number, axis=0)))
    expected = made.summaries()
    assert len({tuple(ids(made, n)) for n in made.numbers()}) == 4
    assert Snapshots(folder).summaries() == expected
    for index in folder.glob("*.json"):
        index.unlink()
    assert Snapshots(folder).summaries() == expected
    assert len(list(folder.glob("*.json"))) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":1}', b"\xff", b"null"])
def test_a_damaged_index_is_made_again(folder, content, caplog):
    made = Snapshots(folder)
    made.publish(1, model(topics()))
    made.publish(2, model(topics()[::-1]))
    (folder / "snapshot-000002.topics.json").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert ids(Snapshots(folder), 2) == [4, 3, 2, 1]
    assert "is made again: number=2" in caplog.text


def test_an_index_of_another_model_is_not_believed(folder):
    made = Snapshots(folder)
    made.publish(1, model(topics()))
    (folder / "snapshot-000001").unlink()
    made.publish(1, model(topics(3)))
    assert ids(made, 1) == [1, 2, 3]
    assert ids(Snapshots(folder), 1) == [1, 2, 3]


def test_of_thousands_of_snapshots_only_the_last_are_followed(folder, monkeypatch):
    monkeypatch.setattr(module, "FOLLOWED", 5)
    made = Snapshots(folder)
    for number in range(1, 13):
        made.publish(number, model(np.roll(topics(), number, axis=0)))
    for index in folder.glob("*.json"):
        index.unlink()
    found = Snapshots(folder)
    assert ids(found, 7) == [None] * 4
    assert moved(found, 7) == [None] * 4
    assert [summary.number for summary in found.summaries()] == [8, 9, 10, 11, 12]
    assert ids(found, 8) == [1, 2, 3, 4]
    assert ids(found, 12) == [1, 2, 3, 4]
    assert ids(found, 9) == [4, 1, 2, 3]
    assert len(list(folder.glob("*.json"))) == 5


def test_a_damaged_snapshot_is_passed_over_and_the_rest_goes_on(folder, caplog):
    made = Snapshots(folder)
    for number in (1, 2, 3):
        made.publish(number, model(topics()))
    path = folder / "snapshot-000002"
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    index = folder / "snapshot-000002.topics.json"
    index.unlink()
    (folder / "snapshot-000003.topics.json").unlink()
    found = Snapshots(folder)
    with caplog.at_level(logging.WARNING):
        assert [summary.number for summary in found.summaries()] == [1, 3]
    assert "skipped, since it cannot be read: number=2" in caplog.text
    assert ids(found, 3) == [1, 2, 3, 4]
    with pytest.raises(ModelFileError):
        found.topics(2)


def test_after_a_damaged_snapshot_the_next_one_is_published_with_new_ids(folder, caplog):
    made = Snapshots(folder)
    made.publish(1, model(topics()))
    path = folder / "snapshot-000001"
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    found = Snapshots(folder)
    with caplog.at_level(logging.WARNING):
        found.publish(2, model(topics()))
    assert ids(found, 2) == [5, 6, 7, 8]


def test_a_snapshot_that_is_not_there_is_not_found(folder):
    made = Snapshots(folder)
    for ask in (made.model, made.summary, made.topics):
        with pytest.raises(FileNotFoundError):
            ask(1)


def test_few_models_are_held_and_the_last_ones_are_not_read_again(folder, monkeypatch):
    made = Snapshots(folder)
    for number in range(1, 7):
        made.publish(number, model(topics()))
        made.model(number)
    assert len(made._models) == CACHED_MODELS
    read = []
    monkeypatch.setattr(module, "load", lambda path: read.append(path.name) or load(path))
    assert made.model(6) is made.model(6)
    made.summaries()
    assert read == []
    made.model(1)
    assert read == ["snapshot-000001"]


def test_only_a_statement_that_bears_out_its_claim_makes_private(folder, caplog):
    made = Snapshots(folder)
    made.publish(1, model(topics(), privacy=private()))
    made.publish(2, model(topics()))
    made.publish(3, model(topics(), privacy=private() | {"epsilon": 0.1}))
    with caplog.at_level(logging.WARNING):
        assert [summary.private for summary in made.summaries()] == [True, False, False]


def test_readers_see_whole_snapshots_while_others_are_published(folder):
    made = Snapshots(folder)
    made.publish(1, model(topics()))
    wrong = []
    done = threading.Event()

    def read():
        while not done.is_set():
            latest = made.latest()
            told = made.topics(latest, 2)
            expected = np.roll([1, 2, 3, 4], latest - 1).tolist()
            if [topic["id"] for topic in told["topics"]] != expected:
                wrong.append(latest)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(2, 12):
        made.publish(number, model(np.roll(topics(), number - 1, axis=0)))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert made.latest() == 11
