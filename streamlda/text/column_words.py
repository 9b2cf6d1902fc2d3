"""Names of the columns of a hashed vocabulary: the most frequent words of each.

A column has three counters with a word each (`streamlda.kernels.text` has the sketch), fed by a
sample of the documents. The counters depend on the documents and their order alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.kernels.text import count_column_words, merge_column_words
from streamlda.text.faults import check
from streamlda.text.vocabulary import COLLISION, Vocabulary
from streamlda.utils.arrays import Arrays

#: Counters of a column, and the bytes that are kept of a word.
COUNTERS, WORD_BYTES = 3, 32

#: Memory of a column: its tokens, and its counters with their words.
COLUMN_BYTES = 8 + COUNTERS * (8 + WORD_BYTES)

#: All documents are counted up to this many tokens, and then every 128th.
FULL_TOKENS, STRIDE = 2**19, 128


class ColumnWords:
    """Counts words by their hashed column: a sketch that merges, 128 bytes a column.

    Every document counts until `full_tokens` are, then every 128th. Words that are no printable
    text, or hold ``|``, are skipped; of long ones the first 32 bytes are kept.
    """

    def __init__(self, vocabulary: Vocabulary, full_tokens: int = FULL_TOKENS) -> None:
        columns = vocabulary.n_features
        self._vocabulary, self._analyze = vocabulary, vocabulary.analyzer.build_analyzer()
        #: Documents met, tokens counted, and up to how many of these every document counts.
        self._tally = np.array([0, 0, full_tokens], dtype=np.int64)
        self._tokens = np.zeros(columns, dtype=np.int64)
        self._counts = np.zeros((columns, COUNTERS), dtype=np.int64)
        self._words = np.zeros((columns, COUNTERS, WORD_BYTES // 8), dtype=np.int64)

    def add(self, texts: Sequence[str]) -> None:
        """Count the words of the documents that are in the sample. Time O(their characters)."""
        found: list[str] = []
        at, (met, counted, full) = 0, self._tally.tolist()
        while at < len(texts) and counted + len(found) < full:
            found += self._countable(texts[at])
            at += 1
        for text in texts[at + -(met + at) % STRIDE :: STRIDE]:
            found += self._countable(text)
        self._tally[:2] += len(texts), len(found)
        letters = np.frombuffer("\n".join([*found, ""]).encode("utf-8"), dtype=np.uint8)
        starts = np.zeros(len(found) + 1, dtype=np.int64)
        starts[1:] = np.flatnonzero(letters == ord("\n")) + 1
        mask = len(self._tokens) - 1
        count_column_words(letters, starts, mask, self._tokens, self._counts, self._words)

    def _countable(self, text: str) -> list[str]:
        words = self._analyze(text)
        run = "".join(words)
        if run.isprintable() and COLLISION not in run:
            return words
        return [word for word in words if word.isprintable() and COLLISION not in word]

    def merge(self, other: Self) -> None:
        """Add the counts of another, of other documents."""
        merge_column_words(other._counts, other._words, self._counts, self._words)
        self._tokens += other._tokens
        self._tally[:2] += other._tally[:2]

    def name_columns(self) -> Vocabulary:
        """Return the vocabulary with the names of its columns, once there is a word.

        A name is the most frequent word; after `COLLISION` the second, if its counter is at least
        a quarter of the first's, or else "…" where other words have more than half of the column.
        Time and memory O(columns).
        """
        if not self._tokens.any():
            return self._vocabulary
        order = np.argsort(-self._counts, axis=1, kind="stable")[:, :2]
        first, second = np.take_along_axis(self._counts, order, axis=1).T
        # Each step that lowers the counters of a column takes one of its tokens too.
        lowered = (self._tokens - self._counts.sum(axis=1)) // (COUNTERS + 1)
        found = np.take_along_axis(self._words, order[:, :, np.newaxis], axis=1)
        words = found.astype("<i8").view(f"S{WORD_BYTES}")[:, :, 0]
        named = np.flatnonzero(first)
        two = 4 * second >= first
        many = 2 * (first + lowered) < self._tokens
        parts = (named, words[named, 0], words[named, 1], two[named], many[named])
        names, taken = [""] * len(self._tokens), set[str]()
        for column, one, other, has_two, has_many in zip(*(p.tolist() for p in parts), strict=True):
            name = _show_word(one)
            if has_two or has_many:
                name += COLLISION + (_show_word(other) if has_two else "…")
            # Long words may begin alike: then the first column has the name.
            if name not in taken:
                names[column] = name
                taken.add(name)
        return self._vocabulary.with_names(tuple(names))

    def state(self) -> Arrays:
        """Return the columns that have words, copied."""
        columns = np.flatnonzero(self._tokens)
        return {
            "tally": self._tally.copy(),
            "columns": columns,
            "tokens": self._tokens[columns],
            "counts": self._counts[columns],
            "words": self._words[columns],
        }

    @classmethod
    def from_state(cls, vocabulary: Vocabulary, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore `state`, bit for bit."""
        found, columns = cls(vocabulary), arrays["columns"]
        highest = int(columns.max(initial=0))
        columns_here = vocabulary.n_features
        check(highest < columns_here, "columns", column=highest, columns=columns_here)
        found._tally[:] = arrays["tally"]
        found._tokens[columns] = arrays["tokens"]
        found._counts[columns] = arrays["counts"]
        found._words[columns] = arrays["words"]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_state, (self._vocabulary, self.state())


def open_column_words(
    vocabulary: Vocabulary | None,
    saved: Mapping[str, NDArray[Any]] | None = None,
    full_tokens: int = FULL_TOKENS,
) -> ColumnWords | None:
    """Return a counter of the words of columns, from a saved state if any; None unless hashed."""
    if vocabulary is None or vocabulary.hash_bits is None:
        return None
    return (
        ColumnWords.from_state(vocabulary, saved) if saved else ColumnWords(vocabulary, full_tokens)
    )


def merge_words(parts: Iterable[ColumnWords | None]) -> ColumnWords | None:
    """Return the merged counts of disjoint documents; None if none were counted."""
    counted = [part for part in parts if part is not None]
    if not counted:
        return None
    found = copy(counted[0])
    for part in counted[1:]:
        found.merge(part)
    return found


def _show_word(word: bytes) -> str:
    """Return the text of stored letters, with an ellipsis where some may be missing."""
    if len(word) < WORD_BYTES:
        return word.decode("utf-8")
    return word[: WORD_BYTES - 1].decode("utf-8", errors="ignore") + "…"
