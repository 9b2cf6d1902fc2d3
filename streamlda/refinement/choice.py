"""Whether a refinement is kept: by documents set aside, which neither it nor its start learned.

Every tenth of the first 10,000 documents is set aside. Both models predict half of the tokens of
each from the other half (`streamlda.model.evaluation.DocumentCompletion`), and the refinement is
kept if its gain in log-likelihood, document by document, is more than twice its standard error.
In doubt the start stays: spectral topics are consistent where documents follow the model, and
mean-field inference has an error that no number of documents removes. On planted corpora of 2 to
50 topics the sign of the gain was that of the topics' error in all but a few cases near 0
(`python -m bench run refinement-choice`); on text a refinement gains 30 standard errors or more.

Optimism is why the start must not know these documents either: topics of p free numbers fit n
tokens of their own documents better than new ones by about p / n nats a token, which for a small
corpus is more than a refinement gains.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import DocumentCompletion
from streamlda.model.topic_model import TopicModel

Array = NDArray[np.float64]

#: Which of the usable documents are set aside: every tenth of the first 10,000, which may be kept
#: in memory as long as the choice is open.
ASIDE_EVERY, ASIDE_WITHIN = 10, 10_000

#: Most of them.
MOST_ASIDE = ASIDE_WITHIN // ASIDE_EVERY

#: Standard errors that a gain must be above.
LEAST_GAIN = 2.0


class Choice(NamedTuple):
    """What was compared on documents set aside, and whether the refinement is kept.

    Perplexities are of the held-out tokens. `gain` is that of the refinement in nats a token, with
    its standard error over documents. All are None where no document could be split.
    """

    refined: bool
    documents: int
    start_perplexity: float | None = None
    refined_perplexity: float | None = None
    gain: float | None = None
    standard_error: float | None = None

    def state(self) -> dict[str, Any]:
        """Return it as in the diagnostics of a model."""
        values = self._asdict()
        return {"kept": "refinement" if values.pop("refined") else "start", **values}


def set_aside(usable: NDArray[np.bool_], before: int) -> NDArray[np.bool_]:
    """Return which of some documents are set aside, with `before` usable ones before them."""
    number = before + np.cumsum(usable)
    aside: NDArray[np.bool_] = (number % ASIDE_EVERY == 0) & (number <= ASIDE_WITHIN)
    return aside & usable


def parted(batch: DocumentBatch, before: int = 0) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to learn from, unusable ones included, and those set aside."""
    aside = set_aside(batch.usable, before)
    return batch.where(~aside), batch.where(aside)


def learned_before(documents: int) -> int:
    """Return how many of the first usable documents are not set aside."""
    return documents - min(documents, ASIDE_WITHIN) // ASIDE_EVERY


def documents_before(learned: int) -> int:
    """Return how many usable documents, some of them set aside, lie before one to learn from."""
    return learned + min(learned // (ASIDE_EVERY - 1), MOST_ASIDE)


def choose(start: TopicModel, refined: TopicModel, aside: DocumentBatch) -> Choice:
    """Compare both on documents that neither learned. Time O(nnz K) about 30 times."""
    # Weights are no tokens: a word that occurs counts once at least.
    counts = np.maximum(1.0, np.rint(aside.counts))
    tokens = DocumentBatch(counts, aside.word_ids, aside.row_pointers, aside.n_features)
    scores = []
    for model in (start, refined):
        # One background, so that both leave the same words out.
        completion = DocumentCompletion(model.components, model.alpha, start.background)
        scores.append((completion.add(tokens), completion))
    (one, completion), (other, another) = scores
    if not completion.scored_tokens:
        return Choice(False, aside.n_documents)
    found, refined_found = completion.result(), another.result()
    difference = other - one
    gain = math.fsum(difference)
    error = math.sqrt(len(difference)) * float(difference.std())
    held_out = found.held_out_tokens
    return Choice(
        gain > LEAST_GAIN * error and gain > 0,
        found.documents,
        found.perplexity,
        refined_found.perplexity,
        gain / held_out,
        error / held_out,
    )
