"""Numbers of topics, compared by how well they predict and how well their words go together.

1. Documents are split by their content, so that copies of one document are on one side.
2. All numbers are fitted to the same documents, over the words of these, and judged on the same
   half of the tokens of each held-out document. Coherence is counted in all documents.
3. The loss of each against the best is a sum over documents, so that its standard error is known.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from streamlda.documents import DocumentBatch, read_counts
from streamlda.errors import Faults, InsufficientDataError, TopicWarning, between, require
from streamlda.estimator import StreamLDA
from streamlda.model.coherence import NPMI_WORDS
from streamlda.model.evaluation import DocumentCompletion, top_words, topic_diversity
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.texts import read_texts

#: Numbers of topics that are tried if none are named.
COUNTS = (5, 10, 20, 40, 80)

#: A number of topics is as good as the best if it is behind by at most this many standard errors.
MOST_ERRORS = 2.0

_LEFT = "no documents are left to fit, or to hold out; pass more, or hold out another share"
_check = Faults({InsufficientDataError: {"left": _LEFT}}).check


class TriedTopics(NamedTuple):
    """A number of topics, and the quality of its fit on the held-out documents."""

    topics: int
    perplexity: float
    #: Nats a held-out token that it is behind the best number, and their standard error.
    behind: float
    behind_error: float
    #: Coherence in all documents, the held-out ones included.
    npmi: float
    diversity: float
    #: Processor seconds of the fit; that of the first number loads compiled code too.
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Numbers of topics that were tried, fewest first; a notebook shows the plot.

    Parameters
    ----------
    tried : tuple of TriedTopics
    unigram_perplexity : float
        Of the same held-out tokens by word frequencies, without topics.
    documents, held_out_documents, held_out_tokens : int
        Documents fitted; those that all numbers are judged on, and their tokens that are predicted.
    """

    tried: tuple[TriedTopics, ...]
    unigram_perplexity: float
    documents: int
    held_out_documents: int
    held_out_tokens: int

    @property
    def fewest(self) -> int:
        """Least number that predicts as well as the best, within two standard errors."""
        return min(t.topics for t in self.tried if t.behind <= MOST_ERRORS * t.behind_error)

    def csv(self) -> str:
        """Return the table, a row for each number of topics."""
        rows = [TriedTopics._fields, *([f"{value:.6g}" for value in each] for each in self.tried)]
        return "".join(",".join(row) + "\n" for row in rows)

    def svg(self) -> str:
        """Return the plot of perplexity and coherence, a picture that loads nothing."""
        from streamlda.report.curves import Curve, draw_curves

        counts, npmi = [each.topics for each in self.tried], [each.npmi for each in self.tried]
        perplexity = np.array([each.perplexity for each in self.tried])
        # Two standard errors of the difference to the best, which has none.
        errors = perplexity * np.expm1([MOST_ERRORS * each.behind_error for each in self.tried])
        title = (
            f"{self.documents:,} documents fitted, {self.held_out_documents:,} held out; bars: "
            f"{MOST_ERRORS:g} standard errors of the difference to the best"
        )
        first = Curve(
            "Perplexity, held out (lower is better)", perplexity.tolist(), errors.tolist()
        )
        second = Curve("Coherence (NPMI) in all documents", npmi, [0.0] * len(npmi))
        return draw_curves(title, counts, [first, second])

    def _repr_svg_(self) -> str:
        return self.svg()


def choose_topics(
    X: Any,
    counts: Sequence[int] = COUNTS,
    *,
    held_out: float = 0.1,
    analyzer: Any = None,
    random_state: int = 0,
    on_fit: Callable[[int], None] | None = None,
) -> TopicChoice:
    """Fit several numbers of topics, and judge all on the same documents, which no fit has seen.

    Costs a fit each, together some two to three times that of the largest number; ``cpu_seconds``
    says what each has cost. Documents are kept in memory.

    Parameters
    ----------
    X : texts, or array-like or sparse matrix of counts
        As `StreamLDA.fit` takes them without `epsilon`. Words are learned from the documents that
        are fitted, once for all numbers.
    counts : sequence of int, default (5, 10, 20, 40, 80)
        Numbers of topics.
    held_out : float, default 0.1
        Share of the documents to judge on. Equal documents are on one side.
    analyzer
        As in `StreamLDA.fit`, for texts.
    random_state : int, default 0
        Seed of the split and of all fits.
    on_fit : callable, optional
        Is told each number before it is fitted.

    Returns
    -------
    TopicChoice
        Its ``fewest`` is the least number that predicts as well as the best; ``csv()`` and
        ``svg()`` are table and plot.

    Raises
    ------
    InvalidSettingError
        If `counts` has no number, one below 1 or one twice, or `held_out` lies outside 0..1.
    InsufficientDataError
        If no document is held out that can be scored, or too few are left to fit.
    """
    rule = "numbers of topics must be whole, at least 1, and each named once"
    whole = all(type(n) is int and n >= 1 for n in counts)
    usual = f"{', '.join(map(str, COUNTS))} are usual"
    fits = whole and len(counts) == len(set(counts)) > 0
    require(fits, rule, counts=list(counts), remedy=usual)
    between(0, 1, held_out=held_out, remedy="0.1 is usual")
    if not isinstance(analyzer, VocabularyLearner):
        analyzer = VocabularyLearner.by(analyzer, max(counts))
    fitted, judged = _split(X, analyzer, held_out, random_state)
    left = len(judged) and judged.lengths.max() > 1 and len(fitted) > 1
    _check(left, "left", fitted=len(fitted), held_out=len(judged))
    every = DocumentBatch.joined([fitted, judged])
    tried, nats, result = [], [], None
    for n in sorted(counts):
        if on_fit is not None:
            on_fit(n)
        start = time.process_time()
        with warnings.catch_warnings():
            # The table says what each number is worth.
            warnings.simplefilter("ignore", TopicWarning)
            model = StreamLDA(n, random_state=random_state).fit(fitted.to_csr()).to_model()
        seconds = time.process_time() - start
        completion = DocumentCompletion(model.components, model.alpha, model.background)
        nats.append(completion.add(judged))
        result = completion.result()
        diversity = topic_diversity(top_words(model.components, min(NPMI_WORDS, model.n_features)))
        npmi = model.coherence(every).mean
        tried.append(TriedTopics(n, result.perplexity, 0.0, 0.0, npmi, diversity, seconds))
    assert result is not None
    lost, tokens = max(nats, key=np.sum) - np.array(nats), result.held_out_tokens
    errors = np.sqrt(len(judged)) * lost.std(axis=1) / tokens
    compared = zip(tried, (lost.sum(axis=1) / tokens).tolist(), errors.tolist(), strict=True)
    return TopicChoice(
        tuple(each._replace(behind=behind, behind_error=error) for each, behind, error in compared),
        *(result.unigram_perplexity, len(fitted), result.documents, tokens),
    )


def _split(
    X: Any, learner: VocabularyLearner, held_out: float, seed: int
) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to fit, and those to judge on."""
    texts, salt = read_texts(X), seed.to_bytes(8, "little", signed=True)
    if texts is None:
        batch = read_counts(X)
        ends = zip(batch.row_pointers, batch.row_pointers[1:], strict=False)
        contents = [batch.word_ids[i:j].tobytes() + batch.counts[i:j].tobytes() for i, j in ends]
    else:
        contents = [text.encode("utf-8", "surrogatepass") for text in texts]
    drawn = [blake2b(content, digest_size=8, salt=salt).digest() for content in contents]
    numbers = [int.from_bytes(each, "big") for each in drawn]
    held = np.array([number < round(held_out * 2**64) for number in numbers], dtype=np.bool_)
    counted = {"fitted": int(np.sum(~held)), "held_out": int(np.sum(held))}
    _check(all(counted.values()), "left", **counted)
    if texts is None:
        return batch.where(~held), batch.where(held)
    sides = [
        [text for text, out in zip(texts, held, strict=True) if out == side] for side in (0, 1)
    ]
    words = learner.learn(learner.cut_beginning(sides[0]))
    fitted, judged = (words.encode(side).batch for side in sides)
    return fitted, judged
