"""Documents in the order of their dates: each month is scored before it is learned."""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
import time
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.contenders import HOFFMAN, Topics, normalised
from bench.contenders_elsewhere import RIVER_FOLDER
from bench.data import read_all
from bench.kinds import Case, Figure, Json, Scenario, at_most, series
from bench.measure import HELD_OUT_EVERY, VOCABULARY_SIZE
from bench.styles import STYLES, name_lines

if TYPE_CHECKING:
    from bench.measure import Meter

#: Documents that are learned before the first month is scored, and scored of each, evenly spaced.
FIRST, SCORED = 2000, 100

OURS = "streamlda"


class Online(NamedTuple):
    """What learns from one month after another, and its topics of the moment."""

    learn: Callable[[Any], Any]
    topics: Callable[[], Topics]
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

    model = LatentDirichletAllocation(n_components, total_samples=n_documents, random_state=seed)
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

    def topics() -> Topics:
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


def prequential(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Score each month by topics of those before, then learn it; the topics are read each time."""
    from streamlda.model.evaluation import document_completion

    documents = read_all(inputs["counts"], HELD_OUT_EVERY)
    dates = months(inputs["corpus"])
    if parameters["documents"] is not None:
        documents, dates = (
            documents.rows(0, parameters["documents"]),
            dates[: parameters["documents"]],
        )
    sizes = parameters["n_components"], len(documents), documents.n_features
    online = LEARNERS[parameters["learner"]](*sizes, seed)
    meter.started()
    seen, start = np.zeros(documents.n_features), 0
    learning, reading, scored = 0.0, 0.0, []
    with meter.timed():
        for month, members in groupby(dates):
            stop = start + len(list(members))
            batch = documents.rows(start, stop)
            if start >= FIRST:
                before = time.process_time()
                components, alpha = online.topics()
                reading += time.process_time() - before
                chosen = np.unique(np.linspace(0, len(batch) - 1, SCORED).astype(np.intp))
                found = document_completion(
                    batch.take(chosen), components, alpha, seen / seen.sum()
                )
                nats = found.log_likelihood_nats, found.unigram_log_likelihood_nats
                scored.append([month, found.held_out_tokens, *nats])
            before = time.process_time()
            online.learn(batch.to_csr())
            learning += time.process_time() - before
            seen += np.bincount(batch.word_ids, batch.counts, minlength=len(seen))
            start = stop
    return {
        "documents": len(documents),
        "learning_seconds": learning,
        "reading_seconds": reading,
        "months": scored,
    }


PREQUENTIAL_TASKS = (prequential,)


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    shared = {
        "n_components": 10 if quick else 50,
        "vocabulary_size": VOCABULARY_SIZE,
        "documents": 6000 if quick else None,
        "cores": 1,
    }
    return [Case(name, "prequential", {"learner": name, **shared}) for name in LEARNERS]


def perplexity(rows: list[list[Any]], column: int = 2) -> float:
    """Return that of all scored tokens, of the topics (column 2) or the word frequencies (3)."""
    return math.exp(-sum(row[column] for row in rows) / sum(row[1] for row in rows))


def overall(result: Json, label: str, column: int = 2) -> float:
    return median(perplexity(rows, column) for rows in series(result, label, "months"))


def figures(result: Json) -> list[Figure]:
    ours = overall(result, OURS)
    found = [
        at_most(f"perplexity of the next month, {OURS} / {label}", ratio, 1.0, "{:.3f}")
        for label in result["cases"]
        if label != OURS and (ratio := ours / overall(result, label))
    ]
    for label in result["cases"]:
        spent = [
            median(series(result, label, f"{what}_seconds")) for what in ("learning", "reading")
        ]
        found.append(
            Figure(f"perplexity of the next month, {label}", f"{overall(result, label):,.0f}")
        )
        found.append(
            Figure(
                f"processor seconds, {label}: learning, reading topics every month",
                f"{spent[0]:,.1f}, {spent[1]:,.1f}",
            )
        )
    without = Figure(
        "the same by the frequencies of all words before", f"{overall(result, OURS, 3):,.0f}"
    )
    return [*found, without]


def by_year(result: Json, label: str, column: int = 2) -> dict[str, float]:
    """Return the perplexity of each year, of the first repeat."""
    rows = series(result, label, "months")[0]
    years = groupby(rows, key=lambda row: row[0][:4])
    return {year: perplexity(list(members), column) for year, members in years}


def plot(result: Json, folder: Path) -> None:
    """Draw prequential.png: perplexity of each year by what was learned until then."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    for label in result["cases"]:
        found = by_year(result, label)
        axis.plot(
            [int(year) for year in found],
            [*found.values()],
            label=label,
            **STYLES[label].keywords(),
        )
    without = by_year(result, OURS, 3)
    style = STYLES["not private"].keywords()
    axis.plot(
        [int(year) for year in without], [*without.values()], label="word frequencies", **style
    )
    axis.set(ylabel="perplexity of the next month")
    name_lines([axis])
    figure.savefig(folder / "prequential.png", dpi=100)
    pyplot.close(figure)


PREQUENTIAL = [
    Scenario(
        "prequential-arxiv",
        "How well does a stream in order of date predict its next month, beside other libraries?",
        1,
        cases,
        figures,
        needs_corpus=True,
        details=lambda result: "![Perplexity of the next month](plots/prequential.png)\n",
    )
]
