"""Words for the texts of a corpus, learned from the first records of its shards.

Records of shards that were read to their end stay with the workers, so that none is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.errors import VocabularyError, require
from streamlda.scaleout.cluster import Run, listed
from streamlda.scaleout.faults import check, fault
from streamlda.scaleout.shards import Corpus, FirstRecords, Shard, rows_of, task_of
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary

Words = Vocabulary | VocabularyLearner | None


def find_words(
    run: Run, corpus: Corpus, words: Words, settings: EngineSettings
) -> tuple[Vocabulary | None, int, dict[int, Any]]:
    """Return the words, from how many documents they were learned, and what was read for it."""
    learned_from, read = 0, dict[int, Any]()
    if isinstance(words, VocabularyLearner):
        words, learned_from, read = learned_words(run, corpus, words)
    n_features = settings.n_features if words is None else words.n_features
    left_out = None if words is None else words.too_frequent
    require(
        n_features >= settings.n_components,
        "there must be at least as many words as topics",
        words=n_features,
        n_components=settings.n_components,
        **({} if left_out is None else {"in_too_many_documents": left_out}),
        remedy="ask for fewer topics, or learn words from more documents or with a higher "
        "max_document_frequency",
        error=VocabularyError,
    )
    return words, learned_from, read


def learned_words(
    run: Run, corpus: Corpus, words: VocabularyLearner
) -> tuple[Vocabulary, int, dict[int, Any]]:
    """Return words that are those of one process, from how many documents, and what was read.

    The texts that they are learned from come here: 64 MB at most (`VOCABULARY_CHARACTERS`).
    """
    texts, documents, characters = list[str](), 0, 0
    kept, at = dict[int, Any](), 0
    for shards in _doubling(corpus):
        if words.is_enough(documents, characters):
            break
        made = run.start(
            [run.task("first", _read, shard, run.given(value), words) for shard, value in shards]
        )
        sizes, wanted = [run.task("sizes", _sizes, one) for one in made], []
        for n, (whole, *size) in enumerate(run.compute(run.task("sizes", listed, *sizes))):
            if not words.is_enough(documents, characters):
                wanted.append(run.task("texts", FirstRecords.documents, made[n]))
                documents, characters = documents + size[0], characters + size[1]
            if whole:
                kept[at + n] = made[n]
        texts += chain.from_iterable(run.compute(run.task("texts", listed, *wanted)))
        run.release([one for n, one in enumerate(made) if at + n not in kept])
        at += len(made)
    check(texts, "no texts", texts=0, shards=len(corpus.shards))
    given = words.beginning(texts)
    return words.learn(given), len(given), kept


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
            if isinstance(rows, DocumentBatch) or words.is_enough(documents, characters):
                return FirstRecords(tuple(batches), False)
            batches.append(rows)
            documents += len(rows.documents)
            characters += sum(map(len, rows.documents))
    return FirstRecords(tuple(batches), True)


def _sizes(first: FirstRecords) -> tuple[bool, int, int]:
    """Return whether these are all of a shard, its documents and their characters. A task."""
    documents = first.documents()
    return first.whole, len(documents), sum(map(len, documents))


def first_columns(run: Run, corpus: Corpus) -> int | None:
    """Return the columns of the first counts; None for texts."""
    for shards in _doubling(corpus):
        tasks = [run.task("first", _columns, shard, run.given(value)) for shard, value in shards]
        for columns in run.compute(run.task("first", listed, *tasks)):
            if columns:
                return columns[0]  # type: ignore[no-any-return]
    raise fault("no documents", documents=0, partitions=len(corpus.shards))


def _columns(shard: Shard, value: Any) -> list[int | None]:
    """Return the columns of the first row, None for a text; nothing without rows. A task."""
    with task_of(shard):
        rows = next(rows_of(shard, value), None)
    if rows is None:
        return []
    return [rows.n_features if isinstance(rows, DocumentBatch) else None]
