"""A cluster that cannot be reached, does not fit or is lost: one clear message, and an end."""

import contextlib
import json
import logging
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

from streamlda.errors import (
    InvalidDocumentsError,
    MissingExtraError,
    SourceError,
    StreamLDAError,
)
from streamlda.scaleout import cluster as cluster_module
from streamlda.scaleout import connect, learn, of_partitions
from streamlda.scaleout.cluster import ClusterError, Given, Run, check_cluster
from streamlda.text.vocabulary import Vocabulary

SECONDS = 60


@contextlib.contextmanager
def scheduler_alone():
    """Start a scheduler without workers."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as started:
        yield started.scheduler_address


@contextlib.contextmanager
def program(name, *arguments, **options):
    """Run a program of Dask in a process of its own, and end it."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{name}", *arguments]
    command += ["--host", "127.0.0.1", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, **quiet, **options)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def worker_of(address, **options):
    """Run a worker that nobody starts again."""
    return program("worker", address, "--nthreads", "1", "--no-nanny", **options)


def test_a_scheduler_that_does_not_answer_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        start = time.monotonic()
        threads = {thread for thread in threading.enumerate() if thread.name == "IO loop"}
        wanted = pytest.raises(ClusterError, match=re.escape(f"address='{address}' seconds=0.5"))
        with wanted, connect(address, timeout_seconds=0.5):
            raise AssertionError
    assert time.monotonic() - start < 30
    # What was begun is ended here, and not at some later time in some other thread.
    assert threads == {thread for thread in threading.enumerate() if thread.name == "IO loop"}


@pytest.mark.parametrize("address", ["nonsense://x", "tcp://127.0.0.1:notaport"])
def test_an_address_that_is_none_is_named(address):
    with pytest.raises(ClusterError, match=re.escape(address)), connect(address):
        raise AssertionError


def test_a_cluster_error_is_one_that_the_command_line_shows():
    assert issubclass(ClusterError, SourceError)
    assert issubclass(ClusterError, StreamLDAError)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cluster_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"streamlda\[dask\]"), connect("tcp://x:1"):
        raise AssertionError


def test_a_cluster_without_workers_is_refused():
    wanted = pytest.raises(ClusterError, match=r"workers=0 seconds=0\.3")
    with scheduler_alone() as address, Client(address, set_as_default=False) as client, wanted:
        check_cluster(client, 0.3)


def test_a_worker_of_another_version_is_refused(tmp_path):
    """A real worker that finds another streamlda installed, by its metadata."""
    about = tmp_path / "streamlda-0.0.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: streamlda\nVersion: 0.0.7\n")
    wanted = pytest.raises(ClusterError, match=r"got streamlda=.* there=0\.0\.7; install the same")
    # The folder that a module is run from comes first on its path.
    with (
        scheduler_alone() as address,
        worker_of(address, cwd=tmp_path),
        wanted,
        connect(address, timeout_seconds=SECONDS),
    ):
        raise AssertionError


def end_process():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_ends_its_workers_is_an_error_at_last():
    with (
        scheduler_alone() as address,
        worker_of(address),
        connect(address, timeout_seconds=SECONDS) as client,
    ):
        client.run_on_scheduler(allow_no_failure)
        run = Run(client)
        with pytest.raises(ClusterError, match=r"task=streamlda-bad-.* workers lost=1"):
            run.compute(run.task("bad", end_process))


def allow_no_failure(dask_scheduler):
    dask_scheduler.allowed_failures = 0


def wait_for_the_end(folder):
    (folder / "begun").touch()
    deadline = time.monotonic() + SECONDS
    while not (folder / "end").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_workers_that_all_go_away_end_the_wait(tmp_path):
    with (
        scheduler_alone() as address,
        worker_of(address) as worker,
        connect(address, timeout_seconds=SECONDS) as client,
    ):
        run = Run(client, patience_seconds=1.0)
        small, long = run.task("small", int), run.task("long", wait_for_the_end, tmp_path)
        with pytest.raises(ClusterError, match=r"workers=0 seconds=1"):
            run.compute(long, [small], lambda _: worker.kill())


def test_a_lost_scheduler_ends_the_wait(tmp_path):
    file = tmp_path / "file"
    with program("scheduler", "--port", "0", "--scheduler-file", str(file)) as scheduler:
        deadline = time.monotonic() + SECONDS
        while not file.exists() or not file.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        with worker_of(address), connect(address, timeout_seconds=SECONDS) as client:
            run = Run(client)
            small, long = run.task("small", int), run.task("long", wait_for_the_end, tmp_path)
            with pytest.raises(ClusterError, match="scheduler must stay"):
                run.compute(long, [small], lambda _: scheduler.kill())


def fail(text):
    raise SourceError("a rule, got name=1; do this")


def test_an_error_of_a_task_comes_back_as_it_is_and_cancels_the_rest(client, tmp_path):
    run = Run(client)
    tasks = [run.task("long", wait_for_the_end, tmp_path)]
    tasks += [run.task("fail", fail, run.given("secret words"))]
    start = time.monotonic()
    with pytest.raises(SourceError, match="a rule, got name=1; do this") as caught:
        run.compute(run.tree("join", max, tasks))
    wanted = client.run_on_scheduler(wanted_tasks)
    (tmp_path / "end").touch()
    assert wanted == []
    assert time.monotonic() - start < SECONDS / 2
    assert "secret" not in str(caught.value)


def wanted_tasks(dask_scheduler):
    return [key for key, task in dask_scheduler.tasks.items() if task.who_wants]


def test_logs_of_a_task_that_fails_hold_no_text(settings):
    texts = ["secret words of a document"] * 5
    with (
        scheduler_alone() as address,
        worker_of(address),
        connect(address, timeout_seconds=SECONDS) as client,
    ):
        with pytest.raises(InvalidDocumentsError, match="got type='list'") as caught:
            learn(client, of_partitions([texts, [*texts, 1]]), settings, Vocabulary.hashed(6))
        logs = str(client.get_worker_logs())
    assert "Compute Failed" in logs
    assert "secret" not in logs + str(caught.value)


def test_what_is_given_shows_nowhere():
    assert "secret" not in repr(Given(["secret words"]))


@pytest.mark.parametrize(("n", "joins"), [(1, 0), (2, 1), (5, 2), (17, 6)])
def test_a_tree_joins_neighbours_in_order(client, n, joins):
    run = Run(client)
    leaves = [run.task("leaf", tuple, [i]) for i in range(n)]
    tree = run.tree("join", join, leaves)
    assert run.compute(tree) == tuple(range(n))
    assert len(tree.dask) == n + joins


def join(*parts):
    return tuple(value for part in parts for value in part)
