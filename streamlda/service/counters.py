"""What Prometheus was shown of each counter, kept over the end of the process.

After a kill the daemon goes on where its last checkpoint stands, and its counters with it. Of a
counter that goes back Prometheus believes that it began at 0, and adds all of it once more. So none
is shown below what was shown before: it stands still until the records that are read again are
after it, and counts each of them once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from streamlda.container import to_json
from streamlda.service.logs import log, log_failure
from streamlda.storage.state import OWNER_ONLY

#: Beside the checkpoints, for they go back together.
FILE = "counters"


class ShownCounters:
    """The largest value shown of each sample of each counter, in a file of a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._shown: dict[str, dict[str, int]] = {}
        self._saved: str | None = None
        try:
            found = json.loads(self._path.read_bytes())
            self._shown = {
                str(name): {str(key): int(n) for key, n in samples.items()}
                for name, samples in found.items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, AttributeError, TypeError) as error:
            # The checkpoints have the same but for what came since.
            log("warning", "counters-unreadable", error=type(error).__name__)

    def raised(self, name: str, values: Mapping[str, int]) -> dict[str, int]:
        """Return the samples of a counter, none of them below what it was."""
        shown = self._shown.setdefault(name, {})
        for key, value in values.items():
            shown[key] = max(value, shown.get(key, 0))
        return dict(shown)

    def save(self) -> None:
        """Write them, if they changed; to be called before they are shown. Not forced to the disk.

        What the kernel has outlives the process. Behind a crash of the machine the checkpoints say
        what was counted.
        """
        text = to_json(self._shown)
        if text == self._saved:
            return
        try:
            fresh = self._path.with_name(f"{FILE}.new")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
            fresh.replace(self._path)
        except OSError as error:
            log_failure("counters-not-saved", error)
            return
        self._saved = text
