"""Sources that go away and full disks: they are waited for, and nothing is lost."""

import json
import re
import resource
import signal

import pytest

from tests.kafka.broker import free_ports
from tests.kafka.topics import wait_until
from tests.service.daemon_process import (
    Daemon,
    left_by,
    run_to_end,
    settings_of,
    texts,
    write_documents,
)
from tests.service.long_stream import answer_of, not_ready

FOLLOWED = {"source.kind": "follow", "source.stream": "followed", "snapshots.most": 3}
FOLLOWED |= {"snapshots.when_exhausted": "stop", "checkpoint.interval": "1 h"}


def followed(folder, **more):
    """Return settings of a daemon that ends behind 12,000 documents of a file."""
    source = folder / "documents.jsonl"
    return settings_of(folder, source, FOLLOWED | more, snapshots__every=4000)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("followed")
    write_documents(folder / "documents.jsonl", texts(12_000))
    run_to_end(followed(folder))
    return left_by(folder)


@pytest.fixture
def full(tmp_path):
    """Return what fills the folder of snapshots of a daemon, and what gives it room again.

    In its place there is one in which nobody can write.
    """
    folder, aside, documents = tmp_path / "snapshots", tmp_path / "aside", texts(12_000)

    def fill(daemon):
        daemon.wait_for("http")
        wait_until(folder.exists)
        folder.rename(aside)
        folder.symlink_to("/proc")
        with (tmp_path / "documents.jsonl").open("ab", 0) as file:
            file.write(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in documents))
        daemon.wait_for("output-failed", 2)

    def room():
        folder.unlink()
        aside.rename(folder)

    write_documents(tmp_path / "documents.jsonl", [])
    return fill, room


@pytest.mark.long
def test_killed_while_its_output_folder_is_full_a_daemon_loses_nothing(tmp_path, full, undisturbed):
    (port,) = free_ports(1)
    settings, (fill, room) = followed(tmp_path, **{"http.port": port}), full
    with Daemon(settings) as daemon:
        fill(daemon)
        assert answer_of(port, "/livez")["alive"]
        assert re.fullmatch(r"output stalled since \S+: ENOENT", not_ready(port))
        daemon.process.kill()
        assert daemon.end() == -signal.SIGKILL
    room()
    run_to_end(settings)
    left = left_by(tmp_path)
    assert (left.state, left.snapshots) == (undisturbed.state, undisturbed.snapshots)


@pytest.mark.long
def test_a_folder_that_cannot_be_written_at_the_start_is_waited_for(tmp_path, undisturbed):
    write_documents(tmp_path / "documents.jsonl", texts(12_000))
    (port,) = free_ports(1)
    room = resource.RLIM_INFINITY

    def limit():
        # Room for a lock, and not for an index.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, room))

    with Daemon(followed(tmp_path, **{"http.port": port}), preexec_fn=limit) as daemon:
        daemon.wait_for("open-failed", 2)
        assert answer_of(port, "/livez")["alive"]
        assert re.search(r"\bcheckpoint stalled since \S+: (SQLITE|E)\w+", not_ready(port))
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (room, room))
        assert daemon.end() == 0
    assert [line["what"] for line in daemon.events("recovered")] == ["checkpoint"]
    left = left_by(tmp_path)
    assert (left.state, left.snapshots) == (undisturbed.state, undisturbed.snapshots)
