"""Facts of a report and the words of its topics, taken from models before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import require
from streamlda.model.diagnostics import (
    SuggestedTopics,
    exclusivity,
    hellinger,
    junk_topics,
    numbers,
    pair_spectrum,
    redundant_topics,
    suggest_n_components,
)
from streamlda.model.evaluation import top_words
from streamlda.model.hierarchy import flat_map, leaves, topic_tree
from streamlda.model.matching import common_share, moved_words
from streamlda.model.relevance import Relevance
from streamlda.model.topic_model import TopicModel
from streamlda.report.documents import DocumentSurvey
from streamlda.report.over_time import Course, course_from_models, course_from_timeline
from streamlda.spectral.support import Spectrum
from streamlda.storage.snapshots import follow_topics

Array = NDArray[np.float64]

#: Relevance of the few words that tell a circle of the map from others: the value that people could
#: name topics by best (Sievert & Shirley 2014, section 4).
LABEL_RELEVANCE = 0.6

#: Weights that the page offers. The words of each are on the page: for 30 words of a topic of
#: text, 70 to 110 in all.
WEIGHTS = np.linspace(0.0, 1.0, 21)

#: Words that label a circle of the map.
LABEL_WORDS = 3


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a topic, with its column."""

    text: str
    column: int
    probability: float


class Words:
    """The words of the topics of a model."""

    def __init__(self, model: TopicModel, n: int) -> None:
        self._model, self._relevance = model, Relevance(model.components, model.weights)
        self.usual = self._relevance.usual
        self.n = min(n, model.n_features)
        self._top = top_words(model.components, self.n)

    def of(self, k: int) -> tuple[Word, ...]:
        """Return the words that are among the first n by any weight, in the order of the model.

        Behind its first n the most probable come first. Time O(V) a weight.
        """
        found = set(self._top[k].tolist())
        for weight in WEIGHTS:
            found.update(self._relevance.top(k, weight, self.n))
        columns = np.array(sorted(found), dtype=np.intp)
        columns = columns[np.argsort(-self._model.components[k, columns], kind="stable")]
        if (weight := self._model.relevance) < 1:
            first = self._relevance.top(k, weight, self.n)
            columns = np.array([*first, *(i for i in columns if i not in first)], dtype=np.intp)
        names = map(self._model.feature_name, columns.tolist())
        chances = self._model.components[k, columns].tolist()
        return tuple(map(Word, names, columns.tolist(), chances))

    def label(self, k: int) -> tuple[str, ...]:
        """Return the most relevant words at the weight `LABEL_RELEVANCE`."""
        columns = self._relevance.top(k, LABEL_RELEVANCE, LABEL_WORDS)
        return tuple(map(self._model.feature_name, columns))


#: Neighbours that each topic lists.
NEIGHBOURS = 3

#: Words that are listed of one topic, at least.
LISTED_WORDS = 30


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
    #: Its words that are of interest, ranked as by the model, and how many of them a card shows.
    words: tuple[Word, ...]
    n_shown: int
    #: Two or three that set it apart.
    label: tuple[str, ...]
    #: As `junk_topics`.
    reasons: tuple[str, ...]
    #: Ids and distances of topics that say nearly the same, and of the nearest, however far.
    repeats: tuple[tuple[int, float], ...]
    nearest: tuple[tuple[int, float], ...]
    #: Words whose probability changed most since the model before.
    rose: tuple[str, ...] = ()
    fell: tuple[str, ...] = ()
    #: Share of what came since the model before, by the model itself.
    lately: float | None = None
    npmi: float | None = None
    #: `Topics.names`.
    name: str | None = None
    #: `model.diagnostics.exclusivity`.
    exclusivity: float = 0.0
    #: Documents most of it: `TopicModel.representative_documents`.
    documents: tuple[Mapping[str, Any], ...] = ()

    @property
    def shown_words(self) -> tuple[Word, ...]:
        """The words that are shown first."""
        return self.words[: self.n_shown]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report says. Models are oldest first, topics the most prevalent first."""

    models: tuple[TopicModel, ...]
    labels: tuple[str, ...]
    topics: tuple[Topic, ...]
    #: `Relevance.usual`.
    usual: Array
    #: Between topics, (K, K), and their positions on a flat map, (K, 2), in the order of `topics`.
    distances: Array
    positions: Array
    #: How topics are joined (`model.hierarchy.topic_tree`), and their places from end to end.
    tree: Array
    leaves: list[int]
    #: `FlatMap.explained`.
    explained: tuple[float, float]
    spectrum: Spectrum | None
    suggestion: SuggestedTopics
    #: Topics of the model before that the newest does not have, with their words.
    gone: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: How shares went from model to model, and over the time of documents.
    models_course: Course | None = None
    time_course: Course | None = None
    #: Documents that the caller gave, and shares in their classes.
    survey: DocumentSurvey | None = None
    class_course: Course | None = None
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
        if self.suggestion.basis in ("hidden", "drop"):
            return self.suggestion.n_components or 0
        above = self.spectrum.above
        return len(self.spectrum.eigenvalues) if above is None else above

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
    def course(self) -> Course | None:
        """Course that is drawn: that of documents, where it is known."""
        return self.time_course or self.models_course

    @property
    def past(self) -> set[int]:
        """Numbers of topics of earlier models that are no longer there."""
        known = {} if self.models_course is None else self.models_course.shares
        return known.keys() - {topic.id for topic in self.topics}


def gather(
    models: Sequence[TopicModel],
    labels: Sequence[str],
    n_words: int,
    survey: DocumentSurvey | None = None,
) -> Facts:
    """Return what a report says of models; the public `render_report` states cost and errors."""
    holds = len(models) == len(labels) > 0 and n_words >= 1
    require(
        holds,
        "a report needs at least one model, a label for each and n_words >= 1",
        models=len(models),
        labels=len(labels),
        n_words=n_words,
    )
    common = [
        common_share(before, after, names=names, remedy="make a report of each")
        for (before, after), names in zip(pairwise(models), pairwise(labels), strict=True)
    ]
    ids, moved = _followed(models)
    newest, shown, order = models[-1], ids[-1], models[-1].order
    apart = hellinger(newest.components, newest.components)
    distances = apart[np.ix_(order, order)]
    tree = topic_tree(newest.components[order], newest.weights[order])
    flat = flat_map(distances)
    words = Words(newest, max(n_words, LISTED_WORDS))
    timeline = newest.timeline
    time_course = None if survey is None else survey.time_course(shown)
    if time_course is None and timeline is not None:
        time_course = course_from_timeline(timeline, shown)
    return Facts(
        models=tuple(models),
        labels=tuple(labels),
        topics=tuple(_topics(words, models, ids, moved, apart, n_words)),
        usual=words.usual,
        distances=distances,
        positions=flat.positions,
        tree=tree,
        leaves=leaves(tree, distances),
        explained=flat.explained,
        spectrum=pair_spectrum(newest.diagnostics),
        suggestion=suggest_n_components(newest.diagnostics),
        gone={} if len(models) < 2 else _gone(models[-2], ids[-2], shown, n_words),
        models_course=None if len(models) < 2 else course_from_models(models, labels, ids),
        time_course=time_course,
        survey=survey,
        class_course=None if survey is None else survey.class_course(shown),
        common_share=min((s for s in common if s < 1.0), default=None),
    )


def _topics(
    words: Words,
    models: Sequence[TopicModel],
    ids: Sequence[list[int]],
    moved: Sequence[float | None],
    apart: Array,
    n_words: int,
) -> Iterator[Topic]:
    """Yield the topics of the newest model, the most prevalent first."""
    newest, shown = models[-1], ids[-1]
    repeats: dict[int, list[tuple[int, float]]] = {}
    for pair in redundant_topics(newest.components):
        repeats.setdefault(pair.first, []).append((shown[pair.second], pair.distance))
        repeats.setdefault(pair.second, []).append((shown[pair.first], pair.distance))
    reasons, share = junk_topics(newest), newest.shares
    unknown = [None] * newest.n_components
    exclusive = exclusivity(newest.components).tolist()
    interval = newest.interval
    # Where it is all that came, there is nothing that it could differ from.
    is_part = interval is not None and interval.documents < newest.documents_seen
    lately = interval.prevalence if interval is not None and is_part else None
    for k in newest.order:
        id_ = shown[k]
        earlier = ids[-2].index(id_) if len(models) > 1 and id_ in ids[-2] else None
        rose, fell = ((), ()) if earlier is None else moved_words(models[-2], earlier, newest, k)
        others = [j for j in np.argsort(apart[k], kind="stable").tolist() if j != k]
        documents = newest.representative_documents
        yield Topic(
            id=id_,
            row=k,
            prevalence=share[k],
            moved=moved[k],
            is_new=len(models) > 1 and earlier is None,
            words=words.of(k),
            n_shown=min(n_words, newest.n_features),
            label=words.label(k),
            reasons=reasons[k],
            repeats=tuple(repeats.get(k, ())),
            nearest=tuple((shown[j], float(apart[k, j])) for j in others[:NEIGHBOURS]),
            rose=rose,
            fell=fell,
            lately=(lately or unknown)[k],
            npmi=_by_topic(newest, "topic_npmi")[k],
            name=newest.names[k],
            exclusivity=exclusive[k],
            documents=() if documents is None else tuple(documents[k]),
        )


def _followed(models: Sequence[TopicModel]) -> tuple[list[list[int]], list[float | None]]:
    """Return the ids of each model, and how far those of the last moved."""
    ids = [list(range(models[0].n_components))]
    moved: list[float | None] = [None] * models[0].n_components
    next_id = models[0].n_components
    for before, after in pairwise(models):
        topics, next_id = follow_topics(before, ids[-1], after, next_id)
        moved = [topic.moved for topic in topics]
        ids.append([])
        for topic in topics:
            # Only what continues from an unknown topic is unknown, and none is to begin with.
            assert topic.id is not None
            ids[-1].append(topic.id)
    return ids, moved


def _by_topic(model: TopicModel, name: str) -> list[float | None]:
    """Return a number for each topic from the diagnostics, None where there is none."""
    found = numbers(model.diagnostics, name)
    if found is None or len(found) != model.n_components:
        return [None] * model.n_components
    return [float(value) if np.isfinite(value) else None for value in found]


def _gone(
    before: TopicModel, ids: list[int], shown: list[int], n_words: int
) -> dict[int, tuple[str, ...]]:
    top = before.top_words(min(n_words, 6))
    return {
        id_: tuple(word for word, _ in top[row]) for row, id_ in enumerate(ids) if id_ not in shown
    }


#: Hundredths of the tokens of a word; topics with less of them are left out.
LEAST_PART = 2


def script_data(facts: Facts) -> dict[str, Any]:
    """Return words, distances and courses of the topics; a page holds about 3 kB of it a topic.

    Distances, in hundredths, are those of each topic to the topics before it. Of each word there
    are the topics that have `LEAST_PART` of its tokens or more, each followed by the hundredths.
    """
    newest = facts.newest
    words = {word.column: word.text for topic in facts.topics for word in topic.words}
    at = {column: i for i, column in enumerate(words)}
    topics = []
    for topic in facts.topics:
        topics.append(
            {
                "id": topic.id,
                "name": topic.name,
                "share": _short(topic.prevalence),
                "weight": _short(float(newest.weights[topic.row])),
                "lately": _short(topic.lately),
                "npmi": _short(topic.npmi),
                "exclusivity": _short(topic.exclusivity),
                "moved": _short(topic.moved),
                "words": [at[word.column] for word in topic.words],
                "chances": [_short(word.probability) for word in topic.words],
            }
        )
    hundredths = np.rint(100 * facts.distances).astype(int)
    return {
        "shown": facts.topics[0].n_shown,
        "relevance": newest.relevance,
        "listed": max(facts.topics[0].n_shown, LISTED_WORDS),
        "words": list(words.values()),
        "usual": [_short(float(facts.usual[column])) for column in words],
        "given": _given(newest.components[:, list(words)], newest.weights, newest.order),
        "topics": topics,
        "distances": [hundredths[i, :i].tolist() for i in range(len(topics))],
        "order": facts.leaves,
        "course": _describe_course(facts.course),
        "classes": _describe_course(facts.class_course),
    }


def _describe_course(course: Course | None) -> Any:
    if course is None:
        return None
    return {
        "labels": course.labels,
        "at": [*map(_short, course.at)],
        "documents": course.documents,
        "shares": {id_: [*map(_short, shares)] for id_, shares in course.shares.items()},
    }


def _given(topics: NDArray[np.float64], weights: NDArray[np.float64], order: list[int]) -> Any:
    """Return of each word the places in `order` of the topics of its tokens, with hundredths."""
    tokens = (topics * weights[:, None])[order]
    shares = tokens / np.maximum(tokens.sum(axis=0), 1e-300)
    hundredths = np.rint(100 * shares).astype(int).T
    return [
        [number for i in np.flatnonzero(row >= LEAST_PART) for number in (int(i), int(row[i]))]
        for row in hundredths
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
