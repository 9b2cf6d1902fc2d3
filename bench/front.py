"""The results of the first page, each by the scenario that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from bench.compare import strongest
from bench.entrants import DEFAULT, TOMOTOPY
from bench.kinds import Json, series
from bench.scenarios import BY_ID

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

#: The lines below the table: what each is about, and its figures: words, scenario, name there.
LINES = (
    (
        "Plain fit",
        (
            (
                "{} documents a second from text to model file",
                "corpus-text",
                "documents/s, text to model file",
            ),
            (
                "{} times the memory for a stream ten times as long",
                "memory-flat",
                "ratio of the two",
            ),
        ),
    ),
    (
        "Daemon",
        (
            (
                "{} documents of 100 tokens a second",
                "daemon-throughput",
                "documents/s of 100 tokens, hash bits 14, K = 20",
            ),
            (
                "{} seconds from start to first batch",
                "daemon-restart",
                "seconds from start to the first batch, V = 50,000, K = 50",
            ),
        ),
    ),
    (
        "Epsilon 1",
        (
            (
                "perplexity {} times that of the word frequencies",
                "private-corpus",
                "perplexity over that of the word frequencies, epsilon 1",
            ),
            ("coherence {}", "private-corpus", "NPMI, epsilon 1"),
            (
                "{} times the time of a plain fit",
                "private-overhead",
                "time over that without privacy, text, 20 topics",
            ),
        ),
    ),
)


def front(results: Mapping[str, Json]) -> str:
    """Return the results of the first page; what is not measured is left out."""
    parts = []
    if COMPARED in results:
        parts.append(compared(results[COMPARED]))
    lines = [
        f"- {about}: {'; '.join(shown)}.\n"
        for about, figures in LINES
        if (
            shown := [
                words.format(found(results, *at)) for words, *at in figures if at[0] in results
            ]
        )
    ]
    used = [COMPARED, *(scenario for _, figures in LINES for _, scenario, _ in figures)]
    measured = [results[name] for name in used if name in results]
    if measured:
        dates = sorted({each["date"] for each in measured})
        versions = ", ".join(sorted({each["versions"]["streamlda"] for each in measured}))
        lines.append(f"- Measured with streamlda {versions}, {dates[0]} to {dates[-1]}, 2 cores.\n")
    if lines:
        parts.append("".join(lines))
    return "\n".join(parts)


def compared(result: Json) -> str:
    """Return the table of streamlda, at its defaults, beside the others."""
    left_out = set(TOMOTOPY) - {strongest(result)}
    others = [
        label for label in OTHERS if label not in left_out and series(result, label, "perplexity")
    ]
    corpus = f"{result['corpus']['documents']:,} abstracts, 50 topics"
    rows = [
        (corpus, "streamlda", *(OTHERS[label] for label in others)),
        ("---", *["---:"] * (1 + len(others))),
    ]
    for name, key, form in ASKED:
        medians = (median(series(result, label, key)) for label in (DEFAULT, *others))
        rows.append((name, *map(form.format, medians)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def found(results: Mapping[str, Json], scenario: str, name: str) -> str:
    """Return a figure of a scenario as it was measured."""
    figures = BY_ID[scenario].figures(results[scenario])
    (measured,) = (figure.measured for figure in figures if figure.name == name)
    return measured
