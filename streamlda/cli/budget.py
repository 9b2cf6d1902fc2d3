"""``streamlda budget``: show what a privacy ledger has spent and what is left."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from streamlda.checks import require
from streamlda.cli.options import json_option, number_option
from streamlda.cli.shared import say, warn
from streamlda.guarantee.accounting import noise_multiplier
from streamlda.privacy.costs import cost
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.ledger import budget_table, read_report
from streamlda.privacy.statement import statement_lines
from streamlda.private.released import released_model
from streamlda.run.outputs import check_output
from streamlda.utils.exit_codes import NO

#: Releases that the table shows of many.
FIRST, LAST = 3, 20


@click.command()
@click.argument("ledger_file", metavar="FILE", type=click.Path())
@json_option
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help=f"Show every release in the table, not the first {FIRST} and the last {LAST} only.",
)
@click.option(
    "--check",
    "wanted",
    type=click.FloatRange(min=0, min_open=True),
    metavar="EPSILON",
    help="Exit with code 1 unless the budget covers one more release of this epsilon, at the "
    "ledger's delta, of documents that were in no release. [default: no check]",
)
@click.option(
    "--publish",
    "model_file",
    type=click.Path(dir_okay=False),
    metavar="MODEL",
    help="Write the model of the newest window to a new file. It is made of what was released and "
    "is in FILE.releases: no record is read, and nothing is spent. Of a window that was cut short "
    "the model says which stages are missing; if those are not rounds of refinement alone, there "
    "is none. [default: no model]",
)
@number_option("--release", help="Window of --publish, by a release. [default: the newest]")
@click.pass_context
def budget(
    context: click.Context,
    ledger_file: str,
    as_json: bool,
    show_all: bool,
    wanted: float | None,
    model_file: str | None,
    release: int | None,
) -> None:
    """Show the privacy ledger in FILE: its terms, what is spent and left, and every release.

    What is spent is rounded up and what is left is rounded down, both as epsilon at the ledger's
    delta and as mu^2, which adds up over releases of the same documents. A ledger can be read while
    it is in use: nothing is locked or written, except to undo a row that a killed writer left
    unfinished. A ledger that is missing, damaged or older than its .marker file counts as used up.
    The keys of --json, which describes every release, are in streamlda/privacy/releases.md.
    """
    if model_file is not None:
        _publish(ledger_file, model_file, release)
    elif release is not None:
        raise click.UsageError("--release needs --publish MODEL")
    shown = {} if as_json or show_all else {"first": FIRST, "last": LAST}
    report = read_report(ledger_file, **shown)
    fits = wanted is None or _fits(report, wanted)
    click.echo(json.dumps(report, indent=1) if as_json else "\n".join(budget_table(report)))
    if not fits:
        left = report["left_for_new_documents"]["epsilon"]
        warn(
            f"a release of epsilon={wanted} must fit into what is left for new documents, got "
            f"epsilon={left} left; a budget cannot be raised afterwards"
        )
        context.exit(NO)


def _publish(ledger_file: str, model_file: str, release: int | None) -> None:
    """Write the model of a window."""
    require(
        not os.path.lexists(model_file),
        "a model of what was released must not replace a file",
        path=model_file,
        remedy="name another one",
    )
    check_output(model_file)
    model = released_model(ledger_file, release)
    model.save(model_file)
    say(False, f"model: {model_file}", *statement_lines(model.privacy))


def _fits(report: dict[str, Any], epsilon: float) -> bool:
    """Tell whether one release of new documents is covered, by the rule of `Ledger.begin`."""
    price = cost(GaussianRelease(noise_multiplier(epsilon, report["budget"]["delta"])))
    return bool(price.mu_squared <= report["left_for_new_documents"]["mu_squared"])
