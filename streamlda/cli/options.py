"""Options of commands, made from the table of settings; help in groups, by section."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from streamlda.model import MAX_DISTANCE
from streamlda.settings.load import load_settings
from streamlda.settings.run_settings import SECTIONS, SETTINGS, TABLE, RunSettings
from streamlda.settings.setting import FIT, RUN, Setting
from streamlda.settings.values import shown

Command = TypeVar("Command", bound=Callable[..., Any])

quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="No progress and no summary, only warnings."
)
config_option = click.option(
    "--config", type=click.Path(), help="Settings, in TOML. [default: none]"
)
words_option = click.option(
    "--words",
    "n_words",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Words to show for each topic.",
)

max_distance_option = click.option(
    "--max-distance",
    type=click.FloatRange(0, 1),
    default=MAX_DISTANCE,
    show_default=True,
    help="Distance beyond which two topics are different.",
)


def output_option(help: str) -> Callable[[Command], Command]:
    """Return the option of a file that must be given."""
    return click.option("--output", "-o", required=True, type=click.Path(), help=help)


METAVARS = {
    "secret": "FILE",
    "list": "SOURCE...",
    "seeds": "NAME: WORDS|FILE",
    "frequency": "COUNT|FRACTION",
    "ngrams": "N|M..N",
    "bins": "UNIT|TIME,...",
}


class GroupedCommand(click.Command):
    """A command whose help shows settings by their section, and its own options last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a group for each section."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                section, of_table, _ = str(parameter.name).partition("__")
                groups.setdefault(section if of_table else "", []).append(record)
        for section in (*SECTIONS, ""):
            if section in groups:
                title = section.replace("_", " ").capitalize() or "Options"
                with formatter.section(title):
                    formatter.write_dl(groups[section])


def settings_options(command: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command all settings that it reads."""
    return options_of(command, (s.name for s in TABLE if command in s.commands))


def options_of(
    command: str, names: Iterable[str], required: Container[str] = ()
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command some settings, by their names.

    Those that are required have no default in the help; the command itself refuses None.
    """
    chosen = [SETTINGS[name] for name in names]

    def decorate(function: Command) -> Command:
        for setting in reversed(chosen):
            function = _parameter(setting, command, setting.name in required)(function)
        return function

    return decorate


def read_settings(
    command: str, flags: dict[str, Any], config: str | None = None, **more: Any
) -> RunSettings:
    """Return the settings of a command from its parameters; `more` are values by name.

    The flags are as click hands them over: ``section__key``. A command takes the settings that it
    has flags for, from the environment too; ``fit`` and ``run`` take all.
    """
    given = {name.replace("__", "."): value for name, value in flags.items()}
    given = {name: None if value == () else value for name, value in given.items()} | more
    names = SETTINGS if command in (FIT, RUN) else given
    return load_settings(config, flags=given, command=command, names=names)


def _parameter(setting: Setting, command: str, required: bool) -> Callable[[Command], Command]:
    name, flag = setting.name.replace(".", "__"), setting.flag_of(command)
    offer = _completion(setting)
    if setting.kind == "list":
        return click.argument(name, nargs=-1, metavar=f"[{setting.flag}]...", shell_complete=offer)
    if setting.kind == "secret":
        name += "_file"
    if setting.kind == "bool":
        no = flag.replace("--", "--no-", 1)
        declared = [f"{flag}/{no}"]
        more: dict[str, Any] = {"default": None}
    else:
        metavar = "|".join(setting.choices) or METAVARS.get(setting.kind, setting.kind.upper())
        metavar = "|".join((metavar, *setting.words))
        declared, more = [flag], {"metavar": metavar, "shell_complete": offer}
    if setting.kind == "seeds":
        more["multiple"] = True
    if setting.short:
        declared.append(setting.short)
    return click.option(*declared, name, help=_help(setting, command, required), **more)


def _completion(setting: Setting) -> Callable[..., list[CompletionItem]]:
    """Return what gives a shell the values of a setting: its choices, or else names of files."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        values = [*setting.choices, *setting.words]
        if values:
            return [CompletionItem(value) for value in values if value.startswith(incomplete)]
        files = setting.kind in ("list", "secret", "seeds", "text")
        return [CompletionItem(incomplete, type="file")] if files else []

    return offer


def _help(setting: Setting, command: str, required: bool) -> str:
    if required:
        return f"{setting.help.partition('; default:')[0].rstrip('.')}. [required]"
    default = shown(setting, setting.default_of(command))
    if "default:" in setting.help:
        return setting.help
    return f"{setting.help} [default: {default}]"
