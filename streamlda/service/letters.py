"""Dead letters of rejected records, and notes of up to where they were written."""

from hashlib import blake2b
from typing import Any

from streamlda.errors import StreamLDAError
from streamlda.run.parts import OnRejected
from streamlda.service.logs import log_failure, name_reason
from streamlda.service.status import Status
from streamlda.settings.table import RunSettings
from streamlda.storage.partitions import LOG
from streamlda.storage.store import Store
from streamlda.stream.source import Position

#: How long dead letters may take to become durable before a checkpoint is put off.
FLUSH_SECONDS = 5.0


class Letters:
    """Dead letters, if they are written somewhere.

    A run that the breaker ends makes no checkpoint, and the next one reads the same records. So it
    notes in its stores up to where letters were written, for runs of the same settings.
    """

    def __init__(self, sink: Any, status: Status, settings: RunSettings) -> None:
        self._sink, self._status = sink, status
        # Everything that says which records are rejected, and where letters go.
        self._decisive = settings.source, settings.dead_letters, settings.registry
        #: The topic that is read, and what tells notes of this run from all others.
        self._topic: str | None = None
        self._key = ""
        #: Stores and their notes by partition; under None those of a store of all partitions.
        self._stores: dict[int | None, tuple[Store, dict[str, Any] | None]] = {}
        #: Offset behind the last letter of each partition.
        self._reached: dict[int, int] = {}

    def read_note(self, store: Store, partition: int | None = None) -> None:
        """Take the note of a store, of one partition or of all."""
        if self._sink is not None:
            try:
                note = store.index.letters()
            except ValueError as error:
                log_failure("dead-letters-not-noted", error)
                note = None
            self._stores[partition] = store, note

    def begin(self, position: Position) -> None:
        """Note the topic that is read: one that replaced another has other offsets."""
        log = [position.get(name) for name in LOG]
        self._topic = position.get("topic")
        self._key = blake2b(repr((self._decisive, log)).encode(), digest_size=16).hexdigest()

    def keep_note(self) -> None:
        """Note up to where letters were written, if all of them are durable."""
        if not self._reached or self.try_to_flush():
            return
        for partition, (store, noted) in self._stores.items():
            offsets = dict(self._offsets(noted))
            for number, at in self._reached.items():
                if partition in (None, number):
                    offsets[str(number)] = max(at, offsets.get(str(number), 0))
            try:
                store.index.note_letters({"run": self._key, "offsets": offsets})
            except (StreamLDAError, OSError) as error:
                log_failure("dead-letters-not-noted", error)

    def _is_written(self, record: Any) -> bool:
        """Tell whether an earlier run wrote the letter about a record."""
        of_all = self._stores.get(None, (None, None))
        _, note = self._stores.get(record.partition, of_all)
        reached = self._offsets(note).get(str(record.partition), 0)
        return record.topic == self._topic and bool(record.offset < reached)

    def _offsets(self, note: dict[str, Any] | None) -> dict[str, int]:
        """Return up to where letters were written by partition, if the note is about this run."""
        return dict(note["offsets"]) if note and note.get("run") == self._key else {}

    @property
    def on_rejected(self) -> OnRejected | None:
        """Function that takes rejected records; None without a sink."""
        return None if self._sink is None else self._put

    def _put(self, record: Any, reason: str) -> None:
        assert self._sink is not None
        if not self._is_written(record):
            self._sink.put(record, reason)
            self._status.count("dead_letters", reason)
        if record.topic == self._topic:
            self._reached[record.partition] = record.offset + 1

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
