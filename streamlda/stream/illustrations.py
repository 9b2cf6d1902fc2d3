"""Illustrations of models beside topics: words of hashed columns, and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.learner import Learner
from streamlda.model.representatives import CandidateDocuments
from streamlda.model.topic_model import TopicModel
from streamlda.stream.source import RecordLocation
from streamlda.text.column_words import ColumnWords, open_column_words
from streamlda.text.columns import ColumnChange
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, named, with_prefix

#: Begin the names of their arrays.
COLUMNS, CANDIDATES = "columns.", "candidates."


class Illustrations:
    """Words of hashed columns, and candidates for documents, of a learner that allows it."""

    def __init__(self, candidates: CandidateDocuments | None = None) -> None:
        self._words: ColumnWords | None = None
        self._candidates = candidates

    def begin(
        self, vocabulary: Vocabulary, learner: Learner, saved: Mapping[str, NDArray[Any]]
    ) -> None:
        """Begin with the first document, or resume from a `state`."""
        if learner.counts_slots:
            self._candidates = None
            return
        self._words = open_column_words(vocabulary, named(saved, COLUMNS))
        documents = named(saved, CANDIDATES)
        if self._candidates is not None and documents:
            self._candidates.restore(documents, vocabulary.n_features)

    def add(
        self, texts: Sequence[str], locations: Sequence[RecordLocation], batch: DocumentBatch
    ) -> None:
        """Take documents that were learned from: their texts, locations and counts."""
        if self._words is not None:
            self._words.add(texts)
        if self._candidates is not None:
            ids = [at.id or f"{at.location}:{at.record}" for at in locations]
            self._candidates.add(batch, ids, texts)

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left a vocabulary."""
        if self._candidates is not None:
            self._candidates.change_words(change)

    def beside(self, model: TopicModel | None) -> TopicModel | None:
        """Return a model of now that shows them."""
        if model is not None and self._words is not None:
            model = replace(model, vocabulary=self._words.name_columns())
        if model is not None and self._candidates is not None:
            model = replace(model, representative_documents=self._candidates.shown_by(model))
        return model

    def state(self) -> Arrays:
        """Return the state as named arrays of their own."""
        words = {} if self._words is None else self._words.state()
        documents = {} if self._candidates is None else self._candidates.state()
        return with_prefix(words, COLUMNS) | with_prefix(documents, CANDIDATES)
