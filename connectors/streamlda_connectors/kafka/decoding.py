"""Decode fetched records to the documents, rejects and blanks of a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from streamlda.checks import at_least, one_of, require
from streamlda.errors import StreamLDAError
from streamlda.stream.event_time import RECORD_TIME, in_range
from streamlda_connectors.checks import check_has_fields
from streamlda_connectors.kafka.client import Record, Run
from streamlda_connectors.kafka.letters import original_of
from streamlda_connectors.kafka.registry import Registry, RegistryDecoder
from streamlda_connectors.lines import json_parser, value_parser
from streamlda_connectors.records import (
    MAX_POLL_BYTES,
    BatchBuilder,
    Document,
    ReadOptions,
    Rejected,
)

#: Turns a record into its text, user, time and id (the last ones may be left out), or None for one
#: that is no document; raises `Rejected`. The record has a value: tombstones do not come here.
Decoder = Callable[
    [Record], Document | tuple[str, str | None] | tuple[str, str | None, float | None] | None
]

#: Called with each record that is skipped, and why, before the poll that skips it returns.
OnReject = Callable[[Record, str], None]

#: How values are stored.
FORMATS = ("jsonl", "text", "registry")

#: The reason of a reject where a decoder raised something else than `Rejected`.
DECODER_FAILED = "decoder-failed"


class Decoding:
    """Options for reading the records of a topic; they are those of `KafkaSource`."""

    def __init__(
        self,
        topic: str,
        format: str | Decoder,
        options: ReadOptions,
        on_reject: OnReject | None,
        registry: Registry | None = None,
        *,
        dead_letters: bool = False,
    ) -> None:
        at_least(1, max_document_bytes=options.max_document_bytes)
        self._by_record = options.time_field == RECORD_TIME
        if self._by_record:
            options = options._replace(time_field=None)
        users, times = options.user_field is not None, options.time_field is not None
        #: What batches say of their documents.
        self.known = {
            "users": users or callable(format),
            "times": times or self._by_record or callable(format),
        }
        self._topic = topic
        self._max_bytes = options.max_document_bytes
        self._on_reject = on_reject
        self._whole = callable(format) or dead_letters
        self._letters = dead_letters
        self._decode = _decoder(format, options, registry)
        if dead_letters:
            self._decode = _of_letters(self._decode, whole=callable(format))

    def take(self, batch: BatchBuilder, pending: deque[Run], next_: dict[int, int]) -> bool:
        """Move records into `batch` until it is full or nothing is pending.

        `next_` holds the next offset of each partition, and moves with the records. Time O(bytes of
        the records). Returns False if `on_reject` failed, or a schema cannot be had now: what was
        gathered must go out before it is tried again.
        """
        while pending and not batch.full:
            run = pending[0]
            n_records = len(run.offsets)
            at = next_[run.partition]
            # A client that goes back must not make anything count twice.
            while run.taken < n_records and run.offsets[run.taken] < at:
                run.taken += 1
            if run.taken == n_records:
                pending.popleft()
                continue
            hole = min(batch.room, run.offsets[run.taken] - at)
            for offset in range(at, at + hole):
                batch.blank(self._location(run), offset + 1)
            if hole:
                next_[run.partition] = at + hole
                continue
            wanted = _consecutive(run, min(batch.room, n_records - run.taken))
            n_read = self._read(run, wanted, batch)
            next_[run.partition] = at + n_read
            if n_read and (newest := run.times[run.taken + n_read - 1]) >= 0:
                batch.newest[run.partition] = newest / 1000
            run.taken += n_read
            if n_read < wanted and not batch.full:
                return False
        return True

    def _read(self, run: Run, wanted: int, batch: BatchBuilder) -> int:
        """Read up to `wanted` records without a hole between them; return how many it were."""
        decode, max_bytes, location = self._decode, self._max_bytes, self._location(run)
        first, stop = run.taken, run.taken + wanted
        values = run.values[first:stop]
        inputs: Iterable[Any] = map(run.record, range(first, stop)) if self._whole else values
        start = run.offsets[first]
        # Added together: one by one it costs as much again as parsing them.
        found: list[Document | None] = []
        n_bytes = n_read = 0

        def gathered() -> None:
            nonlocal n_bytes
            batch.extend(location, start + n_read - len(found) + 1, found, n_bytes)
            if self._by_record:
                begin = first + n_read - len(found)
                batch.times[len(batch.times) - len(found) :] = [
                    None if document is None else self._time(run, index)
                    for index, document in enumerate(found, begin)
                ]
            found.clear()
            n_bytes = 0

        for value, given in zip(values, inputs, strict=True):
            try:
                if value is None:
                    found.append(None)
                elif len(value) > max_bytes:
                    raise Rejected("too-long")
                else:
                    found.append(decode(given))
                    n_bytes += len(value)
            except StreamLDAError:
                # It is not this record's fault.
                gathered()
                if batch.empty:
                    raise
                break
            except Exception as error:
                # One record that a decoder cannot stand must not stop the stream.
                reason = error.reason if isinstance(error, Rejected) else DECODER_FAILED
                gathered()
                if not self._report(run, first + n_read, reason, batch):
                    break
                batch.reject(location, start + n_read + 1, reason)
            n_read += 1
            if batch.bytes + n_bytes >= MAX_POLL_BYTES:
                break
        gathered()
        return n_read

    def _time(self, run: Run, index: int) -> float | None:
        if self._letters:
            return _seconds(original_of(run.record(index)).timestamp_ms)
        return _seconds(run.times[index])

    def _location(self, run: Run) -> str:
        return f"{self._topic}/{run.partition}"

    def _report(self, run: Run, index: int, reason: str, batch: BatchBuilder) -> bool:
        """Call `on_reject`; whether it worked, or raise if nothing waits to be handed out."""
        if self._on_reject is None:
            return True
        record = run.record(index)
        if self._letters:
            # The next letter is about the same record; one that lost it is about the letter.
            with suppress(Rejected):
                record = original_of(record)
        try:
            self._on_reject(record, reason)
        except Exception:
            if batch.empty:
                raise
            return False
        return True


def _consecutive(run: Run, n_records: int) -> int:
    """Return how many of the next `n_records` follow each other without a hole."""
    offsets, first = run.offsets, run.taken
    start = offsets[first]
    if offsets[first + n_records - 1] == start + n_records - 1:
        return n_records
    return next(i for i in range(n_records) if offsets[first + i] != start + i)


def _seconds(milliseconds: int) -> float | None:
    return None if milliseconds < 0 else in_range(milliseconds / 1000)


def _decoder(
    format: str | Decoder, options: ReadOptions, registry: Registry | None
) -> Callable[[Any], Any]:
    """Return what reads a value, or, if `format` is a function, a `Record`."""
    if not callable(format):
        one_of(FORMATS, format=format, remedy="or pass a function of a record")
    require(
        (format == "registry") == (registry is not None),
        "a registry and the format registry go together",
        format=format if isinstance(format, str) else "a function",
        remedy="name both, or neither",
    )
    if callable(format):
        return lambda record: _padded(format(record))
    if registry is not None:
        return RegistryDecoder(registry, options)
    check_has_fields(format, options.user_field, options.time_field, options.id_field)
    return value_parser() if format == "text" else json_parser(options)


def _padded(found: tuple[Any, ...] | None) -> Document | None:
    """Return what a decoder gave with None for what it left out."""
    if found is None:
        return None
    text, user, time, name = (*found, None, None, None)[:4]
    return text, user, time, name


def _of_letters(decode: Callable[[Any], Any], *, whole: bool) -> Callable[[Record], Any]:
    """Return what reads the records that letters are about."""

    def read(letter: Record) -> Any:
        original = original_of(letter)
        return decode(original if whole else original.value)

    return read
