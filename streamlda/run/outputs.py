"""Files that are written: checked before hours of reading, not after."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from streamlda.errors import Faults, InvalidSettingError, SourceError
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings

_FAULTS = Faults(
    {
        InvalidSettingError: {
            "no file": "an output must be a regular file; choose another name",
            "an input": "an output must not replace what is read, or another output; choose "
            "another name",
            "a ledger's": "an output must not be where a ledger keeps its own; choose another name",
            "no folder": "the folder of an output must exist and be writable; make the folder or "
            "choose another",
        }
    }
)


def check_output(path: str, inputs: Sequence[str | Path] = (), *, is_ledger: bool = False) -> None:
    """Raise `InvalidSettingError` if a file cannot be written, or replaces input or ledger."""
    target = Path(path)
    here, exists = target.resolve(), target.exists()
    _FAULTS.check(not exists or target.is_file(), "no file", path=path)
    for other in map(Path, inputs):
        same = target.samefile(other) if exists and other.exists() else here == other.resolve()
        _FAULTS.check(not same, "an input", path=path)
    if not is_ledger:
        _check_no_ledger(here)
    try:
        tempfile.TemporaryFile(dir=here.parent).close()
    except OSError as error:
        raise _FAULTS.make("no folder", path=path, reason=error.strerror) from error


def check_outputs(settings: RunSettings) -> None:
    """Check the files that a run writes: model, rejects, ledger. Lists the files that it reads."""
    from streamlda.privacy.ledger.file import beside
    from streamlda.stream.listing import find_files, split_patterns
    from streamlda.text.stop_words import parse_languages

    words, source, ledger = settings.vocabulary, settings.source, settings.privacy.ledger
    lists = () if parse_languages(words.stop_words) else (words.stop_words,)
    named = (words.file, settings.topics.projection_file, *lists)
    taken: list[str | Path] = [*source.files, *filter(None, named)]
    with suppress(SourceError):  # What cannot be listed is said when it is opened.
        if get_source_kind(settings) == "files":
            patterns = split_patterns(source.include)
            stored = find_files(source.files, source.format, "infer", patterns)
            taken += [file.name for file in stored if file.local]
    own = [] if ledger is None else beside(Path(ledger).resolve())
    for path in filter(None, (settings.output.file, source.rejects)):
        check_output(path, [*taken, *own])
        taken.append(path)
    if ledger is not None:
        check_output(ledger, [*taken, *own], is_ledger=True)
    for folder in filter(None, (settings.output.folder, settings.checkpoint.folder)):
        _check_no_ledger(Path(folder).resolve(), own)


def _check_no_ledger(path: Path, new: Sequence[Path] = ()) -> None:
    from streamlda.privacy.ledger.file import has_ledger

    _FAULTS.check(path not in new and not has_ledger(path), "a ledger's", path=str(path))
