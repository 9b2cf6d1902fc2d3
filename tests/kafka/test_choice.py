"""Which broker is taken, and that no run is silent about tests that it could not do."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cache import FORGET_SECONDS, remember_failure, remembered_failure
from tests.kafka.broker import Kfake
from tests.kafka.choice import Choice, NotReadyError, choose
from tests.kafka.jars import BrokerUnavailable, jars_folder, kafka_jars, kafka_version
from tests.kafka.kfake.build import installed_go, kfake_path
from tests.kafka.topics import Topics

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


def test_maven_that_fails_runs_once_a_day(programs, cache):
    add_java(programs)
    add(programs, "mvn", f"echo run >>{cache}/runs; echo no such host; exit 1")
    with pytest.raises(NotReadyError):
        choose(fetch=False, cache=cache)
    for _ in range(2):
        assert "no such host" in choose(fetch=True, cache=cache).why
    assert (cache / "runs").read_text() == "run\n"
    old = time.time() - FORGET_SECONDS - 10
    os.utime(cache / "failed-kafka", (old, old))
    choose(fetch=True, cache=cache)
    assert (cache / "runs").read_text() == "run\n" * 2
    remember_failure(cache, "one", "no network")
    assert remembered_failure(cache, "one").startswith("no network (it is tried again")
    assert remembered_failure(cache, "other") is None


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


TESTS = """
import pytest

def test_plain():
    pass

@pytest.mark.real_broker
def test_marked():
    pass

def test_takes_the_broker(broker):
    pass

def test_takes_it_by_another(own_topics):
    pass
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")])
def test_a_run_says_what_it_could_not_do(workers, tmp_path, cache):
    (tmp_path / "test_some.py").write_text(TESTS)
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    environment |= {"STREAMLDA_TEST_BROKER": "kfake", "STREAMLDA_TEST_CACHE": str(cache)}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "tests.kafka.fixtures"]
    command = [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", *workers]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    (first, last) = (line for line in lines if line.startswith("kafka broker: "))
    why = "kafka broker: kfake, because STREAMLDA_TEST_BROKER=kfake"
    assert (first, last) == (why, f"{why}; 3 of the 3 tests for it left out")
    assert lines.index(first) <= 3
    assert lines.index(last) == len(lines) - 2
    assert "1 passed" in lines[-1]
    assert ("3 deselected" in lines[-1]) is not bool(workers)


@pytest.mark.real_broker
def test_altered_jars_are_refused(tmp_path):
    jars = kafka_jars()
    copy = tmp_path / jars.name
    shutil.copytree(jars, copy, copy_function=os.symlink)
    altered, missing, *_ = sorted(copy.iterdir())
    altered.unlink()
    altered.write_bytes(b"something else")
    missing.unlink()
    (copy / "extra.jar").write_bytes(b"")
    with pytest.raises(BrokerUnavailable, match=f"{altered.name}.*{missing.name}.*extra.jar"):
        kafka_jars(tmp_path)


@pytest.mark.soak
def test_kfake_is_built_and_serves(tmp_path, topic, monkeypatch):
    """Fetches Go modules, and Go itself where it is missing."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("STREAMLDA_TEST_CACHE", str(cache))
    (tmp_path / "broker").mkdir()
    broker = Kfake(tmp_path / "broker")
    assert sorted(path.name for path in cache.iterdir()) == [kfake_path(cache).name, "lock"]
    broker.start()
    topics = Topics(broker.bootstrap)
    try:
        topics.make(topic)
        assert topics.send(topic, [b"one", b"two"]) == [0, 1]
    finally:
        topics.close()
        broker.remove()
