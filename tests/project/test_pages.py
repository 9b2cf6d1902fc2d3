"""Commands of the pages run as they stand; the documentation builds without a warning.

Of a page, the blocks of shell and Python run in their order in one folder, which has the files that
pages name: those of `files`. Settings (TOML) are checked as the daemon checks them. Of what needs
more than this machine (``console``), commands, options and targets of make exist.
"""

import csv
import json
import mailbox
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import click
import pytest

from streamlda.cli import commands as group
from streamlda.simulate import PlantedLDA
from streamlda.stream.source import open_source
from tests.cli.conftest import LETTERS
from tests.http_server import AnsweringServer
from tests.service.daemon_process import write_documents

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "streamlda" / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(sh|python|toml|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)

#: What a browser would fetch from elsewhere.
FETCHED = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="https?://')

#: Lines of the console that other tests run: `pip` in `test_packaging.py`; daemons, the token of
#: containers, and the route of `curl` in `tests/service`.
RUN_ELSEWHERE = {"pip", "curl", "cd", "(umask"}

#: What is in the block of the privacy page that `test_docs.py` runs, and compares with the page.
RUN_IN_DOCS = "--ledger planted.ledger"

#: Programs of containers and clusters, which a test has not. What Docker starts is run in
#: `test_packaging.py`.
NEED_MORE_MACHINES = {"docker", "dask", "helm", "kubectl"}

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

CHINESE = ["我们今天去市场买菜和水果", "科学家研究新的材料和能源", "孩子们在学校学习语文和数学"]


@pytest.fixture(scope="module")
def texts():
    return open_source("docstrings").poll(2000, timeout_seconds=60).documents


@pytest.fixture
def folder(tmp_path, texts):
    parts = {
        "articles": texts,
        "held-out": texts[::5],
        "january": texts[:1000],
        "february": texts[1000:],
        "chinese": CHINESE * 50,
    }
    for name, part in parts.items():
        write_documents(tmp_path / f"{name}.jsonl", part)
    with closing(mailbox.mbox(tmp_path / "mail.mbox")) as box:
        box.add("Subject: one\nMessage-ID: <1@a>\n\ntext\n")
    for name, part in {"reviews": texts[:1000], "more": texts[1000:1100]}.items():
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("id", "text", "date", "rating"))
            rows = ((n, text, f"2024/{1 + n % 12}/5", 1 + n % 5) for n, text in enumerate(part))
            writer.writerows(rows)
    write_news(tmp_path / "NewsArticles.csv", texts[:600])
    return tmp_path


def write_news(path, texts):
    """Write a table as Excel writes it: a mark, carriage returns, its dates and blank cells."""
    subjects = ("russia moscow minister", "film actor award", "goal team player", "oil gas energy")
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("article_id", "publish_date", "article_source_link", "title", "text"))
        for n, text in enumerate(texts):
            day = f"2017/{1 + n % 4}/7" if n % 3 else "2016/12/30 7:11" if n % 9 else ""
            text = f"{text} {subjects[n % 4]}" if n % 20 else ""
            rows.writerow(
                (n, day, f"http://www.site{n % 3}.com/a", f"Title {n}" * (n % 7 > 0), text)
            )


@pytest.fixture(scope="module")
def planted():
    """Documents of two sites, more than a window of 40,000 has; words are of letters."""
    return [text.translate(LETTERS) for text in PlantedLDA(3, 100, seed=0).texts(44_000)]


def environment(folder):
    found = {name: value for name, value in os.environ.items() if not name.startswith("STREAMLDA")}
    found["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), found["PATH"]))
    return found | {"HOME": str(folder), "PYTHONWARNINGS": "error"}


def run(command, folder):
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def check_settings(text, folder):
    if "project" in tomllib.loads(text):
        return
    (folder / "streamlda.toml").write_text(text, "utf-8")
    run(["streamlda", "run", "--config", "streamlda.toml", "--check"], folder)


def check_exists(line):
    name, *rest = line.split()[1:]
    command = group.get_command(click.Context(group), name)
    assert command is not None, line
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in rest if word.startswith("-")} <= known, line


def check_console(line):
    """Check a line of which this machine cannot run all: what it needs is here, or named."""
    program, target = shlex.split(line, comments=True)[:2]
    if program == "streamlda":
        check_exists(line)
    elif program == "make":
        assert re.search(rf"(?m)^{target}:|^\.PHONY:.* {target}\b", MAKEFILE), line
    else:
        assert program in RUN_ELSEWHERE | NEED_MORE_MACHINES, line


@pytest.fixture(scope="module")
def language_model():
    def respond(request, body):
        assert "Words: " in json.loads(body)["prompt"]
        return 200, {"response": "A subject\n"}

    with AnsweringServer(respond) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_tells_to_run_runs(page, folder, language_model, request):
    if page.name == "sites.md":
        documents = request.getfixturevalue("planted")
        words = sorted({word for text in documents[:2000] for word in text.split()})
        (folder / "words.txt").write_text("\n".join(words) + "\n", "utf-8")
        write_documents(folder / "north.jsonl", documents[::2])
        write_documents(folder / "south.jsonl", documents[1::2])
    for language, text in BLOCK.findall(page.read_text("utf-8")):
        text = text.replace("localhost:11434", language_model)
        if language == "sh" and not text.startswith("pip install") and RUN_IN_DOCS not in text:
            run(["bash", "-euo", "pipefail", "-c", text], folder)
        elif language == "python":
            run(["python", "-c", text], folder)
        elif language == "toml":
            check_settings(text, folder)
        elif language == "console":
            for line in text.splitlines():
                if line.startswith("$ "):
                    check_console(line.removeprefix("$ "))


def test_the_documentation_builds_without_warnings_and_loads_nothing(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(DOCS)]
    # Warnings of Sphinx are errors by -W; those of the packages that it stands on are theirs.
    done = subprocess.run(
        [*command, str(ROOT), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(tmp_path) | {"PYTHONWARNINGS": "default", "PIP_NO_INDEX": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        assert not FETCHED.search(page.read_text("utf-8")), page
    tutorial = (tmp_path / "html/streamlda/docs/tutorial.html").read_text("utf-8")
    assert "without topics" in tutorial
