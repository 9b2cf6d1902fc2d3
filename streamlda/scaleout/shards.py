"""What is read: files or partitions cut into shards, and the rows of a shard, block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from scipy.sparse import sparray, spmatrix

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.stream.ingest import BLOCK_DOCUMENTS, POLL_SECONDS, Counts
from streamlda.stream.listing import Paths, find_files
from streamlda.stream.source import open_source
from streamlda.text.vocabulary import Vocabulary

#: What a partition may list besides texts.
COUNTS = (DocumentBatch, spmatrix, sparray)

#: Tasks that files are cut into if nothing else is said: as many whatever the cluster, so that
#: models do not depend on it.
SHARDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How files are read: options of the connector ``files``, with its defaults.

    Parameters
    ----------
    format : {"auto", "text", "jsonl", "csv", "parquet"}
    text_field : str
    compression : {"infer", None, "gzip", "bz2", "xz", "zstd"}
    encoding : str
    """

    format: str = "auto"
    text_field: str = "text"
    compression: str | None = "infer"
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the documents that one task reads.

    Attributes
    ----------
    name : str
        Tells it from other shards: sums of one shard are never added twice.
    paths : tuple of str
        Files, in order; none for a partition, whose value is handed over with the shard.
    reading : Reading
    """

    name: str
    paths: tuple[str, ...] = ()
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Shards in the order of their documents, made by `of_files` or `of_partitions`.

    Attributes
    ----------
    shards : tuple of Shard
    values : tuple
        For each shard what its task is handed: a partition, or what Dask makes one of; None for
        files.
    """

    shards: tuple[Shard, ...]
    values: tuple[Any, ...] = field(repr=False)


def of_files(
    paths: Paths,
    reading: Reading | None = None,
    *,
    shards: int = SHARDS,
) -> Corpus:
    """Cut files into shards of about equal size, in reading order.

    Every worker must find the files under the same names. A file is never cut: a corpus in one
    file is one task.

    Parameters
    ----------
    paths : str, path or iterable of them
        Files, directories, globs or fsspec URLs, as the connector ``files`` takes them.
    reading : Reading, optional
    shards : int, default 64
        Most tasks; at least 1. Give a large cluster a few for each worker.

    Raises
    ------
    SourceError
        For a path that is missing or has no files behind it, or a file that is named twice.
    InvalidSettingError
        If `shards` is below 1, or `reading` names an unknown format or compression.
    """
    if shards < 1:
        raise InvalidSettingError(
            f"files must be cut into at least 1 shard, got shards={shards}; leave it out for "
            f"{SHARDS}"
        )
    how = reading or Reading()
    files = find_files(paths, how.format, how.compression)
    sizes = np.array([max(1, file.size or 1) for file in files])
    ends = np.cumsum(sizes)
    middles = ends - sizes / 2
    shard_of = np.minimum((middles / ends[-1] * shards).astype(int), shards - 1)
    groups = [np.flatnonzero(shard_of == number).tolist() for number in range(shards)]
    made = tuple(
        Shard(f"files {own[0]}-{own[-1]}", tuple(files[i].name for i in own), how)
        for own in groups
        if own
    )
    return Corpus(made, (None,) * len(made))


def of_partitions(partitions: Any) -> Corpus:
    """Take each partition of a Dask collection, or each element of a list, as a shard.

    Parameters
    ----------
    partitions : dask.bag.Bag, dask.array.Array or sequence
        A bag of texts; an array of counts in blocks of whole rows; or a list of what is, or what
        Dask makes (``Delayed``, ``Future``): lists of texts, sparse or dense matrices of counts
        with equal columns, lists of sparse matrices or rows, or `DocumentBatch`. What is delayed is
        made anew, where it is used, in each round, and must come out the same; what lies here is
        sent with the tasks of each.

    Raises
    ------
    InvalidDocumentsError
        If there is no partition, or blocks of an array are no whole rows.
    """
    if hasattr(partitions, "to_delayed"):
        blocks = np.asarray(partitions.to_delayed(), dtype=object)
        if blocks.size != len(blocks):
            raise InvalidDocumentsError(
                "blocks of an array must be whole rows, got "
                f"blocks={blocks.shape}; rechunk it: array.rechunk({{1: -1}})"
            )
        partitions = blocks.ravel().tolist()
    if isinstance(partitions, str) or not isinstance(partitions, Sequence) or not partitions:
        raise InvalidDocumentsError(
            "partitions must be a Dask bag or array, or a list with at least 1 of them, got "
            f"type={type(partitions).__name__}; pass a list of partitions"
        )
    shards = tuple(Shard(f"partition {number}") for number in range(len(partitions)))
    return Corpus(shards, tuple(partitions))


@dataclass(frozen=True, slots=True)
class Rows:
    """Documents of a shard that were read together: texts, or counts.

    Attributes
    ----------
    texts : list of str or None
    batch : DocumentBatch or None
    rejects : Counter of str
        Records passed over with them, by reason.
    blanks : int
        Texts that stand for a record without one.
    """

    texts: list[str] | None = field(repr=False)
    batch: DocumentBatch | None = field(repr=False)
    rejects: Counter[str]
    blanks: int = 0

    def __len__(self) -> int:
        return len(self.texts) if self.texts is not None else len(self.batch or ())

    def slice(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop`, without rejects."""
        texts = None if self.texts is None else self.texts[start:stop]
        batch = None if self.batch is None else self.batch.rows(start, stop)
        return Rows(texts, batch, Counter())

    def encoded(self, vocabulary: Vocabulary | None, counts: Counts) -> DocumentBatch:
        """Return the documents as counts, and add what was met to `counts`.

        Raises
        ------
        InvalidDocumentsError
            If texts come without a vocabulary.
        """
        counts.rejects.update(self.rejects)
        counts.documents += len(self) - self.blanks
        counts.blanks += self.blanks
        if self.texts is None:
            assert self.batch is not None
            batch = self.batch
            counts.tokens += int(batch.lengths.sum())
        else:
            if vocabulary is None:
                raise InvalidDocumentsError(
                    "texts must be read by a vocabulary, got vocabulary=None; pass a Vocabulary "
                    "or WordsToLearn, or partitions of counts"
                )
            encoded = vocabulary.encode(self.texts)
            batch = encoded.batch
            counts.tokens += encoded.tokens
            counts.unseen_tokens += encoded.unseen_tokens
        counts.short += batch.n_documents - int(batch.usable.sum()) - self.blanks
        return batch


def rows_of(shard: Shard, value: Any, *, blanks: bool = False) -> Iterator[Rows]:
    """Read a shard, block by block.

    Parameters
    ----------
    shard : Shard
    value : object
        Of a partition; None for files.
    blanks : bool, default False
        Whether a record of a file that has no text becomes an empty one, so that the number of a
        row depends on the number of records before it alone.

    Raises
    ------
    SourceError
        If a file cannot be read. Bad records are passed over and counted.
    InvalidDocumentsError
        If a partition holds neither texts nor counts.
    """
    if shard.paths:
        yield from _polled(shard, blanks)
        return
    if isinstance(value, DocumentBatch):
        yield Rows(None, value, Counter())
    elif hasattr(value, "shape"):
        yield Rows(None, DocumentBatch.from_matrix(value), Counter())
    else:
        # A text is an iterable of texts, too.
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        parts = iter(value if listed else [value])
        while block := list(islice(parts, BLOCK_DOCUMENTS)):
            if listed and all(isinstance(part, str) for part in block):
                yield Rows(block, None, Counter())
            elif listed and all(isinstance(part, COUNTS) for part in block):
                yield Rows(None, _stacked(block), Counter())
            else:
                raise InvalidDocumentsError(
                    "a partition must be a list of texts or a matrix of counts, or a list of "
                    f"sparse ones, got type={type(value).__name__}; convert it first"
                )


def _stacked(parts: list[Any]) -> DocumentBatch:
    """Return matrices of counts, or rows of one, as one batch."""
    batches = [
        part if isinstance(part, DocumentBatch) else DocumentBatch.from_matrix(_matrix(part))
        for part in parts
    ]
    columns = {batch.n_features for batch in batches}
    if len(columns) > 1:
        raise InvalidDocumentsError(
            "matrices of a partition must have equal columns, got "
            f"n_features={','.join(map(str, sorted(columns)[:5]))}; encode all by one vocabulary"
        )
    return DocumentBatch.joined(batches)


def _matrix(part: Any) -> Any:
    return part.reshape(1, -1) if part.ndim == 1 else part


def _polled(shard: Shard, blanks: bool) -> Iterator[Rows]:
    source = open_source("files", list(shard.paths), **asdict(shard.reading))
    try:
        ended = False
        while not ended:
            records = source.poll(BLOCK_DOCUMENTS, POLL_SECONDS)
            records.check(BLOCK_DOCUMENTS)
            ended = records.exhausted
            texts = [text or "" for text in records.texts] if blanks else records.documents
            rejects = Counter(reject.reason for reject in records.rejects)
            if texts or rejects:
                yield Rows(texts, None, rejects, len(texts) - records.n_documents)
    finally:
        source.close()
