"""The command line: arguments, progress, printing and exit codes; the work is done elsewhere.

Modules of this package import at their top only what starts at once. Numba, SciPy and
scikit-learn are imported inside the commands that need them, so that ``--help`` costs nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from streamlda.cli.budget import budget
from streamlda.cli.compare import compare
from streamlda.cli.demo import demo
from streamlda.cli.doctor import doctor
from streamlda.cli.evaluate import evaluate
from streamlda.cli.fit import fit
from streamlda.cli.infer import infer
from streamlda.cli.merge import merge
from streamlda.cli.plan import plan
from streamlda.cli.projection import projection
from streamlda.cli.reduce import reduce
from streamlda.cli.report import report
from streamlda.cli.reproduce import reproduce
from streamlda.cli.run import run
from streamlda.cli.simulate import simulate
from streamlda.cli.site import site
from streamlda.cli.site_rounds import aggregate
from streamlda.cli.topics import topics
from streamlda.errors import StreamLDAError
from streamlda.utils.exit_codes import INTERRUPTED, PIPE_CLOSED, USAGE, exit_code


class _PipeClosed(Exception):
    """Whoever read standard output has enough."""


class Commands(click.Group):
    """A group whose errors are one line on standard error each, and never a traceback."""

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
        except (_PipeClosed, BrokenPipeError):
            # Nothing may be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = PIPE_CLOSED
        except (StreamLDAError, OSError) as error:
            code = _report(_message(error), exit_code(error))
        except MemoryError as error:
            code = _report(
                "there is not enough memory; use fewer topics or words", exit_code(error)
            )
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for title, members in COMMANDS.items():
            with formatter.section(title):
                rows = [(each.name or "", each.get_short_help_str(width)) for each in members]
                formatter.write_dl(rows, col_max=width)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a closed pipe goes past click, which has an exit code of its own."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeClosed from error


def _message(error: Exception) -> str:
    """Return what an error says; what the system alone says of a path, with what to do."""
    of_paths = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
    if not isinstance(error, of_paths) or error.strerror != os.strerror(error.errno or 0):
        return str(error)
    path, reason = str(error.filename), error.strerror
    return f"a path must be usable, got {path=} {reason=}; check its spelling and rights"


def _report(message: str, code: int) -> int:
    # One line, or a line for each of several problems; nothing in it can begin a line of its own.
    first, *problems = message.split("\n- ")
    lines = [" ".join(line.split()) for line in (first, *problems)]
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

    Exit codes: 0 done; 1 the answer is no (budget --check, run --probe); 2 wrong usage; 65 the data
    (too few documents, mostly rejects, a damaged file); 70 an internal error; 71 too little memory;
    74 the source, the disk or the network failed; 75 the shutdown took too long; 78 the settings,
    words, ledger or checkpoints are refused; 130 or 143 stopped by SIGINT (Ctrl-C) or SIGTERM; 141
    the reader of standard output closed it. Errors, warnings and progress go to standard error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(USAGE)


COMMANDS = {
    "Learn topics": (fit, run),
    "Use a model": (topics, report, infer, evaluate),
    "Change or join models": (compare, merge, reduce, projection),
    "Privacy and sites": (plan, budget, site, aggregate),
    "Try and check": (demo, simulate, doctor, reproduce),
}
for command in (each for members in COMMANDS.values() for each in members):
    commands.add_command(command)
