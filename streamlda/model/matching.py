"""Topics that two models have in common, and their differences.

The distance of two topics is Hellinger's, ``sqrt(1 - sum_w sqrt(p_w q_w))``: 0 for equal topics, 1
for topics without a word in common. A word that one model does not know has probability 0 there,
so that only words in common enter the sum. Topics are paired such that the sum of distances is
least, where a pair farther apart than `MAX_DISTANCE` is as bad as none and is not made. Topics that
seeds gave one name are a pair however far apart, and those of two names are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.errors import VocabularyError, between, require
from streamlda.model import MAX_DISTANCE
from streamlda.model.diagnostics import common_columns, hellinger
from streamlda.model.faults import check
from streamlda.model.topics import Topics

#: Models are compared by their common words when these are this share of the tokens of both.
LEAST_COMMON_SHARE = 0.5

#: Words of a topic that rose or fell, which are shown.
MOVED_WORDS = 4


class TopicPair(NamedTuple):
    """Rows of a topic in two models, and their Hellinger distance, 0 to 1."""

    first: int
    second: int
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTopic:
    """A topic of both models: rows, distance, words that rose and fell most, the largest first."""

    first: int
    second: int
    distance: float
    rose: tuple[str, ...]
    fell: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Topics in common of two models, and those of one alone; `TopicModel.compare` makes it.

    Parameters
    ----------
    matched : tuple of ComparedTopic
        Topics of both, those most prevalent in the first model first.
    only_first, only_second : tuple of int
        Rows of the topics that one model has alone, the most prevalent first.
    common_words : int
        Words that both models know.
    common_share : float
        Share of the tokens that these words are, 0 to 1, in the model where it is less.
    """

    matched: tuple[ComparedTopic, ...]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    common_words: int
    common_share: float

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)


def check_models(first: Topics, *others: Any) -> None:
    """Refuse what is no model."""
    for other in others:
        check(isinstance(other, type(first)), "model", type=type(other).__name__)


def distances(first: Topics, second: Topics) -> NDArray[np.float64]:
    """Return the Hellinger distance of each topic of one model to each of another.

    All are 1 where columns cannot be compared: other hashing, or matrices of different width. Time
    O(K K' V), memory as `hellinger`, and the words in common where they are not all.
    """
    mine, theirs = common_columns(first, second)
    return hellinger(_part(first, mine), _part(second, theirs))


def _part(model: Topics, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    # Not copied where it is all of them, in their order.
    same = len(columns) == model.n_features and bool(np.all(np.diff(columns) == 1))
    return model.components if same else model.components[:, columns]


def matched_topics(
    first: Topics, second: Topics, *, max_distance: float = MAX_DISTANCE
) -> list[TopicPair]:
    """Return the pairs of topics that are one topic, by their rows in the first model.

    Time O(K K' V + (K + K')^3), memory as `distances`.
    """
    between(0, 1, max_distance=max_distance, remedy=f"{MAX_DISTANCE} is usual")
    apart = distances(first, second)
    names = [
        (i, j, name == other)
        for i, name in enumerate(first.seed_names)
        for j, other in enumerate(second.seed_names)
        if name is not None and other is not None
    ]
    # Two names are farther apart than any two topics.
    cost = apart.copy()
    for i, j, same in names:
        cost[i, j] = -len(cost) if same else 2.0
    rows, columns = scipy.optimize.linear_sum_assignment(np.minimum(cost, max_distance))
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [TopicPair(i, j, float(apart[i, j])) for i, j in pairs if cost[i, j] <= max_distance]


def moved_words(
    before: Topics, i: int, after: Topics, k: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a topic that rose and fell most, by the roots of their probabilities.

    The distance is made of these differences.
    """
    mine, theirs = common_columns(before, after)
    change = np.sqrt(after.components[k, theirs]) - np.sqrt(before.components[i, mine])
    order = np.argsort(-change, kind="stable")
    rose = [j for j in order[:MOVED_WORDS] if change[j] > 0]
    fell = [j for j in order[::-1][:MOVED_WORDS] if change[j] < 0]

    def names(columns: list[np.intp]) -> tuple[str, ...]:
        return tuple(after.feature_name(int(theirs[j])) for j in columns)

    return names(rose), names(fell)


def common_share(first: Topics, second: Topics, *, names: Sequence[str] | None = None) -> float:
    """Return the share of tokens in words that both models know, the smaller of the two.

    Raises `VocabularyError`, with the names, where it is below `LEAST_COMMON_SHARE`.
    """
    mine, theirs = common_columns(first, second)
    shown: dict[str, Any] = {} if names is None else {"first": names[0], "second": names[1]}
    share = float(min(first.background[mine].sum(), second.background[theirs].sum()))
    require(
        share >= LEAST_COMMON_SHARE,
        "models can be compared when the words that both know are at least "
        f"{LEAST_COMMON_SHARE:.0%} of the tokens of each",
        **shown,
        vocabularies=",".join(map(describe_vocabulary, (first, second))),
        common_words=len(mine),
        share=round(share, 3),
        remedy="compare models that were fitted with one vocabulary",
        error=VocabularyError,
    )
    return 1.0 if len(mine) == first.n_features == second.n_features else share


def compare_models(
    first: Topics,
    second: Topics,
    *,
    max_distance: float = MAX_DISTANCE,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Return what `TopicModel.compare` does; an error says the names."""
    check_models(first, second)
    share = common_share(first, second, names=names)
    pairs = {pair.first: pair for pair in matched_topics(first, second, max_distance=max_distance)}
    known = {pair.second for pair in pairs.values()}
    matched = []
    for i in first.order:
        if i in pairs:
            rose, fell = moved_words(first, i, second, pairs[i].second)
            matched.append(ComparedTopic(**pairs[i]._asdict(), rose=rose, fell=fell))
    return Comparison(
        matched=tuple(matched),
        only_first=tuple(i for i in first.order if i not in pairs),
        only_second=tuple(j for j in second.order if j not in known),
        common_words=len(common_columns(first, second)[0]),
        common_share=share,
    )


def describe_vocabulary(model: Topics) -> str:
    """Return the kind of the words of a model, and their number."""
    kind = "none" if model.vocabulary is None else model.vocabulary.kind
    return f"{kind}:{model.n_features}"
