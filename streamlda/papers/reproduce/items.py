"""The table of what is in each paper, read from `README.md` of `streamlda.papers`."""

from __future__ import annotations

import posixpath
import re
from importlib import resources
from typing import NamedTuple

LINK = re.compile(r"\[([^\]]*)\]\(([^)#]*)[^)]*\)")

#: Where the page is, as an installed package has it.
PAGE = "streamlda/papers/README.md"

#: What the table names and no installed package has.
IN_A_CLONE = (
    "In a clone: tests, below tests/papers or tests; what was measured under a name that is not "
    "listed, in bench/README.md."
)


class Item(NamedTuple):
    """One row: what it is in its paper, and what there is of it here."""

    paper: str
    item: str
    imports: str
    private: str
    test: str
    measured: str


def items() -> list[Item]:
    """Return every row of the page, in its order."""
    page = resources.files("streamlda.papers").joinpath("README.md").read_text("utf-8")
    found = []
    for section in page.split("\n## ")[1:]:
        paper, _, rest = section.partition("\n")
        table = rest.partition("\n| item")[2].partition("\n\n")[0]
        for line in table.splitlines():
            if line.startswith("| ") and not line.startswith("| ---"):
                cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
                found.append(Item(paper, *(LINK.sub(_place, cell) for cell in cells)))
    return found


def _place(link: re.Match[str]) -> str:
    """Return a link as its text and the file that it leads to, in the installed package."""
    text, target = link.groups()
    file = posixpath.normpath(posixpath.join(posixpath.dirname(PAGE), target)) if target else PAGE
    return f"{text} ({file})"
