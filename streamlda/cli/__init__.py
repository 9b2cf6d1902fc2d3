"""The command line: arguments, progress, printing and exit codes; the work is done elsewhere.

A command is imported when it is called, so that the help of all costs nothing. ``fit`` and ``run``
import NumPy, Numba and SciPy only when they begin.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from streamlda.errors import StreamLDAError
from streamlda.utils.exit_codes import INTERRUPTED, PIPE_CLOSED, USAGE, exit_code

#: Commands by their purpose, each with its line in the help of all.
COMMANDS = {
    "Learn topics": {
        "fit": "Learn topics from documents.",
        "run": "Run a daemon: a stream in, snapshots out.",
    },
    "Use a model": {
        "topics": "Show the topics of a model.",
        "report": "Write an HTML page about a model.",
        "infer": "Write the topic proportions of documents.",
        "choose-topics": "Compare numbers of topics on held-out documents.",
        "evaluate": "Measure a model on held-out documents.",
    },
    "Change or join models": {
        "compare": "Show what two models have in common.",
        "merge": "Join what several daemons have learned, or finished models.",
        "reduce": "Join topics of a model: those most alike, or chosen ones.",
        "rename": "Name the topics of a model, or of a daemon.",
        "projection": "Make a projection that several daemons share.",
    },
    "Privacy and sites": {
        "plan": "Show what a private run will give.",
        "budget": "Show what a privacy ledger has spent.",
        "site": "Learn with other sites, without showing them documents or sums.",
        "aggregate": "Add up the shares of all sites.",
    },
    "Try and check": {
        "demo": "Learn topics from news articles, and write a report.",
        "doctor": "Check versions, threads, caches, extras, and what settings connect to.",
    },
}

#: Modules of commands that have none of their own name.
MODULES = {
    **dict.fromkeys(("topics", "compare", "report", "merge"), "models"),
    **dict.fromkeys(("projection", "reduce", "rename"), "models"),
    **dict.fromkeys(("evaluate", "choose-topics"), "measure"),
    **dict.fromkeys(("plan", "budget"), "private"),
    "aggregate": "site",
}


class _ClosedPipe(Exception):
    """Error of a standard output whose reader has enough."""


class Commands(click.Group):
    """A group whose errors are one line on standard error each, and never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(name for members in COMMANDS.values() for name in members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"streamlda.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, grouped by purpose."""
        for title, members in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(members.items()))

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> NoReturn:
        """Run a command and exit."""
        options["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, **options)
            sys.stdout.flush()
        except click.ClickException as error:
            code = _report(error.format_message(), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except (_ClosedPipe, BrokenPipeError):
            # Nothing may be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = PIPE_CLOSED
        except (StreamLDAError, OSError) as error:
            code = _report(_message(error), exit_code(error))
        except MemoryError as error:
            code = _report("there is not enough memory; use fewer topics", exit_code(error))
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a closed pipe goes past click, which has an exit code of its own."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ClosedPipe from error


def _message(error: Exception) -> str:
    """Return the message of an error; with a remedy where the system alone spoke of a path."""
    of_paths = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
    if not isinstance(error, of_paths) or error.strerror != os.strerror(error.errno or 0):
        return str(error)
    path, reason = str(error.filename), error.strerror
    return f"a path cannot be used, got {path=} {reason=}; check its spelling and rights"


def _report(message: str, code: int) -> int:
    # One line, or a line for each of several problems; nothing in it can begin a line of its own.
    lines = [" ".join(line.split()) for line in message.split("\n- ")]
    click.echo("streamlda: error: " + "\n- ".join(lines), err=True)
    return code


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    None, "-V", "--version", package_name="streamlda", message="%(prog)s %(version)s"
)
@click.pass_context
def commands(context: click.Context) -> None:
    """Learn LDA topics from a stream of documents: one pass, bounded memory.

    Exit codes: 0 done; 1 the answer is no (doctor); 2 wrong usage; 65 the data
    (too few documents, mostly rejects, a damaged file); 70 an internal error; 71 too little memory;
    74 the source, the disk or the network failed; 75 the shutdown took too long; 78 the settings,
    words, ledger or checkpoints are refused; 130 or 143 stopped by SIGINT (Ctrl-C) or SIGTERM; 141
    the reader of standard output closed it. Errors, warnings and progress go to standard error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(USAGE)
