"""Documents that are measured on, and how good topics are; the same for every contender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from streamlda.documents import DocumentBatch

Json = dict[str, Any]

#: Documents planted after the training documents, to be completed.
PLANTED_HELD_OUT = 2000


def read_all(path: str, every: int) -> DocumentBatch:
    """Return all documents of a corpus in their order, those held out among the others."""
    from bench.corpus import read_counts
    from streamlda.documents import DocumentBatch

    train, held_out = (read_counts(path, part) for part in ("train", "held_out"))
    rows = np.arange(len(train) + len(held_out))
    out = rows % every == every - 1
    order = np.empty(len(rows), dtype=np.intp)
    order[~out], order[out] = rows[: len(train)], rows[len(train) :]
    return DocumentBatch.joined([train, held_out]).take(order)


def quality(
    train: DocumentBatch, held_out: DocumentBatch, components: Any, alpha: Any, truth: Any
) -> Json:
    """Judge any contender's topics by the same code, split and background."""
    from streamlda.model import evaluation

    completion = completed(train, held_out, components, alpha)
    found = {
        "perplexity": completion.perplexity,
        "unigram_perplexity": completion.unigram_perplexity,
        "held_out_documents": completion.documents,
        **coherence(train, components),
    }
    if truth is not None:
        found["l1_error"] = evaluation.matched_l1_error(truth, components).mean
    return found


def completed(train: DocumentBatch, held_out: DocumentBatch, components: Any, alpha: Any) -> Any:
    """Return the completion of held-out documents, smoothed with the words of the training."""
    from streamlda.model import evaluation

    background = np.bincount(train.word_ids, train.counts, minlength=train.n_features)
    return evaluation.document_completion(
        held_out, components, alpha, background / background.sum()
    )


def coherence(train: DocumentBatch, components: Any) -> Json:
    """Return NPMI and diversity of the ten first words of each topic; 0 without topics."""
    from streamlda.model import evaluation
    from streamlda.model.coherence import NpmiCounter

    if not len(components):
        return {"npmi": 0.0, "diversity": 0.0}
    top = evaluation.top_words(components, 10)
    counter = NpmiCounter(top)
    counter.add(train)
    return {"npmi": counter.result().mean, "diversity": evaluation.topic_diversity(top)}


def planted(parameters: Json, seed: int) -> Any:
    from streamlda.simulate import PlantedLDA

    names = ("n_components", "n_features", "alpha_0", "topic_concentration", "mean_length")
    return PlantedLDA(**{name: parameters[name] for name in names}, seed=seed)


def planted_counts(parameters: Json, seed: int) -> tuple[DocumentBatch, DocumentBatch, Any]:
    corpus = planted(parameters, seed)
    documents = corpus.documents(parameters["documents"])
    return documents, corpus.documents(PLANTED_HELD_OUT), corpus.components


def zipf_documents(n: int, n_features: int, nnz: int, rng: np.random.Generator) -> DocumentBatch:
    """Documents of exactly `nnz` different words, frequent and rare ones as in text (p ~ 1/rank).

    One word is drawn from each of `nnz` ranges of ranks of equal weight; ids are shuffled.
    """
    from streamlda.documents import DocumentBatch

    edges = np.rint(n_features ** (np.arange(nnz + 1) / nnz)).astype(np.int64)
    edges[0] = 0
    for j in range(1, nnz + 1):
        edges[j] = max(edges[j], edges[j - 1] + 1)
    ranks = rng.integers(edges[:-1], edges[1:], size=(n, nnz))
    ids = np.sort(rng.permutation(edges[-1])[ranks], axis=1)
    counts = rng.integers(1, 3, size=n * nnz).astype(np.float64)
    pointers = np.arange(n + 1) * nnz
    return DocumentBatch(counts, ids.astype(np.int32).ravel(), pointers, n_features)


def zipf_topic_documents(n: int, n_features: int, rng: np.random.Generator) -> DocumentBatch:
    """Documents of topics whose words are as frequent as in text, 80 tokens each on average.

    Topics are Dirichlet(30 p) with p ~ 1/rank, proportions Dirichlet of sum 1; twenty topics.
    """
    from streamlda.documents import DocumentBatch

    n_topics, mean_length = 20, 80
    frequency = 1 / np.arange(1.0, n_features + 1)
    running = np.cumsum(rng.dirichlet(30 * frequency / frequency.sum(), n_topics), axis=1)
    lengths = np.maximum(3, rng.poisson(mean_length, n))
    row = np.repeat(np.arange(n), lengths)
    mixtures = np.cumsum(rng.dirichlet(np.full(n_topics, 1 / n_topics), n), axis=1)
    # All documents in one sorted row: that of document i runs from i to i + 1.
    ends = (mixtures + np.arange(n)[:, None]).ravel()
    found = np.searchsorted(ends, row + rng.random(len(row)))
    topic = np.clip(found - n_topics * row, 0, n_topics - 1)
    words = np.empty(len(row), dtype=np.int64)
    for k in range(n_topics):
        chosen = topic == k
        words[chosen] = np.searchsorted(running[k], rng.random(int(chosen.sum())))
    np.minimum(words, n_features - 1, out=words)
    cells, counts = np.unique(row * n_features + words, return_counts=True)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(cells // n_features, minlength=n))])
    ids = (cells % n_features).astype(np.int32)
    return DocumentBatch(counts.astype(np.float64), ids, pointers, n_features)
