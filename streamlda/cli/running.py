"""What a long run needs: a line of progress, and signals that end it well."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from streamlda.process import resident_bytes
from streamlda.stream.source import Reject, Source

if TYPE_CHECKING:
    from streamlda.stream.ingest import Counts


class StopSignals(AbstractContextManager["StopSignals"]):
    """SIGINT and SIGTERM ask once for a good end; the second of a kind ends the process at once.

    A signal that the process was started to ignore stays ignored.

    Attributes
    ----------
    received : int
        Number of the first signal that came, 0 if none did.
    """

    def __init__(self) -> None:
        self.received = 0
        self._stop: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def call(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the first signal, now if it has come already."""
        self._stop = stop
        if self.received:
            stop()

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: object) -> None:
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        self.received = number
        if self._stop is not None:
            self._stop()


class RejectsFile(AbstractContextManager["RejectsFile"]):
    """A file with a JSON line for each record passed over: location, record, reason."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="ascii")  # noqa: SIM115 - closed by __exit__

    def write(self, reject: Reject) -> None:
        """Write one line."""
        self._file.write(json.dumps(reject._asdict()) + "\n")

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Progress(AbstractContextManager["Progress"]):
    """A line on standard error: documents, documents/s, memory, and time left where known.

    Parameters
    ----------
    source : Source
        Asked how far it has come.
    quiet : bool
        Show nothing.
    """

    def __init__(self, source: Source, quiet: bool) -> None:
        from tqdm import tqdm

        self._source = source
        self._start = monotonic()
        total = source.progress().total
        line = "{desc} [{elapsed}]"
        if total:
            line = "{percentage:3.0f}%|{bar:20}| {desc} [{elapsed}<{remaining}]"
        on_terminal = sys.stderr.isatty()
        # In a log file, a line for every 10 seconds is enough, and none for a short run.
        self._bar: Any = tqdm(
            total=total or None,
            bar_format=line,
            desc="reading",
            disable=quiet,
            leave=False,
            mininterval=0.2 if on_terminal else 10.0,
            delay=0.0 if on_terminal else 10.0,
        )

    def show(self, counts: Counts) -> None:
        """Show the counts, several times a second at most."""
        if self._bar.disable:
            return
        seconds = max(monotonic() - self._start, 1e-9)
        self._bar.set_description_str(
            f"{counts.documents:,} documents, {counts.documents / seconds:,.0f} documents/s, "
            f"{resident_bytes() / 1e6:,.0f} MB",
            refresh=False,
        )
        self._bar.update(self._source.progress().done - self._bar.n)

    def __exit__(self, *_: object) -> None:
        self._bar.close()
