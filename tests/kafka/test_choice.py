"""Which broker is taken, and that no run is silent about tests that it could not do."""

from pathlib import Path

import pytest

from tests.kafka.choice import Choice, NotReadyError, choose
from tests.kafka.jars import BrokerUnavailable, jars_folder, kafka_version
from tests.kafka.kfake.build import installed_go, kfake_path

ROOT = Path(__file__).parents[2]
VARIABLES = ("STREAMLDA_KAFKA_BOOTSTRAP", "STREAMLDA_TEST_BROKER")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The only folder in which programs are found; empty."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path):
    """A cache in which kfake is, and Kafka is not."""
    cache = tmp_path / "cache"
    cache.mkdir()
    kfake_path(cache).write_bytes(b"")
    return cache


def add(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def add_java(folder, version="17.0.15"):
    add(folder, "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def test_kfake_is_taken_where_something_is_missing_for_kafka_and_why(programs, cache):
    def chosen():
        return choose(fetch=False, cache=cache)

    assert "got no program=java; install" in chosen().why
    add_java(programs)
    choice = choose(fetch=True, cache=cache)
    assert choice.kind == "kfake"
    assert "got no program=mvn; install" in choice.why
    jars_folder(cache).mkdir()
    assert chosen() == Choice("apache")
    assert kafka_version() in str(chosen())
    for version, old in {"11.0.2": 1, "1.8.0_392": 1, "nonsense": 1, "17": 0, "25-ea": 0}.items():
        add_java(programs, version)
        assert chosen().kind == ("kfake" if old else "apache")
        assert ("Java must be 17 or newer, got program=" in str(chosen())) == old


def test_neither_broker_says_both_reasons(programs, cache):
    kfake_path(cache).unlink()
    go = "[ $1 = version ] && echo go version go1.26.0 x/y && exit; echo offline; false"
    add(programs, "go", go)
    choice = choose(fetch=True, cache=cache)
    assert choice.kind is None
    for part in ("program=java", "Go must be able to build kfake, got rc=1: offline"):
        assert part in choice.why
    assert choice.runs(needs_real=True, needs_own=True)
    with pytest.raises(NotReadyError):
        choose(fetch=False, cache=cache)
    for version, taken in {"go1.25.9": False, "go1.26.0": True, "go2.0": True}.items():
        add(programs, "go", f"echo go version {version} linux/amd64")
        assert installed_go() == (str(programs / "go") if taken else None)


def test_it_can_be_forced(programs, cache, monkeypatch):
    monkeypatch.setenv("STREAMLDA_TEST_BROKER", "apache")
    assert choose(fetch=False, cache=cache) == Choice("apache")
    add_java(programs)
    jars_folder(cache).mkdir()
    monkeypatch.setenv("STREAMLDA_TEST_BROKER", "kfake")
    assert choose(fetch=False, cache=cache).kind == "kfake"
    monkeypatch.setenv("STREAMLDA_TEST_BROKER", "Apache")
    with pytest.raises(BrokerUnavailable, match="must be apache or kfake, got 'Apache'"):
        choose(fetch=False, cache=cache)


def test_what_runs_on_what():
    kinds = [(False, False), (True, False), (True, True)]
    for choice, expected in (
        (Choice("apache"), [True, True, True]),
        (Choice("kfake", "why"), [True, False, False]),
        (Choice("kfake", "why", given="host:9092"), [True, True, False]),
    ):
        assert [choice.runs(needs_real=real, needs_own=own) for real, own in kinds] == expected
