"""Distance of the kernels from what the machine can do: memory bandwidth and matrix products.

Each kernel does a known number of operations on a known number of bytes. A roof is what it could
do at most: the speed of matrix products, or the bandwidth times operations a byte if that is less
[1]_. Bytes are counted as the kernel asks for them. Most come from caches, so the bandwidth of the
roof is that of arrays as large as the map; that of the main memory is shown beside it.

References
----------
.. [1] Williams, Waterman, Patterson (2009), "Roofline: an insightful visual performance model for
   multicore architectures", CACM 52.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.data import planted
from bench.kinds import Case, Figure, Json, Scenario, series

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.documents import DocumentBatch

#: What each kernel does a document, as its page says it. n words of a document, N tokens, m
#: probes, K topics, s sweeps, p topics that a document has at a time, v = V / documents of a call.
FORMULAS = {
    "project": ("2 n m", "n (12 + 8 m) + 8 m"),
    "associate_projections": ("2 n m", "n (20 + 8 m) + 16 m v"),
    "expect_topics": ("n K (5 + 9 (s - 1))", "n s (12 + 4 K) + n K (4 + 8 (s - 1))"),
    "add_shares": ("2 n K", "n (16 + 4 K) + 16 K v"),
    "resample_topics": ("2 N p", "N (8 + 4 p) + 12 n"),
}
#: Bytes of the numbers that a kernel calculates with.
PRECISION = {
    **{"project": 8, "associate_projections": 8, "add_shares": 8},
    **{"expect_topics": 4, "resample_topics": 4},
}


class Shape(NamedTuple):
    """Arguments of the formulas: means a document, and sizes."""

    words: float
    tokens: float
    probes: int
    topics: int
    sweeps: int
    present: float
    #: Words of the vocabulary for each document of a call.
    vocabulary: float


def work(kernel: str, of: Shape) -> tuple[float, float]:
    """Return operations and bytes of a document, by `FORMULAS`."""
    n, tokens, m, K, s, p, v = of
    return {
        "project": (2 * n * m, n * (12 + 8 * m) + 8 * m),
        "associate_projections": (2 * n * m, n * (20 + 8 * m) + 16 * m * v),
        "expect_topics": (
            n * K * (5 + 9 * (s - 1)),
            n * s * (12 + 4 * K) + n * K * (4 + 8 * (s - 1)),
        ),
        "add_shares": (2 * n * K, n * (16 + 4 * K) + 16 * K * v),
        "resample_topics": (2 * tokens * p, tokens * (8 + 4 * p) + 12 * n),
    }[kernel]


# What is measured


def roofline(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Bandwidth, matrix products and kernels, one after the other on the same threads."""
    from threadpoolctl import threadpool_limits

    from streamlda.utils.threads import limit_threads, thread_count

    threads = parameters["threads"] or thread_count()
    # All libraries of linear algebra must be there when they are limited.
    import scipy.linalg.blas  # noqa: F401

    from streamlda.engine.settings import EngineSettings
    from streamlda.refinement.stepwise_em import ITERATIONS

    corpus = planted(parameters, seed)
    documents = corpus.documents(parameters["documents"])
    names = ("n_components", "n_features")
    settings = EngineSettings(**{name: parameters[name] for name in names})
    seconds = parameters["seconds"]
    meter.started()
    blas = threadpool_limits(limits=threads, user_api="blas")
    with meter.timed(), limit_threads(threads), blas:
        found: Json = {
            "threads": threads,
            "memory_bandwidth": bandwidth(parameters["triad_bytes"], seconds),
            "map_bandwidth": bandwidth(8 * settings.n_features * settings.n_columns, seconds),
            "gemm_8": matrix_products(np.float64, parameters["gemm_size"], seconds),
            "gemm_4": matrix_products(np.float32, parameters["gemm_size"], seconds),
        }
        association = time_association(documents, settings.n_columns, seconds)
        refinement, present = time_refinement(documents, corpus, ITERATIONS, seconds)
    n = len(documents)
    shape = Shape(
        words=len(documents.counts) / n,
        tokens=float(documents.counts.sum()) / n,
        probes=settings.n_columns,
        topics=settings.n_components,
        sweeps=ITERATIONS,
        present=present,
        vocabulary=settings.n_features / n,
    )
    found["kernels"] = {}
    for kernel, spent in {**association, **refinement}.items():
        operations, size = work(kernel, shape)
        found["kernels"][kernel] = {
            "seconds_per_document": spent / n,
            "operations_per_document": operations,
            "bytes_per_document": size,
        }
    return {**found, "documents": n, "shape": shape._asdict()}


def fastest(call: Callable[[], Any], seconds: float) -> float:
    """Return the least seconds of a call, of at least 3 calls over N seconds."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return min(times)


def bandwidth(size: int, seconds: float) -> float:
    """Return bytes/s of a = b + s c over three arrays of `size` bytes in all, 24 a number."""
    from streamlda.kernels import F64_1D, OUT_F64_1D, parallel_kernel

    # Compiled as the kernels that it is compared with.
    @parallel_kernel(lambda scale, b, c, a: (len(a), len(a)))
    def triad(first: int, last: int, scale: float, b: F64_1D, c: F64_1D, a: OUT_F64_1D) -> None:
        for i in range(first, last):
            a[i] = b[i] + scale * c[i]

    length = size // 24
    a, b, c = (np.full(length, value) for value in (0.0, 1.0, 2.0))
    triad(3.0, b, c, a)
    # Small arrays are gone through often: the clock is not that fine.
    rounds = max(1, 2**24 // size)

    def call() -> None:
        for _ in range(rounds):
            triad(3.0, b, c, a)

    return 24 * length * rounds / fastest(call, seconds)


def matrix_products(dtype: Any, size: int, seconds: float) -> float:
    """Return operations/s of the product of two square matrices, 2 n^3 a product."""
    from scipy.linalg import blas

    product = blas.dgemm if dtype == np.float64 else blas.sgemm
    a = np.asfortranarray(np.full((size, size), 0.5, dtype=dtype))
    out = np.zeros((size, size), dtype=dtype, order="F")
    return float(2 * size**3 / fastest(lambda: product(1.0, a, a, c=out, overwrite_c=1), seconds))


def time_association(documents: DocumentBatch, m: int, seconds: float) -> dict[str, float]:
    """Return seconds a call of the kernels of the pair sums."""
    from streamlda.kernels import association
    from streamlda.spectral.moments import group_by_word
    from streamlda.spectral.whitening import random_projection

    rows = documents.counts, documents.word_ids, documents.row_pointers
    probes = random_projection(documents.n_features, m, 1)
    projections = np.empty((len(documents), m))
    totals = np.zeros((1, documents.n_features, m))
    weights = np.ones((len(documents), 1))
    by_word = group_by_word(*rows, documents.n_features)
    return {
        "project": fastest(lambda: association.project(*rows, probes, projections), seconds),
        "associate_projections": fastest(
            lambda: association.associate_projections(*by_word, projections, weights, totals),
            seconds,
        ),
    }


def time_refinement(
    documents: DocumentBatch, corpus: Any, sweeps: int, seconds: float
) -> tuple[dict[str, float], float]:
    """Return seconds a call of the kernels of a refinement, and topics a document has."""
    from streamlda.kernels import refinement as kernels
    from streamlda.refinement.stepwise_em import entries_by_word

    K, V = corpus.components.shape
    n, nnz = len(documents), len(documents.counts)
    alpha = np.asarray(corpus.alpha, dtype=np.float32)
    words = np.ascontiguousarray(corpus.components.T + 1e-9).astype(np.float32)
    running = np.cumsum(words * alpha, axis=1, dtype=np.float32)
    responsibilities = np.empty((nnz, K), dtype=np.float32)
    totals = np.zeros((V, K))
    rows = documents.counts, documents.word_ids, documents.row_pointers
    entries = entries_by_word(documents.word_ids, documents.counts, V)
    found = {
        "expect_topics": fastest(
            lambda: kernels.expect_topics(
                *(*rows, words, alpha, sweeps, responsibilities, kernels.NO_SCORES)
            ),
            seconds,
        ),
        "add_shares": fastest(
            lambda: kernels.add_responsibilities(*entries, responsibilities, totals), seconds
        ),
    }
    tokens = np.concatenate([[0], np.cumsum(documents.counts)]).astype(np.int64)
    topics, own = np.full(tokens[-1], -1, dtype=np.int16), np.zeros(K, dtype=np.float32)
    found["resample_topics"] = fastest(
        lambda: kernels.resample_topics(
            *(*rows[1:], tokens, words, running, own, alpha, 0, 0, 1, topics)
        ),
        seconds,
    )
    lengths = np.diff(tokens[documents.row_pointers])
    pairs = np.unique(np.repeat(np.arange(n), lengths) * K + topics)
    present = np.bincount(pairs // K, minlength=n)
    # Each token goes through the topics of its document.
    return found, float(np.average(present, weights=lengths))


# What is drawn from it


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    parameters = {
        "n_features": 8000,
        "n_components": 50,
        "alpha_0": 1.0,
        "topic_concentration": 0.05,
        "mean_length": 80,
        "documents": 500 if quick else 4096,
        "triad_bytes": 2**24 if quick else 3 * 2**28,
        "gemm_size": 256 if quick else 2048,
        "seconds": 0.05 if quick else 1.0,
    }
    return [
        Case(label, "roofline", {**parameters, "threads": threads})
        for label, threads in (("1 thread", 1), ("all threads", None))
    ]


def figures(result: Json) -> list[Figure]:
    found = []
    for label in result["cases"]:
        threads = series(result, label, "threads")[0]
        which = f"{label} ({threads})" if label == "all threads" else label
        for key, name, scale, form in (
            ("memory_bandwidth", "GB/s of the memory", 1e9, "{:.1f}"),
            ("map_bandwidth", "GB/s of arrays as large as the map", 1e9, "{:.1f}"),
            ("gemm_8", "Gflop/s of matrix products, double", 1e9, "{:.0f}"),
            ("gemm_4", "Gflop/s of matrix products, single", 1e9, "{:.0f}"),
        ):
            value = median(series(result, label, key)) / scale
            found.append(Figure(f"{name}, {which}", form.format(value)))
    return found


def roof(kernel: str, measured: Json) -> float:
    """Return the most operations/s that a kernel could do at its operations a byte."""
    counted = measured["kernels"][kernel]
    intensity = counted["operations_per_document"] / counted["bytes_per_document"]
    return float(min(measured[f"gemm_{PRECISION[kernel]}"], intensity * measured["map_bandwidth"]))


def details(result: Json) -> str:
    """Return how far each kernel is from its roof, and by which formulas."""
    header = (
        *("kernel", "threads", "microseconds a document", "Gflop/s", "GB/s requested"),
        *("of the memory's", "roof, Gflop/s", "of the roof"),
    )
    lines = [header, ("---", *["---:"] * (len(header) - 1))]
    for kernel in FORMULAS:
        for label in result["cases"]:
            runs = [run["measured"] for run in result["runs"] if run["case"] == label]
            counted = [run["kernels"][kernel] for run in runs]
            seconds = median(each["seconds_per_document"] for each in counted)
            operations, size = (
                median(each[f"{what}_per_document"] for each in counted)
                for what in ("operations", "bytes")
            )
            memory = median(run["memory_bandwidth"] for run in runs)
            top = median(roof(kernel, run) for run in runs)
            lines.append(
                (
                    *(f"`{kernel}`", str(runs[0]["threads"]), f"{seconds * 1e6:.2f}"),
                    *(f"{operations / seconds / 1e9:.1f}", f"{size / seconds / 1e9:.1f}"),
                    f"{size / seconds / memory:.0%}",
                    *(f"{top / 1e9:.1f}", f"{operations / seconds / top:.0%}"),
                )
            )
    page = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    shape = result["runs"][0]["measured"]["shape"]
    page += (
        f"\nHere n = {shape['words']:.1f}, N = {shape['tokens']:.1f}, m = {shape['probes']}, "
        f"K = {shape['topics']}, s = {shape['sweeps']}, p = {shape['present']:.1f}, "
        f"v = {shape['vocabulary']:.2f}.\n\n| kernel | operations a document | bytes a document |\n"
    )
    page += "| --- | --- | --- |\n"
    for kernel, (operations, size) in FORMULAS.items():
        page += f"| `{kernel}` | {operations} | {size} |\n"
    return page


ROOFLINE_TASKS = (roofline,)

ROOFLINE = [
    Scenario(
        "roofline",
        "How far are the kernels from the bandwidth and the matrix products of the machine?",
        3,
        cases,
        figures,
        details=details,
    )
]
