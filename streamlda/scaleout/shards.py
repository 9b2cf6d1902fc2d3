"""Shards: files or partitions cut into parts, and the rows of a part, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from socket import gethostname
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import sparray, spmatrix

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, MissingExtraError, SourceError, failure
from streamlda.scaleout.faults import check, fault
from streamlda.scaleout.files import Reading, poll_readings, readings_of
from streamlda.stream.counts import RecordCounts
from streamlda.stream.listing import Paths
from streamlda.stream.pipeline import BLOCK_ROWS, find_cut
from streamlda.stream.source import RecordBatch
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import join_words, read_texts
from streamlda.utils.process import keep_freed_memory
from streamlda.utils.threads import limit_threads, one_blas_thread

#: What a partition may list besides texts.
COUNTS = (DocumentBatch, spmatrix, sparray)


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the documents that one task reads: files, or a partition handed over with it.

    Files are read by `options` of the connector ``files``. Its name tells it from other shards:
    sums of one shard are never added twice.
    """

    name: str
    readings: tuple[Reading, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Shards in the order of their documents, made by `of_files` or `of_partitions`.

    The value of a shard is a partition, or what Dask makes one of; None for files, of which
    `stored_bytes` are what they hold, where that is known. The first `heads` shards are asked at
    once for a beginning.
    """

    shards: tuple[Shard, ...]
    values: tuple[Any, ...] = field(repr=False)
    stored_bytes: int | None = None
    heads: int = 1


class FirstRecords(NamedTuple):
    """Records that a shard begins with, and whether they are all: a value that stands for it.

    Of a shard of counts there are its columns.
    """

    batches: tuple[RecordBatch, ...]
    whole: bool
    columns: int = 0


def of_files(
    paths: Paths,
    options: Mapping[str, Any] | None = None,
    *,
    shards: int | None = None,
    beginning: int = 0,
) -> Corpus:
    """Cut files into about N shards of about equal size, in reading order.

    Paths and options are those of the connector ``files``. Every worker must find the files under
    the same names. Small files go into one shard, and what is larger than one is cut where it can
    be read from the middle: lines of text and JSON that are not compressed, row groups of Parquet.
    By default there are 64 shards of 1 to 64 MiB, or more of 64 MiB. With a `beginning` the first
    shards have about that many records from places all over the files, and the others what is left.
    `SourceError` if a path has no files, a file is named twice, or lies in memory.
    """
    how = dict(options or {})
    found, heads, total = readings_of(paths, how, shards, beginning)
    made = tuple(
        Shard(f"files {number}", tuple(readings), how) for number, readings in enumerate(found)
    )
    return Corpus(made, (None,) * len(made), total, heads)


def of_partitions(partitions: Any) -> Corpus:
    """Take each partition of a Dask collection, or each element of a list, as a shard.

    A collection is a bag of texts, or an array of counts in blocks of whole rows. A list holds what
    is, or what Dask makes (``Delayed``, ``Future``): lists of texts, sparse or dense matrices of
    counts with equal columns, lists of sparse matrices or rows, or `DocumentBatch`. What is delayed
    is made again, where it is used, in each round, and must come out the same; what lies here is
    sent with the tasks of each.
    """
    if hasattr(partitions, "to_delayed"):
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
) -> Iterator[DocumentBatch]:
    """Yield rows of a shard as counts; `counts` are added to.

    With `slots` every record has a row, a blank one where there is no document.
    """
    for found in rows_of(shard, value):
        if isinstance(found, DocumentBatch):
            counts.records += len(found)
            counts.documents += len(found)
            counts.tokens += int(found.lengths.sum())
            counts.short += len(found) - int(found.usable.sum())
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
            counts.add_encoded(encoded, stop - start - blank)
            yield encoded.batch
            start, blank = stop, 0


def rows_of(shard: Shard, value: Any) -> Iterator[RecordBatch | DocumentBatch]:
    """Read the rows of a shard, block by block: records, or counts.

    Raises `SourceError` if a file cannot be read, and `InvalidDocumentsError` if a partition holds
    neither texts nor counts.
    """
    from_files = shard.readings and not isinstance(value, FirstRecords)
    for block in poll_readings(shard.readings, shard.options) if from_files else _partition(value):
        if isinstance(block, DocumentBatch):
            if len(block):
                yield block
        elif block.n_records or block.notes:
            yield block


def _partition(value: Any) -> Iterator[RecordBatch | DocumentBatch]:
    texts: list[str] | None = None
    if isinstance(value, DocumentBatch):
        yield value
    elif isinstance(value, FirstRecords):
        yield from value.batches
    elif hasattr(value, "shape") and (texts := read_texts(value)) is None:
        yield DocumentBatch.from_matrix(value)
    else:
        # A text is an iterable of texts, too.
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        parts = map(join_words, texts or value if listed else [value])
        at, kind = 0, None
        while block := list(islice(parts, BLOCK_ROWS)):
            kind = kind or (str if isinstance(block[0], str) else COUNTS)
            wrong = next((n for n, part in enumerate(block) if not isinstance(part, kind)), None)
            if not listed or wrong is not None:
                raise _not_documents(value, block[wrong or 0], at + (wrong or 0))
            yield RecordBatch(block) if kind is str else _stacked(block)
            at += len(block)


def _not_documents(value: Any, element: Any, number: int) -> Exception:
    """Return the error of a partition that holds something else than documents."""
    remedies = {"dict": 'take the texts out of records first: bag.pluck("text")'}
    kind = type(element).__name__
    return failure(
        "a partition must be a list of texts or a matrix of counts, or a list of sparse ones",
        type=type(value).__name__,
        element=number,
        element_type=kind,
        remedy=remedies.get(kind, "convert or leave out what is neither first"),
        error=InvalidDocumentsError,
    )


def _stacked(parts: list[Any]) -> DocumentBatch:
    """Return matrices of counts, or rows of one, as one batch."""
    batches = [
        part if isinstance(part, DocumentBatch) else DocumentBatch.from_matrix(_matrix(part))
        for part in parts
    ]
    columns = {batch.n_features for batch in batches}
    check(len(columns) == 1, "columns", n_features=",".join(map(str, sorted(columns)[:5])))
    return DocumentBatch.joined(batches)


def _matrix(part: Any) -> Any:
    return part.reshape(1, -1) if part.ndim == 1 else part


def check_columns(batch: DocumentBatch, n_features: int) -> None:
    """Raise `InvalidDocumentsError` unless a batch has a column for each word."""
    check(batch.n_features == n_features, "words", n_features=batch.n_features, expected=n_features)
