"""All that `python -m bench papers` can run, by name, and their verdicts on the papers' page."""

from __future__ import annotations

import re

from bench.kinds import Json
from bench.measure import ROOT
from bench.papers.cape import CAPE
from bench.papers.dplda import DPLDA
from bench.papers.wa16 import WA16

REPRODUCTIONS = {each.id: each for each in (*WA16, *DPLDA, *CAPE)}

PAGE = ROOT / "streamlda" / "papers" / "README.md"
#: The cells of a row of a table of items: the fifth names scenarios, the sixth is their verdicts.
ROW = re.compile(r"^(\| (?!item |---).+ \| .+ \| .+ \| .+ \| )(.+) \| .+ \|$", re.MULTILINE)
WORDS = {True: "agrees", False: "does not", None: "not judged"}


def with_verdicts(page: str, results: dict[str, Json]) -> str:
    """Return the page with the last cell of every row made again, from the stored results."""
    words = {
        name: f"{name}: {WORDS[each.verdict(results[name]).agrees]}"
        for name, each in REPRODUCTIONS.items()
        if name in results
    }

    def filled(row: re.Match[str]) -> str:
        named = [x for x in words if re.search(rf"(?<![\w-]){x}(?![\w-])", row[2])]
        return f"{row[1]}{row[2]} | {'; '.join(words[name] for name in named) or '-'} |"

    return ROW.sub(filled, page)
