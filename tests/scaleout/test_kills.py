"""Fits of the command line on a cluster of processes, each of which is killed at random moments."""

import contextlib
import random
import signal
import subprocess
import time

import numpy as np
import pytest

from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from tests.kafka.broker import free_ports
from tests.scaleout.test_cluster import program
from tests.service.daemon_process import STREAMLDA, environment, texts, write_documents

VICTIMS = ("client", "scheduler", "workers")
WAYS = {
    "topics": "--set checkpoint.folder=c",
    "private": "--set vocabulary.hash_bits=5 --epsilon 12 --delta 1e-3 --snapshot-every 9000 "
    "--ledger L",
}
FILES, EACH, SECONDS = 6, 4000, 240


@contextlib.contextmanager
def processes(port):
    address = f"tcp://127.0.0.1:{port}"
    with contextlib.ExitStack() as opened:
        scheduler = opened.enter_context(program("scheduler", "--port", str(port)))
        given = (address, "--nthreads", "1", "--no-nanny", "--memory-limit", "0")
        workers = [opened.enter_context(program("worker", *given)) for _ in range(2)]
        yield {"scheduler": [scheduler], "workers": workers}


def fit_of(folder, data, way, port):
    """Start the fit; a second time, in this folder, it is the same command."""
    how = f"--topics 3 --set cluster.shards={FILES} --output m --quiet {WAYS[way]}"
    command = [*STREAMLDA, "fit", data, *how.split(), "--dask", f"tcp://127.0.0.1:{port}"]
    folder.mkdir(exist_ok=True)
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            [*map(str, command)], cwd=folder, env=environment(), stdout=said, stderr=said
        )


def ended(folder, fit):
    code = fit.wait(timeout=SECONDS)
    assert code == 0, (folder / "said").read_text("utf-8")[-2000:]


def releases(folder):
    return {path.name: path.read_bytes() for path in folder.glob("L.releases/*")}


def undisturbed(folder, data, way):
    """Return the model of a fit that nothing happens to, and how long it took."""
    (port,) = free_ports(1)
    with processes(port):
        begin = time.monotonic()
        ended(folder, fit_of(folder, data, way, port))
        return load(folder / "m"), time.monotonic() - begin


def disturbed(folder, data, way, victim, seconds):
    """Kill after some seconds, start again what is gone, and return what was paid by then."""
    (port,) = free_ports(1)
    with processes(port) as running:
        fit = fit_of(folder, data, way, port)
        with contextlib.suppress(subprocess.TimeoutExpired):
            fit.wait(timeout=seconds)
        for lost in [fit] if victim == "client" else running[victim]:
            lost.send_signal(signal.SIGKILL)
        if victim == "workers":
            paid = releases(folder)
            given = (f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny")
            with program("worker", *given, "--memory-limit", "0"):
                ended(folder, fit)
            return paid
        fit.wait(timeout=SECONDS)
    paid, published = releases(folder), (folder / "m").exists()
    with processes(port):
        again = fit_of(folder, data, way, port)
        if published and way == "private":
            # The fit was over before, and what it paid for is spent.
            assert again.wait(timeout=SECONDS) == 78
        else:
            ended(folder, again)
    return paid


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
def test_a_campaign_of_kills_changes_no_topics_and_pays_nothing_twice(tmp_path, way):
    """Fifteen kills of each kind of fit, at moments from its start to its end."""
    data, draw = tmp_path / "data", random.Random(11)
    data.mkdir()
    documents = texts(FILES * EACH)
    for n in range(FILES):
        write_documents(data / f"{n}.jsonl", documents[n * EACH : (n + 1) * EACH])
    whole, seconds = undisturbed(tmp_path / "whole", data, way)
    for trial in range(15):
        folder, victim = tmp_path / f"{trial}", VICTIMS[trial % len(VICTIMS)]
        paid = disturbed(folder, data, way, victim, draw.uniform(0.2, 0.95) * seconds)
        found = load(folder / "m")
        assert found.documents_seen == whole.documents_seen
        if way == "topics":
            np.testing.assert_array_equal(found.components, whole.components)
            continue
        charged, wanted = (read_report(tmp_path / name / "L") for name in (folder, "whole"))
        assert charged["generation"] == wanted["generation"]
        now = releases(folder)
        assert now.keys() == releases(tmp_path / "whole").keys()
        assert {name: now[name] for name in paid} == paid
