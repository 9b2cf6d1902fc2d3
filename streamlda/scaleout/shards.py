"""Shards: files or partitions cut into parts, and the rows of a part, block by block.

Files are cut by size: what is small goes together, what is large in parts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from socket import gethostname
from typing import Any, NamedTuple

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, MissingExtraError, SourceError, at_least
from streamlda.scaleout.faults import check, fault
from streamlda.stream.listing import FilePart, Paths
from streamlda.stream.pipeline import BLOCK_ROWS
from streamlda.stream.source import RecordBatch, open_source, poll
from streamlda.texts import check_counts, check_texts, read_texts
from streamlda.utils.process import keep_freed_memory
from streamlda.utils.threads import limit_threads, one_blas_thread

#: Shards that files are cut into if nothing else is said, and the fewest and most stored bytes of
#: one: as many whatever the cluster, so that models do not depend on it.
SHARDS, LEAST_BYTES, MOST_BYTES = 64, 2**20, 2**26


class FileGroup(NamedTuple):
    """Files that are read together, for they are alike, or a part of one; their stored bytes."""

    names: tuple[str, ...]
    size: int | None
    format: str
    part: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the documents that one task reads: files by `options`, or a partition beside it."""

    name: str
    readings: tuple[FileGroup, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Shards in the order of their documents; the value of each is a partition, or None for files.

    Stored bytes are those of all files, where they are known.
    """

    shards: tuple[Shard, ...]
    values: tuple[Any, ...] = field(repr=False)
    stored_bytes: int | None = None


class FirstRecords(NamedTuple):
    """Rows that a shard of files begins with, or all rows of a partition: a value in its place."""

    batches: list[RecordBatch | DocumentBatch]


def of_files(
    paths: Paths, options: Mapping[str, Any] | None = None, *, shards: int | None = None
) -> Corpus:
    """Cut files into about N shards of about equal size, in reading order.

    Paths and options are those of the connector ``files``. Every worker must find the files under
    the same names. Lines of text and JSON that are not compressed and row groups of Parquet are cut
    where one is larger than a shard. `SourceError` if there are no files, or they lie in memory.
    """
    how = dict(options or {})
    if shards is not None:
        at_least(1, shards=shards, remedy=f"leave it out for about {SHARDS}, by size")
    source: Any = open_source("files", paths, **how)
    with closing(source):
        total = source.progress().total
        most = min(max((total or 0) // SHARDS, LEAST_BYTES), MOST_BYTES)
        most = most if shards is None else -(-(total or 1) // shards)
        parts: list[FilePart] = source.parts(most)
    here = [p.file.name for p in parts if "memory" in str(p.file.file_system.protocol)]
    check(not here, "memory files", name=here[0] if here else None)
    sizes = [max(1, part.size) for part in parts]
    groups = groups_of(sizes, -(-sum(sizes) // most))
    made = tuple(Shard(f"files {n}", _readings(parts[own]), how) for n, own in enumerate(groups))
    return Corpus(made, (None,) * len(made), total)


def groups_of(sizes: Sequence[int], parts: int) -> list[slice]:
    """Return runs of neighbours that have about equally much, about as many as `parts`."""
    # Equal ones differ by a little.
    least, found, begin, held = 0.9 * sum(sizes) / parts, list[slice](), 0, 0
    for end, size in enumerate(sizes, 1):
        held += size
        if held >= least:
            found.append(slice(begin, end))
            begin, held = end, 0
    if begin < len(sizes) and (held >= least / 2 or not found):
        found.append(slice(begin, len(sizes)))
    return [*found[:-1], slice(found[-1].start, len(sizes))]


def _readings(parts: Sequence[FilePart]) -> tuple[FileGroup, ...]:
    """Return the readings of one source each: files that are alike, or a part of one."""
    found = list[FileGroup]()
    for (form, part, _), own in groupby(parts, lambda p: (p.file.format, p.part, p.part and p)):
        files = [each.file for each in own]
        sizes = [file.size for file in files]
        size = None if None in sizes else sum(map(int, filter(None, sizes)))
        found.append(FileGroup(tuple(file.name for file in files), size, form, part))
    return tuple(found)


def poll_readings(shard: Shard, first: Sequence[RecordBatch] = ()) -> Iterator[RecordBatch]:
    """Yield the records of the files of a shard, behind the first ones."""
    read = sum(records.exhausted for records in first)
    behind = first[-1].behind if first and not first[-1].exhausted else None
    for reading in shard.readings[read:]:
        own = {"format": reading.format, "part": reading.part}
        with closing(open_source("files", reading.names, **{**shard.options, **own})) as source:
            size, before, exhausted = source.progress().total, reading.size, False
            same, about = size == before or None in (size, before), {"files": len(reading.names)}
            check(same, "changed", name=reading.names[0], **about, bytes=size, bytes_before=before)
            if behind is not None:
                source.seek(behind.position)
                behind = None
            while not exhausted:
                records = poll(source, BLOCK_ROWS)
                exhausted = records.exhausted
                yield records


def of_partitions(partitions: Any) -> Corpus:
    """Take each partition of a Dask collection, or each element of a list, as a shard.

    A partition is a list of texts, or a sparse or dense matrix of counts. What is delayed is made
    again where a worker is lost, and must come out the same.
    """
    if hasattr(type(partitions), "to_delayed"):
        blocks = np.asarray(partitions.to_delayed(), dtype=object)
        check(blocks.size == len(blocks), "blocks", blocks=blocks.shape)
        partitions = blocks.ravel().tolist()
    if isinstance(partitions, str) or not isinstance(partitions, Sequence) or not partitions:
        raise fault("partitions", type=type(partitions).__name__)
    shards = tuple(Shard(f"partition {number}") for number in range(len(partitions)))
    return Corpus(shards, tuple(partitions))


@contextmanager
def task_of(shard: Shard) -> Iterator[None]:
    """Keep a task to one thread, for workers run side by side; name its shard in errors."""
    keep_freed_memory()
    try:
        with limit_threads(1), one_blas_thread():
            yield
    except MissingExtraError as error:
        raise SourceError(f"{error}, on every worker: shard={shard.name!r}") from error
    except SourceError as error:
        raise SourceError(f"{error}: shard={shard.name!r} worker={gethostname()!r}") from error
    except InvalidDocumentsError as error:
        raise InvalidDocumentsError(f"{error}: shard={shard.name!r}") from error


def rows_of(shard: Shard, value: Any) -> Iterator[RecordBatch | DocumentBatch]:
    """Read the rows of a shard, block by block: records, or counts."""
    first: list[Any] = value.batches if isinstance(value, FirstRecords) else []
    rest = poll_readings(shard, first) if shard.readings else _partition(value)
    for block in chain(first, rest):
        if isinstance(block, RecordBatch) or len(block):
            yield block


def _partition(value: Any) -> Iterator[Any]:
    if isinstance(value, FirstRecords):
        return
    texts = read_texts(value) if hasattr(value, "shape") else value
    if isinstance(value, DocumentBatch):
        yield value
    elif texts is None:
        yield DocumentBatch.from_matrix(check_counts(value))
    else:
        check(isinstance(texts, Iterable), "texts", type=type(value).__name__)
        parts = check_texts(texts)
        while block := list[str | None](islice(parts, BLOCK_ROWS)):
            yield RecordBatch(block)
