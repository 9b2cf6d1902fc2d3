"""Rows of a matrix as documents: counts as they are, or what stands for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Number
from typing import Any

import numpy as np
import scipy

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError

#: Rows with fractional entries are scaled to this many tokens, where the correction for
#: words drawn together with themselves vanishes.
PSEUDO_TOKENS = 1e6


def counts_of(X: Any, gibbs_sweeps: int = 0) -> DocumentBatch:
    """Return a batch of counts; fractional rows become very long documents, without sweeps."""
    batch = DocumentBatch.from_matrix(X, integral=False)
    if batch.whole:
        return batch
    require(
        not gibbs_sweeps,
        "sweeps give a topic to every token, so counts must be whole numbers, got fractional "
        "values and gibbs_sweeps above 0",
        remedy="pass CountVectorizer output, or set it to 0",
        error=InvalidDocumentsError,
    )
    warnings.warn(
        "counts must be whole numbers of tokens, got fractional values: rows are taken as word "
        "frequencies without sampling noise; pass CountVectorizer output, not TF-IDF",
        UserWarning,
        stacklevel=3,
    )
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    counts = batch.counts * (PSEUDO_TOKENS / batch.lengths[rows])
    layout = (batch.word_ids, batch.row_pointers, batch.n_features)
    return DocumentBatch(counts, *layout, integral=False)


def rounded(X: Any) -> DocumentBatch:
    """Return a batch of whole tokens."""
    batch = DocumentBatch.from_matrix(X, integral=False)
    if batch.whole:
        return batch
    counts = batch.to_csr().rint()
    kept = counts.sum() / batch.counts.sum()
    rule = "counts must be whole numbers of tokens to be scored, got fractional values"
    remedy = "pass CountVectorizer output, not TF-IDF"
    values = {"kept_by_rounding": f"{kept:.0%}"}
    require(kept >= 0.5, rule, **values, remedy=remedy, error=InvalidDocumentsError)
    warnings.warn(
        f"{rule}: rounding keeps {kept:.0%} of their sum; {remedy}", UserWarning, stacklevel=4
    )
    return DocumentBatch.from_matrix(counts)


def texts_of(X: Any) -> list[str] | None:
    """Return the items of a list, tuple, array or series of texts; None of anything else.

    One of them is text: whoever reads the others raises at one that is none.
    """
    if hasattr(X, "tolist") and getattr(X, "ndim", 1) == 1:
        X = X.tolist()
    elif hasattr(X, "to_list"):
        X = X.to_list()
    texts = isinstance(X, list | tuple) and any(isinstance(text, str | bytes) for text in X)
    return list(X) if texts else None


def holds_texts(X: Any) -> bool:
    """Return whether there is text anywhere: scikit-learn would quote it when it finds it."""
    if isinstance(X, str | bytes):
        return True
    if scipy.sparse.issparse(X):
        return False
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "SU" or (X.dtype.kind == "O" and holds_texts(X.ravel().tolist()))
    if isinstance(X, Iterator):
        return True  # or whatever it gives: it is no matrix, and not read
    if isinstance(X, list | tuple | set):
        numbers = all(issubclass(kind, Number) for kind in set(map(type, X)))
        return not numbers and any(map(holds_texts, X))
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        kinds = zip(X.columns, X.dtypes, strict=True)
        return any(
            holds_texts(np.asarray(X[name]))
            for name, dtype in kinds
            if getattr(dtype, "kind", "O") in "OSU"
        )
    return hasattr(X, "__array__") and holds_texts(np.asarray(X))
