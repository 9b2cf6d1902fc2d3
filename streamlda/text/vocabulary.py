"""The vocabulary: words, or hashes of words, as columns of the counts."""

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError, between
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.encoding import EncodedTexts, Encoder, count_tokens
from streamlda.text.faults import check, fault
from streamlda.text.frequencies import TOO_FREQUENT, FrequencyLimits, WordFrequencies
from streamlda.text.scripts import find_unsegmented
from streamlda.texts import read_texts

#: Widest hashed vocabulary: 2^22 columns, 34 MB of float64 for each topic.
MAX_HASH_BITS = 22


@dataclass(frozen=True)
class Vocabulary:
    """Words and their columns of the counts. Immutable; equal and hashed by content.

    Made by `given`, `from_file`, `learn`, `selected` or `hashed`, or from stored `metadata`. Safe
    to share between threads, and picklable.

    Parameters
    ----------
    kind : {"given", "learned", "selected", "hashed"}
        Origin of the columns.
    words : tuple of str or None
        The word of each column; None for a hashed vocabulary. A vocabulary of one word is allowed
        here; a model needs at least as many words as topics.
    hash_bits : int or None
        The hashed vocabulary has ``2**hash_bits`` columns; None for the other kinds.
    analyzer : TextAnalyzer
        Settings that split texts. A word that it never yields (upper case under
        ``lowercase=True``, a stop word) is a column that stays empty.
    undercount : int, default 0
        Learned: by how much a frequency may have been underestimated, in tokens, because the
        table of candidates was full; 0 means the choice of words is exact.
    left_out : mapping or None, default None
        Just learned: how many words were left out, by reason; not stored.
    runs : mapping or None, default None
        Just learned: runs of letters and digits of the first documents, by what they were counted
        as (`TextAnalyzer.count_runs`); not stored.
    selection : mapping, optional
        Selected: how the words were chosen privately, as plain JSON values; None for the other
        kinds. A record of the selection when it was made; it does not enter the fingerprint.
    names : tuple of str or None, default None
        Hashed: the name of each column, "" for its number; in models of version 0.2. Names do not
        enter the fingerprint.

    Raises
    ------
    VocabularyError
        If the parts do not fit together, or the words are not distinct and non-empty.
    """

    kind: str
    words: tuple[str, ...] | None = field(repr=False)
    hash_bits: int | None = None
    analyzer: TextAnalyzer = field(default_factory=TextAnalyzer)
    undercount: int = field(default=0, compare=False)
    left_out: Mapping[str, int] | None = field(
        default=None, compare=False, repr=False, kw_only=True
    )
    runs: Mapping[str, int] | None = field(default=None, compare=False, repr=False, kw_only=True)
    selection: Mapping[str, Any] | None = field(default=None, compare=False)
    names: tuple[str, ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        hashed, kind, bits = self.kind == "hashed", self.kind, self.hash_bits
        check(kind in ("given", "learned", "selected", "hashed"), "kind", kind=kind)
        either = hashed is (bits is not None) and hashed is (self.words is None)
        check(either, "hashed", kind=kind, hash_bits=bits)
        if bits is not None:
            between(1, MAX_HASH_BITS, bits=bits, remedy="18 gives 262144 columns")
        if self.words is not None:
            object.__setattr__(self, "words", _check_words(self.words))
        if self.selection is not None:
            object.__setattr__(self, "selection", _copy_plain(self.selection))
        fits = self.names is None or (hashed and len(self.names) == self.n_features)
        check(fits, "names", kind=kind)

    @classmethod
    def given(cls, words: Iterable[str], analyzer: TextAnalyzer | None = None) -> Self:
        """Return the vocabulary of these distinct, non-empty words, in this order."""
        return cls("given", _check_words(words), None, analyzer or TextAnalyzer())

    @classmethod
    def from_file(cls, path: str | Path, analyzer: TextAnalyzer | None = None) -> Self:
        """Return the vocabulary of a UTF-8 file with one word a line; O(file).

        White space around a word and blank lines are ignored. `VocabularyError` if the file cannot
        be read, holds no word, or has a line that repeats a word or is not UTF-8 (with its number).
        """
        try:
            lines = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
        except OSError as error:
            raise fault("list", path=str(path), reason=error.strerror) from error
        words: list[tuple[int, str]] = []
        for number, line in enumerate(lines, 1):
            try:
                word = line.decode().strip()
            except UnicodeDecodeError as error:
                raise fault("utf8", path=str(path), line=number) from error
            if word:
                words.append((number, word))
        return cls.given(_deduplicate(words, "line", path=str(path)), analyzer)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        *,
        size: int | None = None,
        min_document_frequency: float = 1,
        max_document_frequency: float = 1.0,
        few_documents: int = 0,
        analyzer: TextAnalyzer | None = None,
    ) -> Self:
        """Return the vocabulary of the most frequent words of `texts`, sorted alphabetically.

        The words are those of scikit-learn's ``CountVectorizer(max_features=size,
        min_df=min_document_frequency, max_df=max_document_frequency)``; among equally frequent
        words the alphabetically first are taken. A word in at most `few_documents` is in none too
        many. Texts are taken one at a time.

        Time O(characters), memory O(words), some 200 bytes each. If more than 500,000 distinct
        words are met, the rarest are forgotten and undercounted, by at most `undercount` tokens:
        then a word near a limit may be chosen differently.

        Raises
        ------
        InvalidSettingError
            If a limit is out of range.
        VocabularyError
            If no word is left.
        """
        analyzer = analyzer or TextAnalyzer()
        low, high = min_document_frequency, max_document_frequency
        limits = FrequencyLimits(size, low, high, few_documents)
        found = WordFrequencies(analyzer)
        found.update(texts)
        return cls.from_frequencies(found, limits, analyzer)

    @classmethod
    def from_frequencies(
        cls, table: WordFrequencies, limits: FrequencyLimits, analyzer: TextAnalyzer
    ) -> Self:
        """Return the vocabulary of the words within the limits, as `learn`."""
        scripts = None if analyzer.function else find_unsegmented(table.words)
        if scripts is not None:
            warnings.warn(
                f"words look like whole phrases, as {scripts} has no spaces between words: cut "
                "them by an analyzer: --set vocabulary.analyzer=rjieba:cut (Chinese), "
                "pythainlp:word_tokenize (Thai), or TextAnalyzer(function=...)",
                UserWarning,
                stacklevel=3,
            )
        words, left_out = limits.choose(table), limits.count_left_out(table)
        counts = {"documents": table.n_documents, "words": len(table.counts)}
        check(words, "learned", **counts, in_too_many_documents=left_out[TOO_FREQUENT])
        return cls("learned", tuple(words), None, analyzer, table.undercount, left_out=left_out)

    @property
    def too_frequent(self) -> int | None:
        """Words that are in too many documents; None unless just learned."""
        return None if self.left_out is None else self.left_out[TOO_FREQUENT]

    @classmethod
    def selected(
        cls,
        words: Iterable[str],
        analyzer: TextAnalyzer | None = None,
        *,
        selection: Mapping[str, Any],
    ) -> Self:
        """Return the vocabulary of words that were chosen privately, in this order.

        `analyzer` split the texts for it. `selection` is the record of the guarantee in plain JSON
        values (`streamlda.stream.vocabulary_choice.describe_selection`), and is copied.
        """
        record, analyzer = _copy_plain(selection), analyzer or TextAnalyzer()
        return cls("selected", _check_words(words), None, analyzer, selection=record)

    @classmethod
    def hashed(cls, bits: int, analyzer: TextAnalyzer | None = None) -> Self:
        """Return the vocabulary of ``2**bits`` columns that a hash of the word chooses among.

        The columns are those of scikit-learn's ``HashingVectorizer(alternate_sign=False)``
        (MurmurHash3 of the UTF-8 bytes, seed 0): the same in every process, on every platform.
        Columns do not depend on the data and no word is unseen, but words may share a column.
        `bits` goes from 1 to `MAX_HASH_BITS`.
        """
        return cls("hashed", None, bits, analyzer or TextAnalyzer())

    @property
    def n_features(self) -> int:
        """Number of columns."""
        if self.words is not None:
            return len(self.words)
        assert self.hash_bits is not None
        return int(2**self.hash_bits)

    @property
    def data_dependent(self) -> bool:
        """True if the words come from documents: learned, selected, or names of hashed columns.

        Selected words tell no more about the documents than `selection` says; learned words and
        names have no bound.
        """
        return self.kind in ("learned", "selected") or self.names is not None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of kind, words, hash bits and analyzer, as 64 hexadecimal digits."""
        content = [self.kind, self.hash_bits, self.analyzer.metadata(), self.words]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def feature_name(self, word_id: int) -> str:
        """Return the word of a column; of a hashed one without a name ``"h"`` and its number."""
        listed = self.listed
        name = "" if listed is None else listed[word_id]
        return name or f"h{word_id:0{len(str(self.n_features - 1))}d}"

    @property
    def listed(self) -> tuple[str, ...] | None:
        """The words, or names, that are stored beside `metadata`; None if there are none."""
        return self.names if self.words is None else self.words

    def metadata(self) -> dict[str, Any]:
        """Return all but the words as plain JSON values, with the fingerprint of the whole."""
        values = {
            "kind": self.kind,
            "n_features": self.n_features,
            "hash_bits": self.hash_bits,
            "undercount": self.undercount,
            "analyzer": self.analyzer.metadata(),
            "fingerprint": self.fingerprint,
        }
        # Only where there is one: files of the other kinds stay as they were.
        return values if self.selection is None else values | {"selection": dict(self.selection)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], words: Iterable[str] | None = None) -> Self:
        """Return the vocabulary of this `metadata` and what it `listed`.

        `VocabularyError` if a value is missing or wrong, or the words are not those it belongs to.
        """
        listed = None if words is None else tuple(words)
        try:
            hashed = metadata["kind"] == "hashed"
            vocabulary = cls(
                metadata["kind"],
                None if hashed else listed,
                metadata["hash_bits"],
                TextAnalyzer.from_metadata(metadata["analyzer"]),
                metadata["undercount"],
                metadata.get("selection"),
                listed if hashed else None,
            )
            stored = metadata["fingerprint"]
        except (KeyError, TypeError, InvalidSettingError) as error:
            raise fault("metadata", cause=f"{type(error).__name__}: {error}") from error
        found = vocabulary.fingerprint
        check(found == stored, "fingerprint", fingerprint=found, stored=stored)
        return vocabulary

    def token_ids(self, texts: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the column of each token, in order, text after text; O(characters).

        Columns are int32, -1 for a token outside the vocabulary; text n owns
        ``ids[offsets[n]:offsets[n + 1]]``. Stop words leave no gap; n-grams come by length. Texts
        in ASCII under the default pattern, without n-grams, are read by a kernel; all others take
        several times as long. Texts that the user's analyzer fails on have no tokens.
        `InvalidDocumentsError` if an item is no text.
        """
        found = self._encoder.find(_read(texts))
        return found.ids, found.offsets

    def encode(self, texts: Any) -> EncodedTexts:
        """Return the texts as counts, shape (n_documents, n_features); errors as `token_ids`.

        Documents are texts, lists or bags of words, in any sequence or table of one column: words
        that are given are looked up as they are. Words outside a fixed vocabulary are counted,
        never an error. Time and memory O(characters).
        """
        found = self._encoder.find(_read(texts))
        tokens, known = len(found.ids), int(np.count_nonzero(found.ids >= 0))
        batch = count_tokens(found.ids, found.offsets, self.n_features)
        return EncodedTexts(batch, tokens, tokens - known, tuple(found.unreadable), found.removed)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.analyzer, self.words, self.hash_bits)

    def __reduce__(self) -> tuple[Any, ...]:
        # The cached tables are left out, and are quickly made again.
        parts = (self.kind, self.words, self.hash_bits, self.analyzer, self.undercount)
        return Vocabulary, (*parts, self.selection, self.names)


def _read(texts: Any) -> list[str]:
    """Return documents as texts; `InvalidDocumentsError` where they are none."""
    found = read_texts(texts)
    if found is None:
        raise fault("texts", type=type(texts).__name__)
    return found


def _copy_plain(selection: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy as it comes back from a file."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(selection), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        kind, cause = type(selection).__name__, type(error).__name__
        raise fault("selection", type=kind, error_type=cause) from error
    check(plain, "selection", selection=plain)
    return plain


def _check_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return words that are not empty and all different."""
    check(not isinstance(words, str), "one string")
    words = tuple(words)
    for position, word in enumerate(words):
        whole = isinstance(word, str) and word
        check(whole, "word", type=type(word).__name__, position=position)
    return _deduplicate(enumerate(words), "position")


def _deduplicate(words: Iterable[tuple[int, str]], unit: str, **where: Any) -> tuple[str, ...]:
    """Return words that are given with their numbers, which `unit` names; at least one."""
    first: dict[str, int] = {}
    for number, word in words:
        if first.setdefault(word, number) != number:
            raise fault("twice", **where, **{unit: number, f"first_{unit}": first[word]})
    check(first, "no words", **where, words=0)
    return tuple(first)
