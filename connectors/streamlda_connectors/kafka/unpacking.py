"""Records of fetched batches, as the package has them at several times the processor time."""

from collections.abc import Iterator
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.util import decode_varint

from streamlda_connectors.kafka.partitions import Record


class UnpackedRecords(Fetcher.PartitionRecords):  # type: ignore[misc] # the package has no types
    """Takes records of one partition from a fetch, but for transactions that were aborted."""

    def _unpack_records(self, part: Any, batches: Any, *deserializers: None) -> Iterator[Record]:
        while (batch := batches.next_batch()) is not None:
            if batch.magic < 2 or not batch.validate_crc():
                raise CorruptRecordError(f"batch at offset {batch.base_offset}")
            self.leader_epoch = batch.leader_epoch
            if not self._is_hidden(batch):
                for record in _records(part.topic, part.partition, batch):
                    self.next_fetch_offset = record.offset + 1
                    yield record
            # The last records of a batch may have been removed by compaction.
            self.next_fetch_offset = batch.next_offset
        self.drain()

    def _is_hidden(self, batch: Any) -> bool:
        """Return whether a batch is a mark, or of a transaction that was aborted."""
        if self.isolation_level and batch.has_producer_id():
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if self._contains_abort_marker(batch):
                self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return True
        return bool(batch.is_control_batch)


def _records(topic: str, partition: int, batch: Any) -> list[Record]:
    """Return the records of a batch of format 2; a thousandth of a second is a hundred of them."""
    batch._maybe_uncompress()
    data, at, begin = bytes(batch._buffer), batch._pos, batch.base_offset
    earliest, appended = batch.first_timestamp, None
    if batch.timestamp_type:
        appended = batch.max_timestamp
    found = []
    for _ in range(batch.records_count):
        # Length and attributes: the sum of the batch was checked, and its end is.
        start = at
        while data[at] > 127:
            at += 1
        delta, at = decode_varint(data, at + 2)
        number, at = decode_varint(data, at)
        key, at = _bytes(data, at) if data[at] != 1 else (None, at + 1)
        value, at = _bytes(data, at)
        if data[at]:
            # Headers are skipped.
            size, at = decode_varint(data, start)
            at += size
        else:
            at += 1
        time = earliest + delta if appended is None else appended
        found.append(_new(Record, (topic, partition, begin + number, time, key, value)))
    if at != len(data):
        raise CorruptRecordError(f"batch at offset {begin}")
    return found


_new: Any = tuple.__new__


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
