"""Choice between a refinement and its start, by documents set aside that neither learned.

Some of the first 20,000 documents are set aside, or as many of all where these are in memory. Both
models predict half of the tokens of each from the other half
(`streamlda.model.evaluation.DocumentCompletion`). The refinement is kept if it gains, document by
document, more than 1.5 standard errors and a quarter of a percent of perplexity. On text a
refinement gains 5 standard errors or more, 6 to 25 percent of perplexity.

Where it gains less than 3 percent, two things count that have nothing to do with how near topics
are to the true ones. The prior: with a false alpha_0 the start, which was made with it, predicts
better than better topics do. And noise: it costs more than topics that are too much alike do (five
topics, alpha_0 = 50, 2000 documents: a refinement gained 0.013 (5 standard errors), and had 1.3
times the error). So each has the prior that fits it to documents that were learned, and is mixed
with the background as far as that helps it to predict. In doubt the start stays, for spectral
topics are consistent where documents follow the model with the alpha_0 they were made with, and
mean-field inference has an error that no number of documents removes. If the prior that fits has
another alpha_0, they are not: made with too small a one, the refinement is kept in doubt; made with
too large a one, what predicts better is kept. So too where the prior that fits the refinement is
nearer to the alpha_0 given (20 topics, alpha_0 = 50, 20,000 documents: 34 in place of 23, with 0.86
times the error and a gain of 0.0004 to 0.0009). And of two topics, which moments of any alpha_0
suit, where it is estimated: the start has the largest that predicts well, and predicts well for
that. With 5 for 50 (1000 words, 2000 documents) it had 1.4 times the error, and was 0.00001 better
(0.03 standard errors). But with 5 for 5 and 20,000 documents it had 0.3 times the error, and was
0.0055 better: it stays where it is so by more than chance, unless more than one alpha_0 is good.

Optimism is why the start must not know these documents either: topics of p free numbers fit n
tokens of their own documents better than new ones by about p / n nats a token, which for a small
corpus is more than a refinement gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import DocumentCompletion
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import FREE_ALPHA_DOCUMENTS, fitted_alpha
from streamlda.refinement.sample import Drawn
from streamlda.spectral.topics import ESTIMATE, LEAST_TOPICS

Array = NDArray[np.float64]

#: Numbers, from 1, of the usable documents that are set aside, few enough to be kept in memory as
#: long as the choice is open: every fifth of the first 400, for of 250 documents of 30 tokens every
#: twentieth told too little, then every twentieth up to 20,000. The start never learns them: with
#: every tenth the 3087 documents of kos had perplexity 1681 and NPMI 0.192 (means of eight seeds),
#: with every twentieth 1667 and 0.205, refined without a choice 1664 and 0.210.
ASIDE = np.concatenate([np.arange(5, 401, 5), np.arange(420, 20_001, 20)])

#: What a gain must be above: standard errors, and nats a token. By less, planted topics with the
#: smaller error were beaten (5 topics, alpha_0 = 20, 2000 documents: 0.0023 to 0.0042), or errors
#: were within a fifth.
LEAST_ERRORS, LEAST_GAIN = 1.5, 0.0025

#: Longest document that is compared, in medians of their lengths. Of 330 manual pages set aside 7
#: were longer and had three tenths of the tokens: with them a refinement gained 0.74 nats a token
#: by 1.4 standard errors, and was not kept; without them 0.34 by 7.6.
LONGEST = 10

#: Distance to the optimum where inference is done. Gains on three corpora of text were within
#: 0.0001 of those at 1e-4, in 60 % of the time; with 0.01 they were off by up to 0.0009.
TOLERANCE = 1e-3

#: With 20 topics, alpha_0 = 50 and 100,000 documents a refinement gained 0.01 on spectral topics of
#: the first 20,000, and had 1.9 times the error of those of all. On text gains are 0.05 to 0.3, and
#: the first comparison is the only one.
CLOSE_GAIN = 0.03

#: Shares of the background that topics are mixed with, as long as each helps.
FLATNESSES = (0.15, 0.3, 0.45)

#: How many times alpha_0 the sum of the prior that fits is at least, or below 1 at most, if topics
#: were made with a false one. Fitted to 1000 planted documents of 40 to 200 tokens, 2 to 20 topics,
#: it was 0.62 to 0.82 for 1, and with topics made with 1 1.8 to 3.9 for 5, 2.6 to 10 for 20, 0.13
#: to 0.18 for 0.2 and 0.02 for 0.02. Of 80 documents it was 1.7 to 4.4 for 5.
LARGER_ALPHA_0, SMALLER_ALPHA_0 = 1.3, 0.35

#: How many times the alpha_0 of a model the one that fits may be, if its prior is to be taken for
#: true, with few topics and with `SEVERAL_TOPICS` or more. Of text it was up to 1.4 times with 20
#: topics and 2.6 with 50, of planted documents with alpha_0 = 5 from 1.7 with 2 topics, 3.8 with 20
#: and 4.8 with 50. And the share of that below which a sum that falls from draw to draw is not
#: drawn further. Of kos (K = 20) it is 1.46, 1.34, 1.26 and at the tenth draw 1.02. Of 28 planted
#: corpora, alpha_0 from 0.5 to 20, every fit was the same as with all draws.
MOST_ALPHA_0, MOST_OF_SEVERAL, SEVERAL_TOPICS, SURE_OF_LESS = 1.7, 3.0, 20, 0.9

#: What a start that was made with too small an alpha_0, or an unknown one, must gain to stay, in
#: nats a token. Made with 1, for 20 and 50, it had up to 1.6 times the error and gained 0.0025 (two
#: topics) to 0.0155 (fifty). One that was made with too large an alpha_0 need only gain: it had the
#: smaller error then.
LEAST_GAIN_OF_FALSE = 0.02


class Choice(NamedTuple):
    """A comparison on documents set aside, and whether the refinement is kept.

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


def parted(
    batch: DocumentBatch,
    before: int = 0,
    numbers: NDArray[np.int64] = ASIDE,
    *,
    shared: bool = False,
) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to learn from, unusable ones included, and those set aside.

    There are `before` usable documents before them. `numbers`, from 1, are set aside. Those to
    learn from may be `shared`, not copied: see `DocumentBatch.sharing`.
    """
    aside = batch.usable & np.isin(before + np.cumsum(batch.usable), numbers)
    return batch.sharing(~aside) if shared else batch.where(~aside), batch.where(aside)


def spread(documents: int) -> NDArray[np.int64]:
    """Return the numbers to set aside of all usable documents: `ASIDE`, or evenly if many more.

    Themes move. Topics refined over 195,000 abstracts by date (K = 20) were worse than their start
    on some of the first 20,000, and had perplexity 1597 on held-out ones of all years, where
    spectral topics have 1731.
    """
    if documents <= int(ASIDE[-1]):
        return ASIDE
    return 1 + (2 * np.arange(len(ASIDE)) + 1) * documents // (2 * len(ASIDE))


def learned_before(documents: int) -> int:
    """Return how many of the first usable documents are not set aside."""
    return documents - int(np.searchsorted(ASIDE, documents, side="right"))


def documents_before(learned: int) -> int:
    """Return how many usable documents lie before one to learn from, by its number from 0."""
    others = ASIDE - np.arange(1, len(ASIDE) + 1)
    return learned + int(np.searchsorted(others, learned, side="right"))


def any_alpha_0(n_topics: int, estimate: dict[str, Any] | None) -> bool:
    """Return whether moments suit any alpha_0, and the estimate is what predicts well."""
    return n_topics < LEAST_TOPICS and estimate is not None


def choose(
    start: TopicModel,
    refined: TopicModel,
    aside: DocumentBatch,
    learned: DocumentBatch,
    rival: Callable[[], TopicModel] | None = None,
) -> Choice:
    """Compare both on documents set aside, which neither learned. Time O(nnz K) about 30 times.

    A refinement that gains less than `CLOSE_GAIN` is compared more closely, in up to 10 times the
    time, with the priors that fit both to some of the documents `learned`; and then with the rival
    as well, which takes its time to be made: spectral topics of all documents, where the start is
    of the first.
    """
    tokens, background = _of_like_length(_tokens(aside)), start.background
    # One background, so that all leave the same words out.
    first, second = (_scored(model, tokens, background) for model in (start, refined))
    found = _compared(first, second, LEAST_GAIN, LEAST_ERRORS)
    if found.gain is None or (found.refined and found.gain >= CLOSE_GAIN):
        return found
    drawn, given, estimate = _drawn(learned), start.alpha_0, start.diagnostics.get(ESTIMATE)
    if not any_alpha_0(start.n_components, estimate):
        estimate = None
    second = _at_best(refined, tokens, background, drawn)

    def against(other: TopicModel) -> Choice:
        first = _at_best(other, tokens, background, drawn)
        return _compared(first, second, *_least(first.alpha_0, second.alpha_0, given, estimate))

    found = against(start)
    if rival is not None and found.refined:
        found = against(rival())
    return found._replace(alpha_0=second.alpha_0)


def _least(
    of_start: float, of_refined: float, given: float, estimate: dict[str, Any] | None
) -> tuple[float, float]:
    """Return what a gain must be above, in nats a token and standard errors, by alpha_0 that fit.

    `given` is the alpha_0 that the start was made with, by an `estimate` where it is `any_alpha_0`.
    """
    is_open = estimate is not None and not estimate["identified"]
    if is_open or of_refined > LARGER_ALPHA_0 * given:
        return -LEAST_GAIN_OF_FALSE, 0.0
    if estimate is not None:
        return -LEAST_GAIN_OF_FALSE, -LEAST_ERRORS
    if _nearer(of_refined, of_start, given) or of_refined < SMALLER_ALPHA_0 * min(given, 1.0):
        return 0.0, 0.0
    return LEAST_GAIN, LEAST_ERRORS


def chosen(
    model: TopicModel,
    refined: TopicModel,
    aside: DocumentBatch,
    learned: DocumentBatch,
    rival: Callable[[], TopicModel] | None = None,
) -> tuple[TopicModel, bool]:
    """Return the model, saying what was compared, and whether the refined one is kept."""
    choice = choose(model, refined, aside, learned, rival)
    return replace(model, diagnostics={**model.diagnostics, **choice.diagnostics}), choice.refined


def gain_of(before: TopicModel, after: TopicModel, aside: DocumentBatch) -> float:
    """Return what one model gains on another, in nats a token of documents that neither learned."""
    tokens = _of_like_length(_tokens(aside))
    first, second = (_scored(model, tokens, before.background) for model in (before, after))
    held_out = first.completion.scored_tokens
    return math.fsum(second.scores - first.scores) / held_out if held_out else 0.0


def alpha_0_of(model: TopicModel, documents: DocumentBatch) -> float:
    """Return the alpha_0 with which the topics fit some of these documents best."""
    return float(_fitted(model, _drawn(documents)).sum())


def has_too_small_alpha_0(model: TopicModel, documents: DocumentBatch) -> bool:
    """Return whether `alpha_0_of` is above `MOST_ALPHA_0` times that of the model.

    With `SEVERAL_TOPICS` `MOST_OF_SEVERAL` times. In a fifth of the draws, where it clearly is not.
    """
    times = MOST_ALPHA_0 if model.n_components < SEVERAL_TOPICS else MOST_OF_SEVERAL
    most = times * model.alpha_0
    return float(_fitted(model, _drawn(documents), SURE_OF_LESS * most).sum()) > most


def refutes(usual: TopicModel, estimated: TopicModel, aside: DocumentBatch) -> bool:
    """Return whether documents set aside refute an estimate of alpha_0, in favour of the usual one.

    Topics made with it predict them worse, by `CLOSE_GAIN` or with a prior that fits which is
    nearer to the usual one. Topics made with a large alpha_0 are noisy: made with 53 for 50 (5
    topics, 2000 documents; 20 fits them) they predicted worse by 0.016 than made with 1, and had
    0.4 times the error.
    """
    tokens, background = _of_like_length(_tokens(aside)), estimated.background
    first, second = (_scored(model, tokens, background) for model in (estimated, usual))
    found = _compared(first, second, 0.0, LEAST_ERRORS)
    if not found.refined:
        return False
    fits = alpha_0_of(estimated, aside)
    assert found.gain is not None
    return found.gain >= CLOSE_GAIN or _nearer(usual.alpha_0, estimated.alpha_0, fits)


def _nearer(one: float, other: float, alpha_0: float) -> bool:
    """Return whether one alpha_0 is less times away from a third than the other is."""
    return abs(math.log(one / alpha_0)) < abs(math.log(other / alpha_0))


def best_predicting(models: Iterable[TopicModel], aside: DocumentBatch) -> list[TopicModel]:
    """Return the models that predict documents which they did not learn best, or as well as that.

    As well are those within `LEAST_ERRORS` standard errors of the best.
    """
    tokens = _tokens(aside)
    scored = [(model, _scored(model, tokens, model.background).scores) for model in models]
    best = max((scores for _, scores in scored), key=math.fsum)
    most = LEAST_ERRORS * math.sqrt(len(best))
    return [
        model
        for model, scores in scored
        if math.fsum(best - scores) <= most * float((best - scores).std())
    ]


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


def _at_best(model: TopicModel, tokens: DocumentBatch, background: Array, drawn: Drawn) -> _Scored:
    """Return the score with the prior that fits `drawn`, and as flat as predicts best."""
    found = None
    for flatness in (0.0, *FLATNESSES):
        topics = (1 - flatness) * model.components + flatness * background
        flat = replace(model, components=topics)
        flat = replace(flat, alpha=_fitted(flat, drawn))
        tried = _scored(flat, tokens, background)
        if found is not None and math.fsum(tried.scores - found.scores) <= 0:
            return found
        found = tried if found is None else tried._replace(alpha_0=found.alpha_0)
    assert found is not None
    return found


def _compared(start: _Scored, refined: _Scored, least: float, errors: float) -> Choice:
    """Return which predicts better: the refinement by a gain above some nats and errors."""
    held_out = start.completion.scored_tokens
    if not held_out:
        return Choice(False, len(start.scores))
    found = start.completion.result()
    difference = refined.scores - start.scores
    gain = math.fsum(difference)
    error = math.sqrt(len(difference)) * float(difference.std())
    return Choice(
        gain > least * held_out and (not errors or gain > errors * error),
        found.documents,
        found.perplexity,
        refined.completion.result().perplexity,
        gain / held_out,
        error / held_out,
    )
