"""A page that shows topics: one HTML file that carries all it needs and loads nothing.

The page is whole without its script, which sorts, searches, points and saves, and makes the tables
of all distances and all shares over time. Equal models give equal bytes. Text from models is
escaped; a policy in the page lets nothing run or load but what is in it.

`facts` says what is on the page and what its script works with, `over_time` how topics went,
`documents` what is told of documents, if any are given;
`charts` where drawings have their points, `wording` how numbers and promises are said;
``templates/`` are the page as a designer reads it, ``page/`` its style and script.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from streamlda.container import whole_file
from streamlda.model.topic_model import TopicModel
from streamlda.report import charts, wording
from streamlda.report.documents import DocumentSurvey
from streamlda.report.facts import gather, script_data

#: Parts of the script, in their order.
SCRIPTS = ("report.js", "drawings.js", "documents.js", "files.js")

__all__ = ["render_report", "write_report"]


def render_report(
    models: Sequence[TopicModel],
    labels: Sequence[str],
    *,
    title: str = "Topic report",
    n_words: int = 10,
    survey: DocumentSurvey | None = None,
) -> str:
    """Return the page about models as HTML.

    Time O(models K^2 V + K^3), memory O(K V + K^2) besides the models; the page takes about 50 kB,
    7 kB a topic, and 1 kB a topic over time.

    Parameters
    ----------
    models : sequence of TopicModel
        One or more, oldest first. The topics of the last are shown, and followed through the
        others.
    labels : sequence of str
        What each model is called.
    title : str, default "Topic report"
    n_words : int, default 10
        Words of each topic; all V if there are fewer.
    survey : DocumentSurvey, optional
        Documents by the last model: a map of them, and topics by class and over time.

    Raises
    ------
    InvalidSettingError
        If there is no model, or not a label for each, or `n_words` is below 1.
    VocabularyError
        If two models in turn have too few words in common to be compared.
    """
    facts = gather(models, labels, n_words, survey)
    circles = charts.topic_circles(facts)
    shared, own = (files(package).joinpath("page") for package in ("streamlda", "streamlda.report"))
    css = "".join(part.read_text("utf-8") for part in (shared / "base.css", own / "report.css"))
    js = "".join((own / name).read_text("utf-8") for name in SCRIPTS)
    return (
        environment()
        .get_template("report.html")
        .render(
            facts=facts,
            model=facts.newest,
            title=title,
            policy=_policy(css, js),
            icon=base64.b64encode((shared / "icon.svg").read_bytes()).decode("ascii"),
            # Style and script belong to this package: the policy has their digests.
            css=Markup(css),
            js=Markup(js),
            private=[wording.is_private(model.privacy) for model in facts.models],
            statements=wording.statements(facts.models, facts.labels),
            tree=charts.topic_tree(facts),
            circles=circles,
            bars=charts.class_bars(facts),
            full_radius=charts.FULL_RADIUS,
            lines=charts.course_lines(facts),
            names={t.id: t.name or wording.join_words(t.label[:2]) for t in facts.topics},
            data=script_data(facts) | {"documents": charts.document_points(facts, circles)},
        )
    )


def write_report(
    path: str | os.PathLike[str],
    models: Sequence[TopicModel],
    labels: Sequence[str],
    *,
    title: str = "Topic report",
    n_words: int = 10,
    survey: DocumentSurvey | None = None,
) -> None:
    """Write the page about models to a file, whole or not at all; see `render_report`."""
    page = render_report(models, labels, title=title, n_words=n_words, survey=survey)
    save_page(path, page)


def save_page(path: str | os.PathLike[str], page: str) -> None:
    """Write a page to a file, whole or not at all; errors as `write_report`."""
    with whole_file(path) as file:
        # A lone surrogate, which no word of a file has, must not keep the page from being written.
        file.write(page.encode("utf-8", errors="xmlcharrefreplace"))


@cache
def environment() -> Environment:
    """Return the templates, in which all text is escaped and every name must exist."""
    environment = Environment(
        loader=PackageLoader("streamlda.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= wording.FILTERS
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.globals["sparkline"] = charts.sparkline
    return environment


def _policy(style: str, script: str) -> str:
    """Return a policy that allows this style and this script, and nothing else."""
    digests = [
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
