"""Scenarios under permanent names, and the figures that are drawn from their runs.

A scenario that is changed gets a new name, so that results under one name compare over time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import mean, median
from typing import NamedTuple

from bench.compare import COMPARE, COMPARE_KINDS
from bench.daemon import DAEMON
from bench.grid import GRID
from bench.kinds import (
    Case,
    Figure,
    Json,
    Scenario,
    at_least,
    at_most,
    documents_per_second,
    series,
    within,
)
from bench.known_truth import KNOWN_TRUTH
from bench.papers.scenarios import REPRODUCTIONS
from bench.prequential import PREQUENTIAL
from bench.private import PRIVATE
from bench.private_plan import PRIVATE_PLAN
from bench.private_public import PRIVATE_PUBLIC
from bench.private_text import PRIVATE_TEXT
from bench.private_words import PRIVATE_WORDS
from bench.roofline import ROOFLINE
from bench.routes import ROUTES
from bench.scale import SCALE
from bench.scaleout import SCALEOUT
from bench.shares import SHARES
from bench.start import START
from bench.tensor_power import TENSOR_POWER
from bench.throughput import THROUGHPUT
from bench.turns import TURNS
from bench.wa16_online import WA16_ONLINE
from bench.wa16_solvers import WA16_SOLVERS

# planted-*


def planted(d: int, k: int, concentration: float, limit: float) -> Scenario:
    def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
        parameters = {
            "n_features": d,
            "n_components": k,
            "alpha_0": 1.0,
            "topic_concentration": concentration,
            "mean_length": 80,
            "documents": 5000 if quick else 100_000,
        }
        return [Case("streamlda", "fit", parameters)]

    def figures(result: Json) -> list[Figure]:
        errors = series(result, "streamlda", "l1_error")
        name = f"mean L1 error of a topic, {len(errors)} seeds"
        speed = median(documents_per_second(result, "streamlda"))
        return [
            at_most(name, mean(errors), limit, "{:.4f}"),
            Figure("worst seed", f"{max(errors):.4f}"),
            Figure("documents/s", f"{speed:,.0f}"),
        ]

    question = f"Are {k} planted topics over {d:,} words found from 100,000 documents in one pass?"
    return Scenario(f"planted-{d}-{k}", question, 5, cases, figures)


# corpus-text


def corpus_text_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    parameters = {"n_components": 10 if quick else 50, "vocabulary_size": 8000}
    return [Case("streamlda fit", "command_line", parameters)]


def corpus_text_figures(result: Json) -> list[Figure]:
    seconds = median(series(result, "streamlda fit", "fit_seconds"))
    peak = median(series(result, "streamlda fit", "peak_rss_bytes"))
    speed = result["corpus"]["documents"] / seconds
    return [
        at_least("documents/s, text to model file", speed, 8000, "{:,.0f}"),
        Figure("seconds, start to end", f"{seconds:.1f}"),
        Figure("peak memory, MB", f"{peak / 1e6:,.0f}"),
    ]


# memory-flat, time-flat: the longer stream is measured once for both


def stream_case(documents: int, quick: bool) -> Case:
    shrink = 20 if quick else 1
    marks = [50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000]
    parameters = {
        "n_features": 20_000 // shrink,
        "n_components": 20,
        "alpha_0": 1.0,
        "topic_concentration": 0.05,
        "mean_length": 80,
        "documents": documents // shrink,
        "warmup_documents": 10_000 // shrink,
        "batch": 5000 // shrink,
        "checkpoints": [mark // shrink for mark in marks],
    }
    return Case(f"{documents // shrink:,} documents", "stream", parameters)


def memory_flat_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [stream_case(200_000, quick), stream_case(2_000_000, quick)]


def memory_flat_figures(result: Json) -> list[Figure]:
    short, long = (median(series(result, case, "peak_rss_bytes")) for case in result["cases"])
    case = list(result["cases"])[-1]
    state, predicted = (
        median(series(result, case, key)) for key in ("state_bytes", "predicted_state_bytes")
    )
    return [
        Figure("peak memory of the short stream, MB", f"{short / 1e6:.1f}"),
        Figure("peak memory of one 10 times as long, MB", f"{long / 1e6:.1f}"),
        within("ratio of the two", long / short, 0.02),
        within("state / EngineSettings.state_bytes", state / predicted, 0.10),
    ]


def time_flat_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [stream_case(2_000_000, quick)]


def time_flat_figures(result: Json) -> list[Figure]:
    rates = checkpoint_rates(result)
    found = [
        Figure(f"microseconds a document, up to {n:,} documents", f"{seconds * 1e6:.1f}")
        for n, seconds in rates.items()
    ]
    ratio = max(rates.values()) / min(rates.values())
    return [*found, at_most("slowest / fastest", ratio, 1.2, "{:.2f}")]


def checkpoint_rates(result: Json) -> dict[int, float]:
    """Return seconds a document between each two checkpoints, medians over the repeats.

    Every document after the first checkpoint counts once, changes of rounds included.
    """
    runs = [run["measured"]["checkpoints"] for run in result["runs"]]
    rates = {}
    for before, after in pairwise(zip(*runs, strict=True)):
        documents = after[0]["documents"] - before[0]["documents"]
        spent = (b["add_seconds"] - a["add_seconds"] for a, b in zip(before, after, strict=True))
        rates[after[0]["documents"]] = median(spent) / documents
    return rates


# time-linear


def time_linear_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    lengths, topics, words = [20, 40, 80, 160, 320], [5, 10, 20, 50, 100], [1000, 10_000, 100_000]
    if quick:
        lengths, topics, words = [20, 80], [5, 20], [1000, 10_000]
    points = [(n, 20, 10_000) for n in lengths]
    points += [(80, k, 10_000) for k in topics]
    points += [(80, 20, d) for d in words]
    return [
        Case(f"nnz={nnz} k={k} d={d}", "rate", {"nnz": nnz, "n_components": k, "n_features": d})
        for nnz, k, d in dict.fromkeys(points)
    ]


class RatePoint(NamedTuple):
    nnz: int
    k: int
    d: int
    m: int
    t: int
    seconds: float


def rate_points(result: Json) -> list[RatePoint]:
    points = []
    for label, case in result["cases"].items():
        p, m, t = case["parameters"], *(int(series(result, label, name)[0]) for name in "mt")
        seconds = median(series(result, label, "seconds_per_document"))
        points.append(RatePoint(p["nnz"], p["n_components"], p["n_features"], m, t, seconds))
    return points


def fit_cost(points: Iterable[RatePoint]) -> tuple[list[float], float]:
    """Return c0, c1, c2 >= 0 of c0 + c1 nnz m + c2 t^3 and the largest relative residual.

    Residuals are relative, so that the long documents do not decide alone.
    """
    import numpy as np
    from scipy.optimize import nnls

    points = list(points)
    seconds = np.array([p.seconds for p in points])
    terms = np.array([[1.0, p.nnz * p.m, p.t**3] for p in points])
    scale = terms.max(axis=0)
    coefficients, _ = nnls(terms / scale / seconds[:, None], np.ones(len(points)))
    residual = np.abs(terms / scale @ coefficients / seconds - 1).max()
    return [float(c) for c in coefficients / scale], float(residual)


def time_linear_figures(result: Json) -> list[Figure]:
    points = rate_points(result)
    (c0, c1, c2), residual = fit_cost(p for p in points if p.d == 10_000)
    found = [
        Figure(
            "nanoseconds a document, m = k + 50, t = k + 20",
            f"{c0 * 1e9:,.0f} + {c1 * 1e9:.3f} nnz m + {c2 * 1e9:.5f} t^3",
        ),
        Figure("largest deviation from that", f"{residual:.0%}"),
    ]
    by_words = {p.d: p.seconds for p in points if (p.nnz, p.k) == (80, 20)}
    least = min(by_words)
    for d, seconds in by_words.items():
        if d > least:
            name = f"time at d = {d:,} / at d = {least:,}"
            found.append(Figure(name, f"{seconds / by_words[least]:.2f}"))
    return found


OF_PRIVACY = [*PRIVATE, *PRIVATE_PUBLIC, *PRIVATE_PLAN, *PRIVATE_WORDS, *PRIVATE_TEXT]

ALL = [
    planted(1000, 10, 0.05, 0.03),
    planted(50, 5, 0.2, 0.008),
    Scenario(
        "corpus-text",
        "How long does `streamlda fit` take from compressed text to a model file?",
        3,
        corpus_text_cases,
        corpus_text_figures,
        needs_corpus=True,
    ),
    Scenario(
        "memory-flat",
        "Does a stream 10 times as long need more memory?",
        1,
        memory_flat_cases,
        memory_flat_figures,
    ),
    Scenario(
        "time-flat",
        "Does a document cost more after two million others?",
        1,
        time_flat_cases,
        time_flat_figures,
    ),
    Scenario(
        "time-linear",
        "Is the time linear in words and cubic in m, for any vocabulary?",
        3,
        time_linear_cases,
        time_linear_figures,
    ),
    *DAEMON,
    *THROUGHPUT,
    *SCALEOUT,
    *GRID,
    *SHARES,
    *COMPARE,
    *COMPARE_KINDS,
    *KNOWN_TRUTH,
    *PREQUENTIAL,
    *TURNS,
    *ROUTES,
    *START,
    *SCALE,
    *ROOFLINE,
    *OF_PRIVACY,
    *WA16_ONLINE,
    *WA16_SOLVERS,
    *TENSOR_POWER,
    *REPRODUCTIONS.values(),
]
BY_ID = {scenario.id: scenario for scenario in ALL}
