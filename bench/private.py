"""Scenarios of the private route: how much noise costs, in error and in time."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

from bench.kinds import (
    Case,
    Figure,
    Json,
    Scenario,
    at_least,
    at_most,
    mark,
    markdown,
    series,
)

DELTA = 1e-6

#: What is compared: how contributions are bounded, and what neighbours are.
VARIANTS = {
    "private": ("quantile", "add-remove"),
    "worst-case bounds": ("worst-case", "add-remove"),
    "replace-one": ("quantile", "replace-one"),
}

#: Plot of `bench.tables`, named from the page that shows it.
PLOT = "![Error against epsilon](plots/private-error.png)\n"


def variant(name: str, epsilon: float | None) -> Json:
    clipping, relation = VARIANTS[name]
    terms = {"epsilon": epsilon, "delta": DELTA}
    return {**terms, "clipping": clipping, "neighboring_relation": relation}


def planted_parameters(d: int, k: int, documents: int) -> Json:
    return {
        "n_features": d,
        "n_components": k,
        "alpha_0": 1.0,
        "topic_concentration": 0.2 if d < 1000 else 0.05,
        "mean_length": 80,
        "documents": documents,
    }


# private-planted-*


def private_planted(d: int, k: int, epsilons: list[float], limits: dict[float, float]) -> Scenario:
    def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
        common = planted_parameters(d, k, 20_000 if quick else 100_000)
        found = [
            Case(
                f"{name}, {mark(epsilon)}", "private_planted", {**common, **variant(name, epsilon)}
            )
            for epsilon in epsilons
            for name in VARIANTS
        ]
        without = {**common, **variant("private", None)}
        return [*found, Case("not private", "private_planted", without)]

    def figures(result: Json) -> list[Figure]:
        found = []
        for epsilon in epsilons:
            errors = series(result, f"private, {mark(epsilon)}", "l1_error")
            name = f"mean L1 error of a topic, {mark(epsilon)}, runs: {len(errors)}"
            if epsilon in limits:
                found.append(at_most(name, mean(errors), limits[epsilon], "{:.4f}"))
            else:
                found.append(Figure(name, f"{mean(errors):.4f}"))
            found.append(Figure(f"worst run, {mark(epsilon)}", f"{max(errors):.4f}"))
        errors = series(result, "not private", "l1_error")
        return [*found, Figure("mean L1 error of a topic, not private", f"{mean(errors):.4f}")]

    def details(result: Json) -> str:
        rows = []
        for name in VARIANTS:
            labels = [f"{name}, {mark(epsilon)}" for epsilon in epsilons]
            rows.append([name, *(error_cell(result, label) for label in labels)])
        same = ["not private", *[error_cell(result, "not private")] * len(epsilons)]
        header = ["mean error (worst run; topics published)", *map(mark, epsilons)]
        return markdown(header, [*rows, same]) + "\n" + PLOT

    limit = " and ".join(f"{limits[e]:g} at {mark(e)}" for e in limits)
    question = f"Are {k} planted topics over {d:,} words found with error {limit}?"
    name = f"private-planted-{d}-{k}"
    return Scenario(name, question, 5, cases, figures, details=details)


def error_cell(result: Json, label: str) -> str:
    errors, topics = series(result, label, "l1_error"), series(result, label, "topics")
    asked = result["cases"][label]["parameters"]["n_components"]
    return f"{mean(errors):.3f} ({max(errors):.3f}; {mean(topics):g} of {asked})"


# private-by-size

SIZES = [10_000, 100_000, 1_000_000]
SIZE_EPSILONS = [0.1, 0.5, 1.0, 3.0, 10.0]


def by_size_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    sizes = SIZES[:1] if quick else SIZES
    return [
        Case(
            f"{n:,} documents, {mark(epsilon)}",
            "private_planted",
            {**planted_parameters(1000, 10, n), **variant("private", epsilon)},
        )
        for n in sizes
        for epsilon in SIZE_EPSILONS
    ]


def by_size_figures(result: Json) -> list[Figure]:
    least: dict[int, str] = {}
    for label, case in result["cases"].items():
        parameters = case["parameters"]
        whole = min(series(result, label, "topics")) == parameters["n_components"]
        least.setdefault(parameters["documents"], "none of these")
        if whole and least[parameters["documents"]] == "none of these":
            least[parameters["documents"]] = f"{parameters['epsilon']:g}"
    name = "least epsilon of those tried that shows all topics"
    return [Figure(f"{name}, {n:,} documents", epsilon) for n, epsilon in least.items()]


def how_much_noise(result: Json) -> str:
    """Rows: documents; columns: epsilon; cells: error and topics published."""
    sizes = sorted({case["parameters"]["documents"] for case in result["cases"].values()})
    rows = []
    for n in sizes:
        labels = [f"{n:,} documents, {mark(epsilon)}" for epsilon in SIZE_EPSILONS]
        cells = (
            f"{mean(series(result, label, 'l1_error')):.3f} "
            f"({mean(series(result, label, 'topics')):g})"
            for label in labels
        )
        rows.append([f"{n:,}", *cells])
    return markdown(["documents in the window", *map(mark, SIZE_EPSILONS)], rows)


# private-corpus

CORPUS_EPSILONS = [1.0, 3.0, 10.0]
CORPUS_LIMITS = {1.0: (0.12, 0.80), 3.0: (0.15, 0.68)}


def corpus_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    common = {"n_components": 10 if quick else 20, "vocabulary_size": 8000}
    found = [
        Case(mark(epsilon), "private_corpus", {**common, **variant("private", epsilon)})
        for epsilon in CORPUS_EPSILONS
    ]
    return [*found, Case("not private", "private_corpus", {**common, **variant("private", None)})]


def ratios(result: Json, case: str) -> list[float]:
    pairs = zip(
        series(result, case, "perplexity"), series(result, case, "unigram_perplexity"), strict=True
    )
    return [model / unigram for model, unigram in pairs]


def corpus_figures(result: Json) -> list[Figure]:
    found = []
    for case in result["cases"]:
        npmi, ratio = median(series(result, case, "npmi")), median(ratios(result, case))
        names = f"NPMI, {case}", f"perplexity over that of the word frequencies, {case}"
        limits = {mark(epsilon): both for epsilon, both in CORPUS_LIMITS.items()}.get(case)
        if limits is None:
            found += [Figure(names[0], f"{npmi:.3f}"), Figure(names[1], f"{ratio:.3f}")]
        else:
            found.append(at_least(names[0], npmi, limits[0], "{:.3f}"))
            found.append(at_most(names[1], ratio, limits[1], "{:.3f}"))
    return found


def corpus_details(result: Json) -> str:
    header = (
        *("", "runs", "topics published", "NPMI (least)", "diversity", "perplexity"),
        *("of the word frequencies", "ratio (largest)"),
    )
    rows = []
    for case in result["cases"]:
        topics, npmi, diversity, perplexity, unigram = (
            series(result, case, key)
            for key in ("topics", "npmi", "diversity", "perplexity", "unigram_perplexity")
        )
        asked = result["cases"][case]["parameters"]["n_components"]
        ratio = ratios(result, case)
        coherent = f"{mean(npmi):.3f} ({min(npmi):.3f})", f"{mean(diversity):.2f}"
        likely = f"{mean(perplexity):,.0f}", f"{mean(unigram):,.0f}"
        worst = f"{mean(ratio):.3f} ({max(ratio):.3f})"
        rows.append(
            [case, str(len(topics)), f"{mean(topics):g} of {asked}", *coherent, *likely, worst]
        )
    return markdown(header, rows)


# private-overhead

MOST_OVERHEAD = 1.15


def overhead_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    common: dict[str, Any] = {
        "documents": 3000 if quick else 100_000,
        "n_features": 500 if quick else 8000,
    }
    kinds = {"counts": "private_pass", "text": "private_command"}
    return [
        Case(
            f"{kind}, {k} topics, {mode}",
            kinds[kind],
            {**common, "n_components": k, **variant("private", epsilon)},
        )
        for kind, k in (("counts", 20), ("counts", 50), ("text", 20))
        for mode, epsilon in (("not private", None), ("private", 1.0))
    ]


def overhead_figures(result: Json) -> list[Figure]:
    """Ratios are taken repeat by repeat: the two took turns."""
    found = []
    for label in result["cases"]:
        what, _, mode = label.rpartition(", ")
        if mode == "private":
            pairs = zip(
                series(result, label, "fit_seconds"),
                series(result, f"{what}, not private", "fit_seconds"),
                strict=True,
            )
            ratio = median(a / b for a, b in pairs)
            found.append(
                at_most(f"time over that without privacy, {what}", ratio, MOST_OVERHEAD, "{:.2f}")
            )
    return found


def overhead_details(result: Json) -> str:
    rows = []
    for label in result["cases"]:
        seconds, topics = series(result, label, "fit_seconds"), series(result, label, "topics")
        speed = median(series(result, label, "documents")) / median(seconds)
        rows.append([label, f"{median(seconds):.2f}", f"{speed:,.0f}", f"{median(topics):g}"])
    return markdown(["pass", "seconds", "documents/s", "topics published"], rows)


# private-noise


def noise_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [Case("secure noise", "private_noise", {"values": 10**5 if quick else 10**7})]


def noise_figures(result: Json) -> list[Figure]:
    seconds = median(series(result, "secure noise", "fit_seconds"))
    values = result["cases"]["secure noise"]["parameters"]["values"]
    return [
        at_most(f"seconds for {values:,} values", seconds, 3.0, "{:.2f}"),
        Figure("nanoseconds a value", f"{seconds / values * 1e9:.0f}"),
    ]


def noise_details(result: Json) -> str:
    rows = [
        [f"{delta:.0e}", str(K), f"{formula:.1f}", f"{needed:.2f}", f"{formula / needed:.2f}"]
        for delta, K, formula, needed in result["runs"][0]["measured"]["wang_anandkumar"]
    ]
    return markdown(["delta", "K", "z of the formula", "z needed", "ratio"], rows)


PRIVATE = [
    private_planted(50, 5, [0.1, 0.5, 1.0], {0.1: 0.10, 0.5: 0.03, 1.0: 0.02}),
    private_planted(1000, 10, [0.5, 1.0, 3.0, 10.0], {1.0: 0.10}),
    private_planted(5000, 20, [1.0, 3.0], {1.0: 0.50, 3.0: 0.25}),
    Scenario(
        "private-corpus",
        "How coherent and how good are 20 private topics of real text?",
        5,
        corpus_cases,
        corpus_figures,
        needs_corpus=True,
        details=corpus_details,
    ),
    Scenario(
        "private-overhead",
        "How much longer does a private pass take?",
        5,
        overhead_cases,
        overhead_figures,
        takes_corpus=True,
        details=overhead_details,
    ),
    Scenario(
        "private-noise",
        "How long does secure noise take, and how much of it does the papers' schedule need?",
        3,
        noise_cases,
        noise_figures,
        details=noise_details,
    ),
    Scenario(
        "private-by-size",
        "How much does noise cost with 10,000 to 1,000,000 documents?",
        1,
        by_size_cases,
        by_size_figures,
        details=how_much_noise,
    ),
]
