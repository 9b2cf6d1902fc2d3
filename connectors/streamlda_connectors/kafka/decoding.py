"""From fetched records to the documents, rejects and gaps of a poll."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from streamlda.errors import InvalidSettingError
from streamlda.stream.source import Place
from streamlda_connectors.kafka.client import Record, Run
from streamlda_connectors.lines import json_parser, value_parser
from streamlda_connectors.records import MAX_POLL_BYTES, Batch, Document, Rejected, check_has_fields

#: Turns a record into its text and user, or None for one that is no document; raises `Rejected`.
#: The record has a value: tombstones do not come here.
Decoder = Callable[[Record], Document | None]

#: Called with each record that is passed over, and why, before the poll that passes it returns.
OnReject = Callable[[Record, str], None]

#: The reason of a reject where a decoder raised something else than `Rejected`.
DECODER_FAILED = "decoder-failed"


class Decoding:
    """How the records of a topic are read.

    Parameters
    ----------
    topic : str
        Named in places and rejects, with the partition.
    format, text_field, user_field, max_document_bytes, on_reject
        As in `streamlda_connectors.kafka.source.KafkaSource`.

    Raises
    ------
    InvalidSettingError
        For an option out of range, or two that exclude each other.
    """

    def __init__(
        self,
        topic: str,
        format: str | Decoder,
        text_field: str,
        user_field: str | None,
        max_document_bytes: int,
        on_reject: OnReject | None,
    ) -> None:
        if max_document_bytes < 1:
            raise InvalidSettingError(
                "max_document_bytes must be at least 1, "
                f"got max_document_bytes={max_document_bytes}"
            )
        self.has_users = user_field is not None or callable(format)
        self._topic = topic
        self._max_bytes = max_document_bytes
        self._on_reject = on_reject
        self._whole = callable(format)
        self._decode = _decoder(format, text_field, user_field)

    def take(self, batch: Batch, pending: deque[Run], next_: dict[int, int]) -> bool:
        """Move records into `batch` until it is full or nothing is pending.

        `next_` holds the next offset of each partition, and moves with the records. Time O(bytes
        of the records).

        Returns
        -------
        bool
            False if `on_reject` failed: what was gathered must go out before it is tried again.
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
            room = batch.max_documents - len(batch.texts) - len(batch.gaps)
            hole = min(room, run.offsets[run.taken] - at)
            if hole:
                batch.gaps.extend([len(batch.texts)] * hole)
                next_[run.partition] = at + hole
                continue
            wanted = _consecutive(run, min(room, n_records - run.taken))
            n_read = self._read(run, wanted, batch)
            next_[run.partition] = at + n_read
            run.taken += n_read
            if n_read < wanted and not batch.full:
                return False
        return True

    def _read(self, run: Run, wanted: int, batch: Batch) -> int:
        """Read up to `wanted` records without a hole between them; return how many it were."""
        texts, users, places, gaps = batch.texts, batch.users, batch.places, batch.gaps
        decode, max_bytes = self._decode, self._max_bytes
        first, stop = run.taken, run.taken + wanted
        values = run.values[first:stop]
        inputs: Iterable[Any] = map(run.record, range(first, stop)) if self._whole else values
        location = f"{self._topic}/{run.partition}"
        start = number = run.offsets[first]
        for value, given in zip(values, inputs, strict=True):
            if value is None:
                document = None
            else:
                try:
                    if len(value) > max_bytes:
                        raise Rejected("too-long")
                    document = decode(given)
                except Exception as error:
                    # One record that a decoder cannot stand must not stop the stream.
                    reason = error.reason if isinstance(error, Rejected) else DECODER_FAILED
                    if not self._report(run, first + number - start, reason, batch):
                        break
                    number += 1
                    batch.reject(location, number, reason)
                    continue
            number += 1
            if value is None or document is None:
                gaps.append(len(texts))
                continue
            texts.append(document[0])
            users.append(document[1])
            places.append(Place(location, number))
            batch.bytes += len(value)
            if batch.bytes >= MAX_POLL_BYTES:
                break
        return number - start

    def _report(self, run: Run, index: int, reason: str, batch: Batch) -> bool:
        """Call `on_reject`; whether it worked, or raise if nothing waits to be handed out."""
        if self._on_reject is None:
            return True
        try:
            self._on_reject(run.record(index), reason)
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


def _decoder(
    format: str | Decoder, text_field: str, user_field: str | None
) -> Callable[[Any], Document | None]:
    """Return what reads a value, or, if `format` is a function, a `Record`."""
    if callable(format):
        return format
    if format not in ("json", "text"):
        raise InvalidSettingError(
            f"format must be json, text or a function of a record, got format={format!r}"
        )
    check_has_fields(format, user_field)
    return value_parser() if format == "text" else json_parser(text_field, "utf-8", user_field)
