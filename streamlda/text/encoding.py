"""Tables behind a vocabulary: from words to columns, and from columns to counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.text import fill_slots, find_words
from streamlda.text.analysis import TextAnalyzer, ascii_classes
from streamlda.text.cleaning import clean_text
from streamlda.text.faults import check
from streamlda.text.functions import UnreadableTextError
from streamlda.texts import TokenizedText

#: Ids that are not columns: a word outside a fixed vocabulary, and a stop word. The kernel drops
#: all words below UNSEEN.
UNSEEN, STOP = -1, -2

#: The hashed words that are remembered, to save hashing them again.
CACHED_WORDS = 2**17

#: Texts that are joined at a time: a block of memory as large as all takes long to get.
TOGETHER = 32

#: The column of each token, and where each text begins among them.
Tokens = tuple[NDArray[np.int32], NDArray[np.int64]]

#: Bits of a column.
BITS = 31

#: Reason of a reject: the user's analyzer failed on the document.
UNREADABLE = "analyzer"


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Texts as counts, one row a text, texts without a known word included.

    `tokens` are those met, stop words excluded; `unseen_tokens` those of them that are not in the
    vocabulary, 0 for a hashed one. `unreadable` are the rows of texts that the user's analyzer
    failed on, empty in `batch`; `removed` counts the pieces removed by `TextAnalyzer.clean`.
    """

    batch: DocumentBatch
    tokens: int
    unseen_tokens: int
    unreadable: tuple[int, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)


class Encoder:
    """The columns of tokens for `Vocabulary.token_ids`, by a kernel where it can be."""

    def __init__(
        self, analyzer: TextAnalyzer, words: tuple[str, ...] | None, hash_bits: int | None
    ) -> None:
        self._analyzer, self._words, self._hash_bits = analyzer, words, hash_bits

    def token_ids(
        self,
        texts: list[str],
        unreadable: list[int] | None = None,
        removed: Counter[str] | None = None,
    ) -> Tokens:
        """Return the tokens of texts.

        `unreadable` gets the numbers of texts that the user's analyzer fails on, `removed` the
        pieces that were no text.
        """
        steps = self._analyzer.clean
        texts = [clean_text(text, steps, removed) for text in texts]
        if not self._analyzer.bytewise:
            return self.by_word(texts, unreadable)
        # By the method of str itself: the kernel relies on it, and a subclass may differ.
        others = {
            n: text
            for n, text in enumerate(texts)
            if not str.isascii(text) or isinstance(text, TokenizedText)
        }
        for n in others:
            texts[n] = ""
        found = self._ascii_words.ids(*join_letters(texts))
        if others:
            found = _merge_tokens(found, others, self.by_word([*others.values()]))
        return found

    def by_word(self, texts: list[str], unreadable: list[int] | None = None) -> Tokens:
        """Return the tokens of clean texts of all kinds, one word at a time."""
        analyze, look_up = self._analyze, self._look_up
        found: list[int] = []
        ends = [0]
        for number, text in enumerate(texts):
            try:
                found += look_up(analyze(text))
            except UnreadableTextError:
                if unreadable is not None:
                    unreadable.append(number)
            ends.append(len(found))
        ids = np.array(found, dtype=np.int32)
        offsets = np.array(ends, dtype=np.int64)
        kept = ids != STOP
        if kept.all():
            return ids, offsets
        return ids[kept], np.concatenate(([0], np.cumsum(kept)))[offsets]

    @cached_property
    def _analyze(self) -> Callable[[str], list[str]]:
        # Stop words among single tokens are left to the look-up, which every token passes anyway.
        unigrams = self._analyzer.unigrams
        if unigrams:
            return self._analyzer.build_tokenizer()
        return self._analyzer.with_settings(clean=()).build_analyzer(strict=True)

    @cached_property
    def _look_up(self) -> Callable[[list[str]], Iterator[int]]:
        stop = self._analyzer.stop_set if self._analyzer.unigrams else frozenset[str]()
        if self._hash_bits is not None:
            hashed = _build_hash(self._hash_bits, stop)
            return lambda words: map(hashed, words)
        table = self._columns(stop)
        return lambda words: map(table.get, words, repeat(UNSEEN))

    @cached_property
    def _ascii_words(self) -> AsciiWords:
        columns = self._columns(self._analyzer.stop_set)
        return AsciiWords(columns, self._hash_bits, self._analyzer.lowercase)

    def _columns(self, stop: frozenset[str]) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._words or ())} | dict.fromkeys(stop, STOP)


def _build_hash(bits: int, stop: frozenset[str]) -> Callable[[str], int]:
    """Return the function from a word to its hashed column."""
    from sklearn.utils import murmurhash3_32

    @lru_cache(CACHED_WORDS)
    def find_column(word: str) -> int:
        hashed: int = murmurhash3_32(word.encode("utf-8", "surrogatepass"))
        return STOP if word in stop else abs(hashed) & (2**bits - 1)

    return find_column


class AsciiWords:
    """Columns of the words of ASCII texts: the table of a kernel. About 100 bytes a word."""

    def __init__(
        self, columns: Mapping[str, int], hash_bits: int | None, lowercase: bool | str
    ) -> None:
        # No other word is ever met, and the kernel needs words of these bytes.
        words = [word for word in columns if _is_word(word)]
        self._letters, starts = join_letters(words)
        self._slots = np.empty((2 ** (2 * len(words)).bit_length(), 4), dtype=np.int64)
        wanted = np.array([columns[word] for word in words], dtype=np.int32)
        fill_slots(self._letters, starts, wanted, self._slots)
        self._classes = np.frombuffer(ascii_classes(lowercase).encode("ascii"), dtype=np.uint8)
        self._mask = -1 if hash_bits is None else 2**hash_bits - 1

    def ids(self, joined: NDArray[np.uint8], starts: NDArray[np.int64]) -> Tokens:
        """Return the tokens of ASCII texts."""
        # A word has at least two letters, and something after it.
        ids = np.empty(len(joined) // 3, dtype=np.int32)
        offsets = np.empty(len(starts), dtype=np.int64)
        find_words(
            joined, starts, self._classes, self._letters, self._slots, self._mask, ids, offsets
        )
        return ids[: offsets[-1]].copy(), offsets


_is_word = re.compile("[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*").fullmatch


def join_letters(texts: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ASCII texts as one run of bytes, a line end after each, and where each begins."""
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(str.__len__, texts), np.int64, len(texts)) + 1, out=starts[1:])
    parts = ["\n".join(texts[n : n + TOGETHER]) for n in range(0, len(texts), TOGETHER)]
    joined = b"\n".join([part.encode("ascii") for part in [*parts, ""]])
    return np.frombuffer(joined, dtype=np.uint8), starts


def _merge_tokens(ascii_tokens: Tokens, numbers: Iterable[int], other_tokens: Tokens) -> Tokens:
    """Put the tokens of other documents, rising and empty so far, among those of ASCII texts."""
    others = [*numbers]
    (ids, offsets), (other_ids, other_offsets) = ascii_tokens, other_tokens
    lengths = np.diff(offsets)
    lengths[others] = np.diff(other_offsets)
    is_other = np.zeros(len(lengths), dtype=np.bool_)
    is_other[others] = True
    from_other = np.repeat(is_other, lengths)
    merged = np.empty(len(from_other), dtype=np.int32)
    merged[from_other], merged[~from_other] = other_ids, ids
    return merged, np.concatenate(([0], np.cumsum(lengths)))


def count_tokens(
    ids: NDArray[np.int32], offsets: NDArray[np.int64], n_features: int
) -> DocumentBatch:
    """Return how often each column occurs in each document; ids below 0 are skipped.

    Document n owns ``ids[offsets[n]:offsets[n + 1]]``. Time O(tokens log tokens).
    """
    lengths = np.diff(offsets)
    whole = offsets[0] == 0 and offsets[-1] == len(ids) and np.all(lengths >= 0)
    check(whole, "offsets", first=offsets[0], last=offsets[-1], ids=len(ids))
    # A number of document and column: equal tokens are side by side once sorted.
    starts = np.arange(len(offsets)) << BITS
    tokens = np.compress(ids >= 0, np.repeat(starts[:-1], lengths) | ids)
    tokens.sort(kind="stable")  # The fastest here, by a factor of two.
    first = np.flatnonzero(np.diff(tokens, prepend=-1))
    counts = np.diff(first, append=len(tokens)).astype(np.float64)
    tokens = tokens[first]
    word_ids = (tokens & (2**BITS - 1)).astype(np.int32)
    return DocumentBatch(counts, word_ids, np.searchsorted(tokens, starts), n_features)
