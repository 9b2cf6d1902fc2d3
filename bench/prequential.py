"""Documents in the order of their dates: a part of each block is scored before it is learned."""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.contenders import HOFFMAN, normalised
from bench.contenders_elsewhere import RIVER_FOLDER
from bench.data import read_all
from bench.kinds import Case, Figure, Json, Scenario, at_most, series
from bench.measure import HELD_OUT_EVERY, VOCABULARY_SIZE
from bench.styles import SERIES, STYLES, name_lines

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.model.evaluation import CompletionResult

OURS = "streamlda"
#: Documents of a block, which is learned at once, of a refit, and between two.
BLOCK, REFIT, EVERY = 1000, 20_000, 5000
#: Documents of a batch of an online method.
BATCH = HOFFMAN["batch_documents"]

Rows = Any
Topics = NDArray[np.float64]


class Online(NamedTuple):
    """A learner of one block after another, and its topics and alpha of the moment."""

    learn: Callable[[Any], Any]
    topics: Callable[[], tuple[Topics, Any]]
    #: Ids of the topics, where they have any.
    ids: Callable[[], list[int]] = list


def streamlda(n_components: int, n_documents: int, n_features: int, seed: int) -> Online:
    from streamlda.estimator import StreamLDA

    lda = StreamLDA(n_components, random_state=seed)
    return Online(
        lda.partial_fit,
        lambda: (lda.components_, lda.alpha_),
        lambda: lda.diagnostics_.get("topic_ids", []),
    )


def gensim(n_components: int, n_documents: int, n_features: int, seed: int) -> Online:
    from gensim.matutils import Sparse2Corpus  # type: ignore[import-untyped]
    from gensim.models import LdaModel  # type: ignore[import-untyped]

    words = {i: str(i) for i in range(n_features)}
    size, *others = HOFFMAN.items()
    options = dict(others) | {"chunksize": size[1], "random_state": seed}
    model = LdaModel(None, num_topics=n_components, id2word=words, **options)
    return Online(
        lambda X: model.update(Sparse2Corpus(X.astype("int32"), documents_columns=False)),
        lambda: (normalised(model.get_topics()), model.alpha.astype(np.float64)),
    )


def scikit_learn(n_components: int, n_documents: int, n_features: int, seed: int) -> Online:
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        n_components, batch_size=BATCH, total_samples=n_documents, random_state=seed
    )
    alpha = np.full(n_components, 1 / n_components)
    return Online(model.partial_fit, lambda: (normalised(model.components_), alpha))


def river(n_components: int, n_documents: int, n_features: int, seed: int) -> Online:
    """LDA of river, one document at a time; it numbers words, from 1, as they come."""
    sys.path.append(os.environ[RIVER_FOLDER])
    from river.preprocessing import LDA  # type: ignore[import-not-found]

    model = LDA(
        n_components=n_components,
        number_of_documents=n_documents,
        maximum_size_vocabulary=n_features + 1,
        seed=seed,
    )

    def learn(rows: Any) -> None:
        for start, end in pairwise(rows.indptr.tolist()):
            words, counts = rows.indices[start:end].tolist(), rows.data[start:end].tolist()
            model.learn_one(dict(zip(words, counts, strict=True)))

    def topics() -> tuple[Topics, Any]:
        found = np.full((n_components, n_features), 1e-12)
        columns = [model.index_to_word[i] for i in range(1, model.truncation_size)]
        for k, row in enumerate(found):
            # Sticks of a Dirichlet process, by their means.
            broken = model.nu_1[k] / (model.nu_1[k] + model.nu_2[k])
            left = np.concatenate([[1.0], np.cumprod(1 - broken)[:-1]])
            row[columns] += (broken * left)[1:]
        return normalised(found), np.full(n_components, 1 / n_components)

    return Online(learn, topics)


LEARNERS = {OURS: streamlda, "gensim": gensim, "scikit-learn": scikit_learn}


def months(path: str) -> list[str]:
    """Return year and month of every document, with which its `id` begins."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = [str(json.loads(line).get("id", ""))[:7] for line in lines if line.strip()]
    dated = [len(m) == 7 and m[:4].isdigit() and m[4] == "-" and m[5:].isdigit() for m in found]
    if not all(dated) or found != sorted(found):
        first = dated.index(False) if not all(dated) else 0
        raise SystemExit(
            "documents must be in order of date, with ids that begin with YYYY-MM, got "
            f"corpus={Path(path).name} document={first}"
        )
    return found


class Judge:
    """Perplexity of held-out documents by topics, smoothed with the words that were learned."""

    def __init__(self, n_features: int) -> None:
        self.seen = np.zeros(n_features)

    def learn(self, rows: Rows) -> None:
        self.seen += np.asarray(rows.sum(axis=0)).ravel()

    def perplexity(self, topics: Topics, rows: Rows) -> float:
        return float(self.complete(topics, rows).perplexity)

    def complete(self, topics: Topics, rows: Rows) -> CompletionResult:
        from streamlda.documents import DocumentBatch
        from streamlda.model.evaluation import document_completion

        alpha = np.full(len(topics), 1 / len(topics))
        background = (self.seen + 1e-9) / (self.seen + 1e-9).sum()
        return document_completion(DocumentBatch.from_matrix(rows), topics, alpha, background)


def fit_anew(n_components: int, rows: Rows, seed: int) -> Topics:
    from streamlda.estimator import StreamLDA

    found: Topics = StreamLDA(n_components, random_state=seed).fit(rows).components_
    return found


def blocks(rows: Rows) -> Iterator[Rows]:
    return (rows[start : start + BLOCK] for start in range(0, rows.shape[0], BLOCK))


def stacked(parts: list[Rows]) -> Rows:
    from scipy.sparse import vstack

    return vstack(parts, format="csr")


def refits(n_components: int, n_documents: int, n_features: int, seed: int) -> Online:
    """A new fit of the newest documents, again and again."""
    kept: list[Rows] = []
    made: list[Topics] = []
    learned = [0]

    def learn(rows: Rows) -> None:
        kept.append(rows)
        learned[0] += rows.shape[0]
        while sum(part.shape[0] for part in kept[1:]) >= REFIT:
            del kept[0]
        if learned[0] % EVERY < rows.shape[0]:
            made[:] = [fit_anew(n_components, stacked(kept), seed)]

    return Online(learn, lambda: (made[0], None))


def monthly(dates: list[str], n_components: int, seed: int) -> Online:
    """A new fit of all documents of a month, when it is over."""
    kept: list[Rows] = []
    made: list[Topics] = []
    at = [0]

    def learn(rows: Rows) -> None:
        kept.append(rows)
        start, at[0] = at[0], at[0] + rows.shape[0]
        if dates[start] != dates[min(at[0], len(dates) - 1)]:
            made[:] = [fit_anew(n_components, stacked(kept), seed)]
            kept.clear()

    def topics() -> tuple[Topics, None]:
        # The first month is not over when the first documents are predicted.
        return (made[0] if made else fit_anew(n_components, stacked(kept), seed)), None

    return Online(learn, topics)


REFITS, MONTHLY = f"a fit of the last {REFIT:,}, each {EVERY:,}", "a fit each month"
#: river takes 40 ms a document of 8000 words: it gets the first documents alone.
RIVER, FEW = "river", 8000


def dated(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Documents in order of date: a tenth of each block is predicted before it is learned.

    Topics are read as often as others are fitted. Returns tokens and log-likelihoods by year.
    """
    rows = read_all(inputs["counts"], HELD_OUT_EVERY).to_csr()[: parameters["documents"]]
    dates = months(inputs["corpus"])[: rows.shape[0]]
    sizes = parameters["n_components"], rows.shape[0], rows.shape[1]
    learner = parameters["learner"]
    if learner == MONTHLY:
        online = monthly(dates, parameters["n_components"], seed)
    else:
        online = (LEARNERS | {REFITS: refits, RIVER: river})[learner](*sizes, seed)
    judge, spent, years = Judge(rows.shape[1]), 0.0, dict[str, list[float]]()
    meter.started()
    with meter.timed():
        for number, block in enumerate(blocks(rows)):
            if number * BLOCK >= EVERY:
                if number * BLOCK % EVERY == 0:
                    before = time.process_time()
                    topics = online.topics()[0]
                    spent += time.process_time() - before
                found = judge.complete(topics, block[::10])
                nats = found.log_likelihood_nats, found.unigram_log_likelihood_nats
                year, of_block = dates[number * BLOCK][:4], (found.held_out_tokens, *nats)
                before_it = years.get(year, (0, 0.0, 0.0))
                years[year] = [a + b for a, b in zip(before_it, of_block, strict=True)]
            before = time.process_time()
            online.learn(block)
            spent += time.process_time() - before
            judge.learn(block)
    return {"years": years, "learning_seconds": spent}


PREQUENTIAL_TASKS = (dated,)


def dated_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {
        "n_components": 5 if quick else 20,
        "vocabulary_size": VOCABULARY_SIZE,
        "documents": 8000 if quick else 100_000,
        "cores": 1,
    }
    few = [OURS, RIVER] if RIVER_FOLDER in os.environ and not quick else []
    return [
        Case(name, "dated", {"learner": name, **shared}) for name in (*LEARNERS, REFITS, MONTHLY)
    ] + [Case(first(name), "dated", {"learner": name, **shared, "documents": FEW}) for name in few]


def first(learner: str) -> str:
    return f"{learner}, the first {FEW:,}"


def perplexity(years: Iterable[list[float]], column: int = 1) -> float:
    """Return that of all scored tokens, of the topics (column 1) or the word frequencies (2)."""
    rows = list(years)
    return math.exp(-sum(row[column] for row in rows) / sum(row[0] for row in rows))


def overall(result: Json, label: str, column: int = 1) -> float:
    return median(perplexity(run.values(), column) for run in series(result, label, "years"))


def failed(result: Json, label: str) -> bool:
    """Return whether topics predict no better than the frequencies of the words before."""
    return overall(result, label) >= overall(result, label, 2)


def dated_figures(result: Json) -> list[Figure]:
    """Judge this project beside the others, but beside none that failed."""
    spent = {label: median(series(result, label, "learning_seconds")) for label in result["cases"]}
    found = []
    for label in (REFITS, *(each for each in result["cases"] if each not in (OURS, REFITS))):
        own, limit = OURS, 1.02 if label == REFITS else 1.0
        if label == first(OURS):
            continue
        if label == first(RIVER):
            own = first(OURS)
        name = f"perplexity / {label}"
        if failed(result, label):
            found.append(Figure(name, "not judged: it **failed**"))
        else:
            ratio = overall(result, own) / overall(result, label)
            found.append(at_most(name, ratio, limit, "{:.3f}"))
    share = spent[OURS] / spent[REFITS]
    found.append(at_most(f"processor seconds / {REFITS}", share, 0.25, "{:.2f}"))
    for label in result["cases"]:
        mark = " (**failed**)" if failed(result, label) else ""
        text = f"perplexity, processor seconds, {label}{mark}"
        found.append(Figure(text, f"{overall(result, label):,.0f}, {spent[label]:,.1f}"))
    without = f"{overall(result, OURS, 2):,.0f}"
    return [*found, Figure("perplexity of word frequencies; who has no less has failed", without)]


def plot(result: Json, folder: Path) -> None:
    """Draw prequential.png: perplexity of each year by what was learned until then."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    others = iter(SERIES[3:])
    whole = [label for label in result["cases"] if not label.endswith(f" {FEW:,}")]
    for label, column, name in (
        *((each, 1, each) for each in whole),
        (OURS, 2, "word frequencies"),
    ):
        years = series(result, label, "years")[0]
        known = "not private" if column == 2 else label
        style = STYLES[known] if known in STYLES else next(others)
        values = [perplexity([row], column) for row in years.values()]
        axis.plot([*map(int, years)], values, label=name, **style.keywords())
    axis.set(ylabel="perplexity of the next documents")
    name_lines([axis])
    figure.savefig(folder / "prequential.png", dpi=100)
    pyplot.close(figure)


PREQUENTIAL = [
    Scenario(
        "dated",
        "Does a stream predict the next documents as well as fits of the newest, and for less?",
        3,
        dated_cases,
        dated_figures,
        needs_corpus=True,
        details=lambda result: "![Perplexity of the next documents](plots/prequential.png)\n",
    ),
]
