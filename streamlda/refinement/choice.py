"""Choice between a refinement and its start, by held-out documents that neither learned.

Some of the first 20,000 documents are held out, or as many of all where these are in memory. Both
models predict half of the tokens of each from the other half
(`streamlda.model.evaluation.DocumentCompletion`). The refinement is kept if it gains, document by
document, more than `ERRORS` standard errors. Where it gains little, each has the prior that fits it
to documents that were learned: with a false alpha_0 the start, which was made with it, predicts
better than better topics do. In doubt the start stays, for spectral topics are consistent where
documents follow the model with the alpha_0 they were made with.

The start must not know these documents either: topics of p free numbers fit n tokens of their own
documents better than new ones by about p / n nats a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.diagnostics import BEYOND_WORDS
from streamlda.model.evaluation import DocumentCompletion
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import FREE_ALPHA_DOCUMENTS, fitted_alpha
from streamlda.refinement.sample import Drawn

Array = NDArray[np.float64]

#: Numbers, from 1, of the usable documents that are held out: every fifth of the first 400, for
#: every twentieth of few documents tells too little, then every twentieth up to 20,000.
HELD_OUT = np.concatenate([np.arange(5, 401, 5), np.arange(420, 20_001, 20)])

#: Standard errors that a gain must exceed.
ERRORS = 2.0

#: Longest document that is compared, in medians of their lengths: one must not outweigh all others.
LONGEST = 10

#: Distance to the optimum where inference is done; gains were within 0.0001 of those at 1e-4.
TOLERANCE = 1e-3

#: Nats a token. On text gains are 0.05 to 0.3, and the first comparison is the only one.
CLOSE_GAIN = 0.05

#: How many times alpha_0 the sum of the prior that fits is at least where topics were made with too
#: small a one: planted documents had 0.62 to 0.82 with the true one, and 1.8 or more with 1 for 5.
LARGER_ALPHA_0 = 1.3

#: How many times the alpha_0 of a model the one that fits may be, with few topics and with
#: `SEVERAL_TOPICS` or more (text has up to 1.4 and 2.6); and the share of that below which a sum
#: that falls from draw to draw is not drawn further.
MOST_ALPHA_0, MOST_OF_SEVERAL, SEVERAL_TOPICS, SURE_OF_LESS = 1.7, 3.0, 20, 0.9


class Choice(NamedTuple):
    """A comparison on held-out documents, and whether the refinement is kept.

    Perplexities are of the held-out tokens. `gain` is that of the refinement in nats a token, with
    its standard error over documents. All are None where no document could be split. `alpha_0` fits
    the refined topics to these documents; it is None where the gain is so large that this does not
    matter.
    """

    refined: bool
    documents: int
    start_perplexity: float | None = None
    refined_perplexity: float | None = None
    gain: float | None = None
    standard_error: float | None = None
    alpha_0: float | None = None

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What a model says of it."""
        values = self._asdict()
        kept = "refinement" if values.pop("refined") else "start"
        return {_NAME: {"kept": kept, **values}}


class _Scored(NamedTuple):
    """The score of each document under a model, all of it, and alpha_0 of the prior."""

    scores: Array
    completion: DocumentCompletion
    alpha_0: float


#: Its member of the diagnostics.
_NAME = "refinement_choice"


def choice_of(model: TopicModel) -> dict[str, Any]:
    """Return the diagnostics of a model that are about its choice, if there was one."""
    return {name: value for name, value in model.diagnostics.items() if name == _NAME}


def hold_out(
    batch: DocumentBatch,
    before: int = 0,
    numbers: NDArray[np.int64] = HELD_OUT,
    *,
    shared: bool = False,
) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to learn from, unusable ones included, and those held out.

    There are `before` usable documents before them. `numbers`, from 1, are held out. Those to
    learn from may be `shared`, not copied: see `DocumentBatch.sharing`.
    """
    held_out = batch.usable & np.isin(before + np.cumsum(batch.usable), numbers)
    return batch.sharing(~held_out) if shared else batch.where(~held_out), batch.where(held_out)


def spread(documents: int) -> NDArray[np.int64]:
    """Return the numbers to hold out of all usable documents: `HELD_OUT`, or evenly if many more.

    Themes move: topics refined over abstracts of all years were worse than their start on the first
    20,000, and better on held-out ones of all years.
    """
    if documents <= int(HELD_OUT[-1]):
        return HELD_OUT
    return 1 + (2 * np.arange(len(HELD_OUT)) + 1) * documents // (2 * len(HELD_OUT))


def learned_before(documents: int) -> int:
    """Return how many of the first usable documents are not held out."""
    return documents - int(np.searchsorted(HELD_OUT, documents, side="right"))


def documents_before(learned: int) -> int:
    """Return how many usable documents lie before one to learn from, by its number from 0."""
    others = HELD_OUT - np.arange(1, len(HELD_OUT) + 1)
    return learned + int(np.searchsorted(others, learned, side="right"))


def choose(
    start: TopicModel,
    refined: TopicModel,
    held_out: DocumentBatch,
    learned: DocumentBatch,
    rival: Callable[[], TopicModel] | None = None,
) -> Choice:
    """Compare both on held-out documents, which neither learned. Time O(nnz K) about 30 times.

    A refinement that gains less than `CLOSE_GAIN` is compared with the priors that fit both to some
    of the documents `learned`, in up to 10 times the time; and then with the rival as well, which
    takes its time to be made: spectral topics of all documents, where the start is of the first.
    """
    tokens, background = _of_like_length(_tokens(held_out)), start.background
    # One background, so that all leave the same words out.
    first, second = (_scored(model, tokens, background) for model in (start, refined))
    found = _compared(first, second)
    if found.gain is None or (found.refined and found.gain >= CLOSE_GAIN):
        return found
    drawn = _drawn(learned)

    def at_best(model: TopicModel) -> _Scored:
        return _scored(replace(model, alpha=_fitted(model, drawn)), tokens, background)

    second = at_best(refined)
    found = _compared(at_best(start), second)
    if rival is not None and found.refined:
        found = _compared(at_best(rival()), second)
    return found._replace(alpha_0=second.alpha_0)


def chosen(
    model: TopicModel,
    refined: TopicModel,
    held_out: DocumentBatch,
    learned: DocumentBatch,
    rival: Callable[[], TopicModel] | None = None,
) -> tuple[TopicModel, bool]:
    """Return the model, saying what was compared, and whether the refined one is kept.

    One that is kept is compared with word frequencies too: word pairs of few documents show no
    topics where likelihood does.
    """
    choice = choose(model, refined, held_out, learned, rival)
    said = choice.diagnostics
    if choice.refined:
        frequencies = TopicModel(
            components=model.background[None], alpha=np.ones(1), background=model.background
        )
        said[BEYOND_WORDS] = predicts_better(refined, frequencies, held_out)
    return replace(model, diagnostics={**model.diagnostics, **said}), choice.refined


def gain_of(before: TopicModel, after: TopicModel, held_out: DocumentBatch) -> float:
    """Return what one model gains on another, in nats a token of documents that neither learned."""
    tokens = _of_like_length(_tokens(held_out))
    first, second = (_scored(model, tokens, before.background) for model in (before, after))
    tokens_scored = first.completion.scored_tokens
    gain = math.fsum(second.scores - first.scores)
    return gain / tokens_scored if tokens_scored else 0.0


def alpha_0_of(model: TopicModel, documents: DocumentBatch) -> float:
    """Return the alpha_0 with which the topics fit some of these documents best."""
    return float(_fitted(model, _drawn(documents)).sum())


def refutes_alpha_0(model: TopicModel, given: float) -> bool:
    """Return whether a fit found its alpha_0 too small, where a choice was close or sweeps came."""
    fits = model.diagnostics.get(_NAME, {}).get("alpha_0") or 0.0
    refuted: bool = model.diagnostics.get("refinement", {}).get("alpha_0_refuted", False)
    return refuted or fits > LARGER_ALPHA_0 * given


def has_too_small_alpha_0(model: TopicModel, documents: DocumentBatch) -> bool:
    """Return whether `alpha_0_of` is above `MOST_ALPHA_0` times that of the model.

    With `SEVERAL_TOPICS` `MOST_OF_SEVERAL` times. In a fifth of the draws, where it clearly is not.
    """
    times = MOST_ALPHA_0 if model.n_components < SEVERAL_TOPICS else MOST_OF_SEVERAL
    most = times * model.alpha_0
    return float(_fitted(model, _drawn(documents), SURE_OF_LESS * most).sum()) > most


def predicts_better(one: TopicModel, other: TopicModel, held_out: DocumentBatch) -> bool:
    """Return whether one model predicts documents better than another, by more than `ERRORS`."""
    tokens, background = _of_like_length(_tokens(held_out)), other.background
    first, second = (_scored(model, tokens, background) for model in (other, one))
    return _compared(first, second).refined


def _of_like_length(tokens: DocumentBatch) -> DocumentBatch:
    """Return the documents without those whose one outcome would outweigh all others."""
    lengths = tokens.lengths
    return tokens.where(lengths <= LONGEST * np.median(lengths)) if len(lengths) else tokens


def _tokens(documents: DocumentBatch) -> DocumentBatch:
    # Weights are no tokens: a word that occurs counts once at least.
    counts = np.maximum(1.0, np.rint(documents.counts))
    return DocumentBatch(counts, documents.word_ids, documents.row_pointers, documents.n_features)


def _scored(model: TopicModel, tokens: DocumentBatch, background: Array) -> _Scored:
    """Return the score of each document, and of all."""
    completion = DocumentCompletion(
        *(model.components, model.alpha, background), tolerance=TOLERANCE
    )
    return _Scored(completion.add(tokens), completion, model.alpha_0)


def _drawn(documents: DocumentBatch) -> Drawn:
    """Return the documents that a prior is fitted to: some, evenly, for more tell no more."""
    every = max(1, documents.n_documents // (2 * FREE_ALPHA_DOCUMENTS))
    chosen = np.zeros(documents.n_documents, dtype=np.bool_)
    chosen[::every] = True
    tokens = _of_like_length(_tokens(documents.where(chosen & documents.usable)))
    return Drawn(tokens, tokens.lengths, np.zeros(len(tokens)))


def _fitted(model: TopicModel, drawn: Drawn, less_than: float = 0.0) -> Array:
    """Return the prior that fits topics to some documents, with whatever sum.

    If this falls, it need not be known more closely than to be `less_than` a number.
    """
    free = replace(model, settings={**model.settings, "alpha_0": None})
    return fitted_alpha(free, drawn, less_than)[0]


def _compared(start: _Scored, refined: _Scored) -> Choice:
    """Return which predicts better: the refinement if it gains more than `ERRORS`."""
    held_out = start.completion.scored_tokens
    if not held_out:
        return Choice(False, len(start.scores))
    found = start.completion.result()
    difference = refined.scores - start.scores
    gain = math.fsum(difference)
    error = math.sqrt(len(difference)) * float(difference.std())
    return Choice(
        gain > ERRORS * error,
        found.documents,
        found.perplexity,
        refined.completion.result().perplexity,
        gain / held_out,
        error / held_out,
    )
