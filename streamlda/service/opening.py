"""What a daemon begins with may be away for a while: it is waited for, and shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from streamlda.checks import require
from streamlda.errors import SourceAwayError, StreamLDAError
from streamlda.run.opening import OpenedRun
from streamlda.run.parts import OnRejected, skip_records
from streamlda.service.daemon import TICK_SECONDS
from streamlda.service.logs import log_failure, reason_of
from streamlda.service.rules import Retry
from streamlda.service.status import Status
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.sink import DeadLetterSink
from streamlda.stream.source import Position, Source, stand

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


class SourceOpening:
    """Opens the source of a run, and brings it to where the run goes on; from one thread."""

    def __init__(self, settings: RunSettings, found: OpenedRun, letters: Letters) -> None:
        self._settings, self._found, self._letters = settings, found, letters
        # What a release has used is skipped once, however often the source is away meanwhile.
        self._left_to_skip = found.slots_to_skip

    def open(self, position: Position | None) -> Source:
        """Open the source at a position; without one, where the run goes on.

        That is after the checkpoint, and after what a release has used since. Raises
        `SourceAwayError` for what may be there later, and this may be called again then; other
        errors as `OpenedRun.go_on`, and `SourceError` if the source ends before that.
        """
        source = self._found.open_source(self._settings, self._letters.on_rejected)
        try:
            if position is not None:
                source.seek(position)
            else:
                skipped_to = self._found.pipeline.position
                self._found.go_on(source, self._settings)
                self._skip(source, skipped_to)
        except BaseException:
            source.close()
            raise
        return source

    def _skip(self, source: Source, skipped_to: Position | None) -> None:
        found = self._found
        if self._left_to_skip < found.slots_to_skip:
            assert skipped_to is not None
            source.seek(skipped_to)
            found.pipeline.begin_at(stand(source))

        def on_poll(n_records: int) -> None:
            self._left_to_skip -= n_records
            _check_there(source)

        skip_records(source, self._left_to_skip, found.pipeline, on_poll)
        if found.slots_to_skip:
            # The checkpoint after them comes next.
            self._letters.flush()


def _check_there(source: Source) -> None:
    silent = source.silent() if hasattr(source, "silent") else None
    require(
        not silent,
        "a source must answer while records of a release are skipped",
        error=SourceAwayError,
        silent_seconds=silent,
        remedy="wait, or check that it runs",
    )
