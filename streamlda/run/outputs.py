"""Files that are written: checked before hours of reading, not after."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from streamlda.checks import require
from streamlda.errors import InvalidSettingError
from streamlda.settings.table import RunSettings


def check_output(path: str, inputs: Sequence[str] = ()) -> None:
    """Raise `InvalidSettingError` if a file cannot be written at `path`, or is an input."""
    target = Path(path)
    require(not target.exists() or target.is_file(), "an output must be a regular file", path=path)
    for name in inputs:
        require(
            target.resolve() != Path(name).resolve()
            and not (target.exists() and Path(name).exists() and target.samefile(name)),
            "an output must not replace what is read, or another output",
            path=path,
            remedy="choose another name",
        )
    try:
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except OSError as error:
        raise InvalidSettingError(
            f"the folder of an output must exist and be writable, got path={path!r} "
            f"({error.strerror}); make the folder or choose another"
        ) from error


def check_outputs(settings: RunSettings) -> None:
    """Check the files that a run writes: model, rejects, ledger."""
    names = ("vocabulary.file", "topics.projection_file")
    taken = [*settings.source.files, *(settings[name] for name in names if settings[name])]
    for path in (settings.output.file, settings.source.rejects, settings.privacy.ledger):
        if path is not None:
            check_output(path, taken)
            taken.append(path)
