"""Wait for what a daemon begins with while it is away, and show it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from streamlda.errors import SourceAwayError, StreamLDAError
from streamlda.run.opening import OpenedRun
from streamlda.run.parts import OnRejected
from streamlda.service.daemon import TICK_SECONDS
from streamlda.service.logs import log_failure, reason_of
from streamlda.service.rules import Retry
from streamlda.service.status import Status
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.sink import DeadLetterSink
from streamlda.stream.source import Position, Source

_T = TypeVar("_T")

#: How long dead letters may take to become durable before a checkpoint is put off.
FLUSH_SECONDS = 5.0


def wait_for(
    status: Status, what: str, open_it: Callable[[], _T], away: type[OSError] = SourceAwayError
) -> _T:
    """Return what `open_it` does, called again while that is away; other errors are raised."""
    retry = Retry(what)
    while True:
        try:
            found = open_it()
        except away as error:
            log_failure("open-failed", error)
            status.count_failure(what, reason_of(error))
            status.show(retry.failed(time.monotonic(), reason_of(error)))
        else:
            status.show(retry.done(time.monotonic()))
            return found
        while retry.waits(time.monotonic()):
            status.beat()
            time.sleep(TICK_SECONDS)


class Letters:
    """Dead letters, if they are written somewhere."""

    def __init__(self, sink: DeadLetterSink | None, status: Status) -> None:
        self._sink, self._status = sink, status

    @property
    def on_rejected(self) -> OnRejected | None:
        """What takes rejected records; None if nothing does."""
        return None if self._sink is None else self._put

    def _put(self, record: Any, reason: str) -> None:
        assert self._sink is not None
        self._sink.put(record, reason)
        self._status.count("dead_letters", reason)

    def flush(self) -> None:
        """Make them durable; raise `SinkAwayError` if that takes too long."""
        if self._sink is not None:
            self._sink.flush(FLUSH_SECONDS)

    def try_to_flush(self) -> str:
        """Make them durable, or log and return a word for why that is not possible now."""
        try:
            self.flush()
        except StreamLDAError as error:
            log_failure("dead-letters-failed", error)
            self._status.count_failure("dead-letters", reason_of(error))
            return reason_of(error)
        return ""


def open_source(
    settings: RunSettings, found: OpenedRun, letters: Letters, position: Position | None
) -> Source:
    """Open the source of a run as `OpenedRun.begin_source`; the letters of skipped records last."""
    source = found.begin_source(settings, position, letters.on_rejected)
    if position is None and found.slots_to_skip:
        try:
            # The checkpoint after them comes next.
            letters.flush()
        except BaseException:
            source.close()
            raise
    return source
