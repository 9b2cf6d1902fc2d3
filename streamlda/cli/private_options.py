"""The options of a private ``streamlda fit``, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from streamlda.cli.sources import user_option

Command = TypeVar("Command", bound=Callable[..., Any])

#: What a private run must be told, and why it cannot guess.
REQUIRED = {
    "--delta": "the part of the promise that epsilon leaves open",
    "--ledger": "the file that remembers what was spent on these documents",
    "--snapshot-every": "the places of a window, which must be fixed before any document is read",
}

#: Options that mean something only for users, and those that users need.
FOR_USERS = ("--user-field", "--documents-per-user")

#: Options of `fit` that read or tell what private runs must not.
REFUSED = {
    "--vocabulary-size": "learned words reveal documents: use --vocabulary FILE, --hash-bits or "
    "--private-vocabulary SIZE",
    "--min-document-frequency": "exact counts of words reveal documents: use --private-vocabulary",
    "--max-document-frequency": "exact counts of words reveal documents: use --stop-words FILE",
    "--rejects": "which records were passed over is private: fit without it, and without --epsilon "
    "if the list is needed",
    "--warmup-documents": "a private run keeps no documents: leave it out",
}

OPTIONS = (
    click.option(
        "--epsilon",
        type=click.FloatRange(min=0, min_open=True),
        help="Learn privately: all that is published tells at most this much of any document or "
        "user. Needs --delta, --ledger, --snapshot-every and public words. [default: not private]",
    ),
    click.option(
        "--delta",
        type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
        help="Probability that --epsilon leaves open; far below 1 / documents. "
        "[default: none, it must be given]",
    ),
    click.option(
        "--ledger",
        type=click.Path(),
        help="File that remembers what was spent, made if there is none; releases go to "
        "FILE.releases. [default: none, it must be given]",
    ),
    click.option(
        "--snapshot-every",
        type=click.IntRange(min=100),
        metavar="PLACES",
        help="Publish a snapshot after every so many records, whatever they say. "
        "[default: none, it must be given]",
    ),
    click.option(
        "--snapshot-seconds",
        type=click.FloatRange(min=0, min_open=True),
        help="Publish one after so much time, too, if that comes first; stages end at multiples of "
        "64 records then. [default: never]",
    ),
    click.option(
        "--mode",
        type=click.Choice(("window", "prefix")),
        help="Snapshots of disjoint windows, or of all since the start (needs --snapshots). "
        "[default: window]",
    ),
    click.option(
        "--snapshots",
        type=click.IntRange(min=1),
        help="Most snapshots; then reading ends. [default: no limit]",
    ),
    click.option(
        "--keep-snapshots",
        is_flag=True,
        help="Keep each snapshot as OUTPUT.000001 and so on; OUTPUT is the newest.",
    ),
    click.option(
        "--unit",
        type=click.Choice(("document", "user")),
        help="Whose presence is hidden. user needs --user-field, --documents-per-user and "
        "--snapshots. [default: document]",
    ),
    click.option(
        "--documents-per-user",
        type=click.IntRange(min=1),
        help="Most documents of one user that count in a stage. [default: none]",
    ),
    click.option(
        "--relation",
        type=click.Choice(("add-remove", "replace-one")),
        help="Neighbouring streams differ by one document more or less, or by another in its "
        "place. [default: add-remove]",
    ),
    click.option(
        "--clipping",
        type=click.Choice(("quantile", "worst-case")),
        help="Bounds of a document's share: a private quantile, or the largest there can be. "
        "[default: quantile]",
    ),
    click.option(
        "--stream",
        metavar="NAME",
        help="Name of the stream in the ledger, in which places are counted; the same documents "
        "must always have the same name. [default: the SOURCEs as absolute paths]",
    ),
    click.option(
        "--refinement-rounds",
        type=click.IntRange(min=0),
        metavar="ROUNDS",
        help="Rounds of fresh documents, half of a window together, that refine the topics; 0 for "
        "none. [default: 3 in windows of over 1024 words where noise is small, or 0]",
    ),
    click.option(
        "--private-vocabulary",
        type=click.IntRange(min=1),
        metavar="SIZE",
        help="Choose words privately from the first --vocabulary-documents records, which are "
        "used for nothing else. [default: the words must be public]",
    ),
)

#: Options that do nothing without --epsilon.
NAMES = (
    *(
        "delta",
        "ledger",
        "snapshot_every",
        "snapshot_seconds",
        "mode",
        "snapshots",
        "keep_snapshots",
        "unit",
    ),
    *("user_field", "documents_per_user", "relation", "clipping", "stream", "private_vocabulary"),
    "refinement_rounds",
)


def private_options(command: Command) -> Command:
    """Add the options of private runs to a command."""
    command = user_option(command)
    for decorate in reversed(OPTIONS):
        command = decorate(command)
    return command


def check_usage(context: click.Context, options: dict[str, Any]) -> bool:
    """Tell whether the run is to be private; options that do not go together are refused."""
    # No rounds of refinement are 0, which is something else than not to say.
    given = [
        _option(name) for name in NAMES if not (options[name] is None or options[name] is False)
    ]
    if options["epsilon"] is None:
        if given:
            raise click.UsageError(
                f"only private runs have {', '.join(given)}; give --epsilon too, or leave it out"
            )
        return False
    missing = [f"{name} ({why})" for name, why in REQUIRED.items() if name not in given]
    if missing:
        raise click.UsageError(f"a private run must have {'; '.join(missing)}")
    for name, reason in REFUSED.items():
        if _was_given(context, name):
            raise click.UsageError(f"a private run must not have {name}: {reason}")
    _check_words(context, options)
    _check_unit(options, given)
    return True


def _check_words(context: click.Context, options: dict[str, Any]) -> None:
    kinds = [n for n in ("vocabulary", "hash_bits", "private_vocabulary") if options[n]]
    if len(kinds) != 1:
        raise click.UsageError(
            "a private run must have one of --vocabulary FILE, --hash-bits BITS and "
            f"--private-vocabulary SIZE, got {' and '.join(map(_option, kinds)) or 'none'}; words "
            "learned from the documents would reveal them"
        )
    if _was_given(context, "--vocabulary-documents") != (kinds == ["private_vocabulary"]):
        raise click.UsageError(
            "--private-vocabulary and --vocabulary-documents go together: the words are chosen "
            "from so many records, a number that must be fixed before any is read"
        )


def _check_unit(options: dict[str, Any], given: Sequence[str]) -> None:
    if options["unit"] != "user":
        wrong = [name for name in FOR_USERS if name in given]
        if wrong:
            raise click.UsageError(f"only --unit user has {' and '.join(wrong)}")
    else:
        missing = [name for name in (*FOR_USERS, "--snapshots") if name not in given]
        if missing:
            raise click.UsageError(
                f"--unit user must have {' and '.join(missing)}: whose each document is, how many "
                "of one user count, and how many snapshots a user pays for"
            )
        if options["private_vocabulary"]:
            raise click.UsageError(
                "--private-vocabulary must have --unit document, since users take part in the "
                "choice and in the topics; use --vocabulary or --hash-bits"
            )
    if options["mode"] == "prefix" and (options["unit"] == "user" or not options["snapshots"]):
        raise click.UsageError(
            "--mode prefix must have --snapshots, for which its noise is made, and --unit document"
        )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _was_given(context: click.Context, option: str) -> bool:
    source = context.get_parameter_source(option.lstrip("-").replace("-", "_"))
    return source is ParameterSource.COMMANDLINE
