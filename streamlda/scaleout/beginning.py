"""What comes before the first round: the words, and a projection, from the first documents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import WARMUP_MAX_ENTRIES, first_projection, warmup_end
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, VocabularyError
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.shards import Corpus, Rows, Shard, rows_of
from streamlda.scaleout.sums import Plan, told
from streamlda.stream.ingest import Counts
from streamlda.stream.vocabulary_choice import VOCABULARY_CHARACTERS, VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import one_blas_thread

Words = Vocabulary | VocabularyLearner | None

#: The first rows of a corpus, and the shard that they are of.
First = list[tuple[Shard, Rows]]


@dataclass(frozen=True, eq=False)
class Beginning:
    """Where the first round begins.

    Attributes
    ----------
    plan : Plan
    vocabulary_documents : int
        Documents that the words were learned from; 0 for given ones.
    projection_documents : int
        Documents of at least 3 tokens that the projection was made of; 0 for a given one.
    """

    plan: Plan
    vocabulary_documents: int
    projection_documents: int


def begin(
    run: Run,
    corpus: Corpus,
    settings: EngineSettings,
    words: Words,
    shared_projection: NDArray[np.float64] | None,
) -> Beginning:
    """Return the plan of the first round: the words, and a projection, from the first documents.

    Of the first documents no more are read, on workers, than one process would hold: those that
    the words are learned from, and those of the warm-up; reading ends with the shard's part that
    reaches 64 million characters (`VOCABULARY_CHARACTERS`), whatever the warm-up then lacks. Time
    O(documents nnz m), here.

    Parameters
    ----------
    run : Run
    corpus : Corpus
    settings : EngineSettings
        With words, `n_features` becomes their number.
    words : Vocabulary, WordsToLearn or None
    shared_map : ndarray of shape (d, m) or None
        Then none is made.

    Raises
    ------
    InsufficientDataError
        If there are no texts to learn words from, or fewer than 2 documents of 3 known words.
    InvalidDocumentsError, VocabularyError
        If texts come without words, columns are not those of the words, or words are too few.
    InvalidSettingError
        If the shared projection does not fit.
    """
    learning = words.documents if isinstance(words, VocabularyLearner) else 0
    wanted = max(learning, settings.warmup_documents if shared_projection is None else 0)
    first = first_rows(run, corpus, wanted)
    learned_from = 0
    if isinstance(words, VocabularyLearner):
        texts = _beginning_of(first, words.documents)
        if not texts:
            raise InsufficientDataError(
                "words must be learned from texts, got "
                f"texts=0 shards={len(corpus.shards)}; check the paths and the text field, and "
                "leave the vocabulary out where shards are counts"
            )
        words, learned_from = words.learn(texts), len(texts)
    n_features = settings.n_features if words is None else words.n_features
    if n_features < settings.n_components:
        raise VocabularyError(
            "there must be at least as many words as topics, got "
            f"words={n_features} n_components={settings.n_components}; ask for fewer topics"
        )
    settings = replace(settings, n_features=n_features)
    projection_documents = 0
    if shared_projection is None:
        shared_projection, projection_documents = _map_of(first, settings, words)
    # Raises if it does not fit the settings.
    Engine(settings, shared_projection=shared_projection)
    plan = Plan(settings, shared_projection, settings.n_triple_columns, words)
    return Beginning(plan, learned_from, projection_documents)


def _beginning_of(first: First, documents: int) -> list[str]:
    """Return the texts that words are learned from: those that one process takes."""
    texts: list[str] = []
    characters = 0
    for text in (text for _, rows in first for text in rows.texts or ()):
        if len(texts) >= documents or characters >= VOCABULARY_CHARACTERS:
            break
        texts.append(text)
        characters += len(text)
    return texts


def _map_of(
    first: First, settings: EngineSettings, words: Vocabulary | None
) -> tuple[NDArray[np.float64], int]:
    counts, batches = Counts(), []
    for shard, rows in first:
        with told(shard):
            batches.append(rows.encoded(words, counts))
            columns = batches[-1].n_features
            if columns != settings.n_features:
                raise InvalidDocumentsError(
                    "documents must have a column for each word of the vocabulary, got "
                    f"n_features={columns} expected={settings.n_features}; give all shards the "
                    "same columns, and the settings their number"
                )
    usable = sum(int(batch.usable.sum()) for batch in batches)
    if usable < 2:
        raise InsufficientDataError(
            f"topics need at least 2 documents of {MIN_TOKENS} known words, got "
            f"usable={usable} documents={counts.documents} short={counts.short}; check the text "
            "field, the token pattern and the vocabulary"
        )
    warmup = warmup_of(DocumentBatch.joined(batches), settings.warmup_documents)
    with one_blas_thread():
        return first_projection(warmup, settings), int(warmup.usable.sum())


def warmup_of(first: DocumentBatch, most: int) -> DocumentBatch:
    """Return the documents that one process makes its first projection of.

    Runs of `most` documents, or of as many as reach `WARMUP_MAX_ENTRIES`, follow each other
    (`warmup_end`); it is the first run with a document of 3 tokens, which the batch must have.
    """
    start = 0
    while True:
        stop = warmup_end(first, start, most, WARMUP_MAX_ENTRIES)
        warmup = first.rows(start, stop)
        if warmup.usable.any():
            return warmup
        start = stop


def first_rows(run: Run, corpus: Corpus, wanted: int) -> First:
    """Return the first rows of the corpus, read on workers; nobody else needs to see the files."""
    first: First = []
    rows = characters = 0
    for shard, value in zip(corpus.shards, corpus.values, strict=True):
        if rows >= wanted or characters >= VOCABULARY_CHARACTERS:
            break
        task = run.task("first", _head, shard, run.given(value), wanted - rows)
        found: list[Rows] = run.compute(task)
        first += [(shard, part) for part in found]
        rows += sum(map(len, found))
        characters += sum(len(text) for part in found for text in part.texts or ())
    return first


def _head(shard: Shard, value: Any, wanted: int) -> list[Rows]:
    found: list[Rows] = []
    left = wanted
    characters = 0
    with told(shard):
        for rows in rows_of(shard, value):
            part = rows.slice(0, left)
            found.append(part)
            left -= len(part)
            characters += sum(map(len, part.texts or ()))
            if left <= 0 or characters >= VOCABULARY_CHARACTERS:
                break
    return found
