"""Topics that two models have in common, and their differences.

The distance of two topics is Hellinger's, ``sqrt(1 - sum_w sqrt(p_w q_w))``: 0 for equal topics, 1
for topics without a word in common. A word that one model does not know has probability 0 there,
so that only words in common enter the sum. Topics are paired such that the sum of distances is
least, where a pair farther apart than `MAX_DISTANCE` is as bad as none and is not made. Topics that
seeds gave one name are a pair however far apart.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.errors import between
from streamlda.model import MAX_DISTANCE
from streamlda.model.diagnostics import common_columns, hellinger
from streamlda.model.faults import check
from streamlda.model.topics import Topics

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
    """Refuse objects that are no models."""
    for other in others:
        check(isinstance(other, type(first)), "model", type=type(other).__name__)


def distances(first: Topics, second: Topics) -> NDArray[np.float64]:
    """Return the Hellinger distances of topics, which are 1 where columns cannot be compared."""
    mine, theirs = common_columns(first, second)
    return hellinger(_part(first, mine), _part(second, theirs))


def _part(model: Topics, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    # Not copied where it is all of them, in their order.
    same = len(columns) == model.n_features and bool(np.all(np.diff(columns) == 1))
    return model.components if same else model.components[:, columns]


def match_topics(
    first: Topics,
    second: Topics,
    *,
    max_distance: float = MAX_DISTANCE,
    names: Sequence[str | None] | None = None,
) -> list[TopicPair]:
    """Return the pairs of topics that are one topic; `names` are those of seeds of the first."""
    between(0, 1, max_distance=max_distance, remedy=f"{MAX_DISTANCE} is usual")
    apart = distances(first, second)
    cost = np.minimum(apart, max_distance)
    place = {name: j for j, name in enumerate(second.seed_names) if name is not None}
    for i, name in enumerate(first.seed_names if names is None else names):
        if name in place:
            cost[i, place[name]] = -len(cost)
    found = np.transpose(scipy.optimize.linear_sum_assignment(cost)).tolist()
    pairs = (TopicPair(i, j, float(apart[i, j])) for i, j in found)
    return [pair for pair in pairs if pair.distance <= max_distance or cost[pair[:2]] < 0]


def find_moved_words(
    before: Topics, i: int, after: Topics, k: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a topic that rose and fell most, by the roots of their probabilities."""
    mine, theirs = common_columns(before, after)
    change = np.sqrt(after.components[k, theirs]) - np.sqrt(before.components[i, mine])
    order = np.argsort(-change, kind="stable").tolist()

    def names(columns: list[int], sign: int) -> tuple[str, ...]:
        moved = [j for j in columns[:MOVED_WORDS] if sign * change[j] > 0]
        return tuple(after.feature_name(int(theirs[j])) for j in moved)

    return names(order, 1), names(order[::-1], -1)


def compare_models(
    first: Topics, other: Topics, *, max_distance: float = MAX_DISTANCE
) -> Comparison:
    """Return which topics this model and another have in common, and how they differ.

    Topics are paired so that the sum of their Hellinger distances is least. Time O(K K' V + (K
    + K')^3), memory O(K K' + V).

    Parameters
    ----------
    other : TopicModel
        Words that one model alone has count as different; `common_share` says how much it is.
    max_distance : float, default 0.55
        Hellinger distance beyond which two topics are different, 0 to 1.

    Returns
    -------
    Comparison
        `streamlda.model.matching.Comparison`: pairs with distance and words that rose and
        fell from this model to the other, and the topics that only one has.

    Raises
    ------
    InvalidSettingError
        If `max_distance` lies outside 0..1, or the other is no model.
    """
    check_models(first, other)
    pairs = {pair.first: pair for pair in match_topics(first, other, max_distance=max_distance)}
    matched = []
    for pair in (pairs[i] for i in first.order if i in pairs):
        rose, fell = find_moved_words(first, pair.first, other, pair.second)
        matched.append(ComparedTopic(**pair._asdict(), rose=rose, fell=fell))
    known = {pair.second for pair in matched}
    mine, theirs = common_columns(first, other)
    share = min(first.background[mine].sum(), other.background[theirs].sum())
    return Comparison(
        matched=tuple(matched),
        only_first=tuple(i for i in first.order if i not in pairs),
        only_second=tuple(j for j in other.order if j not in known),
        common_words=len(mine),
        common_share=1.0 if len(mine) == first.n_features == other.n_features else float(share),
    )
