"""The report as a value: shown in a notebook, opened in a browser, or saved."""

import os
import tempfile
import webbrowser
from html import escape
from pathlib import Path
from typing import Any

from streamlda.container import whole_file
from streamlda.errors import one_of
from streamlda.model.document_table import list_column
from streamlda.model.topic_model import TopicModel
from streamlda.report import render_report
from streamlda.report.documents import DocumentSurvey, read_times
from streamlda.stream.event_time import UNITS
from streamlda.texts import read_texts


class ReportPage:
    """A page of HTML, which a notebook shows in a frame.

    Parameters
    ----------
    html : str
        The page, whole.

    Attributes
    ----------
    height : int
        Of the frame, in pixels.
    """

    def __init__(self, html: str) -> None:
        self.html = html
        self.height = 900

    def __repr__(self) -> str:
        return f"<report of {len(self.html):,} characters: save(path) or show()>"

    def _repr_html_(self) -> str:
        # In a frame without the origin of the notebook, the page can reach nothing of it.
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts allow-downloads" '
            f'width="100%" height="{self.height}" style="border: 0" title="Topic report"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all."""
        with whole_file(path) as file:
            # A lone surrogate, which no word of a file has, must not keep it from being written.
            file.write(self.html.encode("utf-8", errors="xmlcharrefreplace"))

    def show(self) -> Path:
        """Open the page in the browser of this machine; return the file, which stays."""
        folder = Path(tempfile.mkdtemp(prefix="streamlda-"))
        self.save(path := folder / "report.html")
        webbrowser.open(path.as_uri())
        return path


def visualize(
    model: TopicModel,
    X: Any = None,
    *,
    titles: Any = None,
    classes: Any = None,
    times: Any = None,
    unit: str = "month",
    time_format: str | None = None,
    title: str = "Topic report",
    n_words: int = 10,
) -> ReportPage:
    """Return the report about a model: topics, map, likeness and shares over time.

    The page of `streamlda report`, which loads nothing. In a notebook it is shown as the value of a
    cell; elsewhere ``.show()`` opens it in a browser, and ``.save(path)`` writes it. With
    documents it has a map of 2,000 of them at most, a uniform sample, each at the mean of the
    topics of the map above weighted by its proportions. Time O(K^2 V + K^3 + nnz K), memory O(K V +
    K^2).

    Parameters
    ----------
    model : TopicModel
    X : texts, or array-like or sparse matrix of shape (n_documents, V), optional
        Documents to draw. The page holds none of their text, but positions; keep it as secret as
        them. Refused for a private model, whose report has no documents.
    titles : sequence of n_documents str, optional
        Titles, ids or texts, by which documents can be searched: 120 characters of each are on the
        page, of those that are drawn.
    classes, times, unit, time_format
        As in `TopicModel.topics_per_class` and `topics_over_time`: charts of both.
    title : str, default "Topic report"
    n_words : int, default 10
        Words of each topic; all V if there are fewer.

    Returns
    -------
    ReportPage

    Raises
    ------
    InvalidSettingError
        If `n_words` is below 1, or documents come with a private model.
    InvalidDocumentsError
        If there is not one title, class or time for each document.

    Examples
    --------
    >>> import streamlda
    >>> from streamlda.simulate import PlantedLDA
    >>> X = PlantedLDA(3, 100, seed=0).documents(2000)
    >>> lda = streamlda.StreamLDA(n_components=3, random_state=0).fit(X.to_csr())
    >>> lda.to_model().visualize().save("topics.html")  # doctest: +SKIP
    """
    survey = None
    if X is not None:
        one_of(UNITS, unit=unit)
        survey = DocumentSurvey(
            model, unit=None if times is None else unit, has_classes=classes is not None
        )
        X = X if (texts := read_texts(X)) is None else texts
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        survey.add(
            X,
            titles=None if titles is None else list_column("titles", titles, n),
            classes=None if classes is None else list_column("classes", classes, n),
            times=None if times is None else read_times(times, n, time_format),
        )
    return ReportPage(render_report(model, title=title, n_words=n_words, survey=survey))
