"""Documents of a report: their topics by class and over time, and a sample of them to draw.

A document lies on the map at the mean of the centres of the topics, weighted by its proportions. So
positions need no further fit, are equal for equal models, and read as those of the topics do.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from heapq import nsmallest
from typing import Any, NamedTuple
from warnings import warn

import numpy as np

from streamlda.documents import UNDATED
from streamlda.errors import one_of, require
from streamlda.model.document_table import Groups, choose_form, infer_documents, list_column
from streamlda.model.over_time import Timeline
from streamlda.model.representatives import draw_ranks
from streamlda.model.topic_model import TopicModel
from streamlda.report.over_time import Course, course_from_timeline, write_start
from streamlda.stream.event_time import UNITS, TimeReader
from streamlda.stream.pipeline import find_bins
from streamlda.utils.arrays import Array

#: Documents that are drawn at most: more are a blot, and some 40 bytes of the page each.
MOST_POINTS = 2000

#: Classes that a page shows at most, those of most documents.
MOST_CLASSES = 40

#: Characters of a title on the page.
TITLE_CHARACTERS = 120

#: Group of the documents that have none, as the page calls it.
UNCLASSED = "(none)"


class Point(NamedTuple):
    """A document that is drawn; `rank` decides whether it is in the sample."""

    rank: int
    theta: Array
    title: str | None
    group: Any


class DocumentSurvey:
    """Topics of documents by class and over time, and a uniform sample of the documents.

    Parameters
    ----------
    model : TopicModel
        A model that is not private: a page of documents would not be as private as the model.
    unit : str, optional
        Bins of the times, as `UNITS`.
    has_classes : bool, default False
        Whether documents have classes.
    """

    def __init__(
        self, model: TopicModel, *, unit: str | None = None, has_classes: bool = False
    ) -> None:
        require(
            not model.counts_slots,
            "the report of a private model has no documents, which it would disclose",
            statement=model.privacy.get("statement"),
            remedy="leave the documents out; the topics are shown without them",
        )
        self.model, self.unit = model, unit
        #: Documents, and those of them that have no topic.
        self.n_documents = self.n_without = 0
        self.classes = Groups(model.n_components) if has_classes else None
        self.moments = Groups(model.n_components) if unit else None
        #: The documents to draw, the last one on top.
        self.points: list[Point] = []

    def add(
        self,
        documents: Any,
        *,
        titles: Sequence[str | None] | None = None,
        classes: Sequence[Any] | None = None,
        times: Sequence[float | None] | None = None,
    ) -> None:
        """Take documents, with their titles to be shown, classes, and times in seconds."""
        theta, reasons = infer_documents(self.model, documents)
        n = len(reasons)
        titles, classes = titles or [None] * n, classes or [None] * n
        if self.classes is not None:
            self.classes.add(classes, theta, reasons)
        if self.moments is not None:
            self.moments.add(bin_times(times or [None] * n, str(self.unit)), theta, reasons)
        ranks = draw_ranks(self.n_documents, n, 0)
        known = [i for i, reason in enumerate(reasons) if reason is None]
        found = [Point(int(ranks[i]), theta[i], titles[i], classes[i]) for i in known]
        self.points = nsmallest(MOST_POINTS, self.points + found, key=lambda point: point.rank)
        self.n_documents += n
        self.n_without += n - len(known)

    def time_course(self) -> Course | None:
        """Return the mean shares of the topics over time."""
        if self.moments is None:
            return None
        names, sums, largest = self.moments.totals()
        starts = [start for start in names if start is not None]
        if not starts:
            return None
        documents, n = largest.sum(axis=1), len(starts)
        timeline = Timeline(
            unit=str(self.unit),
            starts=np.array(starts, dtype=np.int64),
            tokens=sums[:n],
            documents=documents[:n],
            undated=int(documents[n:].sum()),
        )
        return replace(course_from_timeline(timeline), of_documents=True)

    def class_course(self) -> Course | None:
        """Return the mean shares of the topics in the classes of most documents."""
        if self.classes is None:
            return None
        names, sums, largest = self.classes.totals()
        if not names:
            return None
        documents = largest.sum(axis=1)
        shares = sums / documents[:, None]
        shown = sorted(np.argsort(-documents, kind="stable")[:MOST_CLASSES].tolist())
        return Course(
            labels=tuple(UNCLASSED if names[g] is None else str(names[g]) for g in shown),
            at=(0.0,) * len(shown),
            shares=shares[shown].T.tolist(),
            documents=tuple(documents[shown].tolist()),
            unit="class",
            together=len(names),
        )


def bin_times(times: Sequence[float | None], unit: str) -> list[int | None]:
    """Return the start of the bin of each time in seconds, None without a time."""
    seconds = np.array([np.nan if time is None else time for time in times], dtype=np.float64)
    return [None if start == UNDATED else start for start in find_bins(seconds, unit).tolist()]


def read_times(values: Any, n: int, form: str | None) -> list[float | None]:
    """Return the times of n documents in seconds, and warn of forms that are not understood."""
    listed = [
        value if value is None or isinstance(value, int | float | str | date) else str(value)
        for value in list_column("times", values, n)
    ]
    read = TimeReader(form, lambda: listed)
    found = [read(value) for value in listed]
    for note in read.take_notes():
        warn(note.replace("--time-format", "time_format ="), UserWarning, stacklevel=4)
    return found


def topics_over_time(
    model: TopicModel,
    X: Any,
    times: Any,
    *,
    unit: str = "month",
    time_format: str | None = None,
    n_words: int = 5,
    form: str = "pandas",
) -> Any:
    """Return a table with a row for each month, or other unit of time, and each topic.

    Columns: ``time``, the beginning of the month as text (``2017-02``), and ``topic``, ``label``,
    ``share`` and ``documents`` as in `TopicModel.topics_per_class`. Documents without a time are
    the last rows, whose time is None. Time O(nnz K).

    Parameters
    ----------
    model : TopicModel
    X : texts, or array-like or sparse matrix of shape (n_documents, V)
        As `TopicModel.transform` takes them.
    times : sequence of n_documents dates, datetimes, texts or numbers
        In UTC without an offset. Texts as of ``source.time_field``: ISO 8601 and common forms, and
        day or month first as all values say. A form that is not understood is a warning.
    unit : {"hour", "day", "week", "month", "year"}, default "month"
    time_format : str, optional
        Form of the times in terms of strptime; ``"excel"`` (days) or ``"unix"`` for numbers.
    n_words : int, default 5
        Words of a label.
    form : {"pandas", "polars", "arrow", "dict"}, default "pandas"
        A table of this package, or a dict of lists.

    Raises
    ------
    InvalidDocumentsError
        If there is not one time for each document, or `X` holds no documents.
    InvalidSettingError
        If `unit`, `time_format` or `form` is unknown.
    MissingExtraError
        If the package of `form` is not installed.

    Examples
    --------
    >>> table = topics_over_time(model, df.text, df.date)  # doctest: +SKIP
    """
    one_of(UNITS, unit=unit)
    make = choose_form(form)
    theta, reasons = infer_documents(model, X)
    groups = Groups(model.n_components)
    groups.add(bin_times(read_times(times, len(reasons), time_format), unit), theta, reasons)
    return make(groups.columns(model, "time", n_words, lambda start: write_start(start, unit)))
