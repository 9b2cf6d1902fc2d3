"""``streamlda doctor``: what it finds here, in an environment that lacks a part, and of brokers."""

import os
import platform
import site
import socket
import subprocess
import sys
from contextlib import closing
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

from tests.cli.conftest import run

ROOT = Path(__file__).parents[2]


def read_doctor(*arguments, code=0):
    return read_lines(run("doctor", *arguments, code=code).stdout)


def read_lines(text):
    return {line[:18].rstrip(): line[18:] for line in text.splitlines()}


def process(*flags, arguments=(), code=0, **variables):
    command = [sys.executable, *flags, "-m", "streamlda", "doctor", *arguments]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return read_lines(done.stdout)


def test_it_names_versions_threads_caches_and_every_extra():
    shown = read_doctor()
    assert shown["streamlda"].startswith(f"{version('streamlda')}, ")
    assert shown["python"] == platform.python_version()
    assert shown["numba"] == version("numba")
    assert f" of {os.cpu_count()} processors" in shown["threads"]
    extras = set(metadata("streamlda").get_all("Provides-Extra")) - {"all"}
    assert {name for name in shown if name.startswith("extra ")} == {f"extra {e}" for e in extras}
    assert shown["extra kafka"] == f"kafka-python {version('kafka-python')}"
    assert "broker" not in shown


@pytest.mark.long
def test_an_extra_that_is_not_installed_is_no_fault_and_says_what_installs_it(tmp_path):
    """In an environment of the same packages but one."""
    for path in map(Path, site.getsitepackages()):
        for each in path.iterdir():
            if not each.name.startswith("cryptography"):
                (tmp_path / each.name).symlink_to(each)
    folders = map(str, (tmp_path, ROOT, ROOT / "connectors"))
    shown = process("-S", PYTHONPATH=os.pathsep.join(folders))
    assert shown["extra sites"] == "not installed: pip install 'cryptography>=44'"
    assert shown["extra kafka"].startswith("kafka-python ")


@pytest.mark.long
def test_brokers_that_do_not_answer_are_a_fault():
    with closing(socket.socket()) as bound:
        # Bound, and not listening: nobody else can answer there meanwhile.
        bound.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{bound.getsockname()[1]}"
        # A process of its own: kafka-python leaves refused sockets to the garbage collector, which
        # would find them in the tests of others.
        asked = ("--kafka-bootstrap", there, "--kafka-topic", "words")
        shown = process(arguments=asked, code=1)
    assert shown["broker"] == f"{there} cannot be reached: ECONNREFUSED"
    assert f"cannot be reached, got bootstrap_servers='{there}'" in shown["topic"]
    assert shown["login"] == "not known"


@pytest.mark.long
def test_a_topic_that_can_be_read_and_one_that_is_missing(topics, topic):
    asked = ("--kafka-bootstrap", topics.bootstrap, "--kafka-topic")
    topics.make(topic)
    assert read_doctor(*asked, topic)["topic"] == f"{topic} can be read"
    missing = f"{topic}-missing"
    shown = read_doctor(*asked, missing, code=1)
    assert f"topic='{missing}'" in shown["topic"]
    assert shown["broker"] == f"{topics.bootstrap} accepts connections"


@pytest.mark.long
def test_all_that_a_file_of_settings_connects_to_has_a_line(topics, topic, tmp_path):
    for name in (topic, f"{topic}-letters"):
        topics.make(name)
    config = tmp_path / "streamlda.toml"
    config.write_text(
        f'[kafka]\nbootstrap = "{topics.bootstrap}"\ntopic = "{topic}"\ngroup = "{topic}"\n'
        f'partitions = "group"\n[dead_letters]\ntopic = "{topic}-letters"\n'
    )
    shown = read_doctor("--config", config)
    assert shown["group"] == f"offsets of {topic} can be read"
    assert shown["dead letters"] == f"{topic}-letters can be written"
    assert shown["login"] == "PLAINTEXT, without a user"
