"""The file of rejected records."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

from streamlda.stream.source import Reject


class RejectsFile(AbstractContextManager["RejectsFile"]):
    """A file with a JSON line for each rejected record: location, record, reason."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="ascii")  # noqa: SIM115 - closed by __exit__

    def write(self, reject: Reject) -> None:
        """Write one line."""
        self._file.write(json.dumps(reject._asdict()) + "\n")

    def __exit__(self, *_: object) -> None:
        self._file.close()
