"""Numbers and words of topics as text."""

from collections.abc import Iterable

#: Where there is no number.
NOTHING = "\N{EN DASH}"


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


def label_words(name: str | None, words: Iterable[str]) -> str:
    """Return the words of a topic after its name, if it has one."""
    listed = in_line(words)
    return listed if name is None else f"{name}: {listed}"
