"""``streamlda run``: the daemon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streamlda.settings.table import TABLE, Setting

#: What sysexits.h calls EX_CONFIG: starting again cannot help.
WRONG_CONFIGURATION = 78

#: An error of its own; see `streamlda.service.machine`.
INTERNAL = 70

#: The source could not be reached or refused: starting again may help.
NO_SOURCE = 74


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(TABLE):
        flag = f"{setting.flag}-file" if setting.kind == "secret" else setting.flag
        command = click.option(
            flag,
            _parameter(setting),
            metavar=_metavar(setting),
            help=_help(setting),
            multiple=setting.kind == "list",
        )(command)
    return command


def _parameter(setting: Setting) -> str:
    return setting.name.replace(".", "__")


def _metavar(setting: Setting) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    return {"switch": "true|false", "secret": "FILE"}.get(setting.kind, setting.kind.upper())


def _help(setting: Setting) -> str:
    from streamlda.settings.table import describe

    row = next(row for row in describe() if row["name"] == setting.name)
    return f"{setting.help} {row['variable']} [default: {row['default']}]"


@click.command(short_help="Run a daemon: a stream in, snapshots out.")
@click.option("--config", type=click.Path(), help="Settings, in TOML. [default: none]")
@click.option("--check", is_flag=True, help="Only check the settings, and print the memory plan.")
@_options
def run(config: str | None, check: bool, **flags: Any) -> None:
    """Learn topics from a Kafka topic or from files that grow, for as long as it lasts.

    Settings come from flags, from variables STREAMLDA_SECTION_KEY and from the file, the first of
    them in rank; SECTION.KEY stands in the file as a table. Secrets stand in files or variables
    only.

    SIGTERM or SIGINT: the batch is finished, a checkpoint made, and the process ends within 10
    seconds with exit code 0; a second signal ends it at once. Other exit codes: 65 too many
    records were rejected (breaker); 70 an error of its own; 71 memory was short; 74 the source or
    the disk failed; 75 the end took too long; 78 the settings, the ledger or the checkpoints
    refuse. Killed at any moment, it goes on where its last checkpoint stands.
    """
    from streamlda.errors import (
        BudgetExceededError,
        InsufficientDataError,
        InvalidSettingError,
        LedgerError,
        MissingExtraError,
        ModelFileError,
        StreamLDAError,
        VocabularyError,
    )
    from streamlda.settings.table import MIB, load_settings

    given = {
        setting.name + ("_file" if setting.kind == "secret" else ""): flags[_parameter(setting)]
        for setting in TABLE
    }
    given = {name: None if value == () else value for name, value in given.items()}
    refused = (
        BudgetExceededError,
        InsufficientDataError,
        InvalidSettingError,
        LedgerError,
        MissingExtraError,
        ModelFileError,
        VocabularyError,
    )
    try:
        settings = load_settings(config, flags=given)
        if check:
            from streamlda.service.running import check as check_settings

            plan = check_settings(settings)
            for part, size in plan:
                click.echo(f"{size / MIB:10,.0f} MiB  {part}")
            click.echo(f"{sum(size for _, size in plan) / MIB:10,.0f} MiB  in all")
            return
        from streamlda.service.daemon import leave
        from streamlda.service.logs import log_failure, start_logging
        from streamlda.service.running import run as run_daemon

        start_logging(settings["log.format"], settings["log.level"])
        try:
            code = run_daemon(settings)
        except refused:
            raise
        except (StreamLDAError, OSError) as error:
            log_failure("not-started", error)
            code = NO_SOURCE
        except Exception as error:
            # Its own traceback could quote a document.
            log_failure("crashed", error)
            code = INTERNAL
        leave(code)
    except refused as error:
        click.echo(f"streamlda: error: {error}", err=True)
        click.get_current_context().exit(WRONG_CONFIGURATION)
