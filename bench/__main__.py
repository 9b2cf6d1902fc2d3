"""Command line of the benchmarks: list, run, tables; without a command, all that need no corpus."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import tables
from bench.contenders import CONTENDERS
from bench.measure import ROOT, Harness
from bench.scenarios import ALL, BY_ID


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command")
    commands.add_parser("list", help="name the scenarios and what they ask")
    run = commands.add_parser("run", help="measure scenarios, store results, make the tables")
    run.add_argument("scenario", nargs="*", help="all of them if left out")
    run.add_argument("--corpus", type=Path, help="JSON Lines, gzip; adds the corpus scenarios")
    run.add_argument("--text-field", default="text")
    run.add_argument("--repeats", type=int, help="instead of the scenario's own number")
    run.add_argument("--contender", action="append", choices=CONTENDERS, help="instead of usual")
    run.add_argument("--quick", action="store_true", help="small sizes; nothing is stored here")
    made = commands.add_parser("tables", help="write tables and plots from the stored results")
    made.add_argument("--check", action="store_true", help="only say whether the tables are stale")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = parser().parse_args(given or ["run"])
    if asked.command == "list":
        for scenario in ALL:
            mark = "  (needs --corpus)" if scenario.needs_corpus else ""
            print(f"{scenario.id:23} {scenario.question}{mark}")
        return 0
    if asked.command == "run":
        return run(asked)
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
    if asked.corpus and not asked.corpus.is_file():
        raise SystemExit(f"a corpus must be a file, got corpus={asked.corpus}")
    if asked.repeats is not None and asked.repeats < 1:
        raise SystemExit(f"there must be at least 1 repeat, got repeats={asked.repeats}")
    chosen = [BY_ID[name] for name in asked.scenario] or [
        scenario for scenario in ALL if asked.corpus or not scenario.needs_corpus
    ]
    # Small sizes say nothing, so that their results never take the place of real ones.
    quick = tempfile.mkdtemp(prefix="streamlda-bench-") if asked.quick else None
    folder = Path(quick) if quick else tables.RESULTS
    harness = Harness(asked.corpus, asked.text_field, asked.quick)
    for scenario in chosen:
        print(f"{scenario.id}: {scenario.question}", file=sys.stderr, flush=True)
        result = harness.run(scenario, asked.repeats, asked.contender or ())
        print(f"stored {tables.write_result(result, folder)}", file=sys.stderr)
        print(tables.scenario_block(scenario.id, tables.read_results(folder)), flush=True)
    if not quick:
        tables.stale_pages(tables.read_results(), write=True)
        tables.plot(tables.read_results())
    return 0


if __name__ == "__main__":
    sys.exit(main())
