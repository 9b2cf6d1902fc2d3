"""Options of commands, made from the table of settings; help by task, on one screen."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from streamlda.model import MAX_DISTANCE
from streamlda.settings.load import NAMES, load_settings, nearest
from streamlda.settings.run_settings import SETTINGS, TABLE, RunSettings
from streamlda.settings.setting import FIT, RUN, Setting
from streamlda.settings.values import shown

Command = TypeVar("Command", bound=Callable[..., Any])

#: Names of settings by the task that a flag is for.
Tasks = Mapping[str, Iterable[str]]

quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="No progress and no summary, only warnings."
)
config_option = click.option(
    "--config", type=click.Path(), help="File of settings, in TOML. [default: none]"
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
    "keep": "COUNT|AGE",
    "ngrams": "N|M..N",
    "bins": "UNIT|TIME,...",
}

#: Longest list of choices that one screen of help shows.
MOST_CHOICES = 40


class SettingOption(click.Option):
    """The flag of a setting; without a task it is hidden, and refused in favour of ``--set``."""

    def __init__(self, *declared: Any, setting: Setting, task: str, **more: Any) -> None:
        super().__init__(*declared, **more)
        self.hidden = not task
        self.setting, self.task = setting, task


class SettingsCommand(click.Command):
    """A command that reads settings: some have flags, others go through ``--set``.

    ``--help`` shows the flags by task. ``--help-all`` adds all settings, and the epilog.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params[:0] = _set_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the values of ``--set`` as if each setting had a flag."""
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.pop("assigned", ()):
            parameter = name.replace(".", "__")
            if parameter not in ctx.params:
                hint = nearest(name, map(_key_of, self.settings))
                raise click.UsageError(f"--set {name}: {self.name} has no such setting{hint}", ctx)
            if ctx.params[parameter] not in (None, ()):
                raise click.UsageError(f"{name} must be given once, got --set and its flag", ctx)
            ctx.params[parameter] = value
        return rest

    @property
    def settings(self) -> list[click.Parameter]:
        """Parameters that are settings, in the order of the table."""
        found = [each for each in self.params if _key_of(each) in NAMES]
        order = [setting.name for setting in TABLE]
        return sorted(found, key=lambda each: order.index(NAMES[_key_of(each)].name))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags by task, and with ``--help-all`` all settings."""
        everything = ctx.meta.get(HELP_ALL, False)
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if isinstance(option, SettingOption) and record is not None:
                groups.setdefault(option.task, []).append((record[0], _brief(option, ctx)))
            elif isinstance(option, click.Option) and record is not None:
                groups.setdefault("Options", []).append(record)
        groups["Options"] = groups.pop("Options", [])
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=40)
        if everything:
            with formatter.section("All settings, for --set and the settings file"):
                formatter.write_dl([_row(option) for option in self.settings])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the details, which one screen has no room for."""
        if ctx.meta.get(HELP_ALL, False):
            super().format_epilog(ctx, formatter)


#: Key of a context in which all is shown.
HELP_ALL = "streamlda.help_all"


def _refuse(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse the flag of a setting that has none any more."""
    if value in (None, ()):
        return value
    each = value[0] if isinstance(value, tuple) else value
    text = f"{_key_of(param)}={str(each).lower() if isinstance(each, bool) else each}"
    flag = param.secondary_opts[0] if each is False else param.opts[0]
    raise click.UsageError(
        f"{flag} is no option any more; use --set {shlex.quote(text)}, or the settings file", ctx
    )


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _assignment(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Any:
    pairs = [value.partition("=") for value in values]
    for (name, sign, _), value in zip(pairs, values, strict=True):
        if not (name and sign):
            raise click.BadParameter(f"must be section.key=value, got {value[:80]!r}", ctx, param)
    return [(name, value) for name, _, value in pairs]


def _offer_assignments(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return what a shell completes: names of settings, and behind the sign their choices."""
    name, sign, _ = incomplete.partition("=")
    assert isinstance(ctx.command, SettingsCommand)
    found = [f"{_key_of(option)}=" for option in ctx.command.settings]
    if sign and name in SETTINGS:
        found = [f"{name}={value}" for value in (*SETTINGS[name].choices, *SETTINGS[name].words)]
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


def _set_options() -> list[click.Parameter]:
    """Return the options that every command has that reads settings."""
    assigned = click.Option(
        ["--set", "assigned"],
        metavar="SECTION.KEY=VALUE",
        multiple=True,
        callback=_assignment,
        shell_complete=_offer_assignments,
        help="Any setting that --help-all lists; may be repeated. [default: none]",
    )
    everything = click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show all settings and details, and exit.",
    )
    return [assigned, everything]


def add_settings(command: str, tasks: Tasks) -> Callable[[Command], Command]:
    """Return a decorator that gives a command all settings that it reads; `tasks` have flags."""
    return add_options(command, (s.name for s in TABLE if command in s.commands), tasks)


def add_options(
    command: str, names: Iterable[str], tasks: Tasks, required: Container[str] = ()
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command settings by their names: flags, and ``--set``.

    Those that are required have no default in the help; the command itself refuses None.
    """
    by_task = {name: task for task, own in tasks.items() for name in own}
    chosen = [SETTINGS[name] for name in dict.fromkeys((*by_task, *names))]

    def decorate(function: Command) -> Command:
        for setting in reversed(chosen):
            task = by_task.get(setting.name, "")
            function = _parameter(setting, command, task, setting.name in required)(function)
        return function

    return decorate


def read_settings(
    command: str, flags: dict[str, Any], config: str | None = None, **more: Any
) -> RunSettings:
    """Return the settings of a command from its parameters; `more` are values by name.

    The flags are as click hands them over: ``section__key``. A command takes the settings that it
    has parameters for, from the environment too; ``fit`` and ``run`` take all.
    """
    given = {name.replace("__", "."): value for name, value in flags.items()}
    given = {name: None if value == () else value for name, value in given.items()} | more
    names = SETTINGS if command in (FIT, RUN) else given
    ctx = click.get_current_context(silent=True)
    options = [] if ctx is None else ctx.command.params
    # A daemon's settings are known by their names in its file.
    flagged = [
        _key_of(option) for option in options if command != RUN and not getattr(option, "hidden", 0)
    ]
    return load_settings(config, flags=given, command=command, names=names, flagged=flagged)


def _parameter(
    setting: Setting, command: str, task: str, required: bool
) -> Callable[[Command], Command]:
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
        declared, more = [flag], {"metavar": _metavar(setting), "shell_complete": offer}
    if setting.kind == "seeds":
        more["multiple"] = True
    if setting.short:
        declared.append(setting.short)
    more |= {"help": _help(setting, command, required), "setting": setting, "task": task}
    return click.option(
        *declared, name, cls=SettingOption, callback=None if task else _refuse, **more
    )


def _metavar(setting: Setting) -> str:
    kind = METAVARS.get(setting.kind, setting.kind.upper())
    choices = "|".join((*(setting.choices or (kind,)), *setting.words))
    return choices if len(choices) <= MOST_CHOICES else kind


def _completion(setting: Setting) -> Callable[..., list[CompletionItem]]:
    """Return what gives a shell the values of a setting: its choices, or else names of files."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        values = [*setting.choices, *setting.words]
        if values:
            return [CompletionItem(value) for value in values if value.startswith(incomplete)]
        files = setting.kind in ("list", "secret", "seeds", "text")
        return [CompletionItem(incomplete, type="file")] if files else []

    return offer


def _key_of(option: click.Parameter) -> str:
    """Return the name of a setting for ``--set``; of a secret, that of its file."""
    return str(option.name).replace("__", ".")


def _row(option: click.Parameter) -> tuple[str, str]:
    setting = NAMES[_key_of(option)]
    values = "|".join((*(setting.choices or (setting.kind.upper(),)), *setting.words))
    return f"{_key_of(option)} {values}", str(getattr(option, "help", None) or setting.help)


def _brief(option: SettingOption, ctx: click.Context) -> str:
    setting = option.setting
    default = shown(setting, setting.default_of(ctx.command.name or ""))
    said = setting.help.partition(";")[0].rstrip(".")
    if str(option.help).endswith("[required]"):
        return f"{said}. [required]"
    return f"{said}." if default == "none" else f"{said}. [default: {default}]"


def _help(setting: Setting, command: str, required: bool) -> str:
    if required:
        return f"{setting.help.partition('; default:')[0].rstrip('.')}. [required]"
    default = shown(setting, setting.default_of(command))
    if "default:" in setting.help:
        return setting.help
    return f"{setting.help} [default: {default}]"
