"""Scenarios of the daemon: how fast it reads, starts and saves, and what memory it takes."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.daemon_tasks import TOKENS
from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most, series


def throughput_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    sizes = {"n_words": 50_000, "records": 20_000 if quick else 400_000, "turns": 1 if quick else 3}
    return [
        Case(f"K = {K}", "daemon_throughput", {**sizes, "n_components": K})
        for K in ([20] if quick else [20, 50])
    ]


def gathered(result: Json, case: str, key: str) -> list[float]:
    """Return the values of all repeats of a case, each of which has a list."""
    lists: list[Any] = list(series(result, case, key))
    return [float(value) for values in lists for value in values]


def throughput_figures(result: Json) -> list[Figure]:
    found = []
    for label in result["cases"]:
        daemon, bare = (gathered(result, label, key) for key in ("daemon", "bare"))
        # Turn by turn: what else the machine did hit both.
        share = median(a / b for a, b in zip(daemon, bare, strict=True))
        name = f"documents/s of {TOKENS} tokens, hash bits 14, {label}"
        shown = at_least(name, median(daemon), 15_000, "{:,.0f}")
        ratio = at_least(f"over those of a bare loop, {label}", share, 0.5, "{:.2f}")
        if label != "K = 20":
            shown, ratio = (f._replace(target="-", met=None) for f in (shown, ratio))
        found += [
            shown,
            ratio,
            Figure(f"documents/s of a bare loop, {label}", f"{median(bare):,.0f}"),
        ]
    return found


def large_parameters(quick: bool, records: int, interval: str) -> Json:
    return {
        "n_words": 5000 if quick else 50_000,
        "n_components": 10 if quick else 50,
        "warmup": 2000 if quick else 10_000,
        "records": 20_000 if quick else records,
        "interval": interval,
    }


def restart_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    # No checkpoint by the clock, so that each start is from the same one.
    parameters = large_parameters(quick, 100_000, "1 h")
    return [Case("large", "daemon_restart", {**parameters, "turns": 2 if quick else 5})]


def restart_figures(result: Json) -> list[Figure]:
    sizes = result["cases"]["large"]["parameters"]
    named = f"V = {sizes['n_words']:,}, K = {sizes['n_components']}"
    learned, polled = (gathered(result, "large", key) for key in ("learned", "polled"))
    state = median(series(result, "large", "state_bytes"))
    return [
        at_most(f"seconds from start to the first batch, {named}", median(learned), 3.0, "{:.2f}"),
        Figure("the slowest start", f"{max(learned):.2f}"),
        Figure("seconds to its first record", f"{median(polled):.2f}"),
        Figure("state in MB", f"{state / 1e6:,.0f}"),
    ]


def checkpoint_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    parameters = large_parameters(quick, 300_000, "0.3 s" if quick else "3 s")
    return [Case("large", "daemon_checkpoint", parameters)]


def checkpoint_figures(result: Json) -> list[Figure]:
    sizes = result["cases"]["large"]["parameters"]
    named = f"V = {sizes['n_words']:,}, K = {sizes['n_components']}"
    stalls, writes = (
        gathered(result, "large", key) for key in ("stalled_seconds", "write_seconds")
    )
    reading, learning, speed, state = (
        series(result, "large", key)
        for key in ("longest_gap_seconds", "longest_learning_gap_seconds", "rate", "state_bytes")
    )
    return [
        at_most(
            f"longest stall of {len(stalls)} checkpoints in seconds, {named}",
            *(max(stalls), 0.2, "{:.3f}"),
        ),
        Figure("median stall in seconds", f"{median(stalls):.3f}"),
        Figure("median seconds to write one, beside learning", f"{median(writes):.2f}"),
        Figure("longest time without a batch read, in seconds", f"{max(reading):.2f}"),
        Figure("longest time without a batch learned, in seconds", f"{max(learning):.2f}"),
        Figure("documents/s meanwhile", f"{median(speed):,.0f}"),
        Figure("state in MB", f"{median(state) / 1e6:,.0f}"),
    ]


def memory_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = [Case("large", "daemon_memory", large_parameters(quick, 200_000, "3 s"))]
    if not quick:
        small = {"n_words": 10_000, "n_components": 20}
        found.append(Case("small", "daemon_memory", found[0].parameters | small))
    return found


def memory_figures(result: Json) -> list[Figure]:
    found = []
    for label, case in result["cases"].items():
        named = f"V = {case['parameters']['n_words']:,}, K = {case['parameters']['n_components']}"
        peak = max(series(result, label, "daemon_peak_bytes")) / 1e6
        found += [
            Figure(f"most resident memory in MB, {named}", f"{peak:,.0f}"),
            Figure(f"snapshots published, {named}", f"{min(series(result, label, 'snapshots'))}"),
        ]
    return found


DAEMON = [
    Scenario(
        "daemon-throughput",
        "How many documents a second does the daemon learn from one partition of a real broker?",
        1,
        throughput_cases,
        throughput_figures,
    ),
    Scenario(
        "daemon-restart",
        "How long does a daemon with a large state take to continue?",
        1,
        restart_cases,
        restart_figures,
    ),
    Scenario(
        "daemon-checkpoint",
        "How long does saving a large state hold up the stream?",
        1,
        checkpoint_cases,
        checkpoint_figures,
    ),
    Scenario(
        "daemon-memory",
        "How much memory does a daemon take?",
        1,
        memory_cases,
        memory_figures,
    ),
]
