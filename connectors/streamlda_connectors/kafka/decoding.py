"""Decode fetched records to the documents, rejects and blanks of a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from streamlda.errors import StreamLDAError, one_of
from streamlda.stream.event_time import RECORD_TIME, in_range
from streamlda_connectors.checks import check
from streamlda_connectors.encodings import recoded
from streamlda_connectors.kafka.partitions import Record, Run
from streamlda_connectors.kafka.registry import Registry, RegistryDecoder
from streamlda_connectors.lines import json_parser, parse_value
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import (
    MAX_POLL_BYTES,
    BatchBuilder,
    Document,
    Parser,
    Rejected,
)

#: Called with each record that is skipped, and why, before the poll that skips it returns.
OnReject = Callable[[Record, str], None]

#: How values are stored.
FORMATS = ("jsonl", "text", "registry")


class Decoding:
    """Options for reading the records of a topic; they are those of `KafkaSource`."""

    def __init__(
        self,
        topic: str,
        format: str,
        options: ReadOptions,
        on_reject: OnReject | None,
        registry: Registry | None = None,
    ) -> None:
        one_of(FORMATS, format=format)
        check((format == "registry") == (registry is not None), "registry", format=format)
        self._by_record = options.time_field == RECORD_TIME
        if self._by_record:
            options = replace(options, time_field=None)
        self._topic = topic
        self._max_bytes = options.max_document_bytes
        self._on_reject = on_reject
        self._decode: Parser
        if registry is not None:
            self._decode = RegistryDecoder(registry, options)
        else:
            options.check_format(format)
            parse = parse_value if format == "text" else json_parser(options)
            self._decode = recoded(parse, options.encoding)

    def take(self, batch: BatchBuilder, pending: deque[Run], next_: dict[int, int]) -> bool:
        """Move records into `batch`, and `next_` with them, until it is full or nothing is pending.

        Returns False if `on_reject` failed, or a schema cannot be had now: what was gathered
        must go out before it is tried again.
        """
        while pending and not batch.full:
            run = pending[0]
            number, rows, at = run.partition, run.records, next_[run.partition]
            # A client that goes back must not make anything count twice.
            while run.taken < len(rows) and rows[run.taken].offset < at:
                run.taken += 1
            if run.taken == len(rows):
                pending.popleft()
                continue
            location = f"{self._topic}/{number}"
            hole = min(batch.room, rows[run.taken].offset - at)
            if hole:
                batch.extend(location, at + 1, [None] * hole, 0)
                batch.keys += [None] * hole
                next_[number] = at + hole
                continue
            # Up to the next hole.
            rows = rows[run.taken : run.taken + batch.room]
            wanted = len(rows)
            if rows[-1].offset >= at + wanted:
                wanted = bisect_right([row.offset - i for i, row in enumerate(rows)], at)
            n_read = self._read(location, rows[:wanted], batch)
            next_[number] = at + n_read
            if n_read and (newest := rows[n_read - 1].timestamp_ms) >= 0:
                batch.newest[number] = newest / 1000
            run.taken += n_read
            if n_read < wanted and not batch.full:
                return False
        return True

    def _read(self, location: str, rows: Sequence[Record], batch: BatchBuilder) -> int:
        """Read records without a hole between them; return how many it were."""
        # Added together: one by one it costs as much again as parsing them.
        found: list[Document | None] = []
        n_bytes = n_read = 0

        def add_found() -> None:
            nonlocal n_bytes
            if found:
                own = rows[n_read - len(found) : n_read]
                batch.extend(location, own[0].offset + 1, found, n_bytes)
                if self._by_record:
                    batch.times[-len(found) :] = [
                        None if document is None else _seconds(row.timestamp_ms)
                        for document, row in zip(found, own, strict=True)
                    ]
            found.clear()
            n_bytes = 0

        for row in rows:
            value = row.value
            try:
                if value is None:
                    found.append(None)
                elif len(value) > self._max_bytes:
                    raise Rejected("too-long")
                else:
                    found.append(self._decode(value))
                    n_bytes += len(value)
            except Rejected as rejected:
                add_found()
                try:
                    if self._on_reject is not None:
                        self._on_reject(row, rejected.reason)
                except Exception:
                    if batch.empty:
                        raise
                    break
                batch.reject(location, row.offset + 1, rejected.reason)
            except StreamLDAError:
                # It is not this record's fault.
                add_found()
                if batch.empty:
                    raise
                break
            n_read += 1
            if batch.bytes + n_bytes >= MAX_POLL_BYTES:
                break
        add_found()
        batch.keys += [row.key for row in rows[:n_read]]
        return n_read


def _seconds(milliseconds: int) -> float | None:
    return None if milliseconds < 0 else in_range(milliseconds / 1000)
