"""Streams whose subjects change: a turn, a new theme, a drift.

Perplexities are of documents that nothing has learned, with alpha 1 / K for all and the words
counted so far behind the topics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.data import read_all
from bench.kinds import Case, Figure, Json, Scenario, at_most, series
from bench.measure import HELD_OUT_EVERY, VOCABULARY_SIZE
from bench.prequential import (
    BLOCK,
    LEARNERS,
    OURS,
    REFIT,
    Judge,
    Online,
    Rows,
    Topics,
    blocks,
    fit_anew,
    stacked,
)

if TYPE_CHECKING:
    from bench.measure import Meter

#: Documents of a planted test.
TESTED = 500
#: Documents after a turn at which perplexity is measured.
AFTER = 2000, 4000, 8000
#: Documents before a turn within the warm-up.
EARLY = 3000, 8000, 15_000, 19_000
#: Planted documents: words, tokens of each, sum of alpha, topics.
PLANTED = {"n_features": 2000, "tokens": 60, "alpha_0": 1.0, "n_components": 10}


class Planted(NamedTuple):
    """Documents of topics whose words are as frequent as rank^-0.8."""

    rng: np.random.Generator
    n_features: int
    tokens: int
    alpha_0: float

    def topics(self, n: int) -> Topics:
        weights = 1 / np.arange(1.0, self.n_features + 1) ** 0.8
        return self.rng.dirichlet(weights / weights.sum() * self.n_features * 0.05, n)

    def documents(self, topics: Topics, n: int, theta: Topics | None = None) -> Rows:
        from scipy.sparse import csr_matrix

        if theta is None:
            theta = self.rng.dirichlet(np.full(len(topics), self.alpha_0 / len(topics)), n)
        return csr_matrix(self.rng.multinomial(self.tokens, theta @ topics).astype(np.int32))


def planted(parameters: Json, seed: int) -> Planted:
    names = "n_features", "tokens", "alpha_0"
    return Planted(np.random.default_rng(seed), **{name: parameters[name] for name in names})


# turn-planted, turn-text


class Subject(NamedTuple):
    """Documents of one subject: to learn, and to be predicted."""

    name: str
    learned: Rows
    tested: Rows


def follow(online: Online, subjects: list[Subject], parameters: Json, seed: int) -> Json:
    """Learn one subject after another; measure after each turn, beside a new fit."""
    judge = Judge(subjects[0].learned.shape[1])
    found, ids, spent = [], {}, 0.0
    for number, subject in enumerate(subjects):
        since: list[Rows] = []
        for rows in blocks(subject.learned):
            before = time.process_time()
            online.learn(rows)
            spent += time.process_time() - before
            judge.learn(rows)
            since.append(rows)
            learned = sum(part.shape[0] for part in since)
            if number == 0 or learned not in AFTER:
                continue
            row = {"subject": subject.name, "after": learned}
            before = time.process_time()
            topics = online.topics()[0]
            spent += time.process_time() - before
            row["perplexity"] = judge.perplexity(topics, subject.tested)
            if parameters["learner"] == OURS:
                fresh = fit_anew(parameters["n_components"], stacked(since), seed)
                row["fresh"] = judge.perplexity(fresh, subject.tested)
            found.append(row)
        ids[number] = online.ids()
    return {"rows": found, "ids": [*ids.values()], "learning_seconds": spent}


def turn_planted(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Ten topics, ten others, and the first again."""
    source = planted(parameters, seed)
    topics = [source.topics(parameters["n_components"]) for _ in range(2)]

    def subject(number: int, documents: int) -> Subject:
        learned, tested = (source.documents(topics[number], n) for n in (documents, TESTED))
        return Subject(f"{number + 1}", learned, tested)

    first, then = parameters["documents"]
    subjects = [subject(0, first), subject(1, then), subject(0, then)]
    sizes = parameters["n_components"], first + 2 * then, parameters["n_features"]
    online = LEARNERS[parameters["learner"]](*sizes, seed)
    meter.started()
    with meter.timed():
        return follow(online, subjects, parameters, seed)


def two_subjects(rows: Rows, seed: int) -> NDArray[np.bool_]:
    """Return which documents are of the larger of two clusters, by scikit-learn."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(rows)
    placed = TruncatedSVD(20, random_state=seed).fit_transform(weighted)
    cluster = KMeans(2, n_init=3, random_state=seed).fit_predict(placed)
    larger: NDArray[np.bool_] = cluster == np.argmax(np.bincount(cluster))
    return larger


def turn_text(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Documents of one half of a corpus, then of the other: two clusters of them."""
    from sklearn.utils import shuffle

    rows = read_all(inputs["counts"], HELD_OUT_EVERY).to_csr()
    rows = shuffle(rows, random_state=seed, n_samples=min(rows.shape[0], parameters["sample"]))
    larger = two_subjects(rows, seed)
    first, then = parameters["documents"]
    subjects = []
    for name, members, n in (("larger", larger, first), ("smaller", ~larger, then)):
        own = rows[np.flatnonzero(members)]
        n = min(n, own.shape[0] - 2 * TESTED)
        subjects.append(Subject(name, own[2 * TESTED : 2 * TESTED + n], own[: 2 * TESTED]))
    sizes = parameters["n_components"], first + then, rows.shape[1]
    online = LEARNERS[parameters["learner"]](*sizes, seed)
    meter.started()
    with meter.timed():
        return follow(online, subjects, parameters, seed)


def ratios(result: Json, subject: int, after: int, label: str = OURS) -> list[float]:
    """Return ours / a new fit, over seeds; subjects are counted from the first turn."""
    found = []
    for rows in series(result, label, "rows"):
        names = [*dict.fromkeys(row["subject"] for row in rows)]
        if subject < len(names):
            wanted = names[subject], after
            found += [
                row["perplexity"] / row["fresh"]
                for row in rows
                if (row["subject"], row["after"]) == wanted
            ]
    return found


def perplexities_after(result: Json, label: str) -> dict[int, float]:
    """Return the median perplexity by documents after the first turn."""
    found: dict[int, list[float]] = {}
    for rows in series(result, label, "rows"):
        for row in rows:
            if row["subject"] == rows[0]["subject"]:
                found.setdefault(row["after"], []).append(row["perplexity"])
    return {after: median(seen) for after, seen in found.items()}


def turn_figures(limits: dict[int, float]) -> Callable[[Json], list[Figure]]:
    def figures(result: Json) -> list[Figure]:
        found = []
        for subject, name in enumerate(("after the turn", "after the way back")):
            for after, limit in limits.items():
                for label in result["cases"]:
                    if not label.startswith(OURS):
                        continue
                    if seen := ratios(result, subject, after, label):
                        text = f"perplexity {after:,} documents {name} / a new fit on them"
                        text += label.removeprefix(OURS)
                        found.append(at_most(text, median(seen), limit, "{:.3f}"))
        for label in result["cases"]:
            middle = perplexities_after(result, label)
            text = f"perplexity {', '.join(f'{n:,}' for n in middle)} documents after the turn"
            values = ", ".join(f"{each:,.0f}" for each in middle.values())
            found.append(Figure(f"{text}, {label}", values))
            spent = median(series(result, label, "learning_seconds"))
            found.append(Figure(f"processor seconds, {label}", f"{spent:,.1f}"))
        ids = series(result, OURS, "ids")
        if len(ids[0]) == 3 and all(ids[0]):
            back = [len({*first} & {*last}) / len(first) for first, _, last in ids]
            found.append(Figure("share of the first ids that are back", f"{median(back):.2f}"))
        return found

    return figures


def turn_planted_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    documents = [4000, 2000] if quick else [30_000, 8000]
    shared = {**PLANTED, "documents": documents, "cores": 1}
    early = () if quick else EARLY
    return [Case(name, "turn_planted", {"learner": name, **shared}) for name in LEARNERS] + [
        Case(
            f"{OURS}, turn at {n:,}",
            "turn_planted",
            {"learner": OURS, **shared, "documents": [n, 4000]},
        )
        for n in early
    ]


def turn_text_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {
        "n_components": 5 if quick else 20,
        "vocabulary_size": VOCABULARY_SIZE,
        "sample": 60_000,
        "documents": [4000, 2000] if quick else [20_000, 8000],
        "cores": 1,
    }
    return [Case(name, "turn_text", {"learner": name, **shared}) for name in LEARNERS]


# new-theme


def new_theme(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Twenty topics; from document 30,000 on a share of the documents is half of a new one."""
    from streamlda.estimator import StreamLDA

    source = planted(parameters, seed)
    topics, share = source.topics(21), parameters["share"]
    rng = source.rng
    lda = StreamLDA(21, random_state=seed)
    meter.started()
    with meter.timed():
        for _ in range(parameters["documents"] // BLOCK):
            lda.partial_fit(source.documents(topics[:20], BLOCK))
        own, distance = 0, math.inf
        while own < parameters["patience"] and distance > 0.5:
            theta = np.hstack([rng.dirichlet(np.full(20, 1 / 20), BLOCK), np.zeros((BLOCK, 1))])
            chosen = rng.random(BLOCK) < share
            theta[chosen] *= 0.5
            theta[chosen, 20] = 0.5
            lda.partial_fit(source.documents(topics, BLOCK, theta))
            own += int(chosen.sum())
            distance = float(np.abs(lda.components_ - topics[20]).sum(axis=1).min())
    return {"own_documents": own, "l1": distance}


THEMES = {0.10: 500, 0.03: 600, 0.01: 1000}


def new_theme_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {**PLANTED, "documents": 6000 if quick else 30_000}
    return [
        Case(f"{share:.0%}", "new_theme", {"share": share, "patience": 4 * limit, **shared})
        for share, limit in THEMES.items()
    ]


def new_theme_figures(result: Json) -> list[Figure]:
    found = []
    for share, limit in THEMES.items():
        if f"{share:.0%}" not in result["cases"]:
            continue
        own = series(result, f"{share:.0%}", "own_documents")
        name = f"documents of its own until a theme of {share:.0%} is a topic within L1 0.5"
        found.append(at_most(name, median(own), limit, "{:,.0f}"))
        found.append(Figure(f"worst seed, {share:.0%}", f"{max(own):,}"))
    return found


# drift


def drift(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Ten topics that turn, by the same little at each block, into ten others."""
    n_components = parameters["n_components"]
    source = planted(parameters, seed)
    start, end = (source.topics(n_components) for _ in range(2))
    n_blocks = parameters["documents"] // BLOCK
    online = LEARNERS[OURS](n_components, parameters["documents"], parameters["n_features"], seed)
    judge, found = Judge(parameters["n_features"]), []
    newest: list[Rows] = []
    meter.started()
    with meter.timed():
        for block in range(n_blocks):
            share = block / n_blocks
            topics = (1 - share) * start + share * end
            rows = source.documents(topics, BLOCK)
            online.learn(rows)
            judge.learn(rows)
            newest = [*newest, rows][-REFIT // BLOCK :]
            if (block + 1) % (n_blocks // 4) == 0:
                tested = source.documents(topics, TESTED)
                ours = judge.perplexity(online.topics()[0], tested)
                fresh = judge.perplexity(fit_anew(n_components, stacked(newest), seed), tested)
                found.append({"documents": (block + 1) * BLOCK, "ours": ours, "fresh": fresh})
    return {"rows": found}


def drift_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [Case(OURS, "drift", {**PLANTED, "documents": 12_000 if quick else 100_000})]


def drift_figures(result: Json) -> list[Figure]:
    runs = series(result, OURS, "rows")
    found = []
    for rows in zip(*runs, strict=True):
        ratio = median(row["ours"] / row["fresh"] for row in rows)
        name = f"perplexity after {rows[0]['documents']:,} documents / a fit of the last {REFIT:,}"
        found.append(at_most(name, ratio, 1.05, "{:.3f}"))
    return found


# young-stream


def young(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Planted documents in blocks, with the topics read after each or never."""
    source = planted(parameters, seed)
    topics = source.topics(parameters["n_components"])
    rows = [source.documents(topics, BLOCK) for _ in range(16)]
    sizes = parameters["n_components"], 16 * BLOCK, parameters["n_features"]
    online = LEARNERS[OURS](*sizes, seed)
    meter.started()
    with meter.timed():
        for part in rows:
            online.learn(part)
            if parameters["read"]:
                online.topics()
        online.topics()
    return {}


def young_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {**PLANTED, "cores": 1}
    return [
        Case(name, "young", {"read": read, **shared})
        for name, read in (("read once", False), ("read 16 times", True))
    ]


def young_figures(result: Json) -> list[Figure]:
    once, often = (median(series(result, case, "cpu_seconds")) for case in result["cases"])
    return [
        at_most("processor seconds, read after each block / once", often / once, 2.0, "{:.2f}"),
        Figure("processor seconds, read once", f"{once:.2f}"),
    ]


TURNS_TASKS = turn_planted, turn_text, new_theme, drift, young

TURNS = [
    Scenario(
        "turn-planted",
        "How soon are ten planted topics found that take the place of ten others, and back?",
        5,
        turn_planted_cases,
        turn_figures({2000: 1.1, 4000: 1.03}),
    ),
    Scenario(
        "turn-text",
        "How soon are topics of one half of a corpus found after those of the other half?",
        5,
        turn_text_cases,
        turn_figures(dict(zip(AFTER, (1.08, 1.04, 1.03), strict=True))),
        needs_corpus=True,
    ),
    Scenario(
        "new-theme",
        "How many documents of its own does a new theme need to become a topic?",
        5,
        new_theme_cases,
        new_theme_figures,
    ),
    Scenario(
        "drift",
        "Are topics followed that change by little over 100,000 documents?",
        5,
        drift_cases,
        drift_figures,
    ),
    Scenario(
        "young-stream",
        "What does it cost to read the topics of a young stream after each block?",
        5,
        young_cases,
        young_figures,
    ),
]
