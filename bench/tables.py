"""Tables and plots from stored results; the same results always give the same tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench import compare_plot, prequential
from bench.compare import COMPARE, COMPARE_KINDS, compare_block
from bench.front import front
from bench.kinds import Figure, Scenario, judged, series
from bench.measure import ROOT
from bench.panels import Panel, draw
from bench.papers.scenarios import PAGE, REPRODUCTIONS, with_verdicts
from bench.private import how_much_noise
from bench.roofline import ROOFLINE
from bench.scenarios import ALL, BY_ID, OF_PRIVACY, checkpoint_rates, fit_cost, rate_points

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
ELSEWHERE = (*OF_PRIVACY, *COMPARE, *COMPARE_KINDS, *ROOFLINE)
PLAIN = [scenario for scenario in ALL if scenario not in ELSEWHERE]

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
    """Return the error that noise brings, by documents and epsilon."""
    if "private-by-size" not in results:
        return "Not measured yet.\n"
    result = results["private-by-size"]
    return how_much_noise(result) + "\n" + origin(result)


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
        "compare": lambda results: compare_block(results, origin),
        "compare-kinds": lambda results: compare_block(results, origin, COMPARE_KINDS),
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


def pictures(results: dict[str, Json]) -> dict[str, list[Panel]]:
    """Return panels of the pictures of several scenarios."""
    found = {}
    if "time-linear" in results:
        found["time-linear"] = time_linear_panels(results["time-linear"])
    if "memory-flat" in results and "time-flat" in results:
        found["flat"] = flat_panels(results["memory-flat"], results["time-flat"])
    names = "private-planted-50-5", "private-planted-1000-10"
    found["private-error"] = [error_panel(results[name]) for name in names if name in results]
    return found


def plot(results: dict[str, Json], folder: Path = PLOTS) -> None:
    """Draw all pictures that the results are there for."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, panels in pictures(results).items():
        if panels:
            draw(panels, folder / f"{name}.png")
    compare_plot.plot(results, folder)
    if "dated" in results:
        prequential.plot(results["dated"], folder)
    for name, reproduction in REPRODUCTIONS.items():
        if name in results:
            reproduction.draw(results[name], folder)


def time_linear_panels(result: Json) -> list[Panel]:
    """Time of a document against its words and against m, beside the fitted cost."""
    points = [p for p in rate_points(result) if p.d == 10_000]
    (c0, c1, c2), _ = fit_cost(points)
    found = []
    for x, field in (("distinct words a document (k = 20)", "nnz"), ("m = k + 50 (80 words)", "m")):
        chosen = sorted(p for p in points if (p.k == 20 if field == "nnz" else p.nnz == 80))
        lines = {
            "measured": {getattr(p, field): [1e6 * p.seconds] for p in chosen},
            "c0 + c1 nnz m + c2 t³": {
                getattr(p, field): [1e6 * (c0 + c1 * p.nnz * p.m + c2 * p.t**3)] for p in chosen
            },
        }
        found.append(Panel("", x, "µs a document", lines, ("linear", "linear")))
    return found


def flat_panels(memory: Json, time: Json) -> list[Panel]:
    """Peak memory and time a document along the stream."""
    peaks = {
        run["case"]: {
            mark["documents"]: [mark["peak_rss_bytes"] / 1e6]
            for mark in run["measured"]["checkpoints"]
        }
        for run in memory["runs"]
    }
    rates = {"one stream": {n: [1e6 * each] for n, each in checkpoint_rates(time).items()}}
    scales = ("log", "linear")
    return [
        Panel("", "documents", "peak memory, MB", peaks, scales),
        Panel("", "documents", "µs a document", rates, scales),
    ]


def error_panel(result: Json) -> Panel:
    """Error against epsilon, a line for each variant."""
    lines: dict[str, dict[float, list[float]]] = {}
    for label, case in result["cases"].items():
        if (epsilon := case["parameters"]["epsilon"]) is not None:
            errors = series(result, label, "l1_error")
            lines.setdefault(label.rpartition(", ")[0], {})[epsilon] = errors
        else:
            floor = series(result, label, "l1_error")
    places = next(iter(lines.values()))
    lines["not private"] = dict.fromkeys(places, floor)
    return Panel(result["scenario"], "epsilon", "L1 error of a topic", lines)
