"""Snapshots are published once, whatever a crash makes again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamlda.errors import SourceError
from streamlda.model.topic_model import TopicModel
from streamlda.storage.publishing import MESSAGE_WORDS, Publisher
from streamlda.storage.snapshots import Snapshots
from tests.service import planted

Content = dict[str, bytes]


def model(**settings: Any) -> TopicModel:
    made: TopicModel = planted.model(planted.topics(), settings={"K": 4, **settings})  # type: ignore[no-untyped-call]
    return made


class Topic:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.away = False

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        if self.away:
            raise SourceError("the topic must be reachable, got none")
        self.got.append((key, value, headers))

    def close(self) -> None:
        pass


def files(folder: Path) -> Content:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_release_made_twice_is_one_snapshot(tmp_path: Path) -> None:
    publisher = Publisher(Snapshots(tmp_path))
    first = model(stream="news", places=1000, bounds=(1, 2))
    assert publisher.store(first) == 1
    before = files(tmp_path)
    # Made again after a restart, later: settings come back from the file as lists.
    again = Publisher(Snapshots(tmp_path))
    assert again.store(replace(first, created="2027-01-01T00:00:00+00:00")) == 1
    assert files(tmp_path) == before
    assert again.store(model(stream="news", places=2000, bounds=(1, 2))) == 2


@pytest.mark.parametrize(
    "other",
    [{"places": 2000}, {"stream": "mail"}, {"K": 5}],
)
def test_another_release_is_another_snapshot(tmp_path: Path, other: dict[str, Any]) -> None:
    publisher = Publisher(Snapshots(tmp_path))
    about = {"stream": "news", "places": 1000}
    assert publisher.store(model(**about)) == 1
    assert publisher.store(model(**{**about, **other})) == 2


def test_a_release_of_another_ledger_is_another_snapshot(tmp_path: Path) -> None:
    publisher = Publisher(Snapshots(tmp_path))
    statement = planted.private()  # type: ignore[no-untyped-call]
    of = model(stream="news", places=1000)
    assert publisher.store(replace(of, privacy=statement)) == 1
    assert publisher.store(replace(of, privacy={**statement, "ledger": "ffff0000"})) == 2


def test_a_message_is_the_same_however_often(tmp_path: Path) -> None:
    topic = Topic()
    publisher = Publisher(Snapshots(tmp_path), topic)
    publisher.send()
    assert topic.got == [], "before the first snapshot there is nothing to say"
    publisher.store(model(stream="news", places=1000))
    publisher.send()
    publisher.send()
    Publisher(Snapshots(tmp_path), topic).send()
    assert len({(key, value) for key, value, _ in topic.got}) == 1
    key, value, headers = topic.got[0]
    assert (key, headers["streamlda.snapshot"]) == ("news", "1")
    told = json.loads(value)
    assert [len(each["words"]) for each in told["topics"]] == [MESSAGE_WORDS] * 4


def test_a_topic_that_is_away_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    topic = Topic()
    publisher = Publisher(Snapshots(tmp_path), topic)
    publisher.store(model(stream="news", places=1000))
    topic.away = True
    with pytest.raises(SourceError, match="reachable"):
        publisher.send()
    topic.away = False
    publisher.send()
    assert len(topic.got) == 1
