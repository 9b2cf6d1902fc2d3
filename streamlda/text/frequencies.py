"""Frequencies of words in a stream, and limits that choose a vocabulary by them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, require
from streamlda.text.faults import check
from streamlda.text.functions import Analyze
from streamlda.texts import check_texts
from streamlda.utils.arrays import Arrays

#: Most distinct words held while learning frequencies: about 100 MB for words of 8 letters.
MAX_TABLE_WORDS = 500_000


class WordFrequencies:
    """Word and document frequencies of a stream, in bounded memory.

    While no more than `max_words` distinct words are met, all frequencies are exact. Past that, the
    rarer half of the table is dropped, as in lossy counting (Manku and Motwani 2002, section 4.2):
    a word that comes back starts at zero again, so a frequency may be too low, never too high, by
    at most `undercount`. A word that occurs more often than `undercount` is always in the table.
    """

    def __init__(self, analyze: Analyze, max_words: int = MAX_TABLE_WORDS) -> None:
        at_least(1, max_words=max_words)
        #: Occurrences of each word, and documents it occurs in.
        self.words: Counter[str] = Counter()
        self.documents: Counter[str] = Counter()
        self.n_documents = 0
        self.undercount = 0
        self._analyze = analyze
        self._max_words = max_words
        # Counts that a word may have lost before it entered, for words that outlived a drop.
        self._lost: dict[str, int] = {}

    def update(self, texts: Iterable[str]) -> None:
        """Count the words of `texts`. Time O(characters); the drops add O(1) a word entered."""
        for text in check_texts(texts):
            found = self._analyze(text)
            self.n_documents += 1
            self.words.update(found)
            self.documents.update(set(found))
            while len(self.words) > self._max_words:
                self._drop()

    def halve(self) -> None:
        """Halve all counts, rounded down. Time O(words)."""
        self.n_documents //= 2
        self.undercount //= 2
        self.words = Counter({word: n // 2 for word, n in self.words.items() if n > 1})
        self.documents = Counter({word: self.documents[word] // 2 for word in self.words})
        self._lost = {word: n // 2 for word, n in self._lost.items() if word in self.words}

    def state(self) -> Arrays:
        """Return all counts, as named arrays."""
        words = sorted(self.words)
        tally = self.n_documents, self.undercount
        counts = [
            (self.words[word], self.documents[word], self._lost.get(word, -1)) for word in words
        ]
        return {
            "words": np.frombuffer(json.dumps(words).encode("ascii"), dtype=np.uint8),
            "counts": np.array(counts, dtype=np.int64).reshape(-1, 3),
            "tally": np.array(tally, dtype=np.int64),
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state`."""
        words = json.loads(arrays["words"].tobytes())
        found, documents, lost = arrays["counts"].T.tolist()
        self.n_documents, self.undercount = arrays["tally"].tolist()
        self.words = Counter(dict(zip(words, found, strict=True)))
        self.documents = Counter(dict(zip(words, documents, strict=True)))
        self._lost = {word: n for word, n in zip(words, lost, strict=True) if n >= 0}

    def _drop(self) -> None:
        """Drop the rarer half of a table that is full."""
        # Ranked by the most a word can have occurred, so that newcomers are not put at the end.
        lost, late = self._lost, self.undercount
        most = {word: count + lost.get(word, late) for word, count in self.words.items()}
        ranks = np.fromiter(most.values(), np.int64, len(most))
        middle = len(most) - 1 - len(most) // 2
        self.undercount = int(np.partition(ranks, middle)[middle])
        kept = [word for word, rank in most.items() if rank > self.undercount]
        self.words = Counter({word: self.words[word] for word in kept})
        self.documents = Counter({word: self.documents[word] for word in kept})
        self._lost = {word: most[word] - self.words[word] for word in kept}


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

    def count_left_out(self, found: WordFrequencies) -> dict[str, int]:
        """Return how many words are left out, by reason. Time O(words)."""
        low, high = self._bounds(found)
        rare = sum(count < low for count in found.documents.values())
        frequent = sum(count > high for count in found.documents.values())
        fitting = len(found.documents) - rare - frequent
        beyond = 0 if self.size is None else max(0, fitting - self.size)
        return {TOO_RARE: rare, TOO_FREQUENT: frequent, BEYOND_SIZE: beyond}

    def leave_room(self, found: WordFrequencies) -> bool:
        """Return whether a word can be within the limits, of as many documents."""
        low, high = self._bounds(found)
        return low <= high

    def _bounds(self, found: WordFrequencies) -> tuple[float, float]:
        """Return the fewest and the most documents of a word that is taken."""
        low = _count_documents(self.min_document_frequency, found.n_documents)
        high = _count_documents(self.max_document_frequency, found.n_documents)
        if not self.few_documents:
            return low, high
        high = max(high, self.few_documents)
        counts = np.fromiter(found.documents.values(), np.int64, len(found.documents))
        words_of_all = np.sum(counts > high) > MOST_OF_ALL * np.sum(counts >= low)
        return low, math.inf if words_of_all else high

    def choose(self, found: WordFrequencies) -> list[str]:
        """Return the words within the limits, sorted; of equally frequent ones the first.

        Time O(words * log(words)).
        """
        low, high = self._bounds(found)
        names = "min_document_frequency", "max_document_frequency"
        limits = {name: getattr(self, name) for name in names}
        counts = all(isinstance(limit, int) for limit in limits.values())
        room = "room of counts" if counts else "room"
        check(low <= high, room, **limits, documents=found.n_documents)
        kept = [word for word, count in found.documents.items() if low <= count <= high]
        kept.sort(key=lambda word: (-found.words[word], word))
        return sorted(kept[: self.size])


def _count_documents(limit: float, n_documents: int) -> float:
    return limit if isinstance(limit, Integral) else limit * n_documents
