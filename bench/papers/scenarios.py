"""All that `python -m bench papers` can run, by name, and their verdicts on the papers' page."""

from __future__ import annotations

import re

from bench.kinds import Json
from bench.measure import ROOT
from bench.papers.cape import CAPE
from bench.papers.dplda import DPLDA
from bench.papers.runner import MARKS
from bench.papers.wa16_noise import WA16_APPENDIX_B, WA16_FIGURE_1
from bench.papers.wa16_private import WA16_THEOREM_4_2
from bench.papers.wa16_stream import WA16_THEOREM_3_1

REPRODUCTIONS = {
    scenario.id: scenario
    for scenario in (
        *(WA16_FIGURE_1, WA16_THEOREM_3_1, WA16_THEOREM_4_2, WA16_APPENDIX_B),
        *(*DPLDA, *CAPE),
    )
}

PAGE = ROOT / "streamlda" / "papers" / "README.md"
HEADER = "| item of the paper |"
WORDS = MARKS | {True: "agrees", False: "does not"}


def with_verdicts(page: str, results: dict[str, Json]) -> str:
    """Return the page with the last cell of every row made again, from the stored results."""
    words = {
        name: f"{name}: {WORDS[each.verdict(results[name]).agrees]}"
        for name, each in REPRODUCTIONS.items()
        if name in results
    }
    lines, inside = page.split("\n"), False
    for i, line in enumerate(lines):
        inside = line.startswith(HEADER) or (inside and line.startswith("|"))
        if inside and not line.startswith((HEADER, "| ---")):
            cells = line.strip("| ").split(" | ")
            named = [x for x in words if re.search(rf"(?<![\w-]){x}(?![\w-])", cells[-2])]
            found = "; ".join(words[name] for name in named) or "-"
            lines[i] = f"| {' | '.join([*cells[:-1], found])} |"
    return "\n".join(lines)
