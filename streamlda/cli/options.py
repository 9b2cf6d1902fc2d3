"""Arguments of commands, declared where a function names them; settings by flags and ``--set``."""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Annotated, Any, NamedTuple, NoReturn, get_type_hints

import click

from streamlda.settings.load import FOLDERS, NAMES, load_settings, nearest
from streamlda.settings.setting import FIT, RUN, Setting, show_value
from streamlda.settings.table import SETTINGS, TABLE, RunSettings

SHARE, POSITIVE = click.FloatRange(0, 1), click.FloatRange(min=0, min_open=True)


def option(names: str, help: str, **more: Any) -> click.Option:
    """Return an option; its default is shown."""
    has_default = more.get("default") is not None
    if not (has_default or more.get("required") or more.get("is_flag") or "[default" in help):
        help += " [default: none]"
    return click.Option(names.split(), help=help, show_default=has_default, **more)


def flag(names: str, help: str, **more: Any) -> click.Option:
    """Return the option of a switch."""
    return option(names, help, is_flag=True, **more)


def count(names: str, help: str, **more: Any) -> click.Option:
    """Return the option of a number, 1 or more."""
    return option(names, help, type=click.IntRange(min=1), **more)


def path(names: str, help: str, required: bool = True, **more: Any) -> click.Option:
    """Return the option of a file that is read."""
    return option(names, help, type=click.Path(), required=required, **more)


def files(metavar: str) -> click.Argument:
    """Return the argument of a file; of several, if `metavar` ends with dots."""
    many = -1 if metavar.endswith("...") else 1
    return click.Argument(["files"], nargs=many, metavar=metavar, required=True, type=click.Path())


class OutputFile(click.Path):
    """Type of a file that is written: `Command` checks beforehand that it can be."""


def output(help: str, names: str = "--output -o", **more: Any) -> click.Option:
    """Return the option of a file that is written; it must be given unless it has a default."""
    return option(names, help, type=OutputFile(), **{"required": "default" not in more, **more})


ModelFile = Annotated[str, files("FILE")]
ModelOutput = Annotated[str, output("Model file to write.")]
Quiet = Annotated[bool, flag("--quiet -q", "No progress and no summary, only warnings.")]
AsJson = Annotated[bool, flag("--json", "Print one JSON object.")]
Words = Annotated[int, count("--words", "Words to show of a topic.", default=10)]


class Command(click.Command):
    """A command that refuses files which it could not write, or which replace what it reads."""

    def invoke(self, ctx: click.Context) -> Any:
        """Check the outputs, and run the command."""
        from streamlda.run.parts import check_output

        read: list[str] = []
        written: list[str] = []
        for parameter in self.params:
            value = ctx.params.get(str(parameter.name))
            if isinstance(parameter.type, click.Path) and value not in (None, "-"):
                into = written if isinstance(parameter.type, OutputFile) else read
                into.extend([value] if isinstance(value, str) else value)
        flags = ctx.params.get("flags")
        read.extend(() if flags is None else flags.values.get("source.files", ()))
        for number, name in enumerate(written):
            check_output(name, [*read, *written[:number]])
        return super().invoke(ctx)


def command(
    group: click.Group | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command of a function with options as annotations.

    A command that reads settings has the attributes of `SettingsCommand`.
    """

    def make(function: Callable[..., Any]) -> click.Command:
        parameters = []
        for name, hint in get_type_hints(function, include_extras=True).items():
            for declared in getattr(hint, "__metadata__", ()):
                parameters.append(copy(declared))
                parameters[-1].name = name
                if isinstance(declared, click.Argument):
                    parameters[-1].opts = [name]
        kind = SettingsCommand if "reader" in attributes else Command
        makes = click.command if group is None else group.command
        return makes(cls=kind, params=parameters, **attributes)(function)

    return make


METAVARS = {
    "secret": "FILE",
    "list": "SOURCE...",
    "seeds": "NAME: WORDS",
    "frequency": "COUNT|FRACTION",
    "keep": "COUNT|AGE",
}

#: Longest list of choices that one screen of help shows.
MOST_CHOICES = 40

#: Kinds of settings whose values may be names of files.
FILES = ("list", "secret", "text")

#: Settings that have flags for which one screen of help has no room.
HIDDEN = ("source.include", "source.records_field")

#: Key of a context in which all is shown.
HELP_ALL = "streamlda.help_all"


class Values(NamedTuple):
    """Values of settings by name, as the arguments of a command give them."""

    command: "SettingsCommand"
    values: dict[str, Any]
    config: str | None = None

    def read(self) -> RunSettings:
        """Return all settings, from variables and the file too."""
        command = self.command
        return load_settings(
            self.config,
            flags=self.values,
            command=command.reader,
            names=SETTINGS if command.reader in (FIT, RUN) else {*command.settings, *self.values},
            # A daemon's settings are known by their names in its file.
            flagged=() if command.reader == RUN else command.flags,
        )


class SettingsCommand(Command):
    """A command that reads settings: some have flags, others go through ``--set``.

    Its function gets the values that were given as `flags`. ``--help`` shows the flags by task;
    ``--help-all`` adds all settings, and the epilog. `reader` is the command that the rules of
    settings know. `tasks` are the settings that have flags, by task. `names` are further settings,
    by default all that the reader has.
    """

    def __init__(
        self,
        *args: Any,
        reader: str,
        tasks: Mapping[str, Collection[str]],
        names: Collection[str] = (),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.reader = reader
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
        # The config of sites is another file.
        own = () if any("--config" in each.opts for each in self.params) else (CONFIG,)
        self.params += [*flags, *map(copy, (ASSIGNED, ALL, *own))]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Collect the values of flags and of ``--set``."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            self._refuse(ctx, error)
        flags = {name: ctx.params.pop(str(each.name), None) for name, each in self.flags.items()}
        values = {name: value for name, value in flags.items() if value not in (None, ())}
        for given in ctx.params.pop("assigned", None) or ():
            name, sign, value = given.partition("=")
            if not (name and sign):
                message = f"--set must be section.key=value, got {given[:80]!r}"
                raise click.UsageError(message, ctx)
            if name not in self.settings:
                hint = nearest(name, self.settings)
                others = SETTINGS[name].commands if name in SETTINGS else ()
                if others and self.name not in others:
                    hint = f"; it is of streamlda {' and '.join(others)}"
                raise click.UsageError(f"--set {name}: {self.name} has no such setting{hint}", ctx)
            if name in values:
                raise click.UsageError(f"{name} is given twice, by --set and its flag", ctx)
            values[name] = value
        ctx.params["flags"] = Values(self, values, ctx.params.pop("config", None))
        return rest

    def _refuse(self, ctx: click.Context, error: click.NoSuchOption) -> NoReturn:
        """Refuse an unknown option, in favour of ``--set`` where it was the flag of a setting."""
        for name, setting in self.settings.items():
            flag = setting.flag
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
        name, flag = setting.name.replace(".", "__"), setting.flag
        kind: Any = click.Path() if setting.kind in FILES else str
        if setting.kind == "list":
            return click.Argument([name], nargs=-1, type=kind, metavar=f"[{setting.flag}]...")
        if setting.kind == "secret":
            name += "_file"
        said = setting.help.partition(";")[0].rstrip(".")
        folder = FOLDERS.get(setting.name) if self.reader == RUN else None
        help = f"{said}. [default: {show_value(setting, folder or setting.default)}]"
        if setting.kind == "bool":
            no = flag.replace("--", "--no-", 1)
            return click.Option([f"{flag}/{no}", name], default=None, help=help)
        declared = [flag, name, *([setting.short] if setting.short else [])]
        choices = _choices(setting)
        metavar = choices if len(choices) <= MOST_CHOICES else setting.kind.upper()
        more: dict[str, Any] = {"type": kind, "metavar": metavar, "help": help, "hidden": hidden}
        return click.Option(declared, multiple=setting.kind == "seeds", **more)

    def _row(self, name: str, setting: Setting) -> tuple[str, str]:
        default = show_value(setting, setting.default)
        end = "" if "default:" in setting.help else f" [default: {default}]"
        return f"{name} {_choices(setting)}", setting.help + end


def _choices(setting: Setting) -> str:
    kind = METAVARS.get(setting.kind, setting.kind.upper())
    return "|".join((*(setting.choices or (kind,)), *setting.words))


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


CONFIG = path("--config", "File of settings, in TOML.", required=False)
ASSIGNED = option(
    "--set assigned",
    "Any setting that --help-all lists; may be repeated.",
    metavar="SECTION.KEY=VALUE",
    multiple=True,
)
EAGER = {"is_eager": True, "expose_value": False, "callback": _show_all}
ALL = flag("--help-all", "Show all settings and details, and exit.", **EAGER)
