"""The verdicts in the tables of `streamlda/papers/README.md`, from the stored results."""

from __future__ import annotations

import re

from bench.kinds import Json
from bench.measure import ROOT
from bench.papers.scenarios import REPRODUCTIONS

PAGE = ROOT / "streamlda" / "papers" / "README.md"
HEADER = "| item of the paper |"
WORDS = {True: "agrees", False: "does not", None: "not judged"}


def verdict_words(measured: str, results: dict[str, Json]) -> str:
    """Return the verdict of every scenario that a cell names, or what stands in its place."""
    named = [name for name in REPRODUCTIONS if re.search(rf"(?<![\w-]){name}(?![\w-])", measured)]
    found = [
        f"{name}: {WORDS[REPRODUCTIONS[name].verdict(results[name]).agrees]}"
        for name in named
        if name in results
    ]
    return "; ".join(found) or "-"


def with_verdicts(page: str, results: dict[str, Json]) -> str:
    """Return the page with the last cell of every row made again."""
    lines, inside = page.split("\n"), False
    for i, line in enumerate(lines):
        inside = line.startswith(HEADER) or (inside and line.startswith("|"))
        if inside and not line.startswith((HEADER, "| ---")):
            cells = line.strip("| ").split(" | ")
            lines[i] = f"| {' | '.join([*cells[:-1], verdict_words(cells[-2], results)])} |"
    return "\n".join(lines)
