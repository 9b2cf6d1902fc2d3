"""What a report says, taken from models before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.errors import VocabularyError
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
from streamlda.storage.identity import follow

Array = NDArray[np.float64]

#: Models are compared by their common words when these are this share of the tokens of both.
LEAST_COMMON_SHARE = 0.5

#: Weight of a word's probability against its lift in what counts as distinctive: the value that
#: people could name topics by best (Sievert & Shirley 2014, section 4).
RELEVANCE = 0.6

#: Neighbours that each topic lists, and words that rose or fell.
NEIGHBOURS = 3
MOVED_WORDS = 4


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a topic; its lift is infinite where the corpus lacks the word."""

    text: str
    probability: float
    lift: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the newest model."""

    #: Its row in the first model that has it; later topics get the next free numbers.
    id: int
    #: Its row in the newest model.
    row: int
    prevalence: float | None
    #: Distance to the same topic one model before; None for a new topic, or if there is one model.
    moved: float | None
    is_new: bool
    probable: tuple[Word, ...]
    distinctive: tuple[Word, ...]
    #: As `junk_topics`.
    reasons: tuple[str, ...]
    #: Ids and distances of topics that say nearly the same, and of the nearest, however far.
    repeats: tuple[tuple[int, float], ...]
    nearest: tuple[tuple[int, float], ...]
    #: Its prevalence in each model, oldest first.
    history: tuple[float | None, ...]
    #: Words whose probability changed most since the model before.
    rose: tuple[str, ...] = ()
    fell: tuple[str, ...] = ()
    #: Eigenvalue over its sampling noise.
    clarity: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report says. Models are oldest first, topics the most prevalent first."""

    models: tuple[TopicModel, ...]
    labels: tuple[str, ...]
    topics: tuple[Topic, ...]
    #: Between topics, (K, K), and their positions on a flat map, (K, 2), in the order of `topics`.
    distances: Array
    positions: Array
    #: `FlatMap.explained`.
    explained: float
    spectrum: Spectrum | None
    suggestion: SuggestedTopics
    #: Topics of the model before that the newest does not have, with their words.
    gone: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: History of all topics that are no longer there.
    past: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    #: Least share of tokens, of any two models in turn, in words that both know; None if all have
    #: the same words.
    common_share: float | None = None

    @property
    def newest(self) -> TopicModel:
        """The model whose topics are shown."""
        return self.models[-1]

    @property
    def directions(self) -> int:
        """Directions of the word pairs that count: all, unless their noise is known."""
        assert self.spectrum is not None
        if self.spectrum.floor is None:
            return len(self.spectrum.eigenvalues)
        return self.suggestion.n_components or 0

    @property
    def repeats(self) -> list[tuple[int, int, float]]:
        """Pairs of near-duplicates with their distance, nearest first."""
        pairs = {
            (min(topic.id, other), max(topic.id, other)): far
            for topic in self.topics
            for other, far in topic.repeats
        }
        return sorted(((i, j, far) for (i, j), far in pairs.items()), key=lambda pair: pair[2])

    @property
    def stayed(self) -> list[Topic]:
        """Topics that were in the model before, those that moved most first."""
        return sorted(
            (topic for topic in self.topics if topic.moved is not None),
            key=lambda topic: -(topic.moved or 0.0),
        )

    @property
    def histories(self) -> dict[int, tuple[float | None, ...]]:
        """Prevalence of every topic of any model, by its number."""
        found = {topic.id: topic.history for topic in self.topics} | self.past
        return dict(sorted(found.items()))


def gather(models: Sequence[TopicModel], labels: Sequence[str], n_words: int) -> Facts:
    """Return what a report says of models; the public `render_report` states cost and errors."""
    holds = len(models) == len(labels) > 0 and n_words >= 1
    require(
        holds,
        "a report needs at least one model, a label for each and n_words >= 1",
        models=len(models),
        labels=len(labels),
        n_words=n_words,
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
    share, order = newest.shares, newest.order
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
        positions=flat.positions,
        explained=flat.explained,
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
        for id_, share in zip(ids[-1], model.shares, strict=True):
            histories.setdefault(id_, [None] * len(models))[i] = share
    return ids, moved, histories


class _Words:
    """The words of topics, by probability and by what sets them apart."""

    def __init__(self, model: TopicModel, n: int) -> None:
        self._model, self._n = model, min(n, model.n_features)
        self._top = top_words(model.components, self._n)

    def probable(self, k: int) -> tuple[Word, ...]:
        return self._listed(k, self._top[k])

    def distinctive(self, k: int) -> tuple[Word, ...]:
        topic, usual = self._model.components[k], self._model.background
        known = np.flatnonzero((topic > 0) & (usual > 0))
        rank = np.log(topic[known]) - (1 - RELEVANCE) * np.log(usual[known])
        return self._listed(k, known[np.argsort(-rank, kind="stable")[: self._n]])

    def _listed(self, k: int, ids: NDArray[np.integer]) -> tuple[Word, ...]:
        p, usual = self._model.components[k, ids], self._model.background[ids]
        lift = np.divide(p, usual, out=np.full(len(p), np.inf), where=usual > 0)
        names = map(self._model.feature_name, ids.tolist())
        return tuple(map(Word, names, p.tolist(), lift.tolist()))


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

    def names(columns: list[np.intp]) -> tuple[str, ...]:
        return tuple(after.feature_name(int(theirs[j])) for j in columns)

    return names(rose), names(fell)


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
    require(
        share >= LEAST_COMMON_SHARE,
        "models can be compared when the words that both know are at least "
        f"{LEAST_COMMON_SHARE:.0%} of the tokens of each",
        before=labels[0],
        after=labels[1],
        vocabularies=",".join(map(_kind, (before, after))),
        common_words=len(mine),
        share=round(share, 3),
        remedy="make a report of each, or fit them with one vocabulary",
        error=VocabularyError,
    )
    return 1.0 if len(mine) == before.n_features == after.n_features else share


def _kind(model: TopicModel) -> str:
    kind = "none" if model.vocabulary is None else model.vocabulary.kind
    return f"{kind}:{model.n_features}"
