"""Measurements of topics in documents: prevalence, the prior, coherence.

Prevalence is the mean of `topic_proportions`, theta, over the documents of every d-th token. The
prior alpha is fitted to topics drawn for the tokens of some of these documents, by Minka's fixed
point: expected ones make every document mix all topics a little, and alpha_0 grows with every step.
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import MAX_TOPICS, resample_topics
from streamlda.model.coherence import topic_npmi
from streamlda.model.inference import fold_in_words, word_major
from streamlda.model.topic_model import TopicModel
from streamlda.refinement import gibbs
from streamlda.refinement.sample import Sample, SampledDocuments
from streamlda.spectral.topics import ALPHA_0_RANGE
from streamlda.utils.arrays import Array

#: Documents, and counts, of a sample by tokens: shares of half a percent within about a fifth.
SAMPLE_DOCUMENTS, SAMPLE_ENTRIES = 6000, 2**19

#: Documents, and counts, of the sample that coherence is counted in.
COHERENCE_DOCUMENTS, COHERENCE_ENTRIES = 20_000, 2**20

#: Distance to the optimum where inference of a sample is done: within 1.5 % of that at 1e-5.
INFERENCE_TOLERANCE = 0.03

#: How often the topics of documents that alpha is fitted to are drawn.
ALPHA_SWEEPS = 10


class Samples:
    """The samples of one stream: by tokens for prevalence and alpha, by documents for coherence.

    They may begin behind others, of so many documents and tokens.
    """

    def __init__(self, documents: float = 0.0, tokens: float = 0.0) -> None:
        self.tokens = Sample(SAMPLE_DOCUMENTS, SAMPLE_ENTRIES, begin=tokens)
        limits = COHERENCE_DOCUMENTS, COHERENCE_ENTRIES
        self.documents = Sample(*limits, of_tokens=False, begin=documents)

    @classmethod
    def of(cls, documents: DocumentBatch) -> Self:
        """Return the samples of all these documents that have tokens."""
        made = cls()
        for part in documents.blocks():
            made.add(part.where(part.nonempty))
        return made

    def add(self, batch: DocumentBatch) -> None:
        """Take what is due from the next documents, which have tokens."""
        self.tokens.add(batch)
        self.documents.add(batch)


def add_measurements(model: TopicModel, samples: Samples, *, fit_alpha: bool = False) -> TopicModel:
    """Return a model with what `measurements` found."""
    return replace(model, **measurements(model, samples, fit_alpha=fit_alpha))


def measurements(model: TopicModel, samples: Samples, *, fit_alpha: bool = False) -> dict[str, Any]:
    """Return prevalence and coherence as members of a model; nothing without documents.

    With `fit_alpha` there is a prior that fits: with the same alpha_0, or with another where the
    settings leave it open.
    """
    if not (len(samples.tokens) and len(samples.documents)):
        return {}
    drawn = samples.tokens.collect()
    alpha, said = fit_alpha_to(model, drawn) if fit_alpha else (model.alpha, {})
    counted = samples.documents.collect().documents
    said |= {
        "prevalence_documents": len(drawn.documents),
        "topic_npmi": topic_npmi(model.components, counted),
        "topic_npmi_documents": len(counted),
    }
    shares, diagnostics = infer_prevalence(model, drawn, alpha), {**model.diagnostics, **said}
    return {"alpha": alpha, "prevalence": shares, "diagnostics": diagnostics}


def infer_prevalence(model: TopicModel, sample: SampledDocuments, alpha: Array) -> Array:
    """Return the share of each topic in the tokens of a stream, by some of its documents."""
    words, ids = word_major(sample.documents, model.components, model.background)
    theta = fold_in_words(sample.documents, words, ids, alpha, INFERENCE_TOLERANCE)
    # Row by row: BLAS rounds by address.
    shares = (sample.hits[:, None] * theta).sum(axis=0)
    found: Array = shares / shares.sum()
    return found


def fit_alpha_to(model: TopicModel, sample: SampledDocuments) -> tuple[Array, dict[str, Any]]:
    """Return alpha that fits the documents, and diagnostics; fractions of counts are rounded.

    Equal documents give an equal alpha. Time O(tokens (topics of a document + log K)) a sweep.
    """
    K = model.n_components
    if K > MAX_TOPICS:
        return model.alpha, {}
    free = model.settings.get("alpha_0", 1.0) is None
    alpha_0 = 1.0 if free else model.alpha_0
    alpha = np.full(K, alpha_0 / K)
    # Tokens were drawn alike; so that documents are, those of many tokens count for less.
    alike = sample._replace(hits=sample.hits / sample.documents.lengths)
    chosen = alike.fewer(min(gibbs.ALPHA_DOCUMENTS, len(sample.hits) // 2)).documents
    found, ids = word_major(chosen, model.components, model.background)
    words = found.astype(np.float32)
    shrunk = np.minimum(1.0, gibbs.LONGEST_TOKENS / chosen.lengths)
    counts = chosen.counts * np.repeat(shrunk, np.diff(chosen.row_pointers))
    counts = np.maximum(np.rint(counts), 1).astype(np.int64)
    tokens = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    labels = np.full(tokens[-1], -1, dtype=np.int16)
    fixed = np.zeros(K, dtype=np.float32)
    # The first one gives a topic to each token.
    for sweep in range(1 + ALPHA_SWEEPS):
        prior = (alpha if sweep else gibbs.FIRST_ALPHA_TIMES * alpha).astype(np.float32)
        running = np.cumsum(words * prior, axis=1)
        resample_topics(
            *(ids, chosen.row_pointers, tokens, words, running, fixed, prior, 0, 0, sweep, labels)
        )
        if not sweep:
            continue
        tallied = gibbs.tally(chosen.row_pointers, tokens, labels, K)
        alpha = gibbs.fit_alpha(*tallied, alpha, alpha_0=None if free else alpha_0)
    low, high = ALPHA_0_RANGE
    if not free or low < alpha.sum() < high:
        return alpha, {}
    end = low if alpha.sum() <= low else high
    warnings = [
        *model.diagnostics.get("warnings", []),
        f"the estimate of alpha_0 is an end of its range, {low} to {high}, got alpha_0={end}; "
        "set alpha_0 to a number",
    ]
    return alpha * (end / alpha.sum()), {"warnings": warnings}
