"""A page that shows topics: one HTML file that carries all it needs and asks nothing of anyone.

The page is whole without its script, which only sorts, searches and points. Equal models give equal
bytes. Text from models is escaped; a policy in the page lets nothing run or load but what is in it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template

from streamlda.model.topic_model import TopicModel
from streamlda.report import account, overview, views
from streamlda.report.facts import Facts, gather
from streamlda.report.markup import Markup, element, joined
from streamlda.report.parts import count
from streamlda.report.promise import bears_out

__all__ = ["render_report", "write_report"]


def render_report(
    models: Sequence[TopicModel],
    labels: Sequence[str],
    *,
    title: str = "Topic report",
    n_words: int = 10,
) -> str:
    """Return the page about models as HTML.

    Time O(models K^2 V + K^3), memory O(K V + K^2) besides the models; the page takes about 8 kB a
    topic.

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

    Raises
    ------
    InvalidSettingError
        If there is no model, or not a label for each, or `n_words` is below 1.
    VocabularyError
        If two models in turn have too few words in common to be compared.
    """
    facts = gather(models, labels, n_words)
    page = files("streamlda.report").joinpath("page")
    parts = {name: page.joinpath(f"report.{name}").read_text("utf-8") for name in ("css", "js")}
    icon = page.joinpath("icon.svg").read_bytes()
    template = Template(page.joinpath("report.html").read_text("utf-8"))
    model = facts.newest
    about = (
        f"{labels[-1]}: {count(model.n_components, 'topic', 'topics')}, "
        f"made {datetime.fromisoformat(model.created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    )
    content = {
        "policy": _policy(parts["css"], parts["js"]),
        "icon": base64.b64encode(icon).decode("ascii"),
        "title": title,
        "about": about,
        "badges": _badges(facts),
        "sections": _sections(facts),
        "version": str(model.versions.get("streamlda", "")),
    }
    # Style and script are of this package, and stand as they are: their digests are in the policy.
    return template.substitute(parts, **{name: joined([text]) for name, text in content.items()})


def write_report(
    path: str | os.PathLike[str],
    models: Sequence[TopicModel],
    labels: Sequence[str],
    *,
    title: str = "Topic report",
    n_words: int = 10,
) -> None:
    """Write the page about models to a file, whole or not at all; see `render_report`.

    Raises
    ------
    OSError
        If the file cannot be written; what was there before stays.
    """
    page = render_report(models, labels, title=title, n_words=n_words)
    target = Path(os.path.realpath(path))
    temporary = target.parent / f".streamlda-{secrets.token_hex(8)}.tmp"
    try:
        # A lone surrogate, which no word of a file has, must not keep the page from being written.
        temporary.write_text(page, "utf-8", errors="xmlcharrefreplace", newline="\n")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _policy(style: str, script: str) -> str:
    """Return a policy under which nothing but this style and this script count."""
    digests = [
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _badges(facts: Facts) -> Markup:
    kept = [bears_out(model.privacy) for model in facts.models]
    promise = "private" if all(kept) else "partly private" if any(kept) else "not private"
    told = [promise]
    if len(facts.models) > 1:
        told.append(f"{len(facts.models)} models compared")
    return joined(element("li", text, class_="badge") for text in told)


def _sections(facts: Facts) -> Markup:
    made = [
        ("now", "At a glance", overview.tiles(facts), False),
        ("topics", "Topics", joined([views.controls(facts), overview.cards(facts)]), False),
        ("map", "Map of topics", views.the_map(facts), True),
        ("number", "How many topics", views.spectrum(facts), True),
        ("doubts", "To look at twice", views.doubts(facts), True),
    ]
    if len(facts.models) > 1:
        made.insert(1, ("changes", "What changed", views.changes(facts), True))
    made += [
        ("privacy", "What is promised about privacy", account.privacy(facts), True),
        ("making", "How it was made", account.making(facts), True),
    ]
    return joined(
        element(
            "section",
            element("h2", title, id=f"{name}-title"),
            content,
            id=name,
            class_="panel" if is_panel else None,
            aria_labelledby=f"{name}-title",
            tabindex="-1",
        )
        for name, title, content, is_panel in made
    )
