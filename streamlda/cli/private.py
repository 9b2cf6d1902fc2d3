"""``streamlda plan`` and ``budget``: forecasts of private runs, and their spending."""

import json
import os
from dataclasses import replace
from typing import Annotated

import click

from streamlda.cli import options
from streamlda.cli.options import command, count, output
from streamlda.cli.shared import say, warn
from streamlda.errors import require
from streamlda.privacy.ledger import budget_table, read_report
from streamlda.privacy.statement import statement_lines
from streamlda.private.ledger_model import load_released
from streamlda.private.plan import Plan
from streamlda.private.settings import LEAST_WINDOW
from streamlda.run.opening import PrivateTerms
from streamlda.settings import build
from streamlda.settings.setting import PLAN
from streamlda.settings.table import RunSettings

#: Flags, and settings that decide what a private run gives.
TASKS = {
    "Topics": ("topics.count", "snapshots.every"),
    "Words": ("vocabulary.kind", "vocabulary.file", "vocabulary.size"),
    "Privacy": ("privacy.epsilon", "privacy.delta"),
}
PLANNED = (
    *("topics.solver", "topics.iterations", "vocabulary.hash_bits", "vocabulary.documents"),
    *("snapshots.most", "privacy.unit", "privacy.documents_per_user", "privacy.relation"),
    *("privacy.mode", "privacy.clipping", "privacy.refinement_rounds", "privacy.public_model"),
)

RECORDS = "Record slots: rejected records count too."


@command(reader=PLAN, tasks=TASKS, names=PLANNED)
def plan(
    records: Annotated[int, count("--records", RECORDS, required=True)],
    as_json: options.AsJson,
    flags: options.Values,
) -> None:
    """Show the stages, the noise and the topics to expect of a private run over RECORDS.

    No document is read and nothing is spent: all follows from the settings and from measurements on
    other corpora. --vocabulary-size is the number of words, public or wanted of a private choice,
    unless --vocabulary, privacy.public_model or vocabulary.hash_bits gives it. Without
    --snapshot-every all records are one window.
    """
    settings = flags.read()
    if not settings.private:
        raise click.UsageError("the private run has no budget: set --epsilon and --delta")
    private = settings.vocabulary.kind == "private"
    if settings.snapshots.every is None:
        documents = settings.vocabulary.documents
        every = records / (1 + build.WORDS_OF_WINDOW) if documents is None else records - documents
        every = max(LEAST_WINDOW, int(every) if private else records)
        settings = replace(settings, snapshots=replace(settings.snapshots, every=every))
    found = _plan(settings, records, build.word_documents(settings) if private else 0)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    click.echo("\n".join(found.lines))
    for warning in found.warnings:
        warn(warning)


def _plan(settings: RunSettings, records: int, chosen_from: int) -> Plan:
    """Return the plan of the settings; a mere number of words is that of public ones."""
    delta = settings.privacy.delta
    if settings.vocabulary.kind == "learned":
        asked = build.private_settings(settings, settings.vocabulary.size)
        return Plan.of(asked, records, delta=delta)
    terms = PrivateTerms.of(settings)
    choice = None if terms.choice is None else terms.choice.selection
    return Plan.of(terms.settings, records, chosen_from, delta, choice)


def show_expected(settings: RunSettings, quiet: bool) -> None:
    """Say what is expected of a private window, before anything is spent."""
    words = build.word_documents(settings) if settings.vocabulary.kind == "private" else 0
    found = _plan(settings, words + (settings.snapshots.every or build.DEFAULT_EVERY), words)
    say(quiet, found.forecast)
    for warning in found.warnings:
        warn(warning)


PUBLISH = "Write the model of a window that was paid for to a new file."
Publish = Annotated[str | None, output(PUBLISH, "--publish", default=None, metavar="MODEL")]
RELEASE = "Window of --publish, by a release. [default: the newest]"


@command()
def budget(
    ledger_file: options.ModelFile,
    as_json: options.AsJson,
    model_file: Publish,
    release: Annotated[int | None, count("--release", RELEASE)],
) -> None:
    """Show the privacy ledger in FILE: its terms, what is spent and left, and every release.

    What is spent is rounded up and what is left is rounded down, both as epsilon at the ledger's
    delta and as mu^2, which adds up over releases of the same documents. A ledger can be read while
    it is in use. A ledger that is missing, damaged or older than its .documents file counts as used
    up. --json has every release; its keys are in streamlda/privacy/releases.md.

    --publish makes a model from FILE.releases: no record is read, and nothing is spent. The model
    of a window that was cut short names the missing stages.
    """
    if model_file is not None:
        is_new, rule = not os.path.lexists(model_file), "the model would replace a file"
        require(is_new, rule, path=model_file, remedy="name another one")
        model = load_released(ledger_file, release)
        model.save(model_file)
        say(False, f"model: {model_file}", *statement_lines(model.privacy))
    elif release is not None:
        raise click.UsageError("--release needs --publish MODEL")
    report = read_report(ledger_file)
    click.echo(json.dumps(report, indent=1) if as_json else "\n".join(budget_table(report)))
