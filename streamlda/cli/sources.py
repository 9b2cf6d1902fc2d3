"""What the commands that read documents share: their options, and opening what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from streamlda.stream.source import RecordLocation, Source, open_source

FORMATS = ("auto", "text", "jsonl", "csv", "parquet")
COMPRESSIONS = ("infer", "none", "gzip", "bz2", "xz", "zstd")

#: Longest wait for a document of a slow pipe, in seconds.
POLL_SECONDS = 0.5

Command = TypeVar("Command", bound=Callable[..., Any])


def source_options(command: Command) -> Command:
    """Add the argument SOURCE... and the options of reading to a command."""
    for decorate in reversed(
        (
            click.argument("sources", nargs=-1, required=True, metavar="SOURCE..."),
            click.option(
                "--format",
                "file_format",
                type=click.Choice(FORMATS),
                default="auto",
                show_default=True,
                help="Format of the documents. auto goes by file names; standard input is text, "
                "one document a line.",
            ),
            click.option(
                "--text-field",
                default="text",
                show_default=True,
                help="Key (JSON Lines) or column (CSV, Parquet) of the text; a.b goes down.",
            ),
            click.option(
                "--compression",
                type=click.Choice(COMPRESSIONS),
                default="infer",
                show_default=True,
                help="Compression of the files. infer goes by file names.",
            ),
            click.option(
                "--max-documents",
                type=click.IntRange(min=1),
                help="Stop after this many documents. [default: no limit]",
            ),
        )
    ):
        command = decorate(command)
    return command


def user_option(command: Command) -> Command:
    """Add the option of reading users to a command that has a use for them."""
    return click.option(
        "--user-field",
        metavar="NAME",
        help="Key or column of the user whose document it is, text or a whole number; a.b goes "
        "down. [default: users are not read]",
    )(command)


def open_sources(
    sources: Sequence[str],
    file_format: str,
    text_field: str,
    compression: str,
    user_field: str | None = None,
) -> Source:
    """Open files, directories, globs and URLs, or standard input for ``-``."""
    if "-" not in sources:
        stored = None if compression == "none" else compression
        return open_source(
            "files",
            list(sources),
            format=file_format,
            text_field=text_field,
            user_field=user_field,
            compression=stored,
        )
    if len(sources) > 1:
        raise click.UsageError("standard input (-) must be the only SOURCE")
    if compression not in ("infer", "none"):
        raise click.UsageError(
            f"standard input must not be compressed, got --compression {compression}; "
            "decompress it first: gzip -dc FILE | streamlda ... -"
        )
    stdin_format = "text" if file_format == "auto" else file_format
    return open_source("stdin", format=stdin_format, text_field=text_field, user_field=user_field)


def read_blocks(
    source: Source, max_documents: int | None, warn: Callable[[str], None]
) -> Iterator[tuple[list[str], list[RecordLocation]]]:
    """Yield documents in blocks, with their locations; at the end, warn of what was skipped."""
    from collections import Counter

    from streamlda.stream.ingest import BLOCK_DOCUMENTS

    done = n_records = 0
    ended = False
    rejects: Counter[str] = Counter()
    while not ended and done != max_documents:
        left = BLOCK_DOCUMENTS if max_documents is None else max_documents - done
        batch = source.poll(min(left, BLOCK_DOCUMENTS), POLL_SECONDS)
        rejects.update(reject.reason for reject in batch.rejects)
        located = zip(batch.texts, batch.located(n_records + 1), strict=True)
        if documents := [(text, location) for text, location in located if text is not None]:
            yield [text for text, _ in documents], [location for _, location in documents]
        done += len(documents)
        n_records += batch.n_records
        ended = batch.exhausted
    if rejects:
        warn(f"{rejects.total():,} records skipped: {by_reason(rejects)}")


def by_reason(counts: dict[str, int]) -> str:
    """Return counts as ``not-json 3, too-long 1``, the largest first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{reason} {n:,}" for reason, n in ordered)


def check_output(path: str, inputs: Sequence[str] = ()) -> None:
    """Raise now, and not after hours of reading, if `path` cannot be written or is an input."""
    import tempfile

    target = Path(path)
    if target.exists() and not target.is_file():
        raise click.UsageError(f"an output must be a regular file, got path={path!r}")
    for name in inputs:
        if target.exists() and Path(name).exists() and target.samefile(name):
            raise click.UsageError(
                f"an output must not replace what is read, got path={path!r}; choose another name"
            )
    try:
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except OSError as error:
        raise click.ClickException(
            f"the folder of an output must exist and be writable, got path={path!r} "
            f"({error.strerror}); make the folder or choose another"
        ) from error


def warn(message: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"streamlda: warning: {message}", err=True)
