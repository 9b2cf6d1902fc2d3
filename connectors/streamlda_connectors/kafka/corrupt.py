"""The way past a damaged batch: where the next record is that can be read."""

from __future__ import annotations

from contextlib import closing
from time import monotonic

from streamlda_connectors.kafka.client import Broken, ClientSettings, Connect

#: How long a probe waits for a record before it takes the rest of the log for empty.
PROBE_SECONDS = 5.0


def first_readable(
    connect: Connect, settings: ClientSettings, partition: int, offset: int, end: int
) -> int:
    """Return the least offset from `offset` on at which reading works, or `end`.

    The broker sends whole batches, so within the damaged one every offset fails, and how far it
    reaches can only be tried: steps are doubled until one lands behind it, then halved. Where
    several batches are damaged close to each other, the good ones between them may be skipped
    as well. Makes O(log(`end` - `offset`)) connections.
    """
    if _readable(connect, settings, partition, offset, end):
        return offset
    bad, step = offset, 1
    while not _readable(connect, settings, partition, min(end, bad + step), end):
        bad, step = min(end, bad + step), step * 2
    good = min(end, bad + step)
    while good - bad > 1:
        middle = (bad + good) // 2
        if _readable(connect, settings, partition, middle, end):
            good = middle
        else:
            bad = middle
    return good


def _readable(
    connect: Connect, settings: ClientSettings, partition: int, offset: int, end: int
) -> bool:
    if offset >= end:
        return True
    try:
        with closing(connect(settings)) as client:
            client.assign({partition: offset})
            deadline = monotonic() + PROBE_SECONDS
            while monotonic() < deadline:
                if client.poll(0.5, 1):
                    return True
    except Broken:
        return False
    return True
