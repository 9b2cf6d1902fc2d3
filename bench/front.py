"""The results of the first page, each by the scenario that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from bench.compare import strongest
from bench.entrants import DEFAULT, TOMOTOPY
from bench.scenarios import BY_ID
from streamlda.papers.reproduce.kinds import Json, series

#: Of the comparison on abstracts, the other contenders; of tomotopy, the better setting.
OTHERS = {
    **dict.fromkeys(TOMOTOPY, "tomotopy"),
    "vowpal-wabbit-1": "Vowpal Wabbit",
    "gensim-256": "gensim",
    "scikit-learn-online-2000": "scikit-learn",
}
COMPARED = "compare-arxiv-50"
ASKED = (
    ("processor seconds", "cpu_seconds", "{:,.1f}"),
    ("perplexity, held out", "perplexity", "{:,.0f}"),
    ("coherence (NPMI)", "npmi", "{:.3f}"),
)

#: What is measured, of which scenario, and the figure of it.
FIGURES = (
    ("text to model file: documents a second", "corpus-text", "documents/s, text to model file"),
    (
        "daemon: documents (100 tokens) a second",
        "daemon-throughput",
        "documents/s of 100 tokens, hash bits 14, K = 20",
    ),
    (
        "daemon: seconds from start to first batch",
        "daemon-restart",
        "seconds from start to the first batch, V = 50,000, K = 50",
    ),
    ("memory after ten times the documents: ratio", "memory-flat", "ratio of the two"),
    (
        "epsilon 1: perplexity, word frequencies = 1",
        "private-corpus",
        "perplexity over that of the word frequencies, epsilon 1",
    ),
    ("epsilon 1: coherence (NPMI)", "private-corpus", "NPMI, epsilon 1"),
    (
        "private fit: time, plain fit = 1",
        "private-overhead",
        "time over that without privacy, text, 20 topics",
    ),
)


def front(results: Mapping[str, Json]) -> str:
    """Return the table of the first page; what is not measured is left out."""
    rows, columns, corpus = list[tuple[str, ...]](), ["streamlda"], ""
    if COMPARED in results:
        result = results[COMPARED]
        left_out = set(TOMOTOPY) - {strongest(result)}
        others = [
            label
            for label in OTHERS
            if label not in left_out and series(result, label, "perplexity")
        ]
        columns += [OTHERS[label] for label in others]
        corpus = f"Abstracts: {result['corpus']['documents']:,}, 50 topics. "
        for name, key, form in ASKED:
            shown = (median(series(result, label, key)) for label in (DEFAULT, *others))
            rows.append((f"abstracts: {name}", *map(form.format, shown)))
    for name, scenario, figure in FIGURES:
        if scenario in results:
            found = {
                each.name: each.measured for each in BY_ID[scenario].figures(results[scenario])
            }
            rows.append((name, found[figure], *[""] * (len(columns) - 1)))
    if not rows:
        return ""
    rows[:0] = [("result", *columns), ("---", *["---:"] * len(columns))]
    table = "".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in row)}|\n" for row in rows)
    used = [results[name] for name in (COMPARED, *(row[1] for row in FIGURES)) if name in results]
    dates = sorted({each["date"] for each in used})
    versions = ", ".join(sorted({each["versions"]["streamlda"] for each in used}))
    measured = f"Measured with streamlda {versions}, {dates[0]} to {dates[-1]}."
    return f"{table}\n{corpus}{measured}\n"
