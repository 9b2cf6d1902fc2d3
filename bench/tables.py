"""Tables and plots from stored results; the same results always give the same tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import compare_plot, prequential
from bench.compare import COMPARE, compare_block
from bench.front import front
from bench.kinds import Figure, Scenario, documents_per_second, judged, series
from bench.measure import ROOT
from bench.papers.scenarios import PAGE, REPRODUCTIONS, with_verdicts
from bench.private import how_much_noise
from bench.roofline import ROOFLINE
from bench.scenarios import ALL, BY_ID, OF_PRIVACY, checkpoint_rates, fit_cost, rate_points
from bench.styles import BLUE, REFERENCE, SERIES, STYLES, name_lines

Json = dict[str, Any]

RESULTS = ROOT / "bench" / "results"
PLOTS = ROOT / "bench" / "plots"

#: Where blocks are filled in; a file that is not there yet is left out.
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "bench").glob("**/*.md")),
    ROOT / "streamlda" / "privacy" / "README.md",
    PAGE,
)

#: Scenarios of the first summary; the others have blocks of their own.
PLAIN = [scenario for scenario in ALL if scenario not in (*OF_PRIVACY, *COMPARE, *ROOFLINE)]

BLOCK = re.compile(r"(<!-- bench:([\w-]+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
MARKER = re.compile(r"^<!-- /?bench:[\w-]+ -->$", re.MULTILINE)


def read_results(folder: Path = RESULTS) -> dict[str, Json]:
    """Return the stored results by scenario, in the order of the scenarios."""
    files = {name: folder / f"{name}.json" for name in BY_ID}
    return {
        name: json.loads(path.read_text("utf-8")) for name, path in files.items() if path.exists()
    }


def write_result(result: Json, folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['scenario']}.json"
    # Whole or not at all: a comparison that is stopped must not take hours of others with it.
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    unfinished.replace(path)
    return path


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, marks, *rows))


def cells(figure: Figure) -> tuple[str, str, str]:
    verdict = {None: "", True: " (met)", False: " (**missed**)"}[figure.met]
    return figure.name, figure.measured, figure.target + verdict


def scenario_block(name: str, results: dict[str, Json]) -> str:
    if name not in results:
        return "Not measured yet.\n"
    return shown(BY_ID[name], results[name])


def shown(scenario: Scenario, result: Json) -> str:
    """Return the figures of a result, its details, and where it was measured."""
    rows = [cells(figure) for figure in judged(scenario, result)]
    page = table(("figure", "measured", "target"), rows) + "\n"
    if scenario.details is not None:
        page += scenario.details(result) + "\n"
    return page + origin(result)


def summary_block(results: dict[str, Json], scenarios: Iterable[Scenario] = PLAIN) -> str:
    """Every figure that something was asked of, over the scenarios of one kind."""
    rows = []
    for scenario in scenarios:
        if scenario.id not in results:
            rows.append((f"`{scenario.id}`", "not measured yet", "-", "-"))
            continue
        figures = scenario.figures(results[scenario.id])
        asked = [figure for figure in figures if figure.met is not None] or figures[:1]
        rows += [(f"`{scenario.id}`", *cells(figure)) for figure in asked]
    return table(("scenario", "figure", "measured", "target"), rows)


def private_block(results: dict[str, Json]) -> str:
    """The summary of the private scenarios."""
    return summary_block(results, OF_PRIVACY)


def noise_block(results: dict[str, Json]) -> str:
    """How much error noise brings, by documents and epsilon."""
    if "private-by-size" not in results:
        return "Not measured yet.\n"
    result = results["private-by-size"]
    return how_much_noise(result) + "\n" + origin(result)


def contenders_block(results: dict[str, Json]) -> str:
    if "corpus-counts" not in results:
        return "Not measured yet.\n"
    result = results["corpus-counts"]
    rows = []
    for case in result["cases"]:
        seconds, cpu, before, peak, perplexity, unigram, npmi, diversity = (
            median(series(result, case, key))
            for key in (
                *("fit_seconds", "cpu_seconds", "rss_before_bytes", "peak_rss_bytes"),
                *("perplexity", "unigram_perplexity", "npmi", "diversity"),
            )
        )
        speed = f"{median(documents_per_second(result, case)):,.0f}"
        memory = f"{peak / 1e6:,.0f}", f"{(peak - before) / 1e6:,.0f}"
        quality = f"{perplexity:,.0f}", f"{unigram:,.0f}", f"{npmi:.3f}", f"{diversity:.2f}"
        rows.append((case, speed, f"{seconds:,.1f}", f"{cpu:,.1f}", *memory, *quality))
    header = (
        *("contender", "documents/s", "seconds", "processor seconds", "peak MB"),
        *("of it while fitting", "perplexity", "without topics", "NPMI", "diversity"),
    )
    return table(header, rows) + "\n" + origin(result)


def origin(result: Json) -> str:
    """One line: which processor, when, on which corpus, with which other libraries."""
    machine, versions, corpus = result["machine"], result["versions"], result["corpus"]
    parts = [machine["cpu"]]
    settings = machine["thread_settings"]
    parts += [f"{name}={value}" for name, value in sorted(settings.items())]
    named = ["streamlda", *(["gensim"] if corpus else [])]
    if result["scenario"].startswith("compare-"):
        others = ("scikit-learn", "tomotopy", "vowpalwabbit", "topica", "tensorly")
        named += [name for name in others if versions.get(name)]
    parts.append(", ".join(f"{name} {versions[name]}" for name in named))
    if corpus:
        size = f"{corpus['documents']:,} documents, sha256 {corpus['sha256'][:12]}"
        parts.append(f"{corpus['name']} ({size})")
    parts.append(result["date"])
    return f"- {'; '.join(parts)}{' (quick: sizes cut)' if result['quick'] else ''}\n"


def machines_block(results: dict[str, Json]) -> str:
    """Each machine once, with what all measurements on it had in common."""
    lines = set()
    for result in results.values():
        machine, versions = result["machine"], result["versions"]
        memory = f"{machine['memory_bytes'] / 2**30:.0f} GiB"
        parts = [f"{machine['cpu']}: {machine['cores']} cores, {memory}, {machine['system']}"]
        parts += [f"{name} {versions[name]}" for name in ("python", "numpy", "numba")]
        lines.add(f"- {', '.join(parts)}\n")
    return "".join(sorted(lines))


def front_block(results: dict[str, Json]) -> str:
    """The ten results that matter most, for the first page."""
    return front(results) or "Not measured yet.\n"


def block(name: str, results: dict[str, Json]) -> str:
    """Return the text of a block of a page."""
    special = {
        "front": front_block,
        "machines": machines_block,
        "summary": summary_block,
        "summary-private": private_block,
        "contenders": contenders_block,
        "compare": lambda results: compare_block(results, origin),
        "how-much-noise": noise_block,
    }
    if name in special:
        return special[name](results)
    if name not in BY_ID:
        known = ", ".join((*special, *BY_ID))
        raise ValueError(f"a block must have a known name, got name={name}; known: {known}")
    return scenario_block(name, results)


def fill(page: str, results: dict[str, Json]) -> str:
    """Return the page with every block made again."""
    filled, n = BLOCK.subn(lambda m: m[1] + block(m[2], results) + m[3], page)
    if len(MARKER.findall(page)) != 2 * n:
        raise ValueError(
            "each <!-- bench:NAME --> must be closed by <!-- /bench:NAME -->, each on its own "
            f"line, got markers={len(MARKER.findall(page))} blocks={n}"
        )
    return filled


def stale_pages(results: dict[str, Json], write: bool) -> list[Path]:
    """Return the pages whose blocks are not those of the results, rewritten if asked."""
    stale = []
    for path in PAGES:
        if not path.exists():
            continue
        page = path.read_text("utf-8")
        filled = fill(page, results) if path != PAGE else with_verdicts(page, results)
        if filled != page:
            stale.append(path)
            if write:
                path.write_text(filled, "utf-8")
    return stale


def plot(results: dict[str, Json], folder: Path = PLOTS) -> None:
    """Draw time-linear.png, flat.png, private-error.png and others from what is there."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    if "time-linear" in results:
        points = [p for p in rate_points(results["time-linear"]) if p.d == 10_000]
        (c0, c1, c2), _ = fit_cost(points)
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
        panels = (("distinct words a document (k = 20)", "nnz"), ("m = k + 50 (80 words)", "m"))
        for axis, (label, field) in zip(axes, panels, strict=True):
            chosen = sorted(p for p in points if (p.k == 20 if field == "nnz" else p.nnz == 80))
            x = [getattr(p, field) for p in chosen]
            fitted = [1e6 * (c0 + c1 * p.nnz * p.m + c2 * p.t**3) for p in chosen]
            axis.plot(x, fitted, label="c0 + c1 nnz m + c2 t³", **REFERENCE)
            axis.plot(x, [1e6 * p.seconds for p in chosen], "o", color=BLUE, label="measured")
            axis.set(xlabel=label, ylabel="µs a document")
            axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        name_lines(axes)
        figure.savefig(folder / "time-linear.png", dpi=100)
        pyplot.close(figure)
    if "memory-flat" in results and "time-flat" in results:
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for style, run in zip(SERIES, results["memory-flat"]["runs"], strict=False):
            marks = run["measured"]["checkpoints"]
            megabytes = [mark["peak_rss_bytes"] / 1e6 for mark in marks]
            documents = [m["documents"] for m in marks]
            axes[0].plot(documents, megabytes, label=run["case"], **style.keywords())
        axes[0].set(xlabel="documents", ylabel="peak memory, MB", xscale="log")
        rates = checkpoint_rates(results["time-flat"])
        axes[1].plot(rates.keys(), [1e6 * s for s in rates.values()], "o-", color=BLUE)
        axes[1].set(xlabel="documents", ylabel="µs a document", xscale="log")
        for axis in axes:
            axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        name_lines(axes[:1])
        figure.savefig(folder / "flat.png", dpi=100)
        pyplot.close(figure)
    private = [
        name for name in ("private-planted-50-5", "private-planted-1000-10") if name in results
    ]
    if private:
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained", squeeze=False)
        for axis, name in zip(axes[0], private, strict=False):
            draw_errors(axis, results[name])
        for axis in axes[0][len(private) :]:
            axis.remove()
        figure.savefig(folder / "private-error.png", dpi=100)
        pyplot.close(figure)
    compare_plot.plot(results, folder)
    if "prequential-arxiv" in results:
        prequential.plot(results["prequential-arxiv"], folder)
    for name, reproduction in REPRODUCTIONS.items():
        if name in results:
            reproduction.draw(results[name], folder)


def draw_errors(axis: Any, result: Json) -> None:
    """Draw mean error against epsilon, a line for each variant, one run a dot."""
    by_variant: dict[str, list[tuple[float, list[float]]]] = {}
    for label, case in result["cases"].items():
        errors, epsilon = series(result, label, "l1_error"), case["parameters"]["epsilon"]
        if epsilon is None:
            axis.axhline(sum(errors) / len(errors), label=label, **STYLES["not private"].keywords())
        else:
            by_variant.setdefault(label.rpartition(", ")[0], []).append((epsilon, errors))
    for style, (name, points) in zip(SERIES, by_variant.items(), strict=False):
        means = [sum(errors) / len(errors) for _, errors in points]
        axis.plot([epsilon for epsilon, _ in points], means, label=name, **style.keywords())
        for epsilon, errors in points:
            axis.plot([epsilon] * len(errors), errors, ".", color=style.colour, markersize=3)
    axis.set(xlabel="epsilon", ylabel="L1 error of a topic", xscale="log", yscale="log")
    axis.set_title(result["scenario"], fontsize=10)
    name_lines([axis])
