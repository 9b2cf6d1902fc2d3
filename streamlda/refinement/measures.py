"""Measurements of topics in documents: prevalence, the prior, coherence.

Prevalence is the share of each topic in the tokens of a sample by `topic_proportions`, theta,
corrected by the tokens of each word in all documents (regression estimator, Cochran (1977),
"Sampling techniques", chapter 7)::

    u_k = sum_w f_w r_wk     f_w share of a word in the tokens
                             r_wk = mean(theta)_k phi_kw / sum_j mean(theta)_j phi_jw
    q_k = mean(theta)_k + b_k (u_k of all - mean(u)_k)

with b_k the slope of theta_k on u_k over the documents of the sample. The prior alpha is fitted to
topics drawn for the tokens of a sample, by Minka's fixed point: expected ones make every document
mix all topics a little, and alpha_0 grows with every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import (
    MAX_TOPICS,
    NO_SCORES,
    draw_topics,
    expect_topics,
    resample_topics,
    tally_topics,
)
from streamlda.model.coherence import topic_npmi
from streamlda.model.inference import MAX_ITERATIONS, fold_in_words, word_major
from streamlda.model.topic_model import TopicModel
from streamlda.refinement import gibbs
from streamlda.refinement.sample import Drawn, Sample
from streamlda.refinement.stepwise_em import MOST_RESPONSIBILITIES
from streamlda.spectral.topics import ALPHA_0_RANGE

Array = NDArray[np.float64]

#: Documents, and counts, of the sample by tokens; half as many to as many.
SAMPLE_DOCUMENTS, SAMPLE_ENTRIES = 3000, 2**18

#: Documents that prevalence is measured in at first, and the relative standard error that no topic
#: of `LEAST_SHARE` may have: else it is measured in as many as that takes, or all.
FIRST_DOCUMENTS, LARGEST_ERROR, LEAST_SHARE = 700, 0.12, 0.005

#: Words of all documents that are looked at together.
WORDS_AT_ONCE = 4096

#: A correction by more than this factor is not one of sampling error.
MOST_CORRECTION = 2.0

#: Documents, and counts, of the sample that coherence is counted in.
COHERENCE_DOCUMENTS, COHERENCE_ENTRIES = 20_000, 2**20

#: Distance to the optimum where inference of a sample is done: within 1.5 % of that at 1e-5.
INFERENCE_TOLERANCE = 0.03

#: Documents that alpha is fitted to, and how often their topics are drawn.
ALPHA_DOCUMENTS, ALPHA_SWEEPS = 250, 2

#: The same where alpha_0 is free: it settles from the tenth draw on.
FREE_ALPHA_DOCUMENTS, FREE_ALPHA_SWEEPS = 1000, 10

#: Longer documents count as if they had this many tokens there, or one of each word.
LONGEST_TOKENS = 1000


@dataclass(slots=True)
class Samples:
    """The samples of one stream: by tokens for prevalence and alpha, by documents for coherence."""

    tokens: Sample = field(default_factory=lambda: Sample(SAMPLE_DOCUMENTS, SAMPLE_ENTRIES))
    documents: Sample = field(
        default_factory=lambda: Sample(COHERENCE_DOCUMENTS, COHERENCE_ENTRIES, of_tokens=False)
    )

    @classmethod
    def of(cls, documents: DocumentBatch) -> Self:
        """Return the samples of all these documents that have tokens."""
        made = cls()
        for part in documents.blocks():
            made.add(part.where(part.known))
        return made

    def add(self, batch: DocumentBatch) -> None:
        """Take what is due from the next documents, which have tokens."""
        self.tokens.add(batch)
        self.documents.add(batch)


def measured(model: TopicModel, samples: Samples, *, fit_alpha: bool = False) -> TopicModel:
    """Return a model with what `measurements` found."""
    return replace(model, **measurements(model, samples, fit_alpha=fit_alpha))


def measurements(model: TopicModel, samples: Samples, *, fit_alpha: bool = False) -> dict[str, Any]:
    """Return prevalence and coherence as members of a model; nothing without documents.

    With `fit_alpha` there is a prior that fits: with the same alpha_0, or with another where the
    settings leave it open.
    """
    if not len(samples.tokens):
        return {}
    drawn = samples.tokens.drawn()
    alpha, said = fitted_alpha(model, drawn) if fit_alpha else (model.alpha, {})
    found = inferred_in_few(model, drawn, alpha)
    counted = samples.documents.drawn()
    said |= {
        "prevalence_documents": len(found.theta),
        "topic_npmi": topic_npmi(model.components, counted.documents),
        "topic_npmi_documents": len(counted.documents),
    }
    diagnostics = {**model.diagnostics, **said}
    return {"alpha": alpha, "prevalence": found.prevalence, "diagnostics": diagnostics}


class Inferred(NamedTuple):
    """Documents of a sample, their proportions, and the share of topics in the whole stream.

    With the largest relative standard error of the topics of `LEAST_SHARE` or more.
    """

    drawn: Drawn
    theta: Array
    prevalence: Array
    error: float


def inferred_in_few(
    model: TopicModel,
    drawn: Drawn,
    alpha: Array,
    most: int = FIRST_DOCUMENTS,
    error: float = LARGEST_ERROR,
) -> Inferred:
    """Infer in some documents of a sample, and in more of them where the error is too large."""
    found = inferred(model, drawn.fewer(most), alpha)
    wanted = math.ceil(len(found.theta) * (found.error / error) ** 2)
    return found if wanted <= len(found.theta) else inferred(model, drawn.fewer(wanted), alpha)


def inferred(model: TopicModel, drawn: Drawn, alpha: Array) -> Inferred:
    """Return the proportions of documents, about as `TopicModel.transform`, and prevalence.

    With this prior. Time O(K (V + nnz)).
    """
    documents, weights = drawn.documents, drawn.hits / drawn.hits.sum()
    topics = model.smoothed
    words, ids = word_major(documents, topics)
    theta = fold_in_words(documents, words, ids, alpha, MAX_ITERATIONS, INFERENCE_TOLERANCE)
    mean = weighted(weights, theta)
    shares, off = mean, theta - mean
    if drawn.totals is not None:
        entries = (documents.counts, ids, documents.row_pointers)
        shape = (len(documents), len(words))
        rows: Any = scipy.sparse.csr_matrix(entries, shape=shape, copy=False)
        found = (rows @ _responsibilities(words, mean)) / documents.lengths[:, None]
        center = weighted(weights, found)
        found -= center
        variance = weighted(weights, found**2)
        slope = weighted(weights, found * off) / np.where(variance > 0, variance, 1.0)
        off -= slope * found
        of_all = np.zeros(len(mean))
        frequencies = drawn.totals / drawn.totals.sum()
        for start in range(0, len(frequencies), WORDS_AT_ONCE):
            at = slice(start, start + WORDS_AT_ONCE)
            of_all += weighted(frequencies[at], _responsibilities(topics[:, at].T, mean))
        shares = mean + slope * (of_all - center)
        shares = np.clip(shares, mean / MOST_CORRECTION, mean * MOST_CORRECTION)
    errors = np.sqrt(weighted(weights**2, off**2)) / shares
    shares = shares / shares.sum()
    return Inferred(drawn, theta, shares, float(errors[shares >= LEAST_SHARE].max(initial=0.0)))


def _responsibilities(words: Array, mean: Array) -> Array:
    """Return r of words, (n, K), by their topics; a word that no topic has is of none."""
    found: Array = words * mean
    total = found.sum(axis=1, keepdims=True)
    found /= np.where(total > 0, total, 1.0)
    return found


def weighted(weights: Array, rows: Array) -> Array:
    """Return the weighted sum of some rows, each added to those before: BLAS rounds by address."""
    found: Array = (weights[:, None] * rows).sum(axis=0)
    return found


def _parts(
    documents: DocumentBatch, ids: NDArray[np.int32], n_topics: int
) -> Iterator[tuple[DocumentBatch, NDArray[np.int32]]]:
    """Cut documents and the rows of their words into runs of bounded responsibilities."""
    start = 0
    for part in documents.blocks(MOST_RESPONSIBILITIES // n_topics):
        yield part, ids[start : start + len(part.counts)]
        start += len(part.counts)


def fitted_alpha(
    model: TopicModel, drawn: Drawn, less_than: float = 0.0
) -> tuple[Array, dict[str, Any]]:
    """Return alpha that fits the documents, and diagnostics; fractions of counts are rounded.

    Draws of a free alpha_0 end early once its sum has fallen from one draw to the next and is
    `less_than` a number. Equal documents give an equal alpha. Time O(tokens (topics of a document +
    log K)) a sweep.
    """
    K = model.n_components
    if K > MAX_TOPICS:
        return model.alpha, {}
    free = model.settings.get("alpha_0", 1.0) is None
    alpha_0 = 1.0 if free else model.alpha_0
    alpha = np.full(K, alpha_0 / K)
    # Tokens were drawn alike; so that documents are, those of many tokens count for less.
    alike = drawn._replace(hits=drawn.hits / drawn.documents.lengths)
    most, sweeps = ALPHA_DOCUMENTS, ALPHA_SWEEPS
    if free:
        most, sweeps = FREE_ALPHA_DOCUMENTS, FREE_ALPHA_SWEEPS
    chosen = alike.fewer(min(most, len(drawn.hits) // 2)).documents
    topics = model.smoothed
    found, ids = word_major(chosen, topics)
    words, prior = found.astype(np.float32), alpha.astype(np.float32)
    shrunk = np.minimum(1.0, LONGEST_TOKENS / chosen.lengths)
    counts = chosen.counts * np.repeat(shrunk, np.diff(chosen.row_pointers))
    counts = np.maximum(np.rint(counts), 1).astype(np.int64)
    tokens = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    labels = np.empty(tokens[-1], dtype=np.int16)
    at = 0
    for part, entries in _parts(chosen, ids, K):
        gamma = np.empty((len(entries), K), dtype=np.float32)
        expect_topics(part.counts, entries, part.row_pointers, words, prior, 5, gamma, NO_SCORES)
        own = tokens[at : at + len(entries) + 1]
        draw_topics(gamma, part.row_pointers, own - own[0], 0, 0, labels[own[0] : own[-1]])
        at += len(entries)
    lengths = np.bincount(np.diff(tokens[chosen.row_pointers]))
    longer = np.cumsum(lengths[::-1])[::-1][1:]
    before = 0.0
    for sweep in range(sweeps):
        running = np.cumsum(words * alpha.astype(np.float32), axis=1)
        resample_topics(ids, chosen.row_pointers, tokens, words, running, 0, 0, sweep + 1, labels)
        at_least = np.zeros((K, len(longer)), dtype=np.int64)
        tally_topics(chosen.row_pointers, tokens, labels, at_least)
        alpha = gibbs.fit_alpha(at_least, longer, alpha, alpha_0=None if free else alpha_0)
        if alpha.sum() < min(before, less_than):
            break
        before = alpha.sum()
    low, high = ALPHA_0_RANGE
    if not free or low < alpha.sum() < high:
        return alpha, {}
    end = low if alpha.sum() <= low else high
    warnings = [
        *model.diagnostics.get("warnings", []),
        f"alpha_0 must lie between {low} and {high} to be estimated, got an end of the range: "
        f"alpha_0={end}; set alpha_0 to a number",
    ]
    return alpha * (end / alpha.sum()), {"warnings": warnings}
