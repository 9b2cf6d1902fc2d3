"""The report as a value: shown in a notebook, opened in a browser, or saved."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from html import escape
from pathlib import Path

from streamlda.model.topic_model import TopicModel
from streamlda.report import render_report, save_page


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
        save_page(path, self.html)

    def show(self) -> Path:
        """Open the page in the browser of this machine; return the file, which stays."""
        folder = Path(tempfile.mkdtemp(prefix="streamlda-"))
        self.save(path := folder / "report.html")
        webbrowser.open(path.as_uri())
        return path


def visualize(model: TopicModel, *, title: str = "Topic report", n_words: int = 10) -> ReportPage:
    """Return the report about a model: topics, map, likeness and shares over time.

    The page of `streamlda report`, which loads nothing. In a notebook it is shown as the value of a
    cell; elsewhere ``.show()`` opens it in a browser, and ``.save(path)`` writes it. Time
    O(K^2 V + K^3), memory O(K V + K^2).

    Parameters
    ----------
    model : TopicModel
    title : str, default "Topic report"
    n_words : int, default 10
        Words of each topic; all V if there are fewer.

    Returns
    -------
    ReportPage

    Raises
    ------
    InvalidSettingError
        If `n_words` is below 1.

    Examples
    --------
    >>> import streamlda
    >>> from streamlda.simulate import PlantedLDA
    >>> X = PlantedLDA(3, 100, seed=0).documents(2000)
    >>> lda = streamlda.StreamLDA(n_components=3, random_state=0).fit(X.to_csr())
    >>> lda.to_model().visualize().save("topics.html")  # doctest: +SKIP
    """
    return ReportPage(render_report([model], ["model"], title=title, n_words=n_words))
