"""Choice between models, by held-out documents that none of them learned.

Some of the first 20,000 documents are held out, or as many of all where these are in memory. A
model predicts half of the tokens of each from the other half
(`streamlda.model.evaluation.DocumentCompletion`). One is better if it gains more than `ERRORS`
standard errors, with weights by which no document outweighs all others. In doubt the first of two
stays: a start before its refinement, and the alpha_0 given.

The start must not know these documents either: topics of p free numbers fit n tokens of their own
documents better than new ones by about p / n nats a token.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.diagnostics import BEYOND_WORDS
from streamlda.model.evaluation import DocumentCompletion
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.gibbs import ALPHA_DOCUMENTS
from streamlda.refinement.measures import fit_alpha_to
from streamlda.refinement.sample import SampledDocuments
from streamlda.utils.arrays import Array

#: Numbers, from 1, of the usable documents that are held out: every fifth of the first 400, for
#: every twentieth of few documents tells too little, then every twentieth up to 20,000.
HELD_OUT = np.concatenate([np.arange(5, 401, 5), np.arange(420, 20_001, 20)])

#: Standard errors that a gain must exceed.
ERRORS = 2.0

#: The member of the diagnostics that says what was compared.
_NAME = "refinement_choice"


class HeldOutScore(NamedTuple):
    """Predictions of held-out documents by a model."""

    #: Nats of each document by the root of its tokens, so that their mean is in nats a token.
    scores: Array
    #: Documents with two halves, and the perplexity of one; None without any.
    documents: int
    perplexity: float | None

    def gain(self, other: Self) -> tuple[float, float]:
        """Return the mean gain on another model, and its standard error; 0 without documents."""
        gains, n = self.scores - other.scores, max(1, len(self.scores))
        return math.fsum(gains) / n, math.sqrt(math.fsum((gains - gains.sum() / n) ** 2)) / n

    def is_better_than(self, other: Self) -> bool:
        """Return whether documents are predicted better, by more than `ERRORS`."""
        mean, error = self.gain(other)
        return mean > ERRORS * error


class Judge:
    """Held-out documents; all models skip the words that those `learned` do not have.

    Frequencies that count held-out documents too would predict their rare words.
    """

    def __init__(self, held_out: DocumentBatch, learned: DocumentBatch) -> None:
        self.tokens, self.learned = _tokens(held_out), learned
        words = np.zeros(learned.n_features)
        for part in learned.blocks():
            np.add.at(words, part.word_ids, part.counts)
        self.background: Array = words / words.sum()
        # Their sums of nats have a standard deviation about as the root of their tokens. Half of
        # the tokens are scored.
        roots = np.sqrt(self.tokens.lengths)
        self._weights = len(roots) / (roots * roots.sum() / 2)

    def score(self, model: TopicModel) -> HeldOutScore:
        """Return how well a model predicts. Time O(nnz K) about 15 times."""
        completion = DocumentCompletion(model.components, model.alpha, self.background)
        scores = self._weights * completion.add(self.tokens)
        found = completion.result() if completion.scored_tokens else None
        return HeldOutScore(scores, *((found.documents, found.perplexity) if found else (0, None)))

    def score_words(self) -> HeldOutScore:
        """Return how well word frequencies predict."""
        words = self.background
        return self.score(TopicModel(components=words[None], alpha=np.ones(1), background=words))

    def find_best_score(self, model: TopicModel) -> HeldOutScore:
        """Return how well topics predict with their prior, or the one that fits, if better."""
        fitted = replace(model, alpha=_fit_prior(model, self.learned))
        own, other = self.score(model), self.score(fitted)
        return other if other.gain(own)[0] > 0 else own


def choice_of(model: TopicModel) -> dict[str, Any]:
    """Return the diagnostics of a model that are about its choice, if there was one."""
    return {name: value for name, value in model.diagnostics.items() if name == _NAME}


def hold_out(
    batch: DocumentBatch, before: int = 0, numbers: NDArray[np.int64] = HELD_OUT
) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to learn from, unusable ones included, and those of some `numbers`.

    There are `before` usable documents before them.
    """
    held_out = batch.usable & np.isin(before + np.cumsum(batch.usable), numbers)
    return batch.where(~held_out), batch.where(held_out)


def hold_out_once(batch: DocumentBatch, most: int) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to learn from, of equal ones `most`, and those held out of all.

    Equal documents count as one where documents are held out: one whose copy was learned says
    nothing. Those to learn from are shared, not copied: see `DocumentBatch.sharing`.
    """
    firsts, copies = find_copies(batch)
    once = batch.usable & (copies == 0)
    held_out = once & np.isin(np.cumsum(once), spread(int(once.sum())))
    learned = ~held_out[firsts] & ((copies < most) | ~batch.usable)
    return batch.sharing(learned), batch.where(held_out)


def find_copies(batch: DocumentBatch) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first document equal to each, and how many equal ones are before it.

    By a hash of 64 bits, the sum of a random number a word times its count. Time O(nnz + N log N).
    """
    numbers = np.random.default_rng(0).integers(2**64, size=batch.n_features, dtype=np.uint64)
    hashes, start = np.empty(len(batch), dtype=np.uint64), 0
    for part in batch.blocks():
        ends = np.zeros(part.n_entries + 1, dtype=np.uint64)
        # Weights are told apart to a thousandth.
        np.cumsum(
            numbers[part.word_ids] * np.rint(1024 * part.counts).astype(np.uint64), out=ends[1:]
        )
        found = ends[part.row_pointers]
        hashes[start : start + len(part)] = found[1:] - found[:-1]
        start += len(part)
    order = np.argsort(hashes, kind="stable")
    begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
    sizes = np.diff(begins, append=len(order))
    firsts, copies = np.empty_like(order), np.empty_like(order)
    firsts[order] = np.repeat(order[begins], sizes)
    copies[order] = np.arange(len(order)) - np.repeat(begins, sizes)
    return firsts, copies


def spread(documents: int) -> NDArray[np.int64]:
    """Return the numbers to hold out of all usable documents: `HELD_OUT`, or evenly if many more.

    Themes move: topics refined over abstracts of all years were worse than their start on the first
    20,000, and better on held-out ones of all years.
    """
    if documents <= int(HELD_OUT[-1]):
        return HELD_OUT
    return 1 + (2 * np.arange(len(HELD_OUT)) + 1) * documents // (2 * len(HELD_OUT))


def choose_model(
    model: TopicModel, challenger: TopicModel, held_out: DocumentBatch, learned: DocumentBatch
) -> tuple[TopicModel, bool]:
    """Return the model, saying what was compared, and whether the refined one is kept.

    Each has its own prior, or the one that fits it to documents `learned`: with a false alpha_0 a
    start, which was made with it, predicts better than better topics do, and of documents of a few
    tokens the one that fits predicts worse. One that is kept is compared with word frequencies too:
    word pairs of few documents show no topics where likelihood does.
    """
    judge = Judge(held_out, learned)
    start, found = judge.find_best_score(model), judge.find_best_score(challenger)
    kept = found.is_better_than(start)
    gain = found.gain(start) if start.documents else (None, None)
    said: dict[str, Any] = {"kept": "refinement" if kept else "start"}
    said |= {"documents": start.documents, "gain": gain[0], "standard_error": gain[1]}
    said |= {"start_perplexity": start.perplexity, "refined_perplexity": found.perplexity}
    known = {**model.diagnostics, _NAME: said}
    if kept:
        known[BEYOND_WORDS] = found.is_better_than(judge.score_words())
    return replace(model, diagnostics=known), kept


def alpha_0_of(model: TopicModel, documents: DocumentBatch) -> float:
    """Return the alpha_0 with which topics fit documents best."""
    return float(_fit_prior(model, documents).sum())


def _fit_prior(model: TopicModel, documents: DocumentBatch) -> Array:
    """Return the prior that fits topics to documents: some, for more tell no more."""
    chosen = np.zeros(documents.n_documents, dtype=np.bool_)
    chosen[:: max(1, documents.n_documents // (2 * ALPHA_DOCUMENTS))] = True
    tokens = _tokens(documents.where(chosen & documents.usable))
    free = replace(model, settings={**model.settings, "alpha_0": None})
    drawn = SampledDocuments(tokens, tokens.lengths)
    return fit_alpha_to(free, drawn)[0]


def _tokens(documents: DocumentBatch) -> DocumentBatch:
    # Weights are no tokens: a word that occurs counts once at least.
    counts = np.maximum(1.0, np.rint(documents.counts))
    return DocumentBatch(counts, documents.word_ids, documents.row_pointers, documents.n_features)
