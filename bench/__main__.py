"""Command line of the benchmarks. Without a command: run all that need no corpus."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import tables
from bench.compare import LARGE_CORPUS, comparison, held_out_every
from bench.entrants import ENTRANTS, KINDS, missing
from bench.measure import ROOT, Harness, describe_corpus
from bench.papers.data import DOWNLOADS, check_files, list_missing
from bench.papers.scenarios import REPRODUCTIONS
from bench.scenarios import ALL, BY_ID
from bench.sittings import add_measurements, estimate
from streamlda.errors import StreamLDAError
from streamlda.utils.threads import one_blas_thread


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command")
    commands.add_parser("list", help="name the scenarios and what they ask")
    run = commands.add_parser("run", help="measure scenarios, store results, make the tables")
    run.add_argument("scenario", nargs="*", help="all of them if left out")
    run.add_argument("--corpus", type=Path, help="JSON Lines, gzip; adds the corpus scenarios")
    run.add_argument("--text-field", default="text")
    run.add_argument("--repeats", type=int, help="instead of the scenario's own number")
    run.add_argument("--quick", action="store_true", help="small sizes; nothing is stored here")
    compared = commands.add_parser("compare", help="measure others beside this, in any sittings")
    compared.add_argument("corpus", type=Path, help="JSON Lines, gzip")
    compared.add_argument("--topics", type=int, required=True)
    compared.add_argument("--text-field", default="text")
    compared.add_argument("--kind", choices=KINDS, help="make other documents of them")
    compared.add_argument("--documents", type=int, metavar="N", help="learn the first N alone")
    compared.add_argument("--contender", action="append", choices=ENTRANTS)
    compared.add_argument("--seeds", type=int, help="of each contender, stored ones included")
    compared.add_argument(
        "--fresh",
        action="store_true",
        help="forget the runs of these contenders; without any named, the whole stored result",
    )
    compared.add_argument(
        "--estimate", action="store_true", help="say how long it would take, by the stored runs"
    )
    compared.add_argument("--budget-minutes", type=float, help="begin no measurement after these")
    compared.add_argument(
        "--quick", action="store_true", help="2000 documents; stores nothing here"
    )
    papers = commands.add_parser("papers", help="run a figure or a theorem of a paper again")
    papers.add_argument(
        "name", nargs="?", choices=[*REPRODUCTIONS, "data"], help="list if left out"
    )
    papers.add_argument("--fast", action="store_true", help="small sizes")
    papers.add_argument("--output", "-o", type=Path, default=Path(), help="for NAME.png, NAME.json")
    for name, (address, _) in DOWNLOADS.items():
        papers.add_argument(f"--{name}", type=Path, help=f"file of {address}")
    papers.add_argument("--stand-ins", action="store_true", help="other data for missing files")
    made = commands.add_parser("tables", help="write tables and plots from the stored results")
    made.add_argument("--check", action="store_true", help="only say whether the tables are stale")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = parser().parse_args(given or ["run"])
    if asked.command == "list":
        for scenario in ALL:
            mark = "  (needs --corpus)" if scenario.needs_corpus else ""
            if scenario.command == "compare":
                mark = "  (python -m bench compare)"
            print(f"{scenario.id:23} {scenario.question}{mark}")
        return 0
    if asked.command == "run":
        return run(asked)
    if asked.command == "compare":
        return compare(asked)
    if asked.command == "papers":
        return papers(asked)
    stale = tables.stale_pages(tables.read_results(), write=not asked.check)
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'stale' if asked.check else 'written'}")
    if not asked.check:
        tables.plot(tables.read_results())
    return int(asked.check and bool(stale))


def run(asked: argparse.Namespace) -> int:
    unknown = sorted(set(asked.scenario) - set(BY_ID))
    if unknown:
        raise SystemExit(f"unknown scenarios: {', '.join(unknown)}; see: python -m bench list")
    compared = [name for name in asked.scenario if BY_ID[name].command == "compare"]
    if compared:
        raise SystemExit(f"{compared[0]} is measured by: python -m bench compare CORPUS --topics K")
    check_corpus(asked.corpus)
    if asked.repeats is not None and asked.repeats < 1:
        raise SystemExit(f"there must be at least 1 repeat, got repeats={asked.repeats}")
    chosen = [BY_ID[name] for name in asked.scenario] or [
        scenario
        for scenario in ALL
        if scenario.command == "run" and (asked.corpus or not scenario.needs_corpus)
    ]
    folder = result_folder(asked.quick)
    harness = Harness(asked.corpus, asked.text_field, asked.quick)
    for scenario in chosen:
        print(f"{scenario.id}: {scenario.question}", file=sys.stderr, flush=True)
        result = harness.run(scenario, asked.repeats)
        print(f"stored {tables.write_result(result, folder)}", file=sys.stderr)
        print(tables.scenario_block(scenario.id, tables.read_results(folder)), flush=True)
    if not asked.quick:
        tables.stale_pages(tables.read_results(), write=True)
        tables.plot(tables.read_results())
    return 0


def compare(asked: argparse.Namespace) -> int:
    """Add to a comparison what it lacks, and make its tables."""
    check_corpus(asked.corpus)
    for name, value in (
        *(("topics", asked.topics), ("seeds", asked.seeds)),
        ("documents", asked.documents),
    ):
        if value is not None and value < 1:
            raise SystemExit(f"there must be at least 1 of {name}, got {name}={value}")
    name = asked.corpus.name.removesuffix(".gz").removesuffix(".jsonl")
    documents = describe_corpus(asked.corpus)["documents"]
    own = {"kind": asked.kind, "most": asked.documents}
    scenario, every = comparison(name, asked.topics, documents, **own), held_out_every(documents)
    labels = asked.contender or scenario.contenders
    why = {label: reason for label in labels if (reason := missing(ENTRANTS[label].library))}
    for label, reason in why.items():
        print(f"{label}: {reason}", file=sys.stderr)
    large = documents >= LARGE_CORPUS
    seeds = {label: asked.seeds or each.seeds[large] for label, each in ENTRANTS.items()}
    folder = result_folder(asked.quick)
    path = folder / f"{scenario.id}.json"
    stored = json.loads(path.read_text("utf-8")) if path.exists() else None
    if asked.estimate:
        there = [label for label in labels if label not in why]
        print(estimate(stored, there, seeds, fresh=asked.fresh))
        return 0
    if asked.fresh and not asked.contender:
        stored = None
    result = add_measurements(
        Harness(asked.corpus, asked.text_field, asked.quick, every),
        scenario,
        stored,
        labels,
        seeds,
        lambda result: tables.write_result(result, folder),
        missing=why,
        fresh=asked.fresh,
        minutes=asked.budget_minutes,
    )
    print(f"stored {path}", file=sys.stderr)
    print(tables.shown(scenario, result), flush=True)
    if not asked.quick:
        tables.stale_pages(tables.read_results(), write=True)
        tables.plot(tables.read_results())
    return 0


def papers(asked: argparse.Namespace) -> int:
    """Run a reproduction in this process, or list all of them."""
    from bench.tasks import run_here

    if asked.name is None:
        for name, each in REPRODUCTIONS.items():
            print(f"{name:18} {each.question}")
        return 0
    files = {name: path for name in DOWNLOADS if (path := getattr(asked, name)) is not None}
    try:
        if asked.name == "data":
            print("\n".join(list_missing(files) or ["all files are there, and are right"]))
            return 0
        reproduction = REPRODUCTIONS[asked.name]
        data = check_files(reproduction.data, files, asked.stand_ins)
    except StreamLDAError as error:
        raise SystemExit(str(error)) from error
    harness = Harness(files.get("corpus"), quick=asked.fast, files=files, measure=run_here)
    # Threads of linear algebra that wait for each other double the processor time.
    with one_blas_thread():
        result = harness.run(reproduction, 1 if asked.fast else None, data)
    written = tables.write_result(result, asked.output)
    reproduction.draw(result, asked.output)
    print(f"{reproduction.question}\n\n{tables.shown(reproduction, result)}written: {written}")
    return 0


def check_corpus(path: Path | None) -> None:
    if path is not None and not path.is_file():
        raise SystemExit(f"a corpus must be a file, got corpus={path}")


def result_folder(quick: bool) -> Path:
    """Return where results go: small sizes say nothing, and take the place of no real ones."""
    return Path(tempfile.mkdtemp(prefix="streamlda-bench-")) if quick else tables.RESULTS


if __name__ == "__main__":
    sys.exit(main())
