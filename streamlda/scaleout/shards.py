"""Shards: files or partitions cut into parts, and the rows of a part, block by block.

Files are cut by size: what is small goes together, what is large in parts.
"""

from __future__ import annotations

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
from streamlda.stream.counts import RecordCounts
from streamlda.stream.listing import FilePart, Paths
from streamlda.stream.pipeline import BLOCK_ROWS, find_cut
from streamlda.stream.source import RecordBatch, open_source
from streamlda.text.encoding import EncodedTexts
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import join_words, read_texts
from streamlda.utils.process import keep_freed_memory
from streamlda.utils.threads import limit_threads, one_blas_thread

#: Shards that files are cut into if nothing else is said, and the fewest and most stored bytes of
#: one: as many whatever the cluster, so that models do not depend on it.
SHARDS, LEAST_BYTES, MOST_BYTES = 64, 2**20, 2**26

#: Longest wait of a poll, in seconds.
POLL_SECONDS = 0.5


class Reading(NamedTuple):
    """Files that are read together, for they are alike, or a part of one.

    `size` is that of the files, in stored bytes, where it is known.
    """

    names: tuple[str, ...]
    size: int | None
    format: str
    compression: str | None
    part: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the documents that one task reads: files, or a partition handed over with it.

    Files are read by `options` of the connector ``files``. Its name tells it from other shards.
    """

    name: str
    readings: tuple[Reading, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Shards in the order of their documents, made by `of_files` or `of_partitions`.

    The value of a shard is a partition, or what Dask makes one of; None for files, of which
    `stored_bytes` are what they hold, where that is known.
    """

    shards: tuple[Shard, ...]
    values: tuple[Any, ...] = field(repr=False)
    stored_bytes: int | None = None


class FirstRecords(NamedTuple):
    """Records that a shard begins with, and whether they are all: a value that stands for it.

    Of a shard of counts there are its columns.
    """

    batches: list[RecordBatch]
    whole: bool
    columns: int = 0


def of_files(
    paths: Paths, options: Mapping[str, Any] | None = None, *, shards: int | None = None
) -> Corpus:
    """Cut files into about N shards of about equal size, in reading order.

    Paths and options are those of the connector ``files``. Every worker must find the files under
    the same names. Small files go into one shard, and what is larger than one is cut where it can
    be read from the middle: lines of text and JSON that are not compressed, row groups of Parquet.
    By default there are 64 shards of 1 to 64 MiB, or more of 64 MiB. `SourceError` if a path has no
    files, a file is named twice, or lies in memory.
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
    # Runs of parts of about equal size.
    sizes = np.array([max(1, part.size) for part in parts])
    ends = np.cumsum(sizes)
    number = -(-int(ends[-1]) // most)
    shard_of = np.minimum(((ends - sizes / 2) / ends[-1] * number).astype(int), number - 1)
    groups = groupby(range(len(parts)), lambda i: shard_of[i])
    found = [_readings([parts[i] for i in own]) for _, own in groups]
    made = tuple(Shard(f"files {n}", readings, how) for n, readings in enumerate(found))
    return Corpus(made, (None,) * len(made), total)


def _readings(parts: Sequence[FilePart]) -> tuple[Reading, ...]:
    """Return what is read by one source each: files that are alike, or a part of one."""
    found: list[Reading] = []
    for file, part, _ in parts:
        own = Reading((file.name,), file.size, file.format, file.compression, part)
        if found and part is None and found[-1][2:] == own[2:]:
            last = found.pop()
            size = None if None in (last.size, own.size) else (last.size or 0) + (own.size or 0)
            own = own._replace(names=(*last.names, file.name), size=size)
        found.append(own)
    return tuple(found)


def poll_readings(shard: Shard, skipped: int) -> Iterator[RecordBatch]:
    """Yield the records of the files of a shard behind the first ones, which were read before."""
    for reading in shard.readings:
        own = {"format": reading.format, "part": reading.part}
        with closing(open_source("files", reading.names, **{**shard.options, **own})) as source:
            size, before, exhausted = source.progress().total, reading.size, False
            same, about = size == before or None in (size, before), {"files": len(reading.names)}
            check(same, "changed", name=reading.names[0], **about, bytes=size, bytes_before=before)
            while not exhausted:
                most = min(skipped or BLOCK_ROWS, BLOCK_ROWS)
                records: RecordBatch = source.poll(most, POLL_SECONDS)
                records.check(most)
                exhausted = records.exhausted
                if skipped:
                    skipped -= records.n_records
                else:
                    yield records


def of_partitions(partitions: Any) -> Corpus:
    """Take each partition of a Dask collection, or each element of a list, as a shard.

    A collection is a bag of texts, or an array of counts in blocks of whole rows. A list holds what
    is, or what Dask makes (``Delayed``, ``Future``): lists of texts, sparse or dense matrices of
    counts with equal columns. What is delayed is made again where a worker is lost, and must come
    out the same.
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
    """Keep a task to one thread, for workers are what runs side by side; name its shard in errors.

    Errors come back from another machine.
    """
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


def batches_of(
    shard: Shard,
    value: Any,
    vocabulary: Vocabulary | None,
    counts: RecordCounts,
    *,
    slots: bool = False,
    learns_short: bool = True,
) -> Iterator[DocumentBatch]:
    """Yield rows of a shard as counts; `counts` are added to.

    With `slots` every record has a row, a blank one where there is no document.
    """
    for found in rows_of(shard, value):
        if isinstance(found, DocumentBatch):
            counts.records += len(found)
            counts.documents += len(found)
            encoded = EncodedTexts(found, int(found.lengths.sum()), 0)
            counts.add_encoded(encoded, len(found), learns_short=learns_short)
            yield found
            continue
        if vocabulary is None:
            raise fault("no words", vocabulary=None)
        counts.add_batch(found)
        texts = [text or "" for text in found.texts] if slots else found.documents
        start, blank = 0, len(texts) - found.n_documents
        while start < len(texts):
            stop = find_cut([(text, None, None) for text in texts], start, len(texts))
            encoded = vocabulary.encode(texts[start:stop])
            counts.add_encoded(encoded, stop - start - blank, learns_short=learns_short)
            yield encoded.batch
            start, blank = stop, 0


def rows_of(shard: Shard, value: Any) -> Iterator[RecordBatch | DocumentBatch]:
    """Read the rows of a shard, block by block: records, or counts.

    Raises `SourceError` if a file cannot be read, and `InvalidDocumentsError` if a partition holds
    neither texts nor counts.
    """
    first = value if isinstance(value, FirstRecords) else FirstRecords([], whole=False)
    rest: Iterable[RecordBatch | DocumentBatch] = []
    if not first.whole and shard.readings:
        rest = poll_readings(shard, sum(batch.n_records for batch in first.batches))
    elif not first.whole:
        rest = _partition(value)
    for block in chain(first.batches, rest):
        if isinstance(block, DocumentBatch):
            if len(block):
                yield block
        elif block.n_records or block.notes:
            yield block


def _partition(value: Any) -> Iterator[RecordBatch | DocumentBatch]:
    texts: list[str] | None = None
    if isinstance(value, DocumentBatch):
        yield value
    elif hasattr(value, "shape") and (texts := read_texts(value)) is None:
        yield DocumentBatch.from_matrix(value)
    else:
        # A text is an iterable of texts, too.
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        parts, at = map(join_words, texts or value if listed else [value]), 0
        while block := list(islice(parts, BLOCK_ROWS)):
            for number, part in enumerate(block, at):
                about = {"element": number, "element_type": type(part).__name__}
                check(listed and isinstance(part, str), "texts", type=type(value).__name__, **about)
            yield RecordBatch(block)
            at += len(block)
