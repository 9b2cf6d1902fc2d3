"""Topics of this project beside those of others: same documents, words, split, K and scores.

One comparison takes longer than one sitting: contenders may be measured one at a time, and what
is measured is added to the result that is stored (`bench.sittings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

from bench.entrants import (
    DEFAULT,
    ENTRANTS,
    MORE,
    NOT_INSTALLABLE,
    STREAMLDA,
    TOMOTOPY,
    VARIATIONAL,
    missing,
)
from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most, series
from bench.measure import HELD_OUT_EVERY, VOCABULARY_SIZE

#: From this number of documents on, a corpus is large.
LARGE_CORPUS = 50_000


def held_out_every(documents: int) -> int:
    """Return which documents to hold out: of a small corpus more, for a steadier perplexity."""
    return 10 if documents < LARGE_CORPUS else HELD_OUT_EVERY


def cases(n_components: int, every: int) -> Callable[[bool, tuple[str, ...]], list[Case]]:
    def listed(quick: bool, labels: tuple[str, ...]) -> list[Case]:
        unknown = sorted(set(labels) - set(ENTRANTS) - set(NOT_INSTALLABLE))
        if unknown:
            raise SystemExit(
                f"contenders must be known, got contender={unknown[0]}; "
                f"known: {', '.join((*ENTRANTS, *NOT_INSTALLABLE))}"
            )
        shared = {
            "n_components": min(n_components, 10) if quick else n_components,
            "vocabulary_size": VOCABULARY_SIZE,
            "held_out_every": every,
            "documents": 2000 if quick else None,
        }
        return [
            Case(
                label,
                "compare",
                {"contender": label, "options": ENTRANTS[label].options, **shared},
            )
            for label in labels
            if missing(label) is None
        ]

    return listed


# What is asked, and the figures


class Asked(NamedTuple):
    """What a comparison asks for: limits by contender of ours, and by contender of theirs."""

    #: Most times the perplexity of tomotopy, and least times its speed.
    perplexity: Mapping[str, float]
    speed: Mapping[str, float]
    #: Least times as fast, for the default.
    faster: Mapping[str, float]
    #: Whether the default must take less memory than everyone else.
    memory: bool


ASKED = {
    "compare-arxiv-50": Asked(
        {DEFAULT: 1.08, MORE: 1.03},
        {DEFAULT: 40, MORE: 8},
        {"gensim-1": 20, "scikit-learn-1": 10},
        True,
    ),
    "compare-20newsgroups-20": Asked({DEFAULT: 1.0}, {DEFAULT: 5}, {}, False),
    "compare-kos-20": Asked({DEFAULT: 1.0}, {DEFAULT: 5}, {}, False),
}
NOTHING_ASKED = Asked({}, {}, {}, False)


def middle(result: Json, label: str, key: str) -> float | None:
    """Return the median over the seeds, or None without any."""
    values = series(result, label, key)
    return median(values) if values else None


def figures(result: Json) -> list[Figure]:
    """Judge this project beside the others, medians beside medians."""
    asked = ASKED.get(result["scenario"], NOTHING_ASKED)
    found = []
    for ours in STREAMLDA:
        if ours in asked.perplexity:
            found += [
                ratio(result, ours, TOMOTOPY, "perplexity", asked.perplexity[ours]),
                speed(result, ours, TOMOTOPY, asked.speed[ours]),
            ]
        elif series(result, ours, "perplexity"):
            found += [ratio(result, ours, TOMOTOPY, "perplexity"), speed(result, ours, TOMOTOPY)]
    found += [ratio(result, DEFAULT, theirs, "perplexity", 1.0) for theirs in VARIATIONAL]
    found += [speed(result, DEFAULT, theirs, least) for theirs, least in asked.faster.items()]
    theirs = middle(result, TOMOTOPY, "npmi")
    for ours in (DEFAULT, MORE) if MORE in asked.perplexity else (DEFAULT,):
        npmi, diversity = (middle(result, ours, key) for key in ("npmi", "diversity"))
        if npmi is None or diversity is None:
            continue
        if theirs is not None:
            found.append(
                at_least(f"NPMI of {ours}, target that of {TOMOTOPY}", npmi, theirs, "{:.3f}")
            )
        found.append(at_least(f"diversity of {ours}", diversity, 0.6, "{:.2f}"))
    if asked.memory:
        found.append(memory(result))
    return found


def ratio(result: Json, ours: str, theirs: str, key: str, limit: float | None = None) -> Figure:
    a, b = middle(result, ours, key), middle(result, theirs, key)
    name = f"{key} of {ours} / {theirs}"
    if a is None or b is None:
        return unmeasured(name, "-" if limit is None else f"<= {limit:.3f}")
    if limit is None:
        return Figure(name, f"{a / b:.3f}")
    return at_most(name, a / b, limit, "{:.3f}")


def speed(result: Json, ours: str, theirs: str, least: float | None = None) -> Figure:
    a, b = (middle(result, who, "fit_seconds") for who in (ours, theirs))
    name = f"times as fast: {ours}, than {theirs}"
    if a is None or b is None:
        return unmeasured(name, "-" if least is None else f">= {least:.1f}")
    if least is None:
        return Figure(name, f"{b / a:.1f}")
    return at_least(name, b / a, least, "{:.1f}")


def memory(result: Json) -> Figure:
    """Compare the default's peak with the least of the other libraries."""
    ours = middle(result, DEFAULT, "peak_rss_bytes")
    others = {
        label: peak
        for label, entrant in ENTRANTS.items()
        if entrant.library != "streamlda"
        and (peak := middle(result, label, "peak_rss_bytes")) is not None
    }
    if ours is None or not others:
        return unmeasured(f"peak memory of {DEFAULT} / the least of others", "<= 1.00")
    least = min(others, key=lambda label: others[label])
    return at_most(f"peak memory of {DEFAULT} / {least}", ours / others[least], 1.0, "{:.2f}")


def unmeasured(name: str, target: str) -> Figure:
    return Figure(name, "not measured yet", target)


# How it is shown

#: Plot of `plot`, named from the pages that show it.
PLOT = "![Time and perplexity of all contenders](plots/compare.png)\n"


def measured(result: Json) -> list[str]:
    """Return the contenders that were measured, in the order of their table."""
    found = {run["case"] for run in result["runs"]}
    return [label for label in ENTRANTS if label in found]


def spread(values: list[float], form: str) -> str:
    """Return the median, and the least and largest where there are several."""
    shown = form.format(median(values))
    if len(values) > 1:
        shown += f" ({form.format(min(values))} to {form.format(max(values))})"
    return shown


def details(result: Json) -> str:
    """Return the table of all contenders, what was not measured, and when the rest was."""
    return contenders_table(result) + "\n" + notes(result) + "\n" + PLOT


def contenders_table(result: Json) -> str:
    header = (
        *("contender", "seeds", "seconds", "processor seconds", "seconds to load", "peak MB"),
        *("of it imported", "of it loaded", "perplexity", "NPMI", "diversity"),
    )
    lines = [header, ("---", *["---:"] * (len(header) - 1))]
    for label in measured(result):
        values = {
            key: series(result, label, key)
            for key in (
                *("fit_seconds", "cpu_seconds", "load_seconds", "peak_rss_bytes"),
                *("start_rss_bytes", "rss_before_bytes", "perplexity", "npmi", "diversity"),
            )
        }
        imported, before, peak = (
            median(values[key]) / 1e6
            for key in ("start_rss_bytes", "rss_before_bytes", "peak_rss_bytes")
        )
        lines.append(
            (
                *(label, str(len(values["npmi"])), spread(values["fit_seconds"], "{:,.1f}")),
                f"{median(values['cpu_seconds']):,.1f}",
                f"{median(values['load_seconds']):,.1f}",
                *(f"{peak:,.0f}", f"{imported:,.0f}", f"{max(0.0, before - imported):,.0f}"),
                spread(values["perplexity"], "{:,.0f}"),
                *(f"{median(values['npmi']):.3f}", f"{median(values['diversity']):.2f}"),
            )
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def notes(result: Json) -> str:
    """Say what was not measured and why, and where runs are of different days or commits."""
    lines = []
    unigram = [run["measured"]["unigram_perplexity"] for run in result["runs"]]
    if unigram:
        lines.append(f"- Without topics the perplexity is {median(unigram):,.0f}.\n")
    lines += [f"- {label}: {why}.\n" for label, why in result["missing"].items()]
    for what, key in (("days", "date"), ("commits of this project", "commit")):
        by_label = {
            label: sorted({str(r[key]) for r in result["runs"] if r["case"] == label})
            for label in measured(result)
        }
        if len({value for values in by_label.values() for value in values}) > 1:
            listed = "; ".join(f"{label}: {', '.join(found)}" for label, found in by_label.items())
            lines.append(f"- Ratios are of different {what} ({listed}).\n")
    return "".join(lines)


def compare_block(results: Mapping[str, Json], origin: Callable[[Json], str]) -> str:
    """Return the page of a newcomer: seconds, perplexity and NPMI over all corpora, and the plot.

    Parameters
    ----------
    results : mapping of scenario ids to results
    origin : callable
        A line about where a result was measured.
    """
    shown = [results[scenario.id] for scenario in COMPARE if scenario.id in results]
    if not shown:
        return "Not measured yet.\n"
    lines = [("contender", *map(corpus_title, shown)), ("---", *["---"] * len(shown))]
    for label in ENTRANTS:
        row = [cell(result, label) for result in shown]
        if any(text != "-" for text in row):
            lines.append((label, *row))
    page = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    judged = [
        (result["scenario"], figure)
        for result in shown
        for figure in figures(result)
        if figure.met is not None
    ]
    met = sum(bool(figure.met) for _, figure in judged)
    page += f"\nOf {len(judged)} figures with a target, {met} are met.\n"
    for scenario, figure in judged:
        if not figure.met:
            page += f"**Missed** (`{scenario}`): {figure.name}: {figure.measured}, "
            page += f"target {figure.target}.\n"
    page += "\n" + PLOT.replace("(plots/", "(bench/plots/") + "\n"
    return page + "".join(dict.fromkeys(map(origin, shown)))


def corpus_title(result: Json) -> str:
    name = result["corpus"]["name"].removesuffix(".jsonl.gz")
    topics = {case["parameters"]["n_components"] for case in result["cases"].values()}
    return f"{name}, {result['corpus']['documents']:,} documents, K = {min(topics)}"


def cell(result: Json, label: str) -> str:
    keys = ("fit_seconds", "perplexity", "npmi")
    seconds, perplexity, npmi = (middle(result, label, key) for key in keys)
    if seconds is None:
        return "-"
    return f"{seconds:,.1f} s, perplexity {perplexity:,.0f}, NPMI {npmi:.3f}"


def comparison(name: str, n_components: int, documents: int) -> Scenario:
    """Return the scenario of a corpus of this name and about this number of documents.

    A small corpus has sweeps by default, and no need of an entrant with more.
    """
    small = documents < LARGE_CORPUS
    everybody = (*ENTRANTS, *NOT_INSTALLABLE)
    return Scenario(
        f"compare-{name}-{n_components}",
        f"How good are {n_components} topics of {name}, and how soon, beside other libraries?",
        max(entrant.seeds for entrant in ENTRANTS.values()),
        cases(n_components, held_out_every(documents)),
        figures,
        tuple(label for label in everybody if not (small and label == MORE)),
        needs_corpus=True,
        details=details,
        command="compare",
    )


COMPARE = [
    comparison("arxiv", 50, 200_000),
    comparison("20newsgroups", 20, 18_846),
    comparison("kos", 20, 3430),
]
