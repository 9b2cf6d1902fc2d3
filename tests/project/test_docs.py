"""Pages for users are true: commands, options, errors, names and examples."""

import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

import streamlda
import streamlda.estimator
from streamlda.cli import commands as group
from streamlda.privacy.ledger import read_report
from streamlda.settings.setting import RUN, show_value
from streamlda.settings.table import TABLE
from streamlda.utils.exit_codes import CONFIGURATION

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")


def commands():
    context = click.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def test_every_command_has_help_and_the_changelog_names_it():
    for name, command in commands().items():
        assert all(one.help for one in (command, *getattr(command, "commands", {}).values()))
        assert f"`{name}`" in CHANGELOG


PAGES = sorted(
    path for place in ("*.md", "streamlda/**/*.md", "*/*.md") for path in ROOT.glob(place)
)


def test_one_idea_has_one_word():
    glossary = (ROOT / "streamlda/docs/glossary.md").read_text("utf-8")
    pages = glossary.split("##")
    words, instead = (re.findall(r"^\| ([^|]+) \|", page, re.M)[2:] for page in pages)
    assert len(words) <= 40
    other = re.compile("|".join(rf"\b{word}\b" for row in instead for word in row.split(", ")))
    folders = ("streamlda", "connectors", "tests", "bench")
    files = {*ROOT.glob("*.md")}.union(
        *((ROOT / top).rglob(f"*.{end}") for top in folders for end in ("py", "md"))
    )
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        if path.name not in ("CHANGELOG.md", "glossary.md")
        for match in other.finditer(path.read_text("utf-8").replace("_", " "))
    }
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"(?m)^#+ (.+)$", target.read_text("utf-8").lower())
            anchors = {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
            assert anchor in anchors, link


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]
    assert streamlda.__version__ == version("streamlda") == project["version"]
    assert streamlda.__all__ == sorted(streamlda.__all__)


@pytest.mark.parametrize("page", ["privacy/attacks", "sites/README"])
def test_every_attack_that_a_page_names_has_its_tests(page):
    text = (ROOT / f"streamlda/{page}.md").read_text("utf-8")
    (table,) = re.findall(r"^\| attack \| result \| test \|\n((?:\|.*\n)+)", text, re.MULTILINE)
    _, *rows = re.findall(r"^\|(.*)\|$", table, re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        attack, result, tests = re.split(r"(?<!\\)\|", row)
        if attack.strip().startswith("**"):
            continue
        assert result.strip(), attack
        named = re.findall(r"`(?:([a-z_/]+)::)?(test_\w+)`", tests)
        assert named, attack
        assert tests.count("`") == 2 * len(named), attack
        path = ""
        for folder_and_file, name in named:
            path = folder_and_file or path
            source = (ROOT / f"tests/{path}.py").read_text("utf-8")
            assert f"\ndef {name}(" in source, (path, name)


@pytest.mark.long
def test_the_private_example_pays_for_one_window_and_shows_what_it_prints(tmp_path, monkeypatch):
    """Word by word, but for noise, times and names."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "streamlda/docs/howto/privacy.md").read_text("utf-8")
    (shell,) = (b for b in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "planted.ledger" in b)
    commands = shell.partition("\nstreamlda ")[2].replace("\\\n", "").splitlines()
    given = [shlex.split(line.removeprefix("streamlda ")) for line in commands]
    drawn = shell.partition("\nstreamlda ")[0].replace("python", sys.executable, 1)
    subprocess.run(["bash", "-c", drawn], check=True)
    done = [CliRunner().invoke(group, arguments) for arguments in (*given, given[0])]
    assert [result.exit_code for result in done] == [0, 0, 0, CONFIGURATION]
    told = page.split(shell)[1].split("```text\n")[1].split("```")[0]
    assert mask(done[0].stderr) == mask(told)
    assert "nothing was spent on these" in done[3].stderr
    report = read_report("planted.ledger")
    assert [each["description"] for each in report["snapshots"]] == [
        *("words", "norms", "pairs", "triple norms", "triples")
    ]
    assert not Path("planted.model.snapshots").exists()


def mask(text):
    """Return what is left of a text without what a run decides: noise, time, places."""
    text = re.sub(r"(?<==)'[^']*'", "'...'", text)
    text = re.sub(r"\b\d{3} words", "N words", text)
    text = re.sub(r"in \d+\.\d s", "in N s", text)
    text = re.sub(r"\d\.\d{3,} \(private|\d+\.\d{2} \(private", "N (private", text)
    text = re.sub(r"(?m)^(    \d) .*$", r"\1 words", text)
    return text.strip("\n")


@pytest.mark.long
def test_examples_of_the_estimator_run():
    examples = doctest.testmod(streamlda.estimator)
    assert examples.failed == 0 < examples.attempted


def test_every_module_is_on_the_map_of_the_tree_and_the_changelog_names_no_other():
    page, folder = (ROOT / "streamlda/README.md").read_text(encoding="utf-8"), ROOT / "streamlda"
    modules = {p.stem for p in folder.glob("[!_]*.py")}
    modules |= {p.parent.name for p in folder.glob("*/__init__.py")}
    assert modules <= set(re.findall(r"`([a-z_]+)/?`", page))
    for name in re.findall(r"`(streamlda\.[a-z_.]+)`", CHANGELOG):
        assert find_spec(name) is not None, name


def test_the_daemons_page_lists_every_setting():
    lines = ["| setting | default | what it is |", "| --- | --- | --- |"]
    for setting in (each for each in TABLE if RUN in each.commands):
        kind = f" One of {', '.join(setting.choices)}." if setting.choices else ""
        name = setting.name + ("_file" if setting.kind == "secret" else "")
        default = show_value(setting, setting.default)
        lines.append(f"| `{name}` | {default} | {setting.help}{kind} |")
    page = (ROOT / "streamlda/service/README.md").read_text(encoding="utf-8")
    table = page.split("<!-- settings -->\n")[1].split("<!-- /settings -->")[0]
    assert table == "\n".join(lines) + "\n"
