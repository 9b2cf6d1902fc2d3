"""The online tensor power method: its speed and memory."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most, series

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.documents import DocumentBatch

BLOCK = 4096
#: Multiply-adds for each word of a document and each probe: 3 sums to project (c v, c v^2, c v^3),
#: 3 to associate (s s - q, then + 2 v (v - s), then + weight times that). Multiplications on their
#: own, and what is done once a document or word, are not counted.
MULTIPLY_ADDS = 6
#: The same as Algorithm 2 is printed: x'u, and (x'u)^2 x.
PRINTED_MULTIPLY_ADDS = 2


class CostPoint(NamedTuple):
    nnz: int
    n_probes: int
    seconds: float


# What is done in the child process


def hundred_tokens(n: int, n_features: int, rng: np.random.Generator) -> DocumentBatch:
    """Documents of 100 tokens whose words are as frequent as in text (p ~ 1/rank)."""
    from streamlda.documents import DocumentBatch

    running = np.cumsum(1 / np.arange(1.0, n_features + 1))
    ranks = np.searchsorted(running, rng.random(100 * n) * running[-1])
    words = rng.permutation(n_features)[np.minimum(ranks, n_features - 1)]
    row = np.repeat(np.arange(n), 100)
    cells, counts = np.unique(row * n_features + words, return_counts=True)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(cells // n_features, minlength=n))])
    ids = (cells % n_features).astype(np.int32)
    return DocumentBatch(counts.astype(np.float64), ids, pointers, n_features)


def association_rate(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Processor seconds a document of the triple association on one thread, regrouping included."""
    from bench.data import zipf_documents
    from streamlda.spectral.associations import DocumentAssociation
    from streamlda.utils.threads import limit_threads

    rng = np.random.default_rng(seed)
    d, n_probes, nnz = (parameters[name] for name in ("n_features", "n_probes", "nnz"))
    if nnz is None:
        batches = [hundred_tokens(BLOCK, d, rng) for _ in range(5)]
    else:
        batches = [zipf_documents(BLOCK, d, nnz, rng) for _ in range(5)]
    sums = DocumentAssociation(
        rng.standard_normal((d, n_probes)), 1.0, np.full(d, 1 / d), np.zeros((n_probes, n_probes))
    )
    sums.begin(np.eye(n_probes))
    sums.add(batches[0])
    meter.started()
    seconds = []
    with meter.timed(), limit_threads(1):
        for batch in batches * parameters["passes"]:
            before = time.process_time()
            sums.add(batch)
            seconds.append((time.process_time() - before) / BLOCK)
    return {
        "documents": BLOCK * len(seconds),
        "words_per_document": float(np.mean([len(batch.counts) for batch in batches])) / BLOCK,
        "seconds_per_document": float(np.median(seconds)),
    }


def association_memory(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Peak memory of rounds of the online method over a large vocabulary, map included."""
    from streamlda.spectral.associations import DocumentAssociation
    from streamlda.spectral.online import OnlinePower
    from streamlda.spectral.power import DeflatedPower

    rng = np.random.default_rng(seed)
    d, k, n = (parameters[name] for name in ("n_features", "n_components", "documents_per_round"))
    meter.started()
    with meter.timed():
        whitening = rng.standard_normal((d, k))
        sums = DocumentAssociation(whitening, 1.0, np.full(d, 1 / d), np.eye(k))
        method = DeflatedPower(k, k, n_restarts=parameters["n_probes"], n_iterations=2)
        online = OnlinePower(method, sums, n)
        # Three rounds are the first component.
        while online.rounds < 4:
            online.add(hundred_tokens(BLOCK // 2, d, rng))
    return {"documents": online.rounds * n, "rounds": online.rounds}


# What is drawn from it


def throughput_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    def case(label: str, nnz: int | None, n_probes: int) -> Case:
        parameters = {"n_features": 10_000, "n_probes": n_probes, "nnz": nnz}
        return Case(label, "association_rate", {**parameters, "passes": 1 if quick else 5})

    points = [(nnz, 32) for nnz in (25, 50, 100, 200, 400)]
    points += [(100, n_probes) for n_probes in (8, 16, 64, 128)]
    found = [case("100 tokens, L = 32", None, 32)]
    found += [case(f"nnz = {nnz}, L = {L}", nnz, L) for nnz, L in points[:: 3 if quick else 1]]
    memory = {"n_components": 20, "n_probes": 32, "documents_per_round": BLOCK}
    d = 20_000 if quick else 1_000_000
    return [*found, Case("large", "association_memory", {"n_features": d, **memory})]


def cost_points(result: Json) -> list[CostPoint]:
    points = []
    for label, case in result["cases"].items():
        p = case["parameters"]
        if p.get("nnz"):
            seconds = median(series(result, label, "seconds_per_document"))
            points.append(CostPoint(p["nnz"], p["n_probes"], seconds))
    return points


def fit_line(x: list[float], y: list[float]) -> tuple[float, float, float]:
    """Return a, b >= 0 of a + b x by relative least squares, and the largest relative deviation."""
    from scipy.optimize import nnls

    terms = np.array([[1.0, value] for value in x]) / np.array(y)[:, None]
    (a, b), _ = nnls(terms, np.ones(len(y)))
    return float(a), float(b), float(np.abs(terms @ [a, b] - 1).max())


def throughput_figures(result: Json) -> list[Figure]:
    label = "100 tokens, L = 32"
    seconds = median(series(result, label, "seconds_per_document"))
    cells = median(series(result, label, "words_per_document")) * 32
    peak = median(series(result, "large", "peak_rss_bytes"))
    large = result["cases"]["large"]["parameters"]
    name = f"d = {large['n_features']:,}, k = {large['n_components']}, L = {large['n_probes']}"
    found = [
        at_least(
            "multiply-adds/s a core, 100-token documents, L = 32 (6 a word and probe)",
            *(MULTIPLY_ADDS * cells / seconds, 1e9, "{:.2e}"),
        ),
        Figure("the same, 2 a word and probe", f"{PRINTED_MULTIPLY_ADDS * cells / seconds:.2e}"),
        at_most(f"peak memory in MB, {name}", peak / 1e6, 1000, "{:,.0f}"),
    ]
    points = cost_points(result)
    for what, chosen, index in (
        ("nnz, L = 32", [p for p in points if p.n_probes == 32], 0),
        ("L, nnz = 100", [p for p in points if p.nnz == 100], 1),
    ):
        x, y = [float(p[index]) for p in chosen], [p.seconds * 1e6 for p in chosen]
        a, b, off = fit_line(x, y)
        found.append(Figure(f"microseconds a document in {what}", f"{a:.2f} + {b:.4f} x"))
        found.append(Figure(f"largest deviation from that, {what}", f"{off:.0%}"))
    return found


def throughput_details(result: Json) -> str:
    rows = ["| distinct words | L | microseconds a document | ns a word and probe |"]
    rows.append("| ---: | ---: | ---: | ---: |")
    rows += [
        f"| {p.nnz} | {p.n_probes} | {p.seconds * 1e6:.2f} | "
        f"{p.seconds * 1e9 / (p.nnz * p.n_probes):.3f} |"
        for p in sorted(cost_points(result))
    ]
    return "\n".join(rows) + "\n"


WA16_ONLINE_TASKS = (association_rate, association_memory)

WA16_ONLINE = [
    Scenario(
        "association-throughput",
        "How fast is the triple association on one core, and how much memory do rounds take?",
        3,
        throughput_cases,
        throughput_figures,
        details=throughput_details,
    ),
]
