"""What commands share that write and warn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click


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
        raise click.UsageError(
            f"the folder of an output must exist and be writable, got path={path!r} "
            f"({error.strerror}); make the folder or choose another"
        ) from error


def by_reason(counts: Mapping[str, int]) -> str:
    """Return counts as ``not-json 3, too-long 1``, the largest first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{reason} {n:,}" for reason, n in ordered)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"streamlda: warning: {message}", err=True)
