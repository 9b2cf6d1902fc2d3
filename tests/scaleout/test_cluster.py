"""A cluster that cannot be reached, does not fit or is lost: one clear message, and an end."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from distributed import Client

from streamlda.errors import InvalidDocumentsError, MissingExtraError, SourceError
from streamlda.scaleout import cluster as cluster_module
from streamlda.scaleout import connect, learn_once, of_partitions
from streamlda.scaleout.cluster import Run, SentValue, check_cluster
from streamlda.scaleout.collections import current_client
from streamlda.scaleout.faults import ClusterError
from streamlda.text.vocabulary import Vocabulary
from tests.kafka.topics import wait_until
from tests.scaleout.conftest import SECONDS, cluster_of

pytestmark = pytest.mark.long


@contextlib.contextmanager
def program(name, *arguments, **options):
    command = [sys.executable, "-m", f"distributed.cli.dask_{name}", *arguments]
    command += ["--host", "127.0.0.1", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, **quiet, **options)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@contextlib.contextmanager
def worker_of(address, **options):
    """Run a worker that nobody starts again; yield a client, and the process of the worker."""
    arguments = (address, "--nthreads", "1", "--no-nanny")
    with (
        program("worker", *arguments, **options) as worker,
        connect(address, timeout_seconds=SECONDS) as client,
    ):
        yield client, worker


@pytest.fixture
def scheduler():
    with cluster_of(0) as started:
        yield started.scheduler_address


def refuses(message):
    return pytest.raises(ClusterError, match=message)


def test_a_scheduler_that_does_not_answer_is_named():
    def loops():
        return {thread for thread in threading.enumerate() if thread.name == "IO loop"}

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        start, before = time.monotonic(), loops()
        wanted = re.escape(f"address='{address}' seconds=0.5")
        with refuses(wanted), connect(address, timeout_seconds=0.5):
            raise AssertionError
    assert time.monotonic() - start < 60
    # What was begun is ended here, and not at some later time in some other thread.
    assert loops() <= before
    for none in ("nonsense://x", "tcp://127.0.0.1:notaport"):
        with refuses(re.escape(none)), connect(none):
            raise AssertionError


def test_a_program_that_is_no_scheduler_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            taken, _ = server.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        other = threading.Thread(target=answer)
        other.start()
        with refuses("does not answer"), connect(f"tcp://127.0.0.1:{server.getsockname()[1]}"):
            raise AssertionError
        other.join()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cluster_module, "find_spec", lambda name: None)
    missing = pytest.raises(MissingExtraError, match=r"extra dask")
    with missing, connect("tcp://x:1"):
        raise AssertionError
    with missing:
        current_client()


def test_no_worker_and_a_worker_of_another_version_are_refused(scheduler, tmp_path):
    """A real worker that finds another streamlda installed, by its metadata."""
    wanted = refuses(r"workers=0 seconds=0\.3")
    with Client(scheduler, set_as_default=False) as client, wanted:
        check_cluster(client, 0.3)
    about = tmp_path / "streamlda-0.0.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: streamlda\nVersion: 0.0.7\n")
    # The folder that a module is run from comes first on its path.
    wanted = refuses(r"streamlda=.* there=0\.0\.7'; install the same")
    with wanted, worker_of(scheduler, cwd=tmp_path):
        raise AssertionError


def end_process():
    os.kill(os.getpid(), signal.SIGKILL)


def end_process_while(folder):
    """End the worker as long as a file says so; a spot machine goes away so."""
    if (folder / "kills").exists():
        (folder / f"{time.monotonic_ns()}").touch()
        end_process()
    return 7


def allow_no_failure(dask_scheduler):
    dask_scheduler.allowed_failures = 0


def test_a_worker_that_is_killed_again_and_again_does_not_end_a_fit(scheduler, tmp_path):
    """Three times, where Dask gives a task up after one; results of others are reported once."""
    (tmp_path / "kills").touch()
    met = []

    def killing():
        wait_until(lambda: len([*tmp_path.iterdir()]) > 3)
        (tmp_path / "kills").unlink()

    with (
        program("worker", scheduler, "--nthreads", "1"),
        connect(scheduler, timeout_seconds=SECONDS) as client,
    ):
        client.run_on_scheduler(allow_no_failure)
        ended = threading.Thread(target=killing)
        ended.start()
        run = Run(client)
        lost = run.task("lost", end_process_while, tmp_path)
        root = run.tree("join", max, [lost, run.task("other", int)])
        found = run.compute([root, run.task("small", int)], met.append)
        ended.join()
    assert (found, sorted(met)) == ([7, 0], [0, 7])


@pytest.mark.parametrize(
    ("line", "message"),
    [("exceeded 95% memory budget", "lacks room.*memory"), ("", "ends its workers.*see")],
)
def test_a_task_that_ends_its_workers_is_an_error_at_last(scheduler, monkeypatch, line, message):
    monkeypatch.setattr(cluster_module, "MOST_LOSSES", 1)
    with worker_of(scheduler) as (client, _):
        monkeypatch.setattr(
            client, "get_worker_logs", lambda **_: {"a": [("WARNING", f"Worker x {line}")]}
        )
        client.run_on_scheduler(allow_no_failure)
        run = Run(client)
        with refuses(message):
            run.compute([run.task("bad", end_process)])


def wait_for_the_end(folder):
    deadline = time.monotonic() + SECONDS
    while not (folder / "end").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    (folder / "over").touch()


@pytest.mark.parametrize(
    ("victim", "message"), [("worker", "workers=0 seconds=1"), ("scheduler", "scheduler was lost")]
)
def test_a_loss_while_a_task_continues_ends_the_wait(tmp_path, victim, message):
    file = tmp_path / "file"
    with program("scheduler", "--port", "0", "--scheduler-file", str(file)) as scheduler:
        wait_until(lambda: file.exists() and file.read_text())
        with worker_of(json.loads(file.read_text())["address"]) as (client, worker):
            lost, run = {"worker": worker, "scheduler": scheduler}[victim], Run(client, 1.0)
            small, long = run.task("small", int), run.task("long", wait_for_the_end, tmp_path)
            with refuses(message):
                run.compute([long, small], lambda _: lost.kill())


def test_a_scheduler_that_is_lost_while_it_is_asked_is_said(client, tmp_path, monkeypatch):
    def raise_timeout():
        raise OSError("Timed out trying to connect to tcp://10.0.0.1:8786 after 10 s")

    monkeypatch.setattr(client, "nthreads", raise_timeout)
    run = Run(client)
    with refuses("the scheduler was lost, got problem='OSError'"):
        run.compute([run.task("long", wait_for_the_end, tmp_path)])
    (tmp_path / "end").touch()


def fail(text):
    raise SourceError("a rule, got name=1; do this")


def test_an_error_of_a_task_comes_back_as_it_is_and_cancels_the_rest(client, tmp_path):
    run = Run(client)
    tasks = [run.task("long", wait_for_the_end, tmp_path)]
    tasks += [run.task("fail", fail, run.send("words"))]
    with pytest.raises(SourceError, match="a rule, got name=1; do this"):
        run.compute([run.tree("join", max, tasks)])

    def wanted(dask_scheduler):
        return any(task.who_wants for task in dask_scheduler.tasks.values())

    wait_until(lambda: not client.run_on_scheduler(wanted))
    assert not (tmp_path / "over").exists()
    (tmp_path / "end").touch()


def test_logs_of_a_task_that_fails_hold_no_text(scheduler, settings):
    texts = ["secret words of a document"] * 5
    with worker_of(scheduler) as (client, _):
        wanted = "document=5 type='int'"
        with pytest.raises(InvalidDocumentsError, match=wanted) as caught:
            learn_once(client, of_partitions([texts, [*texts, 1]]), settings, Vocabulary.hashed(6))
        logs = str(client.get_worker_logs())
    assert "Compute Failed" in logs
    assert "secret" not in logs + str(caught.value) + repr(SentValue(texts))
