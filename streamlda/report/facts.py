"""What a report tells, taken from models before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError, VocabularyError
from streamlda.model.diagnostics import (
    Spectrum,
    SuggestedTopics,
    common_columns,
    hellinger,
    junk_topics,
    numbers,
    pair_spectrum,
    redundant_topics,
    suggest_n_components,
)
from streamlda.model.evaluation import top_words
from streamlda.model.topic_model import TopicModel
from streamlda.report.layout import flat_map
from streamlda.service.identity import follow, prevalence

Array = NDArray[np.float64]

#: Models are compared by their common words when these are this share of the tokens of both.
LEAST_COMMON_SHARE = 0.5

#: Weight of a word's probability against its lift in what is told as distinctive: the value that
#: people could name topics by best (Sievert & Shirley 2014, section 4).
RELEVANCE = 0.6

#: Neighbours that are told of each topic, and words that rose or fell.
NEIGHBOURS = 3
MOVED_WORDS = 4


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a topic.

    Parameters
    ----------
    text : str
    probability : float
        In the topic, 0 to 1.
    lift : float
        That over its share of the corpus; infinite where the corpus has none.
    """

    text: str
    probability: float
    lift: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the newest model.

    Parameters
    ----------
    id : int
        Its row in the first model that has it; later ones get the next free numbers.
    row : int
        In the newest model.
    prevalence : float
    moved : float or None
        Distance to the same topic one model before; None for a new one, or if there is one model.
    is_new : bool
        It was not in the model before.
    probable, distinctive : tuple of Word
    reasons : tuple of str
        As `junk_topics`.
    repeats : tuple of (int, float)
        Id and distance of topics that say nearly the same.
    nearest : tuple of (int, float)
        The same of the nearest topics, however far.
    history : tuple of float or None
        Its prevalence in each model, oldest first.
    rose, fell : tuple of str
        Words whose probability changed most since the model before.
    clarity : float or None
        Eigenvalue over its sampling noise.
    """

    id: int
    row: int
    prevalence: float
    moved: float | None
    is_new: bool
    probable: tuple[Word, ...]
    distinctive: tuple[Word, ...]
    reasons: tuple[str, ...]
    repeats: tuple[tuple[int, float], ...]
    nearest: tuple[tuple[int, float], ...]
    history: tuple[float | None, ...]
    rose: tuple[str, ...] = ()
    fell: tuple[str, ...] = ()
    clarity: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report tells.

    Parameters
    ----------
    models : tuple of TopicModel
        Oldest first; topics are those of the last.
    labels : tuple of str
    topics : tuple of Topic
        The most prevalent first.
    distances : ndarray of shape (K, K)
        Between topics, in the order of `topics`.
    places : ndarray of shape (K, 2)
        On a flat map, in that order.
    kept : float
        `FlatMap.kept`.
    spectrum : Spectrum or None
    suggestion : SuggestedTopics
    gone : dict of int to tuple of str
        Topics of the model before that the newest does not have, with their words.
    past : dict of int to tuple of float or None
        History of all topics that are no longer there.
    common_share : float or None
        Least share of tokens, of any two models in turn, in words that both know; None if all
        have the same words.
    """

    models: tuple[TopicModel, ...]
    labels: tuple[str, ...]
    topics: tuple[Topic, ...]
    distances: Array
    places: Array
    kept: float
    spectrum: Spectrum | None
    suggestion: SuggestedTopics
    gone: dict[int, tuple[str, ...]] = field(default_factory=dict)
    past: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    common_share: float | None = None

    @property
    def newest(self) -> TopicModel:
        """The model whose topics are shown."""
        return self.models[-1]


def gather(models: Sequence[TopicModel], labels: Sequence[str], n_words: int) -> Facts:
    """Return what a report tells of models.

    Time O(models K^2 V + K^3), memory O(K V + K^2) besides the models.

    Parameters
    ----------
    models : sequence of TopicModel
        At least one, oldest first.
    labels : sequence of str
        A name of each.
    n_words : int
        Words of each topic, at least 1.

    Raises
    ------
    InvalidSettingError
        If there is no model, or not a label for each, or `n_words` is below 1.
    VocabularyError
        If two models in turn cannot be compared word by word.
    """
    if not models or len(models) != len(labels) or n_words < 1:
        raise InvalidSettingError(
            "a report needs at least one model, a label for each and n_words >= 1, got "
            f"models={len(models)} labels={len(labels)} n_words={n_words}"
        )
    shares = [
        _check_comparable(before, after, pair)
        for (before, after), pair in zip(pairwise(models), pairwise(labels), strict=True)
    ]
    ids, moved, histories = _followed(models)
    newest, shown = models[-1], ids[-1]
    apart = hellinger(newest.components, newest.components)
    reasons = junk_topics(newest)
    repeats: dict[int, list[tuple[int, float]]] = {}
    for pair in redundant_topics(newest.components):
        repeats.setdefault(pair.first, []).append((shown[pair.second], pair.distance))
        repeats.setdefault(pair.second, []).append((shown[pair.first], pair.distance))
    share = prevalence(newest)
    order = sorted(range(len(share)), key=lambda k: -share[k])
    words = _Words(newest, n_words)
    clarity = _clarity(newest)
    topics = []
    for k in order:
        id_ = shown[k]
        earlier = ids[-2].index(id_) if len(models) > 1 and id_ in ids[-2] else None
        rose, fell = ((), ()) if earlier is None else _moved_words(models[-2], earlier, newest, k)
        others = [j for j in np.argsort(apart[k], kind="stable").tolist() if j != k]
        topics.append(
            Topic(
                id=id_,
                row=k,
                prevalence=share[k],
                moved=moved[k],
                is_new=len(models) > 1 and earlier is None,
                probable=words.probable(k),
                distinctive=words.distinctive(k),
                reasons=reasons[k],
                repeats=tuple(repeats.get(k, ())),
                nearest=tuple((shown[j], float(apart[k, j])) for j in others[:NEIGHBOURS]),
                history=tuple(histories[id_]),
                rose=rose,
                fell=fell,
                clarity=clarity[k],
            )
        )
    gone = {} if len(models) < 2 else _gone(models[-2], ids[-2], shown, n_words)
    flat = flat_map(apart[np.ix_(order, order)])
    return Facts(
        models=tuple(models),
        labels=tuple(labels),
        topics=tuple(topics),
        distances=apart[np.ix_(order, order)],
        places=flat.places,
        kept=flat.kept,
        spectrum=pair_spectrum(newest.diagnostics),
        suggestion=suggest_n_components(newest.diagnostics),
        gone=gone,
        past={i: tuple(seen) for i, seen in histories.items() if i not in shown},
        common_share=min((s for s in shares if s < 1.0), default=None),
    )


def _followed(
    models: Sequence[TopicModel],
) -> tuple[list[list[int]], list[float | None], dict[int, list[float | None]]]:
    """Return the ids of each model, how far those of the last moved, and all prevalences."""
    ids = [list(range(models[0].n_components))]
    moved: list[float | None] = [None] * models[0].n_components
    next_id = models[0].n_components
    histories: dict[int, list[float | None]] = {}
    for i, model in enumerate(models):
        if i > 0:
            topics, next_id = follow(models[i - 1], ids[-1], model, next_id)
            moved = [topic.moved for topic in topics]
            ids.append([])
            for topic in topics:
                # Only what goes on from an unknown topic is unknown, and none is to begin with.
                assert topic.id is not None
                ids[-1].append(topic.id)
        for id_, share in zip(ids[-1], prevalence(model), strict=True):
            histories.setdefault(id_, [None] * len(models))[i] = share
    return ids, moved, histories


class _Words:
    """The words of topics, by probability and by what sets them apart."""

    def __init__(self, model: TopicModel, n: int) -> None:
        self._model, self._n = model, min(n, model.n_features)
        self._top = top_words(model.components, self._n)

    def probable(self, k: int) -> tuple[Word, ...]:
        return self._told(k, self._top[k])

    def distinctive(self, k: int) -> tuple[Word, ...]:
        topic, usual = self._model.components[k], self._model.background
        known = np.flatnonzero((topic > 0) & (usual > 0))
        rank = np.log(topic[known]) - (1 - RELEVANCE) * np.log(usual[known])
        return self._told(k, known[np.argsort(-rank, kind="stable")[: self._n]])

    def _told(self, k: int, ids: NDArray[np.integer]) -> tuple[Word, ...]:
        told = []
        for i in ids.tolist():
            p, usual = float(self._model.components[k, i]), float(self._model.background[i])
            told.append(Word(word_name(self._model, i), p, p / usual if usual > 0 else np.inf))
        return tuple(told)


def word_name(model: TopicModel, column: int) -> str:
    """Return the word of a column; its number for a model of matrices."""
    return str(column) if model.vocabulary is None else model.vocabulary.feature_name(column)


def _clarity(model: TopicModel) -> list[float | None]:
    values = numbers(model.diagnostics, "eigenvalues")
    noise = numbers(model.diagnostics, "eigenvalue_noise")
    K = model.n_components
    if values is None or noise is None or not len(values) == len(noise) == K:
        return [None] * K
    found = np.divide(values, noise, out=np.zeros(K), where=np.isfinite(noise) & (noise > 0))
    return list(found.tolist()) if found.any() else [None] * K


def _moved_words(
    before: TopicModel, i: int, after: TopicModel, k: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a topic that rose and fell most, by the roots of their probabilities.

    The distance is made of these differences.
    """
    mine, theirs = common_columns(before, after)
    change = np.sqrt(after.components[k, theirs]) - np.sqrt(before.components[i, mine])
    order = np.argsort(-change, kind="stable")
    rose = [j for j in order[:MOVED_WORDS] if change[j] > 0]
    fell = [j for j in order[::-1][:MOVED_WORDS] if change[j] < 0]
    told = ([word_name(after, int(theirs[j])) for j in part] for part in (rose, fell))
    first, second = map(tuple, told)
    return first, second


def _gone(
    before: TopicModel, ids: list[int], shown: list[int], n_words: int
) -> dict[int, tuple[str, ...]]:
    top = before.top_words(min(n_words, 6))
    return {
        id_: tuple(word for word, _ in top[row]) for row, id_ in enumerate(ids) if id_ not in shown
    }


def _check_comparable(before: TopicModel, after: TopicModel, labels: tuple[str, str]) -> float:
    """Return the share of tokens in words that both models know, the smaller of the two."""
    mine, theirs = common_columns(before, after)
    shares = before.background[mine].sum(), after.background[theirs].sum()
    share = float(min(shares))
    if share < LEAST_COMMON_SHARE:
        found = [_kind(model) for model in (before, after)]
        raise VocabularyError(
            "models can be compared when the words that both know are at least "
            f"{LEAST_COMMON_SHARE:.0%} of the tokens of each, got models={labels[0]!r},"
            f"{labels[1]!r} vocabularies={found[0]},{found[1]} common_words={len(mine)} "
            f"share={share:.1%}; make a report of each, or fit them with one vocabulary"
        )
    return 1.0 if len(mine) == before.n_features == after.n_features else share


def _kind(model: TopicModel) -> str:
    kind = "none" if model.vocabulary is None else model.vocabulary.kind
    return f"{kind}:{model.n_features}"
