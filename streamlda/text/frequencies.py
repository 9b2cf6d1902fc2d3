"""Frequencies of words in a stream, and limits that choose a vocabulary by them."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, require
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.encoding import WordTable, count_tokens
from streamlda.text.faults import check
from streamlda.texts import check_texts
from streamlda.utils.arrays import Tree

#: Most distinct words held while learning frequencies: about 80 MB for words of 8 letters.
MAX_TABLE_WORDS = 500_000

#: Characters that are counted at a time for each word of the table: so few seldom fill it twice.
CHARACTERS = 4


class WordFrequencies:
    """Word and document frequencies of a stream, in bounded memory.

    While no more than `max_words` distinct words are met, all frequencies are exact. Past that, the
    rarer half of the table is dropped, as in lossy counting (Manku and Motwani 2002, section 4.2):
    a word that comes back starts at zero again, so a frequency may be too low, never too high, by
    at most `undercount`. A word that occurs more often than `undercount` is always in the table.
    A text that the user's analyzer fails on has no words.
    """

    def __init__(self, analyzer: TextAnalyzer, max_words: int = MAX_TABLE_WORDS) -> None:
        at_least(1, max_words=max_words)
        self.n_documents = 0
        self.undercount = 0
        self._analyzer, self._max_words = analyzer, max_words
        self._stop = sorted(filter(None, analyzer.stop_set)) if analyzer.unigrams else []
        self._hold([], np.zeros((0, 3), dtype=np.int64))

    def _hold(self, words: Iterable[str], counts: NDArray[np.int64]) -> None:
        """Hold these words and no others, with their counts; stop words come first, with none."""
        self._table = WordTable(self._analyzer, [*self._stop, *words])
        # Occurrences, documents, and the most that a word may have lost before it entered.
        self._counts = np.pad(counts, ((len(self._stop), 0), (0, 0)))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Occurrences of each word, documents it occurs in, and most occurrences before."""
        return self._counts[len(self._stop) :]

    def list_words(self) -> NDArray[np.object_]:
        """Return the words of `counts`. Time O(characters)."""
        return np.array(self._table.list_words()[len(self._stop) :], dtype=object)

    @property
    def words(self) -> Counter[str]:
        """Occurrences of each word. Time O(characters)."""
        return Counter(dict(zip(self.list_words(), self.counts[:, 0].tolist(), strict=True)))

    def update(self, texts: Iterable[str]) -> None:
        """Count the words of `texts`. Time O(characters); the drops add O(1) a word entered."""
        part: list[str] = []
        characters = 0
        for text in check_texts(texts):
            part.append(text)
            characters += len(text)
            if characters >= CHARACTERS * self._max_words:
                self._count(part)
                part, characters = [], 0
        self._count(part)

    def _count(self, texts: list[str]) -> None:
        while texts:
            ids, offsets, *_ = self._table.find(texts, grow=True)
            known, n_words, done = len(self._counts), len(self._table), len(texts)
            # The text with the first word for which there is no room is the last before a drop.
            beyond = np.flatnonzero(ids >= len(self._stop) + self._max_words)[:1]
            if len(beyond):
                done = int(np.searchsorted(offsets, beyond[0], side="right"))
                ids, offsets = ids[: offsets[done]], offsets[: done + 1]
            self._counts = np.pad(self._counts, ((0, n_words - known), (0, 0)))
            self._counts[known:, 2] = self.undercount
            self._counts[:, 0] += np.bincount(ids, minlength=n_words)
            batch = count_tokens(ids, offsets, max(1, n_words))
            self._counts[:, 1] += np.bincount(batch.word_ids, minlength=n_words)
            self.n_documents += done
            if len(beyond):
                self._drop()
            texts = texts[done:]

    def _drop(self) -> None:
        """Drop the rarer half of a table that is full, and again while it is."""
        # Ranked by the most a word can have occurred, so that newcomers are not put at the end.
        ranks, kept = self.counts[:, 0] + self.counts[:, 2], self.counts[:, 0] > 0
        while (n_words := np.count_nonzero(kept)) > self._max_words:
            middle = n_words - 1 - n_words // 2
            self.undercount = int(np.partition(ranks[kept], middle)[middle])
            kept &= ranks > self.undercount
        self._hold(self.list_words()[kept], self.counts[kept])

    def halve(self) -> None:
        """Halve all counts, rounded down. Time O(words)."""
        self.n_documents //= 2
        self.undercount //= 2
        kept = self.counts[:, 0] > 1
        self._hold(self.list_words()[kept], self.counts[kept] // 2)

    def state(self) -> Tree:
        """Return all counts."""
        words = json.dumps(self.list_words().tolist()).encode("ascii")
        own = {"words": np.frombuffer(words, dtype=np.uint8), "counts": self.counts}
        return own | {"documents": self.n_documents, "undercount": self.undercount}

    def restore(self, own: Tree) -> None:
        """Restore `state`."""
        self.n_documents, self.undercount = own["documents"], own["undercount"]
        self._hold(json.loads(own["words"].tobytes()), own["counts"])


#: Reasons of words that are left out.
TOO_RARE, TOO_FREQUENT = "in too few documents", "in too many documents"
BEYOND_SIZE = "beyond the size of the vocabulary"

#: Largest share of the words that a default leaves out: more words are the documents' subject.
MOST_OF_ALL = 0.02


@dataclass(frozen=True)
class FrequencyLimits:
    """Limits on the words of a vocabulary: the arguments of `Vocabulary.learn`."""

    size: int | None = None
    min_document_frequency: float = 1
    max_document_frequency: float = 1.0
    #: A word in no more documents than this is never too frequent. It is above 0 for limits by
    #: default, which leave out `MOST_OF_ALL` of the words, or none.
    few_documents: int = 0

    def __post_init__(self) -> None:
        if self.size is not None:
            at_least(1, size=self.size)
        for name in ("min_document_frequency", "max_document_frequency"):
            limit = getattr(self, name)
            if isinstance(limit, Integral):
                fits = not isinstance(limit, bool) and int(limit) >= 1
            else:
                fits = isinstance(limit, Real) and 0 <= float(limit) <= 1
            rule = f"{name} must be a number of documents (int, from 1) or a share of them (0 to 1)"
            require(fits, rule, **{name: limit})

    def count_left_out(self, table: WordFrequencies) -> dict[str, int]:
        """Return how many words are left out, by reason. Time O(words)."""
        low, high = self._bounds(table)
        documents = table.counts[:, 1]
        rare, frequent = int(np.sum(documents < low)), int(np.sum(documents > high))
        fitting = len(documents) - rare - frequent
        beyond = 0 if self.size is None else max(0, fitting - self.size)
        return {TOO_RARE: rare, TOO_FREQUENT: frequent, BEYOND_SIZE: beyond}

    def leave_room(self, table: WordFrequencies) -> bool:
        """Return whether a word can be within the limits, of as many documents."""
        low, high = self._bounds(table)
        return low <= high

    def _bounds(self, table: WordFrequencies) -> tuple[float, float]:
        """Return the fewest and the most documents of a word that is taken."""
        low = _count_documents(self.min_document_frequency, table.n_documents)
        high = _count_documents(self.max_document_frequency, table.n_documents)
        if not self.few_documents:
            return low, high
        high = max(high, self.few_documents)
        counts = table.counts[:, 1]
        words_of_all = np.sum(counts > high) > MOST_OF_ALL * np.sum(counts >= low)
        return low, math.inf if words_of_all else high

    def choose(self, table: WordFrequencies) -> list[str]:
        """Return the words within the limits, sorted; of equally frequent ones the first.

        Time O(words * log(words)).
        """
        low, high = self._bounds(table)
        names = "min_document_frequency", "max_document_frequency"
        limits = {name: getattr(self, name) for name in names}
        counts = all(isinstance(limit, int) for limit in limits.values())
        room = "room of counts" if counts else "room"
        check(low <= high, room, **limits, documents=table.n_documents)
        fits = (low <= table.counts[:, 1]) & (table.counts[:, 1] <= high)
        counted = zip((-table.counts[fits, 0]).tolist(), table.list_words()[fits], strict=True)
        return sorted(word for _, word in sorted(counted)[: self.size])


def _count_documents(limit: float, n_documents: int) -> float:
    return limit if isinstance(limit, Integral) else limit * n_documents
