"""Records of batches, against what kafka-python makes of the same bytes."""

import struct

import pytest
from crc32c import crc32c
from kafka.consumer.fetcher import Fetcher
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.structs import TopicPartition

from streamlda_connectors.kafka.unpacking import UnpackedRecords

#: Offset delta, time, key, value and headers of records; lengths below and above one byte.
ROWS = [
    (1_700_000_000_000, None, b"value", []),
    (1_700_000_000_001, b"key", None, []),
    (1_699_999_000_000, b"", b"", [("name", b"content"), ("none", None), ("", b"")]),
    (1_700_000_009_999, b"k" * 300, b"v" * 70_000, [("näme", b"\xff" * 200)]),
    *[(1_700_000_000_000 + n, None, b"%d" % n, []) for n in range(200)],
]
CONTROL, APPENDED = 0x20, 0x08


def batch(offset, rows=ROWS, attributes=0, compression=0, producer=-1):
    more = dict.fromkeys(("producer_epoch", "base_sequence"), min(producer, 0))
    more["producer_id"] = producer
    builder = MemoryRecordsBuilder(2, compression, 2**20, offset, producer >= 0, **more)
    for time, key, value, headers in rows:
        builder.append(timestamp=time, key=key, value=value, headers=headers)
    builder.close()
    data = bytearray(builder.buffer())
    if attributes:
        data[22] |= attributes
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def unpack_records(kind, data, *, at=0, committed=True, aborted=()):
    """Return the records without headers, where the next fetch begins, and the leader's epoch."""
    part = TopicPartition("topic", 3)
    options = {"isolation_level": int(committed), "aborted_transactions": aborted}
    taken = kind(at, part, MemoryRecords(data), **options)
    rows = []
    while taken and (some := taken.take(7)):
        rows += some
    return [tuple_of(row) for row in rows], taken.next_fetch_offset, taken.leader_epoch


def tuple_of(row):
    time = row.timestamp_ms if hasattr(row, "timestamp_ms") else row.timestamp
    return (row.topic, row.partition, row.offset, time, row.key, row.value)


class Aborted:
    producer_id, first_offset = 7, 204


MARK = [(0, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0), [])]
TRANSACTIONS = [
    batch(0, producer=5),
    batch(204, ROWS[:2], producer=7),
    batch(206, producer=5),
    batch(410, MARK, producer=7, attributes=CONTROL),
    batch(411, ROWS[:3], producer=7),
]


def test_records_are_those_of_the_package():
    for batches, options in (
        ([batch(10)], {}),
        ([batch(10), batch(300)], {"at": 57}),
        ([batch(10, attributes=APPENDED)], {}),
        ([batch(10, compression=1)], {}),
        (TRANSACTIONS, {"aborted": [Aborted]}),
        (TRANSACTIONS, {"aborted": [Aborted], "committed": False}),
        ([batch(10), batch(300)[:-1]], {}),
    ):
        data = b"".join(batches)
        rows, *rest = unpack_records(UnpackedRecords, data, **options)
        assert (rows, *rest) == unpack_records(Fetcher.PartitionRecords, data, **options)
        assert rows
        assert {type(value) for row in rows for value in row[4:6]} <= {bytes, type(None)}


#: Places of bytes that are changed, and whether the sum is put right: 60 is the number of records.
CHANGED = [(25, False), (60, False), (70, False), (-1, False), (60, True)]


@pytest.mark.parametrize(("at", "with_sum"), CHANGED)
def test_bytes_that_changed_are_refused(at, with_sum):
    data = bytearray(batch(0, ROWS[:3]))
    data[at] ^= 1
    if with_sum:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    with pytest.raises(Exception, match="batch" if with_sum else r"batch|crc"):
        unpack_records(UnpackedRecords, bytes(data))
