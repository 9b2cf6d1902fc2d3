"""Options of commands: flags of settings by task, ``--set`` for all settings, and common ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from streamlda.model import MAX_DISTANCE
from streamlda.settings.load import NAMES, load_settings, nearest
from streamlda.settings.run_settings import SETTINGS, TABLE, RunSettings
from streamlda.settings.setting import FIT, RUN, Setting, shown

Command = TypeVar("Command", bound=Callable[..., Any])

COUNT = click.IntRange(min=1)

quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="No progress and no summary, only warnings."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def number_option(
    *names: str, help: str, type: Any = COUNT, **more: Any
) -> Callable[[Command], Command]:
    """Return the option of a number, a count by default; a default of it is shown."""
    return click.option(*names, type=type, help=help, show_default="default" in more, **more)


words_option = number_option("--words", "n_words", default=10, help="Words to show of a topic.")
relevance_option = number_option(
    "--relevance",
    type=click.FloatRange(0, 1),
    help="Rank words by probability (1), or by lift too (less). [default: as the model says, 1]",
)
max_distance_option = number_option(
    "--max-distance",
    type=click.FloatRange(0, 1),
    default=MAX_DISTANCE,
    help="Distance beyond which two topics are different.",
)


def path_option(
    name: str, parameter: str, help: str, required: bool = True
) -> Callable[[Command], Command]:
    """Return the option of a file, which must be given unless `required` is False."""
    return click.option(name, parameter, required=required, type=click.Path(), help=help)


def output_option(help: str, required: bool = True) -> Callable[[Command], Command]:
    """Return the option of a file to write."""
    return click.option("--output", "-o", required=required, type=click.Path(), help=help)


METAVARS = {
    "secret": "FILE",
    "list": "SOURCE...",
    "seeds": "NAME: WORDS|FILE",
    "frequency": "COUNT|FRACTION",
    "keep": "COUNT|AGE",
    "ngrams": "N|M..N",
}

#: Longest list of choices that one screen of help shows.
MOST_CHOICES = 40

#: Kinds of settings whose values may be names of files.
FILES = ("list", "secret", "seeds", "text")

#: Settings that have flags for which one screen of help has no room.
HIDDEN = ("source.include", "source.records_field")

#: Key of a context in which all is shown.
HELP_ALL = "streamlda.help_all"


class Given(NamedTuple):
    """Values of settings by name, as the arguments of a command give them."""

    command: SettingsCommand
    values: dict[str, Any]
    config: str | None = None

    def read(self) -> RunSettings:
        """Return all settings, from variables and the file too."""
        command = self.command
        return load_settings(
            self.config,
            flags=self.values,
            command=command.reader,
            names=SETTINGS if command.reader in (FIT, RUN) else command.settings,
            # A daemon's settings are known by their names in its file.
            flagged=() if command.reader == RUN else command.flags,
        )


class SettingsCommand(click.Command):
    """A command that reads settings: some have flags, others go through ``--set``.

    Its function gets what was given as `given`. ``--help`` shows the flags by task; ``--help-all``
    adds all settings, and the epilog. `reader` is the command that the rules of settings know.
    `tasks` are the settings that have flags, by task, `names` further ones: by default all that the
    reader has. Those `required` have no default in the help; the command itself refuses None.
    Without `has_file`, no ``--config`` names a file of settings.
    """

    def __init__(
        self,
        *args: Any,
        reader: str,
        tasks: Mapping[str, Collection[str]],
        names: Collection[str] = (),
        required: Collection[str] = (),
        has_file: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.reader, self.required = reader, required
        self.tasks = {name: task for task, own in tasks.items() for name in own}
        read = {*names, *self.tasks} if names else {s.name for s in TABLE if reader in s.commands}
        #: Settings by their names for ``--set``: a secret stands in a file.
        self.settings = {
            name + "_file" * (setting.kind == "secret"): setting
            for name, setting in SETTINGS.items()
            if name in read
        }
        flags = [self._option(SETTINGS[name]) for name in self.tasks]
        flags += [self._option(s) for s in self.settings.values() if s.kind == "list"]
        further = [name for name in HIDDEN if name in self.settings and name not in self.tasks]
        flags += [self._option(SETTINGS[name], hidden=True) for name in further]
        self.flags = {str(each.name).replace("__", "."): each for each in flags}
        self.params += [*flags, self._set_option(), self._all_option()]
        if has_file:
            help = "File of settings, in TOML. [default: none]"
            self.params.append(click.Option(["--config"], type=click.Path(), help=help))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Collect the values of flags and of ``--set``."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            self._refuse(ctx, error)
        flags = {name: ctx.params.pop(str(each.name), None) for name, each in self.flags.items()}
        values = {name: value for name, value in flags.items() if value not in (None, ())}
        for name, value in ctx.params.pop("assigned", None) or ():
            if name not in self.settings:
                hint = nearest(name, self.settings)
                raise click.UsageError(f"--set {name}: {self.name} has no such setting{hint}", ctx)
            if name in values:
                raise click.UsageError(f"{name} must be given once, got --set and its flag", ctx)
            values[name] = value
        ctx.params["given"] = Given(self, values, ctx.params.pop("config", None))
        return rest

    def _refuse(self, ctx: click.Context, error: click.NoSuchOption) -> NoReturn:
        """Refuse an unknown option, in favour of ``--set`` where it was the flag of a setting."""
        for name, setting in self.settings.items():
            flag = setting.flag_of(self.reader)
            switched = error.option_name == flag.replace("--", "--no-", 1)
            if error.option_name == flag or (switched and setting.kind == "bool"):
                value = "VALUE" if setting.kind != "bool" else str(not switched).lower()
                raise click.UsageError(
                    f"{error.option_name} is no option any more; use --set {name}={value}, or the "
                    "settings file",
                    ctx,
                )
        raise error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags by task, and with ``--help-all`` all settings."""
        groups: dict[str, list[tuple[str, str]]] = {task: [] for task in self.tasks.values()}
        groups["Options"] = []
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and isinstance(option, click.Option):
                setting = NAMES.get(str(option.name).replace("__", "."))
                task = self.tasks.get("" if setting is None else setting.name, "Options")
                groups[task].append((record[0], record[1].removesuffix(" [default: none]")))
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=40)
        if ctx.meta.get(HELP_ALL, False):
            with formatter.section("All settings, for --set and the settings file"):
                formatter.write_dl([self._row(*pair) for pair in self.settings.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the details, which one screen has no room for."""
        if ctx.meta.get(HELP_ALL, False):
            super().format_epilog(ctx, formatter)

    def _option(self, setting: Setting, *, hidden: bool = False) -> click.Parameter:
        """Return the flag of a setting, or the argument of sources."""
        name, flag = setting.name.replace(".", "__"), setting.flag_of(self.reader)
        kind: Any = click.Path() if setting.kind in FILES else str
        if setting.kind == "list":
            return click.Argument([name], nargs=-1, type=kind, metavar=f"[{setting.flag}]...")
        if setting.kind == "secret":
            name += "_file"
        said = setting.help.partition(";")[0].rstrip(".")
        default = shown(setting, setting.default_of(self.reader))
        end = "[required]" if setting.name in self.required else f"[default: {default}]"
        help = f"{said}. {end}"
        if setting.kind == "bool":
            no = flag.replace("--", "--no-", 1)
            return click.Option([f"{flag}/{no}", name], default=None, help=help)
        declared = [flag, name, *([setting.short] if setting.short else [])]
        choices = _choices(setting)
        metavar = choices if len(choices) <= MOST_CHOICES else setting.kind.upper()
        more: dict[str, Any] = {"type": kind, "metavar": metavar, "help": help, "hidden": hidden}
        return click.Option(declared, multiple=setting.kind == "seeds", **more)

    def _row(self, name: str, setting: Setting) -> tuple[str, str]:
        default = shown(setting, setting.default_of(self.reader))
        end = "" if "default:" in setting.help else f" [default: {default}]"
        return f"{name} {_choices(setting)}", setting.help + end

    def _set_option(self) -> click.Option:
        return click.Option(
            ["--set", "assigned"],
            metavar="SECTION.KEY=VALUE",
            multiple=True,
            callback=_assignments,
            help="Any setting that --help-all lists; may be repeated. [default: none]",
        )

    def _all_option(self) -> click.Option:
        def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
            if value:
                ctx.meta[HELP_ALL] = True
                click.echo(ctx.get_help(), color=ctx.color)
                ctx.exit()

        return click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=show,
            help="Show all settings and details, and exit.",
        )


def _assignments(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Any:
    pairs = [value.partition("=") for value in values]
    for (name, sign, _), value in zip(pairs, values, strict=True):
        if not (name and sign):
            raise click.BadParameter(f"must be section.key=value, got {value[:80]!r}", ctx, param)
    return [(name, value) for name, _, value in pairs]


def _choices(setting: Setting) -> str:
    kind = METAVARS.get(setting.kind, setting.kind.upper())
    return "|".join((*(setting.choices or (kind,)), *setting.words))
