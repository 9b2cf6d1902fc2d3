"""Results that are measured in several sittings: what is stored is kept, what is missing added."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.kinds import Case, Json, Scenario
from bench.measure import Harness

#: What of the machine must be the same in all sittings: times of two machines have no ratio.
SAME_MACHINE = ("cpu", "cores", "memory_bytes", "thread_settings")
#: Bytes of memory by which a machine differs from one start to the next: some pages of its kernel.
KERNEL_BYTES = 2**24


def add_measurements(
    harness: Harness,
    scenario: Scenario,
    stored: Json | None,
    labels: Sequence[str],
    seeds: Mapping[str, int],
    store: Callable[[Json], Any],
    *,
    missing: Mapping[str, str],
    fresh: bool = False,
    minutes: float | None = None,
) -> Json:
    """Measure what a stored result lacks, store it after each measurement, and return it.

    Parameters
    ----------
    harness, scenario
        As in a run of one sitting.
    stored : dict or None
        The result so far.
    labels : sequence of str
        Contenders to measure; those of the result that are not named stay as they are.
    seeds : mapping of str to int
        How many seeds each is measured with, stored ones included.
    store : callable
        Takes the result so far.
    missing : mapping of str to str
        Contenders that cannot be measured here, and why; stored with the result.
    fresh : bool
        Measure the named contenders again, and forget their stored runs.
    minutes : float or None
        Begin no measurement after this number of minutes.
    """
    began = time.monotonic()
    named = scenario.cases(harness.quick, tuple(labels))
    result = merged(stored, harness.header(scenario), named, fresh)
    result["missing"] = {
        label: why
        for label, why in {**result["missing"], **missing}.items()
        if label not in result["cases"]
    }
    for case, repeat in lacking(result, named, seeds):
        if minutes is not None and time.monotonic() - began > 60 * minutes:
            print(f"  {minutes:g} minutes are over; the same command continues", file=sys.stderr)
            break
        run = {"case": case.label, "repeat": repeat, "date": result["date"]}
        run |= {"commit": result["versions"]["commit"]}
        before = time.monotonic()
        run["measured"] = harness.measure(case, repeat, scenario)
        run["seconds"] = time.monotonic() - before
        result["runs"].append(run)
        order = list(result["cases"])
        result["runs"].sort(key=lambda run: (order.index(run["case"]), run["repeat"]))
        store(result)
    store(result)
    return result


def estimate(
    stored: Json | None, labels: Sequence[str], seeds: Mapping[str, int], *, fresh: bool
) -> str:
    """Return how many runs contenders lack, and how long these take if as long as those stored."""
    runs = stored["runs"] if stored else []
    lines, whole, unknown = [], 0.0, 0
    for label in labels:
        mine = [run for run in runs if run["case"] == label]
        todo = seeds[label] if fresh else seeds[label] - len(mine)
        if todo <= 0:
            continue
        if mine:
            minutes = todo * median(map(seconds_of, mine)) / 60
            whole += minutes
        else:
            unknown += todo
        lines.append(f"{label}: runs={todo} minutes={f'{minutes:.1f}' if mine else 'unknown'}")
    lines.append(f"together: minutes={whole:.0f}, without {unknown} runs of unknown length")
    return "\n".join(lines)


def seconds_of(run: Json) -> float:
    """Return how long a run took; of those before 0.2.0, without judging its topics."""
    parts = ("start_seconds", "load_seconds", "fit_seconds")
    return float(run.get("seconds") or sum(run["measured"][part] for part in parts))


def merged(stored: Json | None, header: Json, named: Sequence[Case], fresh: bool) -> Json:
    """Return a result with this sitting's header, the stored runs that hold, and all cases.

    Runs of a contender whose parameters have changed are dropped.

    Raises
    ------
    SystemExit
        If the stored result is of another machine, corpus or size, or of other libraries.
    """
    wanted = {c.label: {"task": c.task, "parameters": c.parameters} for c in named}
    if stored is None:
        return {**header, "cases": wanted, "runs": [], "missing": {}}
    for name, before, now in compared_headers(stored, header):
        if before != now:
            raise SystemExit(
                f"sittings of one result must have one {name}, got stored={before} now={now}; "
                f"move the stored result of {header['scenario']} away to begin another"
            )
    dropped = {
        label for label, case in wanted.items() if fresh or stored["cases"].get(label, case) != case
    }
    for label in sorted(dropped & set(stored["cases"])):
        print(f"  {label}: stored runs are measured again", file=sys.stderr)
    kept = [run for run in stored["runs"] if run["case"] not in dropped]
    found = {"cases": {**stored["cases"], **wanted}, "runs": kept}
    return {**header, **found, "missing": stored["missing"]}


def compared_headers(stored: Json, header: Json) -> Iterator[tuple[str, Any, Any]]:
    for name in SAME_MACHINE:
        before, now = stored["machine"][name], header["machine"][name]
        if name == "memory_bytes" and abs(before - now) < KERNEL_BYTES:
            now = before
        yield name, before, now
    before, now = stored["versions"], header["versions"]
    for name in sorted((before.keys() & now.keys()) - {"commit", "streamlda"}):
        # What was not installed has no runs.
        if before[name] and now[name]:
            yield f"version of {name}", before[name], now[name]
    yield "quick", stored["quick"], header["quick"]
    yield "corpus", stored["corpus"]["sha256"], header["corpus"]["sha256"]


def lacking(
    result: Json, named: Sequence[Case], seeds: Mapping[str, int]
) -> Iterator[tuple[Case, int]]:
    """Yield what is not measured yet; contenders take turns."""
    have = {(run["case"], run["repeat"]) for run in result["runs"]}
    for repeat in range(max((seeds[case.label] for case in named), default=0)):
        for case in named:
            if repeat < seeds[case.label] and (case.label, repeat) not in have:
                yield case, repeat
