"""How far the damage of a log reaches."""

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
    reaches can only be tried: steps are doubled until one lands after it, then halved. Where
    several batches are damaged close to each other, the good ones between them may be skipped
    as well. Makes O(log(`end` - `offset`)) connections.
    """

    def readable(at: int) -> bool:
        return at >= end or _reads(connect, settings, partition, at)

    if readable(offset):
        return offset
    bad, step = offset, 1
    while not readable(min(end, bad + step)):
        bad, step = min(end, bad + step), step * 2
    good = min(end, bad + step)
    while good - bad > 1:
        middle = (bad + good) // 2
        if readable(middle):
            good = middle
        else:
            bad = middle
    return good


def _reads(connect: Connect, settings: ClientSettings, partition: int, offset: int) -> bool:
    """Whether records come from an offset, or nothing does in time."""
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
