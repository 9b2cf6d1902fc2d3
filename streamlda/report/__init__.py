"""A page that shows topics: one HTML file that carries all it needs and loads nothing.

The page is whole without its script, which sorts, searches, points and saves, and makes the tables
of all distances and all shares over time. Equal models give equal bytes. Text from models is
escaped; a policy in the page lets nothing run or load but what is in it.

`facts` says what is on the page and what its script works with, `over_time` how topics went,
`documents` what is told of documents, if any are given; `charts` where drawings have their points,
`wording` how numbers are said; ``templates/`` are the page as a designer reads it, ``page/`` its
style and script.
"""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import statement_lines
from streamlda.report import charts, wording
from streamlda.report.documents import DocumentSurvey
from streamlda.report.facts import Facts, script_data
from streamlda.storage.snapshots import is_private

#: Parts of the script, in their order.
SCRIPTS = ("report.js", "drawings.js", "documents.js", "files.js")

__all__ = ["render_report"]


def render_report(
    model: TopicModel,
    *,
    title: str = "Topic report",
    n_words: int = 10,
    survey: DocumentSurvey | None = None,
) -> str:
    """Return the page about a model as HTML.

    Time O(K^2 V + K^3), memory O(K V + K^2) besides the model; the page takes about 50 kB, 7 kB a
    topic, and 1 kB a topic over time.

    Parameters
    ----------
    model : TopicModel
    title : str, default "Topic report"
    n_words : int, default 10
        Words of each topic; all V if there are fewer.
    survey : DocumentSurvey, optional
        Documents by the model: a map of them, and topics by class and over time.

    Raises
    ------
    InvalidSettingError
        If `n_words` is below 1.
    """
    facts = Facts(model, n_words, survey)
    circles = charts.topic_circles(facts)
    shared, own = (files(package).joinpath("page") for package in ("streamlda", "streamlda.report"))
    css = "".join(part.read_text("utf-8") for part in (shared / "base.css", own / "report.css"))
    js = "".join((own / name).read_text("utf-8") for name in SCRIPTS)
    return (
        environment()
        .get_template("report.html")
        .render(
            facts=facts,
            model=model,
            title=title,
            policy=_policy(css, js),
            icon=base64.b64encode((shared / "icon.svg").read_bytes()).decode("ascii"),
            # Style and script belong to this package: the policy has their digests.
            css=Markup(css),
            js=Markup(js),
            private=is_private(model),
            promise="\n".join(statement_lines(model.privacy)),
            statement=json.dumps(dict(model.privacy), indent=1, ensure_ascii=False, sort_keys=True),
            tree=charts.topic_tree(facts),
            circles=circles,
            bars=charts.class_bars(facts),
            full_radius=charts.FULL_RADIUS,
            lines=charts.course_lines(facts),
            names={t.id: t.name or wording.join_words(t.label[:2]) for t in facts.topics},
            data=script_data(facts) | {"documents": charts.document_points(facts, circles)},
        )
    )


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
