"""``streamlda plan``: what a private run will give, before anything is read or spent."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from streamlda.cli.options import Given, SettingsCommand, json_option, number_option
from streamlda.cli.shared import say, warn
from streamlda.private.plan import Plan
from streamlda.private.settings import LEAST_WINDOW
from streamlda.run.private_run import PrivateTerms
from streamlda.settings.build import (
    DEFAULT_EVERY,
    WORDS_OF_WINDOW,
    private_settings,
    word_documents,
)
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.setting import PLAN

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


@click.command(cls=SettingsCommand, reader=PLAN, tasks=TASKS, names=PLANNED)
@number_option("--records", required=True, help="Record slots: rejected records count too.")
@json_option
def plan(records: int, as_json: bool, given: Given) -> None:
    """Show the stages, the noise and the topics to expect of a private run over RECORDS.

    No document is read and nothing is spent: all follows from the settings and from measurements on
    other corpora. --vocabulary-size is the number of words, public or wanted of a private choice,
    unless --vocabulary, privacy.public_model or vocabulary.hash_bits gives it. Without
    --snapshot-every all records are one window.
    """
    settings = given.read()
    if not settings.private:
        raise click.UsageError("a private run must have a budget: set --epsilon and --delta")
    private = settings.vocabulary.kind == "private"
    if settings.snapshots.every is None:
        documents = settings.vocabulary.documents
        every = records / (1 + WORDS_OF_WINDOW) if documents is None else records - documents
        every = max(LEAST_WINDOW, int(every) if private else records)
        settings = replace(settings, snapshots=replace(settings.snapshots, every=every))
    found = _planned(settings, records, word_documents(settings) if private else 0)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    click.echo("\n".join(found.lines))
    for warning in found.warnings:
        warn(warning)


def _planned(settings: RunSettings, records: int, chosen_from: int) -> Plan:
    """Return the plan of the settings; a mere number of words is that of public ones."""
    delta = settings.privacy.delta
    if settings.vocabulary.kind == "learned":
        asked = private_settings(settings, settings.vocabulary.size)
        return Plan.of(asked, records, delta=delta)
    terms = PrivateTerms.of(settings)
    choice = None if terms.choice is None else terms.choice.selection
    return Plan.of(terms.settings, records, chosen_from, delta, choice)


def show_expected(settings: RunSettings, quiet: bool) -> None:
    """Say what is expected of a private window, before anything is spent."""
    words = word_documents(settings) if settings.vocabulary.kind == "private" else 0
    found = _planned(settings, words + (settings.snapshots.every or DEFAULT_EVERY), words)
    say(quiet, found.expected)
    for warning in found.warnings:
        warn(warning)
