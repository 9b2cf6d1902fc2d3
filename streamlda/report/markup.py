"""HTML that is escaped unless it says otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already. All other text is escaped when it enters an element."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | float | bool | None) -> Markup:
    """Return an element with escaped attributes and children.

    Parameters
    ----------
    tag : str
        Its name, which must come from the program and not from data.
    *children : str
        `Markup` as it is, other text escaped.
    **attributes : str, number, bool or None
        ``class_`` stands for ``class`` and ``aria_label`` for ``aria-label``; True writes the name
        alone, False and None leave it out.
    """
    written = []
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        written.append(name if value is True else f'{name}="{escape(str(value))}"')
    opening = " ".join([tag, *written])
    return Markup(f"<{opening}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """Return parts one after the other, those that are not markup escaped."""
    return Markup(between.join(p if isinstance(p, Markup) else escape(p) for p in parts))
