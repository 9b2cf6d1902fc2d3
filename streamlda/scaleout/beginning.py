"""What comes before the first round: the words, and a projection, from the first documents.

Workers read these and count their words. Records of shards that were read to their end stay with
the workers, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.documents import CHECK_TEXTS, TOPICS_NEED, DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import (
    WarmUpDocuments,
    first_projection,
    held_out_pairs,
    warmup_end,
)
from streamlda.errors import InsufficientDataError, VocabularyError
from streamlda.refinement.choice import parted
from streamlda.scaleout.cluster import Run, listed
from streamlda.scaleout.shards import (
    Corpus,
    FirstRecords,
    Shard,
    batches_of,
    check_columns,
    no_documents,
    rows_of,
    task_of,
)
from streamlda.scaleout.sums import Plan
from streamlda.spectral.support import HeldOutPairs
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.frequencies import WordFrequencies
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays
from streamlda.utils.threads import one_blas_thread

Words = Vocabulary | VocabularyLearner | None


@dataclass(frozen=True, eq=False)
class Beginning:
    """The plan of the first round, and how many documents its words and projection were made of.

    `vocabulary_documents` is 0 for given words; `projection_documents`, of at least 3 tokens each,
    is 0 for a given projection, which has no `warmup` either. `held_out` is what these say of it,
    where there are enough. `read` has the futures of shards whose records lie with the workers, by
    their place in the corpus.
    """

    plan: Plan
    vocabulary_documents: int
    projection_documents: int
    held_out: HeldOutPairs | None = None
    warmup: DocumentBatch | None = None
    read: Mapping[int, Any] = field(default_factory=dict, repr=False)

    def of_warmup(self, *, trial: bool) -> Beginning:
        """Return a beginning with the projection of the warm-up, or on trial of its learned part.

        Time O(documents nnz m), here.
        """
        if self.warmup is None:
            return self
        documents, settings = self.warmup, self.plan.settings
        if trial:
            documents, _ = parted(documents)
        with one_blas_thread():
            plan = replace(self.plan, whitening=first_projection(documents, settings))
            held_out = held_out_pairs(documents, settings)
        used = int(documents.usable.sum())
        return replace(self, plan=plan, projection_documents=used, held_out=held_out)


def begin(
    run: Run,
    corpus: Corpus,
    settings: EngineSettings,
    words: Words,
    shared_projection: NDArray[np.float64] | None,
    *,
    trial: bool = False,
) -> Beginning:
    """Return the plan of the first round: the words, and a projection, from the first documents.

    They are read on workers, and are those that one process takes: the counts of the warm-up come
    here. On `trial` there is no warm-up yet: it is of documents that are kept. With words,
    `n_features` of the settings becomes their number. Time O(documents nnz m), here.
    """
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
    settings = replace(settings, n_features=n_features)
    if shared_projection is None:
        nothing = np.empty((n_features, 0))
        plan = Plan(settings, nothing, settings.n_triple_columns, words)
        found = Beginning(plan, learned_from, 0, read=read)
        if trial:
            return found
        warmup = warmup_of(run, corpus, settings, words)
        return replace(found, warmup=warmup).of_warmup(trial=False)
    # Raises if it does not fit the settings.
    Engine(settings, shared_projection=shared_projection)
    plan = Plan(settings, shared_projection, settings.n_triple_columns, words)
    return Beginning(plan, learned_from, 0, read=read)


def learned_words(
    run: Run, corpus: Corpus, words: VocabularyLearner
) -> tuple[Vocabulary, int, dict[int, Any]]:
    """Return words that are those of one process, from how many documents, and what was read.

    Workers count them, and only the table comes here.
    """
    read: list[Any] = []
    lengths: list[NDArray[np.int64]] = []
    whole: list[bool] = []
    for shards in _doubling(corpus):
        if words.is_enough(sum(map(len, lengths)), int(sum(map(np.sum, lengths)))):
            break
        made = run.start(
            [run.task("first", _read, shard, run.given(value), words) for shard, value in shards]
        )
        sizes = [run.task("sizes", _sizes, one) for one in made]
        for found, ended in run.compute(run.task("sizes", listed, *sizes)):
            lengths.append(found)
            whole.append(ended)
        read += made
    starts = np.cumsum([0, *map(len, lengths)])
    before = np.cumsum([0, *np.concatenate([*lengths, [0]])])
    documents = next(
        (n for n in range(starts[-1]) if words.is_enough(n, int(before[n]))), int(starts[-1])
    )
    require(
        documents,
        "words must be learned from texts",
        texts=0,
        shards=len(corpus.shards),
        remedy="check the paths and the text field, and leave the vocabulary out where shards "
        "are counts",
        error=InsufficientDataError,
    )

    def count(analyzer: TextAnalyzer) -> WordFrequencies:
        leaves = [
            run.task("words", _word_counts, shard, one, min(b, documents) - a, analyzer)
            for shard, one, (a, b) in zip(
                corpus.shards, read, pairwise(starts.tolist()), strict=False
            )
            if a < min(b, documents)
        ]
        found = WordFrequencies(analyzer.build_analyzer())
        found.restore(run.compute(run.tree("merge", _added, leaves)))
        return found

    kept = {n: one for n, one in enumerate(read) if whole[n]}
    learned = words.learn_from(count, documents)
    run.release([one for n, one in enumerate(read) if not whole[n]])
    return learned, documents, kept


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


def _sizes(first: FirstRecords) -> tuple[NDArray[np.int64], bool]:
    """Return the characters of each document, and whether these are all of the shard. A task."""
    return np.array([len(text) for text in first.documents()], dtype=np.int64), first.whole


def _word_counts(
    shard: Shard, first: FirstRecords, documents: int, analyzer: TextAnalyzer
) -> Arrays:
    """Return how often each word occurs in the first documents of a shard. A task; pure."""
    with task_of(shard):
        found = WordFrequencies(analyzer.build_analyzer())
        found.update(islice(first.documents(), documents))
    return found.state()


def _added(one: Arrays, *others: Arrays) -> Arrays:
    """Return the word counts of disjoint sets of texts. A task; pure."""
    found = WordFrequencies(str.split)
    for arrays in (one, *others):
        found.add(arrays)
    return found.state()


def warmup_of(
    run: Run, corpus: Corpus, settings: EngineSettings, words: Vocabulary | None
) -> DocumentBatch:
    """Return the documents that one process makes its first projection of.

    A warm-up without a document of 3 tokens is dropped, and the next one begins after it.
    """
    kept, documents = WarmUpDocuments(settings.warmup_documents), 0
    vocabulary = run.given(words)
    how = vocabulary, settings.n_features
    for shards in _doubling(corpus):
        parts: list[DocumentBatch] = run.gathered("first", _first, shards, *how, 0, kept.missing)
        again = False
        for (shard, value), part in zip(shards, parts, strict=True):
            start = 0
            while True:
                if again:
                    # The warm-up has room for more than was asked for.
                    given = run.given(value), *how, start, kept.missing
                    part = run.compute(run.task("first", _first, shard, *given))
                start += kept.add(part, 0)
                documents += part.n_documents
                if not kept.full:
                    break
                if kept.batch().usable.any():
                    return kept.batch()
                kept.clear()
                again = True
    require(
        kept.batch().usable.any(),
        TOPICS_NEED,
        usable=0,
        documents=documents,
        remedy=CHECK_TEXTS,
        error=InsufficientDataError,
    )
    return kept.batch()


def _first(
    shard: Shard,
    value: Any,
    words: Vocabulary | None,
    n_features: int,
    start: int,
    missing: tuple[int, int],
) -> DocumentBatch:
    """Return documents of a shard from `start` on, as many as a warm-up has room for. A task."""
    kept = [no_documents(n_features)]
    documents, entries = missing
    with task_of(shard):
        for batch in batches_of(shard, value, words, RecordCounts()):
            check_columns(batch, n_features)
            low = min(start, batch.n_documents)
            start -= low
            part = batch.rows(low, warmup_end(batch, low, documents, entries))
            kept.append(part)
            documents -= part.n_documents
            entries -= len(part.counts)
            if documents <= 0 or entries <= 0:
                break
    return DocumentBatch.joined(kept)


def first_columns(run: Run, corpus: Corpus) -> int | None:
    """Return the columns of the first counts; None for texts."""
    for shards in _doubling(corpus):
        for columns in run.gathered("first", _columns, shards):
            if columns:
                return columns[0]  # type: ignore[no-any-return]
    raise failure(
        "there must be a document in some partition",
        documents=0,
        partitions=len(corpus.shards),
        remedy="check where they come from",
        error=InsufficientDataError,
    )


def _columns(shard: Shard, value: Any) -> list[int | None]:
    """Return the columns of the first row, None for a text; nothing without rows. A task."""
    with task_of(shard):
        rows = next(rows_of(shard, value), None)
    if rows is None:
        return []
    return [rows.n_features if isinstance(rows, DocumentBatch) else None]
