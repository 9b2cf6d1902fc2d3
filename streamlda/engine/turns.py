"""Find where a stream turns: the last blocks of documents are predicted worse than those before.

What predicts them are topics (`streamlda.engine.following`), or the words of all documents so far
where topics are not ready (`streamlda.engine.warmup`).
"""

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.schedule import stream_settings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.utils.arrays import Array, Tree

#: Standard errors that a fall and a gain must exceed. Of normal scores one block in 30,000 does by
#: chance.
ERRORS = 4.0

#: One document in `JUDGING` is not learned by a challenger, which is judged by it.
JUDGING = 5


class Level(NamedTuple):
    """Scores of some documents, in nats a token: their number, sum, and sum of squares."""

    documents: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, scores: Array) -> Self:
        """Return the level of these scores."""
        return cls(float(len(scores)), math.fsum(scores), math.fsum(scores**2))

    def plus(self, other: Self) -> Self:
        """Return the level of both."""
        return type(self)(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def is_below(self, other: Self, error: float = 0.0) -> bool:
        """Return whether the mean is lower than another by more than `ERRORS` standard errors.

        That of the documents, or a given one that is larger.
        """
        if not (self.documents and other.documents):
            return False
        error = max(error, math.sqrt(self.squared_error + other.squared_error))
        return other.mean - self.mean > ERRORS * error

    @property
    def mean(self) -> float:
        """Mean score."""
        return self.total / self.documents

    @property
    def squared_error(self) -> float:
        """Squared standard error of the mean."""
        return max(0.0, self.squares / self.documents - self.mean**2) / self.documents


@dataclass(slots=True)
class Scores:
    """Level of all blocks but the last ones, `most` at most, and the scores of each of these.

    `usual` is the level of blocks that had fallen, and that no challenger predicted better: blocks
    as low as these are no turn, such as those of another partition of a topic.
    """

    most: int
    before: Level = field(default_factory=Level)
    usual: Level = field(default_factory=Level)
    last: list[Array] = field(default_factory=list)
    #: Level of each of the last blocks.
    levels: list[Level] = field(default_factory=list)

    def add(self, scores: Array) -> int:
        """Take a block; return the number of last blocks that are worse than those before, or 0.

        Tried are 1, 2, 4, ... blocks.
        """
        self.last.append(scores)
        self.levels.append(Level.of(scores))
        for old in self.levels[: -self.most]:
            self.before = self.before.plus(old)
        self.last, self.levels = self.last[-self.most :], self.levels[-self.most :]
        m = 1
        while m <= len(self.levels):
            older, last = self.levels[:-m], reduce(Level.plus, self.levels[-m:])
            before = reduce(Level.plus, older, self.before)
            is_new = not self.usual.documents or last.is_below(self.usual)
            if is_new and last.is_below(before, _error_of_blocks(older, m)):
                return m
            m *= 2
        return 0

    def begin_again(self, scores: Array, *, usual: bool = False) -> None:
        """Forget all but the level of some scores, which may be low as usual."""
        self.before, self.last, self.levels = Level.of(scores), [], []
        self.usual = self.before if usual else Level()

    def state(self) -> Tree:
        """Return all of it."""
        last = {f"{i:02}": scores for i, scores in enumerate(self.last)}
        return {"before": [*self.before], "usual": [*self.usual], "last": last}

    def restore(self, own: Tree) -> None:
        """Take back what `state` returned."""
        self.before, self.usual = Level(*own["before"]), Level(*own["usual"])
        self.last = [own["last"][name].copy() for name in sorted(own["last"])]
        self.levels = [Level.of(scores) for scores in self.last]


def _error_of_blocks(levels: list[Level], m: int) -> float:
    """Return the standard error of the mean of m blocks less that of others, by how these differ.

    Documents of a block are more alike than others: of one day, or one source. 0 if unknown.
    """
    n = len(levels)
    if n < 3:
        return 0.0
    return float(np.std([level.mean for level in levels], ddof=1)) * math.sqrt(1 / m + 1 / n)


def score_by_words(words: Array, documents: DocumentBatch) -> Array:
    """Return the log-likelihood a token of each document by the words counted so far."""
    likelihood = np.log((words + 1) / (words.sum() + len(words)))
    found = np.add.reduceat(
        documents.counts * likelihood[documents.word_ids], documents.row_pointers[:-1]
    )
    return found / documents.lengths


def count_words(documents: DocumentBatch) -> Array:
    """Return the tokens of each word."""
    counts = documents.counts
    return np.bincount(documents.word_ids, counts, documents.n_features).astype(np.float64)


class Gain(NamedTuple):
    """Mean of what one model gains on another over documents, in nats a token, and its error."""

    mean: float
    error: float

    @classmethod
    def of(cls, gains: Array) -> Self:
        """Return the gain of these documents."""
        return cls(float(gains.mean()), float(gains.std()) / math.sqrt(len(gains)))

    @property
    def is_sure(self) -> bool:
        """True if the gain is more than `ERRORS` standard errors."""
        return self.mean > ERRORS * self.error

    @property
    def diagnostics(self) -> dict[str, float]:
        """Entries of the gain in the diagnostics of a model."""
        return {"gain": self.mean, "standard_error": self.error}


def judge_by(model: TopicModel, settings: EngineSettings) -> StepwiseEM:
    """Return a scorer of documents by the topics of a model."""
    return StepwiseEM.of_model(model, stream_settings(settings.warmup_documents), 1)
