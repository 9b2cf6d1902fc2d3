"""The verdicts in the tables of `streamlda/papers/README.md`, from the stored results."""

from __future__ import annotations

import re

from bench.kinds import Json
from bench.measure import ROOT
from bench.papers.scenarios import REPRODUCTIONS

PAGE = ROOT / "streamlda" / "papers" / "README.md"
HEADER = "| item of the paper |"
WORDS = {True: "agrees", False: "does not", None: "not judged"}


def named(cell: str, results: dict[str, Json]) -> list[str]:
    """Return the scenarios that a cell names and that were measured."""
    return [
        x for x in REPRODUCTIONS if x in results and re.search(rf"(?<![\w-]){x}(?![\w-])", cell)
    ]


def with_verdicts(page: str, results: dict[str, Json]) -> str:
    """Return the page with the last cell of every row made again."""
    lines, inside = page.split("\n"), False
    words = {
        name: f"{name}: {WORDS[REPRODUCTIONS[name].verdict(results[name]).agrees]}"
        for name in named(page, results)
    }
    for i, line in enumerate(lines):
        inside = line.startswith(HEADER) or (inside and line.startswith("|"))
        if inside and not line.startswith((HEADER, "| ---")):
            cells = line.strip("| ").split(" | ")
            found = "; ".join(words[name] for name in named(cells[-2], results)) or "-"
            lines[i] = f"| {' | '.join([*cells[:-1], found])} |"
    return "\n".join(lines)
