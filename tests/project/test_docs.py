"""What is written for users is true: commands, options, errors, names and examples."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import streamlda
import streamlda.errors
import streamlda.estimator
from streamlda.cli import commands as group
from streamlda.settings.load import describe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> dict[str, click.Command]:
    context = click.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def options(command: click.Command) -> set[str]:
    own = {"--help", *(name for p in command.params for name in (*p.opts, *p.secondary_opts))}
    return own | set().union(*(options(c) for c in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_option_has_help_and_the_changelog_names_it(name):
    command = commands()[name]
    for one in (command, *getattr(command, "commands", {}).values()):
        assert one.help
        for parameter in one.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{one.name} {parameter.opts}"
    assert f"`{name}`" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_commands_in_the_readme_exist_with_their_options():
    shell = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
    shown = re.findall(r"streamlda ([a-z]+) ([^\n|#]*)", shell)
    assert len(shown) >= 4
    for name, rest in shown:
        assert set(re.findall(r"--[a-z-]+", rest)) <= options(commands()[name]), name


def test_options_named_in_the_readme_exist():
    known = set.union(*map(options, commands().values()))
    named = set(re.findall(r"`(--[a-z-]+)", README))
    assert named
    assert named <= known


def test_python_example_of_the_readme_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 8
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks[0]],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "condition_number" in done.stdout


def test_error_tree_in_the_docstring_is_complete():
    classes = {
        name
        for name, value in vars(streamlda.errors).items()
        if inspect.isclass(value) and issubclass(value, streamlda.StreamLDAError)
    }
    assert classes == set(
        re.findall(r"^    [ │├└─]*(\w+Error)\b", streamlda.errors.__doc__, re.MULTILINE)
    )
    for name in classes:
        assert vars(streamlda.errors)[name].__doc__


def test_public_names_are_sorted_and_documented():
    assert streamlda.__all__ == sorted(streamlda.__all__)
    for name in streamlda.__all__:
        assert getattr(streamlda, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        streamlda.Missing  # noqa: B018


def test_every_module_is_on_the_map_of_the_tree():
    page = (ROOT / "streamlda" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([a-z_]+)/?`", page))
    folder = ROOT / "streamlda"
    modules = {p.stem for p in folder.glob("[!_]*.py")} | {
        p.parent.name for p in folder.glob("*/__init__.py")
    }
    assert modules <= listed


def test_docstring_examples_run():
    assert doctest.testmod(streamlda.estimator).failed == 0
    assert doctest.testmod(streamlda.estimator).attempted > 0


def settings_table() -> str:
    """Return the table of settings as the daemon's page shows it."""
    lines = ["| setting | default | unit | what it is |", "| --- | --- | --- | --- |"]
    for row in describe():
        kind = "" if " | " not in row["type"] else f" One of {row['type'].replace(' | ', ', ')}."
        name = row["name"] + ("_file" if row["type"] == "secret" else "")
        lines.append(f"| `{name}` | {row['default']} | {row['unit']} | {row['help']}{kind} |")
    return "\n".join(lines) + "\n"


def test_the_daemons_page_lists_every_setting():
    page = (ROOT / "streamlda/service/README.md").read_text(encoding="utf-8")
    shown = page.split("<!-- settings -->\n")[1].split("<!-- /settings -->")[0]
    assert shown == settings_table()
