"""Table of documents: a row for each text or row of counts, with its topics or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, MissingExtraError, one_of, require
from streamlda.model.faults import fault
from streamlda.model.table import in_line
from streamlda.texts import read_texts

if TYPE_CHECKING:
    from streamlda.model.topics import Topics

#: Reasons why a document has no topic.
BLANK, UNKNOWN, UNREADABLE = "blank", "no-known-word", "analyzer-failed"

#: Decimals of a proportion.
DECIMALS = 6


def make_document_table(
    model: Topics,
    documents: Any,
    *,
    columns: Mapping[str, Sequence[Any]],
    text: bool,
    n_words: int,
    form: str,
) -> Any:
    """Return the table that `TopicModel.document_table` describes."""
    make = choose_form(form)
    theta, reasons, texts = infer_documents(model, documents)
    require(
        not text or texts is not None,
        "counts have no text to show",
        text=text,
        remedy="pass texts, or leave text out",
        error=InvalidDocumentsError,
    )
    n = len(reasons)
    for name, values in columns.items():
        check_length(name, values, n)
    order = np.argsort(-theta, axis=1, kind="stable")
    first, second = order[:, 0].tolist(), order[:, min(1, order.shape[1] - 1)].tolist()
    labels, words = label_topics(model, n_words)

    def known(values: Callable[[int], Any]) -> list[Any]:
        """Return a value of each document, and None of those without a topic."""
        return [None if reasons[i] is not None else values(i) for i in range(n)]

    found: dict[str, list[Any]] = {
        **{name: list(values) for name, values in columns.items()},
        "topic": known(lambda i: first[i]),
        "label": known(lambda i: labels[first[i]]),
        "words": known(lambda i: words[first[i]]),
        "proportion": known(lambda i: round(float(theta[i, first[i]]), DECIMALS)),
    }
    if model.n_components > 1:
        found["second_topic"] = known(lambda i: second[i])
        found["second_proportion"] = known(lambda i: round(float(theta[i, second[i]]), DECIMALS))
    found["reason"] = reasons
    if text:
        assert texts is not None
        found["text"] = list(map(str, texts))
    return make(found, documents)


def check_length(name: str, values: Sequence[Any], n: int) -> None:
    """Refuse a column that has not one value for each of n documents."""
    require(
        len(values) == n,
        "a column must have one value for each document",
        column=name,
        values=len(values),
        documents=n,
        remedy="pass the column of the same table",
        error=InvalidDocumentsError,
    )


def label_topics(model: Topics, n_words: int) -> tuple[list[str], list[str]]:
    """Return the label of each topic, its name or its words, and its words."""
    words = [in_line(word for word, _ in own) for own in model.top_words(n_words)]
    return [name or own for name, own in zip(model.names, words, strict=True)], words


def infer_documents(
    model: Topics, documents: Any
) -> tuple[NDArray[np.float64], list[str | None], list[str] | None]:
    """Return the proportions of documents, why some have no topic, and the texts if they are."""
    texts = read_texts(documents)
    if texts is not None:
        batch, reasons = encode_texts(model, texts)
    else:
        batch = DocumentBatch.from_matrix(documents)
        reasons = [None if n else UNKNOWN for n in batch.lengths.tolist()]
    theta = model.transform(batch) if reasons else np.empty((0, model.n_components))
    return theta, reasons, texts


def encode_texts(model: Topics, texts: Sequence[str]) -> tuple[DocumentBatch, list[str | None]]:
    """Return texts as counts, and why some have no topic."""
    if model.vocabulary is None:
        raise fault("no vocabulary")
    encoded = model.vocabulary.encode(texts)
    lengths, unreadable = encoded.batch.lengths.tolist(), set(encoded.unreadable)
    reasons: list[str | None] = []
    for number, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        if number in unreadable:
            reasons.append(UNREADABLE)
        elif not text.strip():
            reasons.append(BLANK)
        else:
            reasons.append(None if length else UNKNOWN)
    return encoded.batch, reasons


def choose_form(form: str) -> Callable[[dict[str, list[Any]], Any], Any]:
    """Return the function that makes a table of columns, for documents that may have an index."""
    one_of(("pandas", "polars", "arrow", "dict"), form=form)
    if form == "dict":
        return lambda found, documents: found
    try:
        if form == "polars":
            import polars

            return lambda found, documents: polars.DataFrame(found, infer_schema_length=None)
        if form == "arrow":
            import pyarrow

            return lambda found, documents: pyarrow.table(found)
        import pandas
    except ImportError as error:
        package, extra = {"arrow": ("pyarrow", "parquet")}.get(form, (form, "bridges"))
        raise MissingExtraError(package, extra, "a table of documents") from error

    def make(found: dict[str, list[Any]], documents: Any) -> Any:
        index = documents.index if hasattr(documents, "iloc") else None
        table = pandas.DataFrame(found, index=index)
        whole = [name for name in ("topic", "second_topic") if name in found]
        return table.astype(dict.fromkeys(whole, "Int64"))

    return make
