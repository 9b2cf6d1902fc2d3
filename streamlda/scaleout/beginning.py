"""What comes before the first round: the words, and a projection, from the first documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.documents import MIN_TOKENS, DocumentBatch
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
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.shards import (
    Corpus,
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
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import one_blas_thread

Words = Vocabulary | VocabularyLearner | None


@dataclass(frozen=True, eq=False)
class Beginning:
    """The plan of the first round, and how many documents its words and projection were made of.

    `vocabulary_documents` is 0 for given words; `projection_documents`, of at least 3 tokens each,
    is 0 for a given projection, which has no `warmup` either. `held_out` is what these say of it,
    where there are enough.
    """

    plan: Plan
    vocabulary_documents: int
    projection_documents: int
    held_out: HeldOutPairs | None = None
    warmup: DocumentBatch | None = None

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

    On `trial`, the projection knows nothing of documents set aside (`streamlda.refinement.choice`).

    They are read on workers, and are those that one process takes: texts come here only where
    words are learned from them, then the counts of the warm-up. With words, `n_features` of the
    settings becomes their number. Time O(documents nnz m), here.
    """
    learned_from = 0
    if isinstance(words, VocabularyLearner):
        texts = first_texts(run, corpus, words)
        require(
            texts,
            "words must be learned from texts",
            texts=0,
            shards=len(corpus.shards),
            remedy="check the paths and the text field, and leave the vocabulary out where shards "
            "are counts",
            error=InsufficientDataError,
        )
        words, learned_from = words.learn(texts), len(texts)
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
        warmup = warmup_of(run, corpus, settings, words)
        nothing = np.empty((n_features, 0))
        plan = Plan(settings, nothing, settings.n_triple_columns, words)
        return Beginning(plan, learned_from, 0, warmup=warmup).of_warmup(trial=trial)
    # Raises if it does not fit the settings.
    Engine(settings, shared_projection=shared_projection)
    plan = Plan(settings, shared_projection, settings.n_triple_columns, words)
    return Beginning(plan, learned_from, 0)


def first_texts(run: Run, corpus: Corpus, words: VocabularyLearner) -> list[str]:
    """Return the texts that words are learned from."""
    texts: list[str] = []
    for shards in _doubling(corpus):
        given = words, len(texts), sum(map(len, texts))
        if words.enough(*given[1:]):
            break
        for found in run.gathered("first", _texts, shards, *given):
            texts += found
    return list(words.beginning(texts))


def _doubling(corpus: Corpus) -> Iterator[list[tuple[Shard, Any]]]:
    """Yield shards with their values: as many as all before, so that few round trips are made."""
    pairs = [*zip(corpus.shards, corpus.values, strict=True)]
    at, step = 0, 1
    while at < len(pairs):
        yield pairs[at : at + step]
        at += step
        step = at


def _texts(
    shard: Shard, value: Any, words: VocabularyLearner, documents: int, characters: int
) -> list[str]:
    """Return the texts of a shard after others, counted in documents and characters. A task."""
    texts: list[str] = []
    with task_of(shard):
        for rows in rows_of(shard, value):
            if not isinstance(rows, DocumentBatch):
                texts += rows.documents
                characters += sum(map(len, rows.documents))
            if words.enough(documents + len(texts), characters):
                break
    return texts


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
        f"topics need documents of at least {MIN_TOKENS} known words",
        usable=0,
        documents=documents,
        remedy="check the text field, the token pattern and the vocabulary",
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
