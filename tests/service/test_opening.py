"""From settings to the parts of a daemon, and behind which release it goes on."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from streamlda.service.opening import (
    Restored,
    analyzer,
    given_words,
    open_ledger,
    open_stream,
    open_work,
    security,
    stream_name,
)

from streamlda.errors import LedgerError
from streamlda.settings.table import Settings, load_settings
from streamlda.storage.checkpoint import Checkpoints
from streamlda.stream.source import RecordBatch
from tests.service.daemon_process import settings_of, texts, write_documents

KAFKA = {"source.kind": "kafka", "kafka.bootstrap": "localhost:9", "kafka.topic": "news"}


def loaded(flags: dict[str, Any]) -> Settings:
    return load_settings(environment={}, flags=flags)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({**KAFKA, "kafka.partitions": "0/2"}, "kafka:news/0/2"),
        ({**KAFKA, "source.stream": "mine"}, "mine"),
        ({"source.kind": "files", "source.files": "/a/../b:s3://c/d"}, "/b s3://c/d"),
    ],
)
def test_a_stream_has_a_name(flags: dict[str, Any], name: str) -> None:
    if "source.files" in flags:
        flags = {**flags, "source.files": ["/a/../b", "s3://c/d"]}
    assert stream_name(loaded(flags)) == name


def test_secrets_are_named_and_not_read(tmp_path: Path) -> None:
    flags = {
        **KAFKA,
        "kafka.protocol": "SASL_SSL",
        "kafka.mechanism": "PLAIN",
        "kafka.username": "reader",
        "kafka.password_file": str(tmp_path / "absent"),
    }
    found = security(loaded(flags))
    assert found["password_file"] == str(tmp_path / "absent")
    assert found["username"] == "reader"
    in_variable = {name: value for name, value in flags.items() if "password" not in name}
    variable = {"STREAMLDA_KAFKA_PASSWORD": "canary"}
    found = security(load_settings(environment=variable, flags=in_variable))
    assert found["password_env"] == "STREAMLDA_KAFKA_PASSWORD"
    assert "canary" not in str(found)


def test_words_are_split_as_the_settings_say(tmp_path: Path) -> None:
    split = analyzer(loaded({**KAFKA, "words.token_pattern": "[a-z0-9]+"})).build_analyzer()
    assert split("the b2b news") == ["b2b", "news"]
    split = analyzer(loaded({**KAFKA, "words.stop_words": "none"})).build_analyzer()
    assert split("the b2b news") == ["the", "news"]


def test_words_are_given_hashed_or_found_later(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("alpha\nbeta\n")
    given = given_words(
        loaded({**KAFKA, "words.kind": "given", "words.file": str(tmp_path / "words")})
    )
    hashed = given_words(loaded({**KAFKA, "words.hash_bits": 4}))
    assert given is not None
    assert hashed is not None
    assert (given.n_features, hashed.n_features) == (2, 16)
    assert given_words(loaded({**KAFKA, "words.kind": "learned"})) is None


@pytest.mark.parametrize("kind", ["files", "follow"])
def test_files_are_opened_at_their_beginning(tmp_path: Path, kind: str) -> None:
    source = write_documents(tmp_path / "documents.jsonl", ["one two", "three"])
    opened = open_stream(loaded(settings_of(tmp_path, source, source__kind=kind)))
    assert opened.poll(10, 5.0).documents == ["one two", "three"]
    opened.close()


def private(folder: Path, stream: str) -> Settings:
    more = {
        "words.hash_bits": 5,
        "privacy.epsilon": 12.0,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "ledger"),
        "snapshots.every": 1000,
        "source.stream": stream,
        "checkpoint.folder": str(folder / stream),
    }
    return loaded({**settings_of(folder, folder / "documents.jsonl"), **more})


def crash_behind_releases(folder: Path, stream: str, releases: int, *, save: bool) -> None:
    """Make releases, a checkpoint behind each but the last or behind none, and end there."""
    rows = texts(1000)
    with ExitStack() as opened:
        settings = private(folder, stream)
        store = opened.enter_context(Checkpoints.open(settings["checkpoint.folder"]))
        ledger, _ = open_ledger(settings, opened)
        work = open_work(settings, store, ledger).work
        for number in range(releases):
            left = work.slots_left
            assert left is not None
            part = rows[work.slots : work.slots + left]
            work.learn(RecordBatch(part))
            work.release()
            if save and number < releases - 1:
                captured = work.capture(store, {})
                assert captured is not None
                store.write(captured)


def taken_up(folder: Path, stream: str) -> Restored:
    with ExitStack() as opened:
        settings = private(folder, stream)
        store = opened.enter_context(Checkpoints.open(settings["checkpoint.folder"]))
        ledger, _ = open_ledger(settings, opened)
        return open_work(settings, store, ledger)


def test_a_release_behind_the_checkpoint_is_passed(tmp_path: Path) -> None:
    crash_behind_releases(tmp_path, "one", 4, save=True)
    found = taken_up(tmp_path, "one")
    # The last stage: it gives the topics, which nobody has seen yet.
    assert found.slots_to_skip == 120
    assert found.work.slots == 1000
    assert found.released is not None
    assert found.released.model is not None
    assert found.released.model.settings["places"] == 1000


def test_releases_of_other_streams_in_the_ledger_do_not_count(tmp_path: Path) -> None:
    crash_behind_releases(tmp_path, "one", 4, save=True)
    crash_behind_releases(tmp_path, "two", 1, save=False)
    found = taken_up(tmp_path, "two")
    assert found.slots_to_skip == 15
    assert found.work.slots == 15


def test_two_releases_without_a_checkpoint_are_refused(tmp_path: Path) -> None:
    crash_behind_releases(tmp_path, "one", 2, save=False)
    with pytest.raises(LedgerError, match="releases=2 and no checkpoint"):
        taken_up(tmp_path, "one")
