"""From settings to the parts of a run that touch the outside."""

import pytest

from streamlda.run.parts import (
    connect_by,
    name_published_stream,
    name_stream,
)
from streamlda.settings.build import make_analyzer, public_words
from streamlda.settings.load import load_settings

KAFKA = {"kafka.bootstrap": "localhost:9", "kafka.topic": "news"}


def loaded(flags):
    return load_settings(environment={}, flags=flags)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({**KAFKA, "kafka.partitions": "0,2"}, "kafka:news/0,2"),
        ({**KAFKA, "source.stream": "mine"}, "mine"),
        ({"source.files": ["/a/../b", "s3://c/d"]}, "/b s3://c/d"),
        ({"source.files": ["-"]}, "stdin"),
    ],
)
def test_a_stream_has_a_name(flags, name):
    assert name_stream(loaded(flags)) == name


PRIVATE = {"privacy.epsilon": 1.0, "privacy.delta": 1e-6, "privacy.ledger": "/l"}
PRIVATE |= {"vocabulary.file": "/w", "snapshots.every": 500}


def test_private_models_do_not_tell_where_files_lie():
    def named(*files, **more):
        return name_published_stream(loaded({"source.files": list(files), **PRIVATE, **more}))

    one, other = named("/north/a.jsonl"), named("/south/a.jsonl")
    assert one != other
    assert one.partition(", ")[0] == other.partition(", ")[0] == "a.jsonl"
    assert named("https://host/b.jsonl?key=canary").startswith("b.jsonl, ")
    many = named(*(f"/north/{number}.jsonl" for number in range(1000)))
    assert many.startswith("0.jsonl and 999 more, ")
    assert named("/north", **{"source.kind": "follow"}).startswith("north, ")
    assert named("/north/a.jsonl", **{"source.stream": "mine"}) == "mine"
    assert name_published_stream(loaded({"source.files": ["/north/a.jsonl"]})) == "/north/a.jsonl"


def test_secrets_are_named_and_not_read(tmp_path):
    flags = {**KAFKA, "kafka.protocol": "SASL_SSL", "kafka.mechanism": "PLAIN"}
    flags["kafka.username"] = "reader"
    file = str(tmp_path / "absent")
    found = connect_by(loaded({**flags, "kafka.password_file": file}).kafka)
    assert (found["password_file"], found["username"]) == (file, "reader")
    variable = {"STREAMLDA_KAFKA_PASSWORD": "canary"}
    found = connect_by(load_settings(environment=variable, flags=flags).kafka)
    assert found["password_env"] == "STREAMLDA_KAFKA_PASSWORD"
    assert "canary" not in str(found)


def test_words_are_split_and_found_as_the_settings_say(tmp_path):
    (tmp_path / "stop").write_text("news\n")
    for flag, wanted in (
        ({"vocabulary.token_pattern": "[a-z0-9]+"}, ["b2b", "news"]),
        ({"vocabulary.stop_words": "none"}, ["the", "b2b", "news"]),
        ({"vocabulary.stop_words": str(tmp_path / "stop")}, ["the", "b2b"]),
    ):
        words = loaded({**KAFKA, **flag}).vocabulary
        assert make_analyzer(words).build_analyzer()("the b2b news") == wanted
    given = {"vocabulary.file": str(tmp_path / "stop")}
    for flag, n_features in ((given, 1), ({"vocabulary.hash_bits": 4}, 16)):
        assert public_words(loaded({**KAFKA, **flag})).n_features == n_features
    assert public_words(loaded({**KAFKA, "vocabulary.kind": "learned"})) is None
