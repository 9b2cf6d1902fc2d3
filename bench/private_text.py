"""Other ways to private topics of text, on kos: local noise, and clusters with keywords.

*Local* (after the idea of Zhao et al., arXiv 2010.04391, LP-LDA and OLP-LDA): each document sends
bits that it has flipped itself, one for each word; the server makes expected counts of them, by
Bayes' rule with the word frequencies that all messages so far say, and learns from mini-batches of
these, here by variational Bayes. The unit is a whole document, as of all others; a document sends
at most `LOCAL_WORDS` of its words. Nobody need be trusted, which none of the others can say.

*Clusters and keywords* (after Urania, arXiv 2506.04681, without its language model, whose part are
embeddings and the wording): noisy k-means of public projections of the documents, then a noisy
histogram of words in each cluster, of which words above the noise are kept. A cluster is a topic.
"""

from __future__ import annotations

import math
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.kinds import Case, Figure, Json, Scenario, series
from bench.private import DELTA, corpus_details, mark, ratios
from bench.private_contenders import CONTENDERS, DPVI, ENGINE
from bench.private_tasks import NOISE_STEPS, Learned, in_batches, judged, learn

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.documents import DocumentBatch

EPSILONS = [1.0, 3.0]
LOCAL, CLUSTERS, NOT_PRIVATE = "local noise", "clusters and keywords", "streamlda, not private"

#: Of a document, drawn by it. 2, 5 and 20 were tried on the 1,000 most frequent words: perplexity
#: over that of the word frequencies 1.52, 1.51, 1.52 at epsilon 3, and 1.21, 1.16, 0.85 without
#: noise.
LOCAL_WORDS = 20
MINI_BATCH = 256

#: Dimensions of a public projection, rounds of k-means, and their share of mu^2.
DIMENSIONS, ROUNDS, CLUSTERING_SHARE = 32, 4, 0.25


def gaussian(sigma: float, shape: tuple[int, ...]) -> Any:
    from streamlda.guarantee.noise import SecureNoise

    return SecureNoise().discrete_gaussian(NOISE_STEPS, shape) * (sigma / NOISE_STEPS)


def shrunk(values: Any, variance: float) -> Any:
    """Return noisy frequencies moved towards their mean as far as the known noise says, above 0."""
    centre = max(float(values.mean()), 1e-12)
    signal = max(float(values.var()) - variance, 0.0)
    moved = centre + (values - centre) * (signal / (signal + variance) if variance else 1.0)
    return np.maximum(moved, centre / 100)


def local(counts: DocumentBatch, k: int, epsilon: float | None, delta: float, seed: int) -> Learned:
    """Online variational Bayes of documents whose bits were flipped one by one; no delta.

    Two documents differ in at most twice `LOCAL_WORDS` bits. Without epsilon, of the bits as they
    are.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    rng = np.random.default_rng()  # Its coins are no secret here, where nothing is published.
    matrix, n_words = counts.to_csr(), counts.n_features
    flip = 0.0 if epsilon is None else 1 / (1 + math.exp(epsilon / (2 * LOCAL_WORDS)))
    lda = LatentDirichletAllocation(
        k,
        doc_topic_prior=1 / k,
        topic_word_prior=1 / k,
        random_state=seed,
        max_doc_update_iter=20,
        total_samples=len(counts),
    )
    ones, seen = np.zeros(n_words), 0
    frequencies = np.full(n_words, 1 / n_words)
    for start in range(0, len(counts), MINI_BATCH):
        rows = matrix[start : start + MINI_BATCH]
        bits = np.zeros(rows.shape, dtype=np.bool_)
        for i, (first, last) in enumerate(zip(rows.indptr, rows.indptr[1:], strict=False)):
            words = rows.indices[first:last]
            bits[i, rng.permutation(words)[:LOCAL_WORDS]] = True
        bits ^= rng.random(bits.shape) < flip
        ones, seen = ones + bits.sum(0), seen + len(bits)
        gain = 1 - 2 * flip
        present = shrunk((ones / seen - flip) / gain, flip * (1 - flip) / seen / gain**2)
        present = np.minimum(present, 0.5)
        frequencies = present / present.sum()
        likely = np.where(bits, 1 - flip, flip)
        expected = present * likely / (present * likely + (1 - present) * (1 - likely))
        lda.partial_fit(expected)
    topics = lda.components_ / lda.components_.sum(1, keepdims=True)
    return Learned(topics, np.full(k, 1 / k), frequencies)


def clusters(
    counts: DocumentBatch, k: int, epsilon: float | None, delta: float, seed: int
) -> Learned:
    """Keywords of noisy clusters; a document is in or out.

    In a round a document adds a unit vector and 1 to the row of its cluster, norm sqrt(2); to the
    histogram its counts over their norm. Rounds compose by their mu^2.
    """
    from streamlda.guarantee.accounting import mu_of

    mu = math.inf if epsilon is None else mu_of(epsilon, delta)
    rng, matrix, n_words = np.random.default_rng(seed), counts.to_csr(), counts.n_features
    matrix.data = matrix.data / np.repeat(
        np.sqrt(matrix.multiply(matrix).sum(1)).A1, np.diff(matrix.indptr)
    )
    points = matrix.sqrt() @ rng.standard_normal((n_words, DIMENSIONS))
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    centres = rng.standard_normal((k, DIMENSIONS))
    for _ in range(ROUNDS):
        own = np.eye(k)[(points @ centres.T).argmax(1)]
        sums = own.T @ np.hstack([points, np.ones((len(points), 1))])
        sums += gaussian(math.sqrt(2 * ROUNDS / CLUSTERING_SHARE) / mu, sums.shape)
        centres = sums[:, :-1] / np.maximum(np.linalg.norm(sums[:, :-1], axis=1), 1e-12)[:, None]
    own = np.eye(k)[(points @ centres.T).argmax(1)]
    sigma = 1 / (mu * math.sqrt(1 - CLUSTERING_SHARE))
    histogram = own.T @ matrix + gaussian(sigma, (k, n_words))
    background = shrunk(histogram.sum(0), k * sigma**2)
    background /= background.sum()
    weights = np.maximum(histogram.sum(1), 1.0)
    # Beyond the largest of as many draws of noise alone, a word is one of the cluster.
    kept = np.where(histogram > sigma * math.sqrt(2 * math.log(k * n_words)), histogram, 0)
    rest = np.maximum(weights - kept.sum(1), 0)[:, None] * background
    topics = (kept + rest) / (kept + rest).sum(1, keepdims=True)
    return Learned(topics, weights / weights.sum(), background)


def private_text(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """A contender on the counts of a corpus, whose words are public."""
    from bench.corpus import read_counts

    train, held_out = (read_counts(inputs["counts"], part) for part in ("train", "held_out"))
    name, k = parameters["contender"], parameters["n_components"]
    epsilon, delta = parameters["epsilon"], parameters["delta"]
    meter.started()
    with meter.timed():
        if name in OWN:
            found = OWN[name](train, k, epsilon, delta, seed)
        elif name in (ENGINE, NOT_PRIVATE):
            sizes = {"documents": len(train), "clipping": "quantile"}
            terms = {**parameters, **sizes, "neighboring_relation": "add-remove"}
            found = learn(in_batches(train), train.n_features, terms, seed)()
        else:
            topics, alpha = CONTENDERS[name].fit(train, k, 1.0, epsilon, delta, seed)
            found = Learned(topics, alpha, alpha @ topics / alpha.sum())
    return judged(train, held_out, found)


OWN = {LOCAL: local, CLUSTERS: clusters}
PRIVATE_TEXT_TASKS = (private_text,)


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    common = {"n_components": 5 if quick else 10, "vocabulary_size": 8000}
    found = [(name, epsilon) for epsilon in EPSILONS for name in (ENGINE, DPVI, *OWN)]
    found += [(name, None) for name in (NOT_PRIVATE, *OWN)]
    return [
        Case(
            f"{name}, {mark(epsilon) if epsilon else 'no noise'}",
            "private_text",
            {**common, "contender": name, "epsilon": epsilon, "delta": DELTA},
        )
        for name, epsilon in found
    ]


def figures(result: Json) -> list[Figure]:
    found = []
    for case in result["cases"]:
        over = f"perplexity over that of the word frequencies, {case}"
        found.append(Figure(over, f"{mean(ratios(result, case)):.3f}"))
        found.append(Figure(f"NPMI, {case}", f"{mean(series(result, case, 'npmi')):.3f}"))
    return found


PRIVATE_TEXT = [
    Scenario(
        "private-text",
        "What do other private ways make of 3,000 posts, whose words are public?",
        3,
        cases,
        figures,
        needs_corpus=True,
        details=corpus_details,
    )
]
