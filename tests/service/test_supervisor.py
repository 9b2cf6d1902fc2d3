"""What systemd is told, over a real datagram socket."""

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlda.service.supervisor import Supervisor


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


def test_states_arrive(manager: socket.socket) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": manager.getsockname()})
    supervisor.ready()
    supervisor.alive()
    supervisor.stopping()
    wanted = [f"READY=1\nMAINPID={os.getpid()}".encode(), b"WATCHDOG=1", b"STOPPING=1"]
    assert [manager.recv(100) for _ in wanted] == wanted


def test_an_abstract_name_is_written_with_an_at_sign() -> None:
    name = f"streamlda-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(10)
        Supervisor({"NOTIFY_SOCKET": "@" + name}).alive()
        assert receiver.recv(100) == b"WATCHDOG=1"


def test_nothing_is_sent_without_a_supervisor(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor({})
    supervisor.ready()
    supervisor.stopping()
    assert not caplog.records


def test_a_supervisor_that_is_gone_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    for _ in range(3):
        supervisor.alive()
    assert [record.getMessage() for record in caplog.records] == ["supervisor-away"]


def test_a_supervisor_that_does_not_read_holds_nothing_up(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": manager.getsockname()})
    with caplog.at_level(logging.DEBUG, "streamlda.service"):
        sent = 0
        while not caplog.records:
            supervisor.alive()
            sent += 1
            assert sent < 100_000, "the queue of a datagram socket is bounded"
    assert caplog.records[0].getMessage() == "supervisor-busy"
    # Once it reads again, it hears again.
    for _ in range(sent - 1):
        manager.recv(100)
    supervisor.stopping()
    assert manager.recv(100) == b"STOPPING=1"
