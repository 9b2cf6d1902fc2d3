"""Topics as text: their words in a line, numbers, and a small table of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel

#: Where there is no number.
NOTHING = "\N{EN DASH}"

#: Rows of a table, and words of a topic.
_MOST_ROWS, _WORDS = 30, 8


def percent(share: float | None) -> str:
    """Return a share, 0 to 1, as the page of the daemon writes it; a dash for None."""
    if share is None:
        return NOTHING
    return f"{100 * share:.{2 if share < 0.0995 else 1}f} %"


def plural(n: int, unit: str) -> str:
    """Return ``1 topic`` or ``2 topics``."""
    return f"{n:,} {unit}{'' if n == 1 else 's'}"


def in_line(words: Iterable[str]) -> str:
    """Return words one after another; those of several words (phrases, n-grams) are quoted."""
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def html_table(model: TopicModel) -> str:
    """Return the most prevalent topics, with their shares, NPMI and words.

    It brings no colours, so that it is legible in light and dark notebooks.
    """
    npmi = model.diagnostics.get("topic_npmi")
    if not isinstance(npmi, list) or len(npmi) != model.n_components:
        npmi = [None] * model.n_components
    words, shares, names = model.top_words(_WORDS), model.shares, model.names
    rows = "".join(
        f"<tr><th scope='row'>{k}</th><td>{percent(shares[k]).replace(' ', '&nbsp;')}</td>"
        f"<td>{NOTHING if npmi[k] is None else format(npmi[k], '.2f')}</td>"
        f"<td style='text-align: left'>{escape(_words(names[k], words[k]))}</td></tr>"
        for k in model.order[:_MOST_ROWS]
    )
    more = model.n_components - _MOST_ROWS
    rest = f"<p>{more} further topics: visualize() shows all.</p>" if more > 0 else ""
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("Topic", "Share", "NPMI", "Words"))
    return (
        f"<p>{escape(repr(model))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
    )


def _words(name: str | None, words: list[tuple[str, float]]) -> str:
    """Return the words of a topic after its name, if it has one."""
    listed = in_line(word for word, _ in words)
    return listed if name is None else f"{name}: {listed}"
