"""Words for the texts of a corpus, learned from the first records of its shards.

Records of shards that were read to their end stay with the workers, so that none is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from streamlda.documents import DocumentBatch
from streamlda.scaleout.cluster import Run, listed
from streamlda.scaleout.faults import check
from streamlda.scaleout.shards import Corpus, FirstRecords, Shard, rows_of, task_of
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary


class Beginning(NamedTuple):
    """Words of texts, or None for counts; what they were learned from, and what was read for it."""

    words: Vocabulary | None
    n_features: int
    documents: int = 0
    #: Results that stand for shards read to their end, by the number of the shard.
    read: Mapping[int, Any] = MappingProxyType({})


def read_beginning(run: Run, corpus: Corpus, words: VocabularyLearner) -> Beginning:
    """Return words that are those of one process, or the number of columns of counts.

    The texts that they are learned from come here, by `VocabularyLearner.is_enough` of each shard.
    """
    texts, kept, at = list[str](), dict[int, Any](), 0
    for shards in _doubling(corpus):
        if words.is_enough(len(texts), sum(map(len, texts))):
            break
        made = run.start(
            [run.task("first", _read, shard, run.given(value), words) for shard, value in shards]
        )
        found = run.compute(
            run.task("texts", listed, *[run.task("texts", _texts, m) for m in made])
        )
        for columns, _, _ in found:
            if columns and not texts:
                return Beginning(None, columns)
        texts += chain.from_iterable(own for _, _, own in found)
        kept |= {at + n: made[n] for n, (_, whole, _) in enumerate(found) if whole}
        at += len(made)
    check(texts, "no documents", documents=0, shards=len(corpus.shards))
    given = words.beginning(texts)
    learned = words.learn(given)
    return Beginning(learned, learned.n_features, len(given), kept)


def _doubling(corpus: Corpus) -> Iterator[list[tuple[Shard, Any]]]:
    """Yield shards with their values: the heads, then as many as all before: few round trips."""
    pairs = [*zip(corpus.shards, corpus.values, strict=True)]
    at, step = 0, corpus.heads
    while at < len(pairs):
        yield pairs[at : at + step]
        at += step
        step = at


def _read(shard: Shard, value: Any, words: VocabularyLearner) -> FirstRecords:
    """Return the records of a shard, or as many as are enough to learn words. A task; pure."""
    batches, documents, characters = list[RecordBatch](), 0, 0
    with task_of(shard):
        for rows in rows_of(shard, value):
            if isinstance(rows, DocumentBatch):
                return FirstRecords((), False, rows.n_features)
            if words.is_enough(documents, characters):
                return FirstRecords(tuple(batches), False)
            batches.append(rows)
            documents += len(rows.documents)
            characters += sum(map(len, rows.documents))
    return FirstRecords(tuple(batches), True)


def _texts(first: FirstRecords) -> tuple[int, bool, list[str]]:
    """Return columns, whether these are all of a shard, and its documents. A task."""
    documents = [text for batch in first.batches for text in batch.documents]
    return first.columns, first.whole, documents
