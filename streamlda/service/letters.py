"""Dead letters of a daemon: references to the records that it rejects."""

from __future__ import annotations

from typing import Any

from streamlda.errors import StreamLDAError
from streamlda.run.parts import OnRejected
from streamlda.service.logs import log_failure, name_reason
from streamlda.service.status import Status

#: How long dead letters may take to become durable before a checkpoint is put off.
FLUSH_SECONDS = 5.0


class Letters:
    """Dead letters, if they are written somewhere."""

    def __init__(self, sink: Any, status: Status) -> None:
        self._sink, self._status = sink, status

    @property
    def on_rejected(self) -> OnRejected | None:
        """What takes rejected records; None if nothing does."""
        return None if self._sink is None else self._put

    def _put(self, record: Any, reason: str) -> None:
        assert self._sink is not None
        self._sink.put(record, reason)
        self._status.count("dead_letters", reason)

    def try_to_flush(self) -> str:
        """Make them durable, or log and return a word for why that is not possible now."""
        if self._sink is None:
            return ""
        try:
            self._sink.flush(FLUSH_SECONDS)
        except StreamLDAError as error:
            log_failure("dead-letters-failed", error)
            self._status.count_failure("dead-letters", name_reason(error))
            return name_reason(error)
        return ""
