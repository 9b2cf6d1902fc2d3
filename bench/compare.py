"""Topics of this project beside those of others: same documents, words, split, K and scores.

One comparison takes longer than one sitting: contenders may be measured one at a time, and what
is measured is added to the result that is stored (`bench.sittings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from statistics import median
from typing import NamedTuple

from bench.entrants import (
    DEFAULT,
    ENTRANTS,
    MEAN_OF_STATES,
    ON_TWO,
    ONE_CORE,
    QUICK,
    STREAMLDA,
    THOROUGH,
    TOMOTOPY,
    missing,
)
from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most, series
from bench.measure import HELD_OUT_EVERY, VOCABULARY_SIZE

#: Where a result has the perplexity with the same alpha for all.
EQUAL = "perplexity_equal_alpha"

#: From this number of documents on, a corpus is large.
LARGE_CORPUS = 50_000


def held_out_every(documents: int) -> int:
    """Return which documents to hold out: of a small corpus more, for a steadier perplexity."""
    return 10 if documents < LARGE_CORPUS else HELD_OUT_EVERY


def cases(
    n_components: int, every: int, kind: str | None = None, most: int | None = None
) -> Callable[[bool, tuple[str, ...]], list[Case]]:
    def listed(quick: bool, labels: tuple[str, ...]) -> list[Case]:
        unknown = sorted(set(labels) - set(ENTRANTS))
        if unknown:
            raise SystemExit(
                f"contenders must be known, got contender={unknown[0]}; "
                f"known: {', '.join(ENTRANTS)}"
            )
        shared = {
            "n_components": min(n_components, 10) if quick else n_components,
            "vocabulary_size": VOCABULARY_SIZE,
            "held_out_every": every,
            "documents": 2000 if quick else most,
            "shuffled": True,
            **({"kind": kind} if kind else {}),
        }
        return [
            Case(
                label,
                "compare",
                {
                    "contender": label,
                    "options": ENTRANTS[label].options,
                    "cores": ENTRANTS[label].cores,
                    **shared,
                },
            )
            for label in labels
            if missing(ENTRANTS[label].library) is None
        ]

    return listed


# What is asked, and the figures


class Asked(NamedTuple):
    """Targets of a comparison: limits by contender of ours, and by contender of theirs."""

    #: Most times the perplexity of tomotopy at its best, and least times less processor time.
    perplexity: Mapping[str, float]
    speed: Mapping[str, float]
    #: Whether the default must take less memory than tomotopy.
    memory: bool


#: The default's, and that of a setting for which others' perplexity is to be reached.
LEAST_PERPLEXITY = {DEFAULT: 1.02, THOROUGH: 1.0}
ASKED = {
    "compare-arxiv-50": Asked(
        {**LEAST_PERPLEXITY, QUICK: 1.08},
        {DEFAULT: 8, THOROUGH: 3, QUICK: 40},
        memory=True,
    ),
    "compare-20newsgroups-20": Asked(LEAST_PERPLEXITY, {DEFAULT: 5, THOROUGH: 3}, memory=False),
    "compare-kos-20": Asked(LEAST_PERPLEXITY, {DEFAULT: 5, THOROUGH: 3}, memory=False),
}
NOTHING_ASKED = Asked({}, {}, memory=False)

#: Least times less processor time to the perplexity of a library at its best.
SOONER = {"topica": 10, "mallet": 10, "vowpal-wabbit": 3, "gensim": 3, "scikit-learn": 3}


def middle(result: Json, label: str, key: str) -> float | None:
    """Return the median over the seeds, or None without any."""
    values = series(result, label, key)
    return median(values) if values else None


def failed(result: Json, label: str) -> bool:
    """Return whether a contender's topics predict no better than no topics at all."""
    found, without = (middle(result, label, key) for key in ("perplexity", "unigram_perplexity"))
    return found is not None and without is not None and found >= without


def strongest(result: Json) -> str:
    """Return the setting of tomotopy with the least perplexity of those measured."""
    found = {label: middle(result, label, "perplexity") for label in TOMOTOPY}
    return min(TOMOTOPY, key=lambda label: found[label] or inf)


def figures(result: Json) -> list[Figure]:
    """Judge this project beside the others, medians beside medians; beside none that failed."""
    asked = ASKED.get(result["scenario"], NOTHING_ASKED)
    sampler = strongest(result)
    found = []
    for ours in STREAMLDA:
        if ours in asked.perplexity:
            found += [
                ratio(result, ours, sampler, "perplexity", asked.perplexity[ours]),
                speed(result, ours, sampler, asked.speed[ours]),
            ]
        elif series(result, ours, "perplexity"):
            found += [ratio(result, ours, sampler, "perplexity"), speed(result, ours, sampler)]
    found += [
        speed_to_same(result, library, least if asked.perplexity else None)
        for library, least in SOONER.items()
    ]
    found.append(speed(result, DEFAULT + ON_TWO, MEAN_OF_STATES + ON_TWO, key="fit_seconds"))
    theirs = middle(result, sampler, "npmi")
    for ours in asked.perplexity or (DEFAULT,):
        npmi, diversity = (middle(result, ours, key) for key in ("npmi", "diversity"))
        if npmi is None or diversity is None:
            continue
        if theirs is not None:
            found.append(
                at_least(f"NPMI of {ours}, target that of {sampler}", npmi, theirs, "{:.3f}")
            )
        found.append(at_least(f"diversity of {ours}", diversity, 0.6, "{:.2f}"))
    if asked.memory:
        a, b = (middle(result, who, "peak_rss_bytes") for who in (DEFAULT, sampler))
        name = f"peak memory of {DEFAULT} / {sampler}"
        small = unmeasured(name, "<= 1.00")
        found.append(at_most(name, a / b, 1.0, "{:.2f}") if a and b else small)
    return found


def ratio(result: Json, ours: str, theirs: str, key: str, limit: float | None = None) -> Figure:
    a, b = middle(result, ours, key), middle(result, theirs, key)
    name = f"{key} of {ours} / {theirs}"
    if a is None or b is None:
        return unmeasured(name, "-" if limit is None else f"<= {limit:.3f}")
    if limit is None:
        return Figure(name, f"{a / b:.3f}")
    return at_most(name, a / b, limit, "{:.3f}")


def speed(
    result: Json, ours: str, theirs: str, least: float | None = None, key: str = "cpu_seconds"
) -> Figure:
    a, b = (middle(result, who, key) for who in (ours, theirs))
    clock = "processor time" if key == "cpu_seconds" else "time on the clock"
    name = f"times less {clock}: {ours}, than {theirs}"
    if a is None or b is None:
        return unmeasured(name, "-" if least is None else f">= {least:.1f}")
    if least is None:
        return Figure(name, f"{b / a:.1f}")
    return at_least(name, b / a, least, "{:.1f}")


def speed_to_same(result: Json, library: str, least: float | None) -> Figure:
    """Compare a library at its least perplexity with the cheapest of ours that predicts as well."""
    name = f"times less processor time, to the perplexity of {library} at its best"
    target = "-" if least is None else f">= {least:.1f}"
    of_others = {
        label: middle(result, label, "perplexity")
        for label, entrant in ONE_CORE.items()
        if entrant.library == library and not failed(result, label)
    }
    best = min(of_others, key=lambda label: of_others[label] or inf, default=None)
    limit = best and of_others[best]
    if not best or not limit:
        return unmeasured(name, target)
    name += f", {best}"
    seconds = {
        label: taken
        for label in STREAMLDA
        if (reached := middle(result, label, "perplexity")) is not None
        and reached <= limit
        and (taken := middle(result, label, "cpu_seconds")) is not None
    }
    if not seconds:
        return Figure(name, "not reached", target, None if least is None else False)
    ours = min(seconds, key=lambda label: seconds[label])
    times = (middle(result, best, "cpu_seconds") or 0.0) / seconds[ours]
    met = None if least is None else times >= least
    return Figure(name, f"{times:.1f} ({ours})", target, met)


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
    if not values:
        return "-"
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
        *("imported MB", "documents MB", "perplexity", "in order", "with equal alpha"),
        *("NPMI", "diversity"),
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
        of_case = [run for run in result["runs"] if run["case"] == label]
        # Results of before 0.2.0 lack it.
        equal = [run["measured"][EQUAL] for run in of_case if EQUAL in run["measured"]]
        in_order = [run["measured"]["perplexity"] for run in of_case if run["repeat"] == 0]
        imported, before, peak = (
            median(values[key]) / 1e6
            for key in ("start_rss_bytes", "rss_before_bytes", "peak_rss_bytes")
        )
        lines.append(
            (
                *(
                    named(result, label),
                    str(len(values["npmi"])),
                    spread(values["fit_seconds"], "{:,.1f}"),
                ),
                f"{median(values['cpu_seconds']):,.1f}" if label in ONE_CORE else "-",
                f"{median(values['load_seconds']):,.1f}",
                *(f"{peak:,.0f}", f"{imported:,.0f}", f"{max(0.0, before - imported):,.0f}"),
                *(spread(each, "{:,.0f}") for each in (values["perplexity"], in_order, equal)),
                *(f"{median(values['npmi']):.3f}", f"{median(values['diversity']):.2f}"),
            )
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def named(result: Json, label: str) -> str:
    return f"{label} (**failed**)" if failed(result, label) else label


def notes(result: Json) -> str:
    """Say what was not measured and why, and where runs are of different days or commits."""
    lines = []
    unigram = [run["measured"]["unigram_perplexity"] for run in result["runs"]]
    if unigram:
        lines.append(
            f"- Without topics the perplexity is {median(unigram):,.0f}; what does not predict "
            "better has failed, and nothing is judged by it.\n"
        )
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


def compare_block(
    results: Mapping[str, Json],
    origin: Callable[[Json], str],
    scenarios: Sequence[Scenario] | None = None,
) -> str:
    """Return processor seconds, perplexity and NPMI over all corpora, or those of the scenarios.

    `origin` makes a line about where a result was measured.
    """
    scenarios = COMPARE if scenarios is None else scenarios
    shown = [results[scenario.id] for scenario in scenarios if scenario.id in results]
    if not shown:
        return "Not measured yet.\n"
    lines = [("contender", *map(corpus_title, shown)), ("---", *["---"] * len(shown))]
    for label in ONE_CORE:
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
    if judged:
        page += f"\nOf {len(judged)} figures with a target, {met} are met.\n"
    for scenario, figure in judged:
        if not figure.met:
            page += f"**Missed** (`{scenario}`): {figure.name}: {figure.measured}, "
            page += f"target {figure.target}.\n"
    return page + "\n" + "".join(dict.fromkeys(map(origin, shown)))


def corpus_title(result: Json) -> str:
    name = result["corpus"]["name"].removesuffix(".jsonl.gz")
    given = next(iter(result["cases"].values()))["parameters"]
    documents = given.get("documents") or result["corpus"]["documents"]
    kind = f"{given['kind']} " if "kind" in given else ""
    return f"{name}, {documents:,} {kind}documents, K = {given['n_components']}"


def cell(result: Json, label: str) -> str:
    keys = ("cpu_seconds", "perplexity", "npmi")
    seconds, perplexity, npmi = (middle(result, label, key) for key in keys)
    if seconds is None:
        return "-"
    mark = " (**failed**)" if failed(result, label) else ""
    return f"{seconds:,.1f} s, perplexity {perplexity:,.0f}{mark}, NPMI {npmi:.3f}"


def comparison(
    name: str, n_components: int, documents: int, kind: str | None = None, most: int | None = None
) -> Scenario:
    """Return the scenario of a corpus of this name and about this number of documents.

    `kind` makes other documents of them, `most` takes the first alone.
    """
    parts = [f"compare-{name}-{n_components}", *filter(None, (kind, most and str(most)))]
    said = " ".join(filter(None, (most and f"{most:,}", kind, "documents")))
    return Scenario(
        "-".join(parts),
        f"How good are {n_components} topics of {said} of {name}, and how soon, beside others?",
        max(max(entrant.seeds) for entrant in ENTRANTS.values()),
        cases(n_components, held_out_every(documents), kind, most),
        figures,
        tuple(ENTRANTS),
        needs_corpus=True,
        details=details,
        command="compare",
    )


COMPARE = [
    comparison("arxiv", 50, 200_000),
    comparison("20newsgroups", 20, 18_846),
    comparison("kos", 20, 3430),
]
#: Other kinds and sizes, of which one table is shown.
COMPARE_KINDS = [
    comparison("20newsgroups", 20, 18_846, **own)
    for own in ({"kind": "short"}, {"kind": "repeated"}, {"most": 2000}, {"most": 8000})
]
