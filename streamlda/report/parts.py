"""What the sections of a report have in common: numbers, links, tables."""

from __future__ import annotations

from collections.abc import Sequence

from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import PRIVATE, SEEDED
from streamlda.report.markup import Markup, element


def percent(share: float) -> str:
    """Return a share, 0 to 1, as the page of the daemon writes it."""
    return f"{100 * share:.{2 if share < 0.0995 else 1}f} %"


def count(n: int, one: str, many: str) -> str:
    """Return ``1 topic`` or ``2 topics``."""
    return f"{n:,} {one if n == 1 else many}"


def counts_places(model: TopicModel) -> bool:
    """Tell whether a model says how many places it has seen: its documents are not to be known."""
    return model.privacy.get("statement") in (PRIVATE, SEEDED)


def link(id_: int) -> Markup:
    """Return a link to the card of a topic."""
    return element("a", f"Topic {id_}", href=f"#topic-{id_}")


def plate(drawn: Markup, caption: str) -> Markup:
    """Return a drawing with what it shows."""
    return element("figure", drawn, element("figcaption", caption, class_="quiet"), class_="plate")


def details(summary: str, content: Markup) -> Markup:
    """Return content that is opened when it is wanted."""
    return element("details", element("summary", summary), content)


def told_as_is(text: str, name: str) -> Markup:
    """Return text in its own lines, which can be scrolled from the keyboard."""
    return element("pre", text, tabindex="0", role="region", aria_label=name)


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    """Return a table in a box of its own, which can be scrolled; the first cells name the rows."""
    head = element("tr", *(element("th", column, scope="col", dir="auto") for column in columns))
    body = [
        element(
            "tr",
            element("th", first, scope="row"),
            *(element("td", cell) for cell in rest),
        )
        for first, *rest in rows
    ]
    made = element(
        "table",
        element("caption", caption, class_="quiet") if caption else Markup(""),
        element("thead", head),
        element("tbody", *body),
    )
    return element("div", made, class_="scroll", role="region", aria_label=name, tabindex="0")
