"""The console lines of the page on clusters: what they start, started on this machine."""

import json
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed.cli.dask_ssh import main as dask_ssh

from streamlda.model.topic_model import load
from streamlda.simulate import PlantedLDA
from tests.kafka.broker import free_ports
from tests.scaleout.conftest import wait_until

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "streamlda/docs/howto/cluster.md").read_text("utf-8")
DASK = [sys.executable, "-m", "dask"]


def lines(program):
    """Return the lines of the page that begin so, as words."""
    shown = re.findall(rf"(?m)^\$ ({program} .*)$", PAGE)
    return [shlex.split(line) for line in shown]


@contextmanager
def started(command, folder, log):
    """Run a program of Dask, whose output goes to a file; end it by SIGTERM."""
    with (folder / log).open("wb") as output:
        process = subprocess.Popen([*DASK, *command], cwd=folder, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def test_what_the_lines_for_ssh_start_fits_the_files_of_a_folder(tmp_path):
    """`dask ssh` starts these two programs, with these options, on the machines it is given."""
    (ssh,), (fit, *_) = lines("dask ssh"), lines("streamlda fit")
    asked = dask_ssh.make_context("dask ssh", ssh[2:]).params
    host, port = asked["hostnames"][0], free_ports(1)[0]
    assert fit[fit.index("--dask") + 1] == f"tcp://{host}:{asked['scheduler_port']}"
    address = f"tcp://127.0.0.1:{port}"
    usual = {f"tcp://{host}:{asked['scheduler_port']}": address, "/shared/articles/": "articles"}
    # 100 topics on 24 workers take more than a test has.
    given = [{**usual, "100": "3"}.get(word, word) for word in fit]

    (tmp_path / "articles").mkdir()
    letters = str.maketrans("0123456789", "abcdefghij")
    for name in "ab":
        with (tmp_path / f"articles/{name}.jsonl").open("w", encoding="ascii") as file:
            for text in PlantedLDA(3, 60, seed=ord(name)).texts(1500):
                file.write(json.dumps({"text": text.translate(letters)}) + "\n")
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    workers = ["worker", address, "--nworkers", "2", "--nthreads", str(asked["nthreads"])]
    with (
        started(scheduler, tmp_path, "scheduler"),
        started([*workers, "--host", "127.0.0.1", "--no-dashboard"], tmp_path, "workers"),
    ):
        wait_until(lambda: "Registered to" in (tmp_path / "workers").read_text())
        command = [sys.executable, "-W", "error", "-m", *given]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "articles.model").documents_seen == 3000


def test_the_scheduler_on_kubernetes_is_that_of_the_cluster_that_is_made():
    (make,), (_, fit) = lines("kubectl"), lines("streamlda fit")
    name = make[make.index("--name") + 1]
    assert fit[fit.index("--dask") + 1] == f"tcp://{name}-scheduler:8786"
