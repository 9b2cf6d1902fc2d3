"""Numbers of topics, compared by how well they predict and how well their words go together.

1. Documents are split by their content, so that copies of one document are on one side, and words
   are learned from the documents to fit alone.
2. All numbers of topics are fitted to the same documents over the same words.
3. All are judged on the same held-out documents, and on the same half of each one's tokens.
   Coherence is counted in all documents: in few, pairs of rarer words never meet, and many topics
   look worse than they are (`docs/howto/choose-topics.md`).
4. The loss of each against the best is a sum over documents, so that its standard error is known.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from streamlda.documents import DocumentBatch, read_counts
from streamlda.errors import Faults, InsufficientDataError, between, require
from streamlda.estimator import StreamLDA
from streamlda.model.coherence import NPMI_WORDS, NpmiCounter
from streamlda.model.evaluation import DocumentCompletion, top_words, topic_diversity
from streamlda.model.inference import SMOOTHING
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.texts import read_texts

#: Numbers of topics that are tried if none are named.
COUNTS = (5, 10, 20, 40, 80)

#: A number of topics is as good as the best if it is behind by at most this many standard errors.
MOST_ERRORS = 2.0

_LEFT = (
    "documents must be left to fit, and to hold out; pass more documents, or hold out another share"
)
_check = Faults({InsufficientDataError: {"left": _LEFT}}).check


class TriedTopics(NamedTuple):
    """A number of topics, and what a fit of as many is worth on the held-out documents."""

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
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(TriedTopics._fields)
        lines.writerows([f"{value:.6g}" for value in each] for each in self.tried)
        return text.getvalue()

    def svg(self) -> str:
        """Return the plot of perplexity and coherence, a picture that loads nothing."""
        from streamlda.report.curves import Curve, draw_curves

        counts, npmi = [each.topics for each in self.tried], [each.npmi for each in self.tried]
        perplexity = np.array([each.perplexity for each in self.tried])
        # Two standard errors of the difference to the best, which has none.
        errors = perplexity * np.expm1([MOST_ERRORS * each.behind_error for each in self.tried])
        return draw_curves(
            f"{self.documents:,} documents fitted, {self.held_out_documents:,} held out; bars: "
            f"{MOST_ERRORS:g} standard errors of the difference to the best",
            counts,
            [
                Curve(
                    "Perplexity, held out (lower is better)", perplexity.tolist(), errors.tolist()
                ),
                Curve("Coherence (NPMI) in all documents", npmi, [0.0] * len(npmi)),
            ],
        )

    def _repr_svg_(self) -> str:
        return self.svg()


def choose_topics(
    X: Any,
    counts: Sequence[int] = COUNTS,
    *,
    held_out: float = 0.1,
    analyzer: Any = None,
    random_state: int = 0,
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

    Examples
    --------
    >>> choice = streamlda.choose_topics(texts, [10, 20, 40])  # doctest: +SKIP
    >>> choice.fewest  # doctest: +SKIP
    """
    learner = VocabularyLearner.by(analyzer, max(check_counts(counts)))
    return judge_counts(X, counts, learner, held_out=held_out, seed=random_state)


def check_counts(counts: Sequence[int]) -> Sequence[int]:
    """Refuse what are no numbers of topics."""
    require(
        len(counts) > 0
        and all(type(n) is int and n >= 1 for n in counts)
        and len(set(counts)) == len(counts),
        "numbers of topics must be whole, at least 1, and each named once",
        counts=list(counts),
        remedy=f"{', '.join(map(str, COUNTS))} are usual",
    )
    return counts


def judge_counts(
    X: Any,
    counts: Sequence[int],
    learner: VocabularyLearner,
    *,
    held_out: float,
    seed: int,
    on_fit: Callable[[int], None] = lambda n: None,
) -> TopicChoice:
    """Return what `choose_topics` does; `on_fit` is told each number before it is fitted."""
    between(0, 1, held_out=held_out, remedy="0.1 is usual")
    fitted, judged = _split(X, learner, held_out, seed)
    left = len(judged) and judged.lengths.max() > 1 and len(fitted) > 1
    _check(left, "left", fitted=len(fitted), held_out=len(judged))
    tried: list[TriedTopics] = []
    nats = []
    result: Any = None
    for n in sorted(counts):
        on_fit(n)
        start = time.process_time()
        model = StreamLDA(n, random_state=seed).fit(fitted.to_csr()).to_model()
        seconds = time.process_time() - start
        completion = DocumentCompletion(
            model.components, model.alpha, model.background, smoothing=SMOOTHING
        )
        nats.append(completion.add(judged))
        result = completion.result()
        top = top_words(model.components, min(NPMI_WORDS, model.n_features))
        counter = NpmiCounter(top)
        for batch in (fitted, judged):
            counter.add(batch)
        npmi, diversity = counter.result().mean, topic_diversity(top)
        tried.append(TriedTopics(n, result.perplexity, 0.0, 0.0, npmi, diversity, seconds))
    best = max(nats, key=np.sum)
    tokens = result.held_out_tokens
    for i, own in enumerate(nats):
        lost = best - own
        error = float(np.sqrt(len(lost)) * lost.std()) / tokens
        tried[i] = tried[i]._replace(behind=float(lost.sum()) / tokens, behind_error=error)
    return TopicChoice(
        tuple(tried), result.unigram_perplexity, len(fitted), result.documents, tokens
    )


def _split(
    X: Any, learner: VocabularyLearner, held_out: float, seed: int
) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents to fit, and those to judge on."""
    border = round(held_out * 2**64)

    def is_held_out(content: bytes) -> bool:
        salt = seed.to_bytes(8, "little", signed=True)
        return int.from_bytes(blake2b(content, digest_size=8, salt=salt).digest(), "big") < border

    texts = read_texts(X)
    if texts is None:
        batch = read_counts(X)
        rows = zip(batch.row_pointers, batch.row_pointers[1:], strict=False)
        held = np.array(
            [
                is_held_out(batch.word_ids[i:j].tobytes() + batch.counts[i:j].tobytes())
                for i, j in rows
            ],
            dtype=np.bool_,
        )
        return batch.where(~held), batch.where(held)
    sides: tuple[list[str], list[str]] = [], []
    for text in texts:
        sides[is_held_out(text.encode("utf-8", "surrogatepass"))].append(text)
    _check(all(sides), "left", fitted=len(sides[0]), held_out=len(sides[1]))
    words = learner.learn(learner.beginning(sides[0]))
    fitted, judged = (words.encode(side).batch for side in sides)
    return fitted, judged
