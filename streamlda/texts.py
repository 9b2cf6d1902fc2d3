"""Sequences of documents as callers have them: one place decides what is one, and reads it."""

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from itertools import chain, repeat
from typing import Any, Self

import numpy as np

from streamlda.errors import InvalidDocumentsError, failure

#: Most tokens of a bag of words, which are listed one by one.
MOST_WORDS = 10**6

RULE = "a document is no str, list of words or bag of words (a dict of counts)"


class TokenizedText(str):
    """A text that is given by its words, which are not split or lower-cased again."""

    words: tuple[str, ...]

    def __new__(cls, words: Iterable[str]) -> Self:
        """Return the words, joined by spaces, as a text."""
        kept = tuple(words)
        text = super().__new__(cls, " ".join(kept))
        text.words = kept
        return text

    def __getnewargs__(self) -> tuple[tuple[str, ...]]:  # type: ignore[override]
        return (self.words,)


def read_texts(X: Any) -> list[str] | None:
    """Return the documents of any sequence of them, or table of one column; None if X is none.

    A missing one (None, NaN, NA) is an empty text: a record without a document. Lists and bags of
    words are `TokenizedText`. `InvalidDocumentsError` names the first element that is no document.
    """
    values = list_values(X)
    if not isinstance(values, list | tuple):
        return None
    if set(map(type, values)) == {str}:
        return list(values)
    if not all(map(is_missing, values)) and not any(map(_looks_like_document, values)):
        return None
    return list(check_texts(values))


def check_texts(texts: Iterable[Any]) -> Iterator[str]:
    """Yield documents as texts, and raise at the first that is none."""
    if isinstance(texts, str):
        rule = "texts are one string, and no sequence of documents"
        raise failure(rule, remedy="put it into a list", error=InvalidDocumentsError)
    for number, document in enumerate(texts):
        text: Any = document
        if type(document) is not str:
            text = "" if is_missing(document) else join_words(document)
        if not isinstance(text, str):
            about = {"document": number, "type": type(document).__name__}
            remedy = _find_remedy(document)
            raise failure(RULE, **about, remedy=remedy, error=InvalidDocumentsError)
        yield text


def join_words(document: Any) -> Any:
    """Return a list or a bag of words as a `TokenizedText`, and all else as it is."""
    if isinstance(document, Mapping):
        counts = list(document.values())
        whole = all(isinstance(n, int | np.integer) and n >= 0 for n in counts)
        if whole and sum(map(int, counts)) <= MOST_WORDS and _are_words(document):
            return TokenizedText(chain.from_iterable(map(repeat, document, map(int, counts))))
    elif isinstance(document, list | tuple | np.ndarray) and _are_words(document):
        return TokenizedText(map(str, document))
    return document


def holds_texts(X: Any) -> bool:
    """Return whether there is text anywhere: scikit-learn would quote it when it finds it."""
    import scipy.sparse

    if scipy.sparse.issparse(X):
        return False
    if isinstance(X, str | bytes | Mapping | Set | Iterator):
        return True
    try:
        array = np.asarray(X)
    except ValueError:
        return True  # Rows of several lengths: no matrix.
    if array.dtype.kind == "O":
        return array.ndim < 2 or any(isinstance(v, str | bytes | list) for v in array.ravel())
    return array.dtype.kind in "SU"


def check_counts(X: Any) -> Any:
    """Return a matrix of counts; raise `InvalidDocumentsError` for text that is no sequence."""
    if holds_texts(X):
        rule = "documents are neither counts nor a list, series or table of one column of texts"
        remedy = "choose the column of the text, put one text into a list, or use map_partitions"
        raise failure(rule, type=type(X).__name__, remedy=remedy, error=InvalidDocumentsError)
    return X


def list_values(X: Any) -> Any:
    """Return the values of a column or sequence as a list, and all else as it is."""
    X = X.collect() if type(X).__name__ == "LazyFrame" else X
    columns: Any = getattr(X, "columns", ())
    if len(columns) == 1:
        # The columns of Arrow are values, those of others are names.
        X = columns[0] if hasattr(columns[0], "to_pylist") else X[columns[0]]
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind in "OSUT":
        X = X[:, 0]
    listed = [name for name in ("to_pylist", "tolist", "to_list") if hasattr(X, name)]
    if listed and getattr(X, "ndim", 1) == 1:
        return getattr(X, listed[0])()
    if isinstance(X, str | bytes | list | tuple):
        return X
    return list(X) if isinstance(X, Iterator | Sequence | KeysView | ValuesView) else X


def _looks_like_document(value: Any) -> bool:
    """Return whether an element is a text or words, or an attempt at them."""
    if isinstance(value, list | tuple | np.ndarray):
        return len(value) > 0 and isinstance(value[0], str | bytes | tuple)
    return isinstance(value, str | bytes | Mapping)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN, or NA or NaT of pandas."""
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _are_words(document: Iterable[Any]) -> bool:
    return all(isinstance(word, str) for word in document)


def _find_remedy(document: Any) -> str:
    if isinstance(document, Mapping):
        return f'take texts out of records ([each["text"] for each in X]); at most {MOST_WORDS:,}'
    if isinstance(document, list | tuple) and document and isinstance(document[0], tuple):
        return "pass gensim's ids and counts as gensim.matutils.corpus2csc(X, len(dictionary)).T"
    if isinstance(document, list | tuple | np.ndarray):
        return "leave out the words that are no str"
    return "decode bytes, and leave out or convert what is no text"
