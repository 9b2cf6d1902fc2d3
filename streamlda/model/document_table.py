"""Tables of documents: a row for each with its topics, or for each class and topic."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import MissingExtraError, one_of
from streamlda.model.faults import check, fault
from streamlda.model.table import in_line
from streamlda.texts import check_counts, is_missing, list_values, read_texts
from streamlda.utils.arrays import Array

if TYPE_CHECKING:
    from streamlda.model.topics import Topics


#: Reasons why a document has no topic.
BLANK, UNKNOWN, UNREADABLE = "blank", "no-known-word", "analyzer-failed"

#: Decimals of a proportion.
DECIMALS = 6

#: Package of each form of a table, and the extra that brings it.
FORMS = {
    "pandas": ("pandas", "bridges"),
    "polars": ("polars", "bridges"),
    "arrow": ("pyarrow", "parquet"),
    "dict": ("builtins", ""),
}


def document_table(
    model: Topics, X: Any, *, n_words: int = 5, form: str = "pandas", **columns: Sequence[Any]
) -> Any:
    """Return a table with a row for each document of `X`, in the same order.

    Columns: ``topic``, its ``label`` (a name, or its words) and ``words``, its ``proportion``,
    ``second_topic`` and ``second_proportion``. A document without a topic has None there, and
    the ``reason``: ``blank`` (a missing or empty text), ``no-known-word`` or
    ``analyzer-failed``. Time O(nnz K).

    Parameters
    ----------
    X : texts, or array-like or sparse matrix of shape (n_documents, V)
        As `transform` takes them.
    n_words : int, default 5
        Words of a topic.
    form : {"pandas", "polars", "arrow", "dict"}, default "pandas"
        A table of this package, with the index of `X` if it is one of pandas; or a dict of
        lists.
    **columns : sequences of n_documents values
        Columns of your own, which come first: ``id=df.id, text=df.text``.

    Raises
    ------
    InvalidDocumentsError
        If a column has another length than `X`, or `X` holds no documents.
    MissingExtraError
        If the package of `form` is not installed.

    Examples
    --------
    >>> model.document_table(df.text, id=df.id, rating=df.rating)  # doctest: +SKIP
    """
    make = choose_form(form)
    theta, reasons = infer_documents(model, X)
    found = {name: list_column(name, values, len(reasons)) for name, values in columns.items()}
    labels, words = describe_topics(model, n_words)

    def drop_unknown(values: Sequence[Any]) -> list[Any]:
        pairs = zip(values, reasons, strict=True)
        return [value if reason is None else None for value, reason in pairs]

    order = np.argsort(-theta, axis=1, kind="stable")
    shares = np.take_along_axis(theta, order, axis=1).round(DECIMALS)
    first = order[:, 0].tolist()
    found["topic"] = drop_unknown(first)
    found["label"] = drop_unknown([labels[k] for k in first])
    found["words"] = drop_unknown([words[k] for k in first])
    found["proportion"] = drop_unknown(shares[:, 0].tolist())
    if model.n_components > 1:
        found["second_topic"] = drop_unknown(order[:, 1].tolist())
        found["second_proportion"] = drop_unknown(shares[:, 1].tolist())
    found["reason"] = reasons
    return make(found, getattr(X, "index", None) if hasattr(X, "iloc") else None)


def topics_per_class(
    model: Topics, X: Any, classes: Any, *, n_words: int = 5, form: str = "pandas"
) -> Any:
    """Return a table with a row for each class of documents and each topic.

    Columns: ``class``, ``topic``, its ``label``, its ``share``, which is the mean of its
    proportions in the documents of the class, and ``documents``, of which it is the largest
    topic. Documents without a class are a class of their own, None, and the last. Documents
    without a topic (`document_table` says why) are in no row. Time O(nnz K).

    Parameters
    ----------
    X : texts, or array-like or sparse matrix of shape (n_documents, V)
        As `transform` takes them.
    classes : sequence of n_documents values
        Any values that can be keys of a dict.
    n_words : int, default 5
        Words of a label.
    form : {"pandas", "polars", "arrow", "dict"}, default "pandas"
        A table of this package, or a dict of lists.

    Raises
    ------
    InvalidDocumentsError
        If there is not one class for each document, or `X` holds no documents.
    MissingExtraError
        If the package of `form` is not installed.

    Examples
    --------
    >>> table = model.topics_per_class(df.text, df.section)  # doctest: +SKIP
    >>> table.pivot(index="class", columns="topic", values="share")  # doctest: +SKIP
    """
    make = choose_form(form)
    theta, reasons = infer_documents(model, X)
    groups = Groups(model.n_components)
    groups.add(list_column("classes", classes, len(reasons)), theta, reasons)
    return make(groups.columns(model, "class", n_words))


class Groups:
    """Sums of topic proportions by group; None is the group of the documents that have none.

    Documents without a topic are in no group. Memory O(groups K).
    """

    def __init__(self, n_topics: int) -> None:
        self._n_topics = n_topics
        self._totals: dict[Any, Array] = {}

    def add(self, groups: Sequence[Hashable], theta: Array, reasons: Sequence[str | None]) -> None:
        """Count documents, those without a reason."""
        for group, row, reason in zip(groups, theta, reasons, strict=True):
            if reason is None:
                own = self._totals.setdefault(group, np.zeros((2, self._n_topics)))
                own[0] += row
                own[1, row.argmax()] += 1

    def totals(self) -> tuple[list[Any], Array, NDArray[np.int64]]:
        """Return the groups in order, and what each has of each topic, (groups, K).

        Sums of proportions, and documents of which it is the largest topic. Numbers come before
        text, and None is the last.
        """
        names = sorted(self._totals, key=_rank)
        table = np.array([self._totals[name] for name in names]).reshape(-1, 2, self._n_topics)
        return names, table[:, 0], table[:, 1].astype(np.int64)

    def columns(
        self,
        model: Topics,
        name: str,
        n_words: int,
        written: Callable[[Any], Any] = lambda group: group,
    ) -> dict[str, list[Any]]:
        """Return a row for each group and topic; `written` says how a group is called."""
        names, sums, largest = self.totals()
        labels, K = describe_topics(model, n_words)[0], self._n_topics
        return {
            name: [None if key is None else written(key) for key in names for _ in range(K)],
            "topic": [*range(K)] * len(names),
            "label": labels * len(names),
            "share": (sums / largest.sum(axis=1, keepdims=True)).round(DECIMALS).ravel().tolist(),
            "documents": largest.ravel().tolist(),
        }


def _rank(name: Any) -> tuple[int, float, str]:
    try:
        number = float(name)
    except (TypeError, ValueError):
        return (2 if name is None else 1, 0.0, str(name))
    return (0, number, "") if math.isfinite(number) else (1, 0.0, str(name))


def list_column(name: str, values: Any, n: int) -> list[Any]:
    """Return a value for each of n documents, None of one that is missing."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        # NumPy lists nanoseconds as numbers.
        values = values.astype(f"{values.dtype.kind}8[us]")
    listed = list(list_values(values))
    check(len(listed) == n, "column", column=name, values=len(listed), documents=n)
    return [None if is_missing(value) else value for value in listed]


def describe_topics(model: Topics, n_words: int) -> tuple[list[str], list[str]]:
    """Return the label of each topic, its name or its words, and its words."""
    words = [in_line(word for word, _ in own) for own in model.top_words(n_words)]
    return [name or own for name, own in zip(model.names, words, strict=True)], words


def infer_documents(model: Topics, documents: Any) -> tuple[Array, list[str | None]]:
    """Return the proportions of documents, and why some have no topic."""
    texts = read_texts(documents)
    if texts is None:
        batch = DocumentBatch.from_matrix(check_counts(documents))
        reasons = [None if n else UNKNOWN for n in batch.lengths.tolist()]
    else:
        batch, reasons = encode_texts(model, texts)
    theta = model.transform(batch) if reasons else np.empty((0, model.n_components))
    return theta, reasons


def encode_texts(model: Topics, texts: Sequence[str]) -> tuple[DocumentBatch, list[str | None]]:
    """Return texts as counts, and why some have no topic."""
    if model.vocabulary is None:
        raise fault("no vocabulary")
    encoded = model.vocabulary.encode(texts)
    reasons = [None if n else UNKNOWN for n in encoded.batch.lengths.tolist()]
    unreadable = set(encoded.unreadable)
    for i, text in enumerate(texts):
        if i in unreadable or not text.strip():
            reasons[i] = UNREADABLE if i in unreadable else BLANK
    return encoded.batch, reasons


def choose_form(form: str) -> Callable[..., Any]:
    """Return the function that makes a table of columns, with an index if pandas makes it."""
    one_of(FORMS, form=form)
    package, extra = FORMS[form]
    try:
        module = import_module(package)
    except ImportError as error:
        raise MissingExtraError(package, extra, "a table of documents") from error

    def make(found: dict[str, list[Any]], index: Any = None) -> Any:
        if form == "pandas":
            whole = [name for name in ("topic", "second_topic") if name in found]
            # Beside None integers would become floats, which round large ones.
            kept = {
                name: np.array(each, object) if {*map(type, each)} == {int, type(None)} else each
                for name, each in found.items()
            }
            return module.DataFrame(kept, index=index).astype(dict.fromkeys(whole, "Int64"))
        if form == "polars":
            return module.DataFrame(found, infer_schema_length=None)
        return module.table(found) if form == "arrow" else found

    return make
