"""The file of rejected records."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

from streamlda.stream.source import Reject


class RejectsFile(AbstractContextManager["RejectsFile"]):
    """A file with a JSON line for each rejected record: location, record, reason.

    Each line is written at once: before a checkpoint behind its record.
    """

    def __init__(self, path: str, *, append: bool = False) -> None:
        mode = "a" if append else "w"
        self._file = Path(path).open(mode, 1, encoding="ascii")  # noqa: SIM115 - see __exit__

    def write(self, reject: Reject) -> None:
        """Write one line."""
        self._file.write(json.dumps(reject._asdict()) + "\n")

    def __exit__(self, *_: object) -> None:
        self._file.close()
