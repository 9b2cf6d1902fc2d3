"""Facts of a report and the words of its topics, taken from the model before it is drawn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from streamlda.errors import at_least
from streamlda.model.diagnostics import (
    count_clear_topics,
    exclusivity,
    hellinger,
    junk_topics,
    pair_spectrum,
)
from streamlda.model.evaluation import top_words
from streamlda.model.hierarchy import flat_map, topic_tree
from streamlda.model.topic_model import TopicModel
from streamlda.model.topics import Relevance
from streamlda.report.documents import DocumentSurvey
from streamlda.report.over_time import Course, course_from_timeline
from streamlda.utils.arrays import Array

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
    """A topic of the model."""

    #: Its row.
    id: int
    prevalence: float | None
    #: Its words that are of interest, ranked as by the model, and how many of them a card shows.
    words: tuple[Word, ...]
    n_shown: int
    #: Two or three that set it apart.
    label: tuple[str, ...]
    #: As `junk_topics`.
    reasons: tuple[str, ...]
    #: Numbers and distances of the nearest topics, however far.
    nearest: tuple[tuple[int, float], ...]
    #: Share of what came since the model before, by the model itself.
    lately: float | None
    npmi: float | None
    #: `Topics.names`.
    name: str | None
    #: `model.diagnostics.exclusivity`.
    exclusivity: float
    #: Documents most of it: `TopicModel.representative_documents`.
    documents: Sequence[Mapping[str, Any]]

    @property
    def shown_words(self) -> tuple[Word, ...]:
        """The words that are shown first."""
        return self.words[: self.n_shown]


class Facts:
    """All that a report says of a model; the public `render_report` states cost and errors."""

    def __init__(
        self, model: TopicModel, n_words: int, survey: DocumentSurvey | None = None
    ) -> None:
        at_least(1, n_words=n_words)
        #: The model, and documents that the caller gave.
        self.model, self.survey = model, survey
        words, order = Words(model, max(n_words, LISTED_WORDS)), model.order
        apart = hellinger(model.components, model.components)
        #: The topics, the most prevalent first, and `Relevance.usual`.
        self.topics = tuple(_topics(words, model, apart, n_words))
        self.usual = words.usual
        #: Distances between topics, (K, K), in the order of `topics`.
        self.distances = apart[np.ix_(order, order)]
        #: Positions on a flat map, (K, 2), and the part of the distances that each axis shows.
        self.positions, self.explained = flat_map(self.distances)
        #: Joins of topics (`model.hierarchy.topic_tree`), and their places from end to end.
        self.tree, self.leaves = topic_tree(model.components[order], ordered=True), [0]
        if len(self.tree):
            self.leaves = scipy.cluster.hierarchy.leaves_list(self.tree).tolist()
        self.spectrum = pair_spectrum(model.diagnostics)
        #: `count_clear_topics`.
        self.suggested = count_clear_topics(model.diagnostics)
        #: Shares over time of the documents that the caller gave, or else of those of the fit.
        self.course = None if survey is None else survey.time_course()
        if self.course is None and model.timeline is not None:
            self.course = course_from_timeline(model.timeline)
        #: Shares in the classes of the documents that the caller gave.
        self.class_course = None if survey is None else survey.class_course()


def _topics(words: Words, model: TopicModel, apart: Array, n_words: int) -> Iterator[Topic]:
    """Yield the topics of the model, the most prevalent first."""
    reasons, share = junk_topics(model), model.shares
    exclusive = exclusivity(model.components).tolist()
    interval = model.interval
    # Where it is all that came, there is nothing that it could differ from.
    is_part = interval is not None and interval.documents < model.documents_seen
    lately = interval.prevalence if interval is not None and is_part else None
    documents = model.representative_documents
    for k in model.order:
        others = [j for j in np.argsort(apart[k], kind="stable").tolist() if j != k]
        yield Topic(
            id=k,
            prevalence=share[k],
            words=words.of(k),
            n_shown=min(n_words, model.n_features),
            label=words.label(k),
            reasons=reasons[k],
            nearest=tuple((j, float(apart[k, j])) for j in others[:NEIGHBOURS]),
            lately=None if lately is None else lately[k],
            npmi=model.npmi[k],
            name=model.names[k],
            exclusivity=exclusive[k],
            documents=() if documents is None else documents[k],
        )


#: Hundredths of the tokens of a word; topics with less of them are left out.
LEAST_PART = 2


def script_data(facts: Facts) -> dict[str, Any]:
    """Return words, distances and courses of the topics; a page holds about 3 kB of it a topic.

    Distances, in hundredths, are those of each topic to the topics before it. Of each word there
    are the topics that have `LEAST_PART` of its tokens or more, each followed by the hundredths.
    """
    model = facts.model
    words = {word.column: word.text for topic in facts.topics for word in topic.words}
    at = {column: i for i, column in enumerate(words)}
    topics = []
    for topic in facts.topics:
        topics.append(
            {
                "id": topic.id,
                "name": topic.name,
                "share": _short(topic.prevalence),
                "weight": _short(float(model.weights[topic.id])),
                "lately": _short(topic.lately),
                "npmi": _short(topic.npmi),
                "exclusivity": _short(topic.exclusivity),
                "words": [at[word.column] for word in topic.words],
                "chances": [_short(word.probability) for word in topic.words],
            }
        )
    hundredths = np.rint(100 * facts.distances).astype(int)
    return {
        "shown": facts.topics[0].n_shown,
        "relevance": model.relevance,
        "listed": max(facts.topics[0].n_shown, LISTED_WORDS),
        "words": list(words.values()),
        "usual": [_short(float(facts.usual[column])) for column in words],
        "given": _divide(model.components[:, list(words)], model.weights, model.order),
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
        "shares": [[*map(_short, shares)] for shares in course.shares],
    }


def _divide(topics: Array, weights: Array, order: list[int]) -> Any:
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
