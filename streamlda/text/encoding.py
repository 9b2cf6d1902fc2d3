"""Tables behind a vocabulary: from words to columns, and from columns to counts."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.text import ENDS, find_words
from streamlda.text.analysis import TextAnalyzer, ascii_classes
from streamlda.text.cleaning import clean_text
from streamlda.text.functions import UnreadableTextError
from streamlda.texts import TokenizedText

#: Ids that are not columns: a word outside a fixed vocabulary, and a stop word.
UNSEEN, STOP = -1, -2

#: New words that a table has room for, at least.
LEAST_WORDS = 32

_END, _WHOLE = bytes([ENDS]), np.ones(1, dtype=np.uint8)

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


class Tokens(NamedTuple):
    """The column, or number, of each token of texts, and where each text begins among them."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    #: Numbers of texts that the user's analyzer fails on, and pieces that were no text, by step.
    unreadable: list[int]
    removed: Counter[str]


class WordTable:
    """Numbers of words, in the order in which they come: the table of a kernel.

    About 100 bytes a word, and twice that while it grows.
    """

    def __init__(
        self, analyzer: TextAnalyzer, words: Collection[str] = (), hash_bits: int | None = None
    ) -> None:
        self._analyzer = analyzer
        self._mask = -1 if hash_bits is None else 2**hash_bits - 1
        classes = ascii_classes(analyzer.lowercase).encode("ascii").replace(b" ", _END)
        # Of bytes in ASCII texts, and among words that are found already.
        classes = classes.ljust(256, _END) + bytes(range(256))
        self._classes = np.frombuffer(classes, dtype=np.uint8)
        slots = 2 ** (2 * len(words) + LEAST_WORDS).bit_length()
        self._slots = np.zeros((slots, 4), dtype=np.int64)
        self._letters = np.empty(0, dtype=np.uint8)
        self._sizes = np.zeros(2, dtype=np.int64)
        self._number([_join_words([*words])], _WHOLE, grow=True)

    def __len__(self) -> int:
        return int(self._sizes[0])

    def list_words(self) -> list[str]:
        """Return the words, by number. Time O(characters)."""
        words = self._letters[: self._sizes[1]].tobytes().split(_END)[:-1]
        return [word.decode("utf-8", "surrogatepass") for word in words]

    def find(self, texts: list[str], *, grow: bool = False) -> Tokens:
        """Return the numbers of the tokens of texts, stop words among single ones.

        New words have numbers below 0, or enter if the table may `grow`.
        """
        unreadable, removed = list[int](), Counter[str]()
        steps, bytewise = self._analyzer.clean, self._analyzer.bytewise
        parts, whole = [], np.zeros(len(texts), dtype=np.uint8)
        for n, text in enumerate(texts):
            text = clean_text(text, steps, removed)
            # By the method of str itself: the kernel relies on it, and a subclass may differ.
            if bytewise and str.isascii(text) and not isinstance(text, TokenizedText):
                parts.append(text.encode("ascii") + _END)
                continue
            whole[n], words = 1, []
            try:
                words = self._analyze(text)
            except UnreadableTextError:
                unreadable.append(n)
            parts.append(_join_words(words))
        return Tokens(*self._number(parts, whole, grow=grow), unreadable, removed)

    @cached_property
    def _analyze(self) -> Callable[[str], list[str]]:
        # Stop words among single tokens are left to the table, which every token passes anyway.
        if self._analyzer.unigrams:
            return self._analyzer.build_tokenizer()
        return self._analyzer.with_settings(clean=()).build_analyzer(strict=True)

    def _number(
        self, parts: list[bytes], whole: NDArray[np.uint8], *, grow: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        joined = np.frombuffer(b"".join(parts), dtype=np.uint8)
        starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        ids, offsets = np.empty(len(joined) // 2, dtype=np.int32), np.empty_like(starts)
        if grow and len(self._letters) < self._sizes[1] + len(joined):
            more = np.empty(len(self._letters) + len(joined), dtype=np.uint8)
            self._letters = np.concatenate((self._letters, more))
        while True:
            most, table = len(self._slots) // 2 * grow, (self._slots, self._letters, self._sizes)
            settings = self._classes, whole, self._mask, most
            find_words(joined, starts, *settings, *table, ids, offsets)
            if not grow or len(self) < most:
                return ids[: offsets[-1]].copy(), offsets
            # The words so far again, in order, in a table twice as large.
            words = self._letters[: self._sizes[1]].tobytes()
            self._slots, self._sizes[:] = np.zeros((4 * most, 4), dtype=np.int64), 0
            self._number([words], _WHOLE, grow=True)


class Encoder:
    """The columns of tokens for a `Vocabulary`."""

    def __init__(
        self, analyzer: TextAnalyzer, words: tuple[str, ...] | None, hash_bits: int | None
    ) -> None:
        stop = analyzer.stop_set if analyzer.unigrams else frozenset[str]()
        known = dict.fromkeys([*(words or ()), *filter(None, stop)])
        self._table = WordTable(analyzer, known, hash_bits)
        self._hashed = hash_bits is not None
        # By number, and last of words outside the table.
        columns = [STOP if word in stop else n for n, word in enumerate(known)]
        self._columns = np.array([*columns, UNSEEN], dtype=np.int32)

    def find(self, texts: list[str]) -> Tokens:
        """Return the columns of the tokens of texts."""
        found = self._table.find(texts)
        ids = found.ids
        ids = np.where(ids < 0, -1 - ids, STOP) if self._hashed else self._columns[ids]
        kept = ids != STOP
        if kept.all():
            return found._replace(ids=ids)
        offsets = np.concatenate(([0], np.cumsum(kept)))[found.offsets]
        return found._replace(ids=ids[kept], offsets=offsets)


def _join_words(words: list[str]) -> bytes:
    """Return words as bytes, `ENDS` after each."""
    joined = "\n".join([*words, ""]).encode("utf-8", "surrogatepass").replace(b"\n", _END)
    if joined.count(_END) == len(words):
        return joined
    return b"".join([word.encode("utf-8", "surrogatepass") + _END for word in words])


def count_tokens(
    ids: NDArray[np.int32], offsets: NDArray[np.int64], n_features: int
) -> DocumentBatch:
    """Return how often each column occurs in each document; ids below 0 are skipped.

    Document n owns ``ids[offsets[n]:offsets[n + 1]]``. Time O(tokens log tokens).
    """
    lengths = np.diff(offsets)
    # A number of document and column: equal tokens are side by side once sorted.
    starts = np.arange(len(offsets)) << BITS
    tokens = np.compress(ids >= 0, np.repeat(starts[:-1], lengths) | ids)
    tokens.sort(kind="stable")  # The fastest here, by a factor of two.
    first = np.flatnonzero(np.diff(tokens, prepend=-1))
    counts = np.diff(first, append=len(tokens)).astype(np.float64)
    tokens = tokens[first]
    word_ids = (tokens & (2**BITS - 1)).astype(np.int32)
    return DocumentBatch(counts, word_ids, np.searchsorted(tokens, starts), n_features)
