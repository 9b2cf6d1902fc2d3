"""Files cut into shards by size: what is small goes together, what is large in parts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from streamlda.errors import at_least
from streamlda.scaleout.faults import check
from streamlda.stream.listing import FilePart, Paths
from streamlda.stream.pipeline import BLOCK_ROWS
from streamlda.stream.source import RecordBatch, open_source

#: Shards that files are cut into if nothing else is said, and the fewest and most stored bytes of
#: one: as many whatever the cluster, so that models do not depend on it.
SHARDS, LEAST_BYTES, MOST_BYTES = 64, 2**20, 2**26

#: From how many places the records come that stand at the beginning, and how many of these places
#: are one shard where there are fewer: a corpus that is cut into more is worth a task for each.
PLACES, PLACES_PER_SHARD = 96, 8

#: Longest wait of a poll, in seconds.
POLL_SECONDS = 0.5


class Reading(NamedTuple):
    """Records `first` to `last` (not included) of whole files together, or of a part of one.

    `size` is that of the files, in stored bytes, where it is known.
    """

    names: tuple[str, ...]
    format: str
    compression: str | None
    part: tuple[int, int] | None = None
    first: int = 0
    last: int = sys.maxsize
    size: int | None = None


def readings_of(
    paths: Paths, options: Mapping[str, Any], shards: int | None, beginning: int
) -> tuple[list[list[Reading]], int, int | None]:
    """Return what is read for each shard, how many are a beginning, and all stored bytes if known.

    With a `beginning`, the first shards have about that many records from all over the files.
    """
    if shards is not None:
        at_least(1, shards=shards, remedy=f"leave it out for about {SHARDS}, by size")
    source: Any = open_source("files", paths, **options)
    with closing(source):
        total = source.progress().total
        most = min(max((total or 0) // SHARDS, LEAST_BYTES), MOST_BYTES)
        most = most if shards is None else -(-(total or 1) // shards)
        parts: list[FilePart] = source.parts(most)
    here = [p.file.name for p in parts if "memory" in str(p.file.file_system.protocol)]
    check(not here, "memory files", name=here[0] if here else None)
    made = [_readings(group) for group in _grouped(parts, most)]
    heads = _heads(made, beginning) if beginning else []
    return [*heads, *made], max(1, len(heads)), total


def _grouped(parts: Sequence[FilePart], most: int) -> Iterator[list[FilePart]]:
    """Yield runs of parts of about equal size."""
    sizes = np.array([max(1, part.size) for part in parts])
    ends = np.cumsum(sizes)
    number = -(-int(ends[-1]) // most)
    shard_of = np.minimum(((ends - sizes / 2) / ends[-1] * number).astype(int), number - 1)
    for _, own in groupby(range(len(parts)), lambda i: shard_of[i]):
        yield [parts[i] for i in own]


def _readings(parts: Sequence[FilePart]) -> list[Reading]:
    """Return what is read by one source each: files that are alike, or a part of one."""
    found: list[Reading] = []
    for file, part, _ in parts:
        last = found[-1] if found else None
        alike = last is not None and last[1:4] == (file.format, file.compression, None)
        if last is not None and alike and part is None:
            known = None not in (last.size, file.size)
            size = (last.size or 0) + (file.size or 0) if known else None
            found[-1] = last._replace(names=(*last.names, file.name), size=size)
        else:
            own = Reading((file.name,), file.format, file.compression, part, size=file.size)
            found.append(own)
    return found


def _heads(shards: list[list[Reading]], records: int) -> list[list[Reading]]:
    """Take the first records of shards that lie far apart; return them as shards of their own."""
    if len(shards) == 1:
        return []
    places = sorted({len(shards) * n // PLACES for n in range(PLACES)})
    each = -(-records // len(places))
    heads = [shards[place][0]._replace(last=each) for place in places]
    for place in places:
        shards[place][0] = shards[place][0]._replace(first=each)
    step = 1 if len(places) == PLACES else PLACES_PER_SHARD
    return [heads[at : at + step] for at in range(0, len(heads), step)]


def poll_readings(readings: Sequence[Reading], options: Mapping[str, Any]) -> Iterator[RecordBatch]:
    """Yield the records of readings."""
    for reading in readings:
        own = {"format": reading.format, "part": reading.part}
        place, read = 0, 0
        while place < reading.last and read < len(reading.names):
            # Of many small files no more are listed than the first records may need. Only a
            # beginning has a `last`: other shards open all their files, as large as before.
            names = reading.names[read : None if reading.last == sys.maxsize else 2 * read + 1]
            read += len(names)
            exhausted = False
            with closing(open_source("files", names, **{**options, **own})) as source:
                if names == reading.names:
                    _check_size(source, reading)
                while place < reading.last and not exhausted:
                    skips = place < reading.first
                    most = min(BLOCK_ROWS, (reading.first if skips else reading.last) - place)
                    records: RecordBatch = source.poll(most, POLL_SECONDS)
                    records.check(most)
                    place += records.n_records
                    exhausted = records.exhausted
                    if not skips:
                        yield records


def _check_size(source: Any, reading: Reading) -> None:
    size = source.progress().total
    check(
        size == reading.size or None in (size, reading.size),
        "changed",
        name=reading.names[0],
        files=len(reading.names),
        bytes=size,
        bytes_before=reading.size,
    )
