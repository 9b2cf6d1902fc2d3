"""Lines of pages for operators, run as they stand but for addresses, until the page is open."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streamlda.simulate import PlantedLDA
from tests.kafka.broker import free_ports
from tests.kafka.topics import wait_until
from tests.service.daemon_process import environment

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "documents"
#: A snapshot is due after 20,000.
N_DOCUMENTS = 21_000


def blocks(page, language):
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page):
    """Return the lines of a page that start a daemon, or ask it."""
    lines = "".join(blocks(page, "console")).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith(("$ streamlda", "$ curl"))]


def documents(n):
    """Return records of JSON; words are of letters, since numbers are no words."""
    letters = str.maketrans("0123456789", "abcdefghij")
    texts = PlantedLDA(3, 60, mean_length=15, seed=0).texts(n)
    return [json.dumps({"text": text.translate(letters)}).encode() for text in texts]


@pytest.fixture(scope="module")
def filled(own_topics):
    own_topics.fill(TOPIC, documents(N_DOCUMENTS))
    yield own_topics.bootstrap
    own_topics.admin.delete_topics([TOPIC])


@contextmanager
def running(command, folder, **variables):
    """Run a line of shell as a service manager would, and end it by SIGTERM."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment(PATH=path, **variables),
            stderr=log,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (folder / "log").read_text()
        finally:
            process.kill()
            process.wait(30)


def wait_for_topics(browser, address):
    """Open the page of a daemon, and wait until it shows topics; returns how many."""
    with closing(browser.new_page()) as page:
        page.goto(address)
        cards = page.locator("#cards .card")
        cards.first.wait_for(timeout=120_000)
        return cards.count()


def wait_for_page(port):
    def opens():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    wait_until(opens, 60)


def test_the_lines_of_the_readme_start_a_daemon_and_its_page_is_open(filled, tmp_path, browser):
    (run, *ask), settings = commands("README.md"), "".join(blocks("README.md", "toml"))
    (http,) = free_ports(1)
    for usual, ours in {"localhost:9092": filled, "localhost:8080": f"localhost:{http}"}.items():
        run, settings = run.replace(usual, ours), settings.replace(usual, ours)
        ask = [line.replace(usual, ours) for line in ask]
    (tmp_path / "streamlda.toml").write_text(settings, "utf-8")
    with running(run, tmp_path, STREAMLDA_HTTP_PORT=str(http)):
        wait_for_page(http)
        assert wait_for_topics(browser, f"http://localhost:{http}") > 0
        for line in ask:
            done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
            snapshot = json.loads(done.stdout)
            assert snapshot["number"] == 1
            assert snapshot["topics"][0]["words"]
    assert list((tmp_path / "snapshots").iterdir())
