"""Topics over words: the content of a model, its checks, and inference with it."""

import difflib
import hashlib
import json
import operator
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda import errors
from streamlda.container import to_json
from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import top_words
from streamlda.model.faults import check, fault
from streamlda.model.inference import SMOOTHING, check_alpha, smooth, topic_proportions
from streamlda.model.model_file import ARRAYS, COUNTS, OBJECTS, vocabulary_parts, write
from streamlda.model.over_time import Interval, Timeline, check_utc
from streamlda.privacy.statement import PRIVATE, SEEDED, not_private
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import check_counts, read_texts
from streamlda.utils.arrays import Array

#: A model of one class, which functions of models return too.
Model = TypeVar("Model", bound="Topics")

#: Setting of a model with the names of topics, by their ids as strings; longest of them.
TOPIC_NAMES, LONGEST_NAME = "topic_names", 100

#: Setting of a model that ranks the words shown of its topics.
RELEVANCE = "relevance"

#: How far a sum of probabilities may be from 1.
SUM_TOLERANCE = 1e-6


@cache
def current_versions() -> dict[str, str]:
    """Return the versions of Python, streamlda and the packages its numbers depend on."""
    packages = ("streamlda", "numpy", "numba", "scipy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


class WordTopic(NamedTuple):
    """A topic, the probability of a word in it, and its share of the tokens of the word."""

    topic: int
    probability: float
    share: float


class Relevance:
    """Ranks the words of topics, (K, V), whose shares of all tokens are `weights`.

    The relevance of a word with probability p in a topic, and q in all tokens, is
    ``weight log p + (1 - weight) log(p / q)`` (Sievert & Shirley 2014): at 1 it ranks by
    probability, at 0 by lift.
    """

    def __init__(self, components: Array, weights: Array) -> None:
        self._components = components
        #: Share of each word in all tokens, (V,), by the model: the mean of the topics. The word
        #: frequencies of a model are means over documents, to which a long one counts no more.
        self.usual: Array = (weights[:, None] * components).sum(axis=0)
        #: The topic looked at last: its columns that have a relevance, and logarithms of these.
        self._logs: tuple[int, NDArray[np.intp], Array, Array] | None = None

    def top(self, k: int, weight: float, n: int) -> list[int]:
        """Return the columns of the n most relevant words, or of all that have one. Time O(V)."""
        topic, usual = self._components[k], self.usual
        if self._logs is None or self._logs[0] != k:
            known = np.flatnonzero((topic > 0) & (usual > 0))
            self._logs = k, known, np.log(topic[known]), np.log(usual[known])
        _, known, p, q = self._logs
        rank = (1 - weight) * q - p
        if len(known) > n:
            best = np.flatnonzero(rank <= np.partition(rank, n - 1)[n - 1])
            known, rank = known[best], rank[best]
        found: list[int] = known[np.argsort(rank, kind="stable")[:n]].tolist()
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Topics:
    """K topics over V words, with their origin; `TopicModel` says what each field is."""

    components: Array
    alpha: Array
    background: Array
    prevalence: Array | None = None
    interval: Interval | None = None
    timeline: Timeline | None = None
    representative_documents: Sequence[Sequence[Mapping[str, Any]]] | None = None
    vocabulary: Vocabulary | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=current_versions)
    documents_seen: int = 0
    tokens_seen: int = 0
    privacy: Mapping[str, Any] = field(default_factory=not_private)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __post_init__(self) -> None:
        for name in (*ARRAYS, "prevalence"):
            if getattr(self, name) is not None:
                _set(self, name, read_only(getattr(self, name)))
        shape = self.components.shape
        alpha, background = self.alpha.shape, self.background.shape
        fits = len(shape) == 2 and 0 not in shape and (alpha, background) == (shape[:1], shape[1:])
        check(fits, "shapes", components=shape, alpha=alpha, background=background)
        interval = self.interval and self.interval.prevalence
        named = {name: getattr(self, name) for name in ("components", "background", "prevalence")}
        for name, rows in (named | {"interval": interval}).items():
            if rows is not None:
                low, error = np.min(rows), np.abs(np.sum(rows, axis=-1) - 1).max()
                holds = low >= 0 and error <= SUM_TOLERANCE
                check(holds, "probabilities", array=name, min=low, largest_error=error)
        check_alpha(self.alpha)
        for name in COUNTS:
            errors.at_least(0, **{name: getattr(self, name)})
            _set(self, name, operator.index(getattr(self, name)))
        for name in OBJECTS:
            value = getattr(self, name)
            check(isinstance(value, Mapping), "mapping", of=name, type=type(value).__name__)
            # As it will be read back, so that a save cannot fail later.
            _set(self, name, json.loads(to_json(dict(value))))
        for name in self.settings.get(TOPIC_NAMES, {}).values():
            check_name(name)
        errors.between(0, 1, relevance=self.settings.get(RELEVANCE, 1.0), remedy="rank words by 1")
        check_utc("created", self.created)
        if (documents := self.representative_documents) is not None:
            _set(self, "representative_documents", json.loads(to_json([*map(list, documents)])))
        if self.vocabulary is not None:
            words, columns = self.vocabulary.n_features, self.n_features
            check(words == columns, "vocabulary", words=words, columns=columns)
            to_json(vocabulary_parts(self.vocabulary)[0])

    @property
    def n_components(self) -> int:
        """Number of topics K."""
        return len(self.components)

    @property
    def n_features(self) -> int:
        """Number of words V."""
        return len(self.background)

    @property
    def alpha_0(self) -> float:
        """Sum of alpha: the larger, the more topics a document mixes."""
        return float(self.alpha.sum())

    @property
    def counts_slots(self) -> bool:
        """True for a private model: its documents are record slots, their number is private."""
        return self.privacy.get("statement") in (PRIVATE, SEEDED)

    @property
    def shares(self) -> list[float | None]:
        """Prevalence of each topic as plain values; None where it was not measured."""
        return [None] * self.n_components if self.prevalence is None else self.prevalence.tolist()

    @property
    def npmi(self) -> list[float | None]:
        """NPMI of each topic in documents of the fit; None where it was not counted."""
        return self.diagnostics.get("topic_npmi") or [None] * self.n_components

    @property
    def order(self) -> list[int]:
        """Rows of the topics, the most prevalent first."""
        found: list[int] = np.argsort(-self.weights, kind="stable").tolist()
        return found

    @property
    def has_ids(self) -> bool:
        """True if the topics have ids that stay theirs while a stream changes."""
        return len(self.diagnostics.get("topic_ids") or ()) == self.n_components

    @property
    def ids(self) -> list[int]:
        """Ids of the topics; their rows, where `has_ids` is False."""
        found: Sequence[int] = range(self.n_components)
        return list(self.diagnostics["topic_ids"] if self.has_ids else found)

    @property
    def names(self) -> list[str | None]:
        """Names of the topics: those given, or else those of the seeds; None of the others."""
        given: Mapping[str, str] = self.settings.get(TOPIC_NAMES, {})
        own = zip(self.ids, self.seed_names, strict=True)
        return [given.get(str(id_), name) for id_, name in own]

    @property
    def seed_names(self) -> list[str | None]:
        """Names of the topics that have seeds; None of the others."""
        own = [str(seed["name"]) for seed in self.settings.get("seed_topics", ())]
        return own + [None] * (self.n_components - len(own))

    @property
    def seeds(self) -> tuple[tuple[int, ...], ...]:
        """Columns of the seed words of the seeded topics, which are the first."""
        return tuple(tuple(seed["columns"]) for seed in self.settings.get("seed_topics", ()))

    @property
    def weights(self) -> Array:
        """Weights that mix the topics to the corpus, (K,): prevalence, without it that of alpha."""
        return self.alpha / self.alpha_0 if self.prevalence is None else self.prevalence

    def __repr__(self) -> str:
        return (
            f"TopicModel(n_components={self.n_components}, n_features={self.n_features}, "
            f"alpha_0={self.alpha_0:.4g}, documents_seen={self.documents_seen})"
        )

    @property
    def relevance(self) -> float:
        """Weight, 0 to 1, that ranks the words shown of a topic: `rank_words` says how."""
        return round(20 * float(self.settings.get(RELEVANCE, 1.0))) / 20

    def rank_words(self: Model, relevance: float) -> Model:
        """Return the model with another ranking of the words that are shown of its topics.

        A word with probability p in a topic, and q in all tokens, ranks by ``relevance log p + (1 -
        relevance) log(p / q)`` (Sievert & Shirley 2014): 1 shows the most probable words, less
        favours words that other topics do not have. Only what is shown changes: NPMI and
        exclusivity are of the most probable words.

        Parameters
        ----------
        relevance : float
            0 to 1, in steps of 0.05.
        """
        errors.between(0, 1, relevance=relevance, remedy="1 shows the most probable words")
        return replace(self, settings={**self.settings, RELEVANCE: float(relevance)})

    def top_words(self, n: int = 10) -> list[list[tuple[str, float]]]:
        """Return the words that are shown of each topic: the most probable first.

        Or the most relevant first, after `rank_words`. Equal ones come in the order of their ids.
        Time O(K V), memory O(V).

        Parameters
        ----------
        n : int, default 10
            Words for each topic; fewer where there are fewer.

        Returns
        -------
        list of K lists of (word, probability)
            Ids without a vocabulary.
        """
        errors.at_least(1, n=n)
        n, weight = min(n, self.n_features), self.relevance
        if weight == 1:
            top = top_words(self.components, n).tolist()
        else:
            words = Relevance(self.components, self.weights)
            top = [words.top(k, weight, n) for k in range(self.n_components)]
        rows = zip(self.components, top, strict=True)
        return [[(self.feature_name(i), float(row[i])) for i in ids] for row, ids in rows]

    def topics_of_word(self, word: str) -> list[WordTopic]:
        """Return the topics of a word, the one with most of its tokens first.

        Each has the number of the ``topic``, the ``probability`` of the word in it, and its
        ``share`` of the tokens of the word. Topics of a text: `document_table`. Time O(K + V).

        Parameters
        ----------
        word : str
            As it is listed, or as the analyzer of the model reads it.

        Raises
        ------
        VocabularyError
            If the model does not know the word, or has no words.

        Examples
        --------
        >>> model.topics_of_word("bank")[0].topic  # doctest: +SKIP
        """
        listed = () if self.vocabulary is None else self.vocabulary.listed or ()
        found = [listed.index(word)] if word in listed else self.encode([word]).word_ids.tolist()
        near = ", ".join(difflib.get_close_matches(word.lower(), listed, n=3))
        errors.require(
            len(found) == 1,
            "what is looked up is no single word of the model",
            word=word,
            known_words=len(found),
            remedy=f"pass one of {near}" if near else "check how it is spelled",
            error=errors.VocabularyError,
        )
        chances: Array = self.components[:, found[0]]
        tokens = self.weights * chances
        shares = tokens / max(tokens.sum(), np.finfo(float).tiny)
        return [
            WordTopic(k, float(chances[k]), float(shares[k]))
            for k in np.lexsort((-chances, -shares)).tolist()
        ]

    def feature_name(self, word_id: int) -> str:
        """Return the word of a column, as `Vocabulary.feature_name`; its number without words."""
        return str(word_id) if self.vocabulary is None else self.vocabulary.feature_name(word_id)

    def transform(self, documents: Any) -> Array:
        """Return the topic proportions of documents; the model is not changed.

        Time O(nnz K) an iteration; topics are smoothed with `inference.SMOOTHING` of background.

        Parameters
        ----------
        documents : texts, DocumentBatch, or array-like or sparse matrix of counts
            Texts, as `StreamLDA.fit` takes them, need a model with a vocabulary; words outside it
            are ignored. A document without a known word gets the proportions of the prior.

        Returns
        -------
        ndarray of shape (n_documents, K)
            Rows sum to 1.

        Raises
        ------
        VocabularyError
            If texts come to a model without a vocabulary.
        InvalidDocumentsError
            If counts are not over the V words of the model, or are no counts.
        """
        return topic_proportions(self.read(documents), self.smoothed, self.alpha)

    def read(self, documents: Any) -> DocumentBatch:
        """Return documents, as `transform` takes them, as counts of the words of the model."""
        if isinstance(documents, DocumentBatch):
            return documents
        texts = read_texts(documents)
        if texts is not None:
            return self.encode(texts)
        return DocumentBatch.from_matrix(check_counts(documents))

    def encode(self, texts: Any) -> DocumentBatch:
        """Return texts as counts of the words of the model, (n_documents, V); O(characters).

        Texts as `Vocabulary.encode` takes them.
        `VocabularyError` if the model has no vocabulary.
        """
        if self.vocabulary is None:
            raise fault("no vocabulary")
        encoded = self.vocabulary.encode(texts)
        for document in encoded.unreadable:
            rule = "the analyzer of the model cannot read a text"
            raise errors.failure(rule, document=document, error=errors.InvalidDocumentsError)
        return encoded.batch

    @cached_property
    def smoothed(self) -> Array:
        """Topics with `inference.SMOOTHING` of background, (K, V), by which `transform` infers."""
        return smooth(self.components, self.background, SMOOTHING)

    @property
    def digest(self) -> str:
        """Identity of the model: 32 hexadecimal digits, from words, topics, alpha and background.

        A privacy statement names a public model by it. Time O(K V).
        """
        words = None if self.vocabulary is None else self.vocabulary.words
        found = hashlib.blake2b(json.dumps(words).encode(), digest_size=16)
        for array in (self.components, self.alpha, self.background):
            found.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return found.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, whole or not at all; a file of that name is replaced.

        Equal models give equal bytes. Time and file size O(K V); memory twice the file's size.

        Raises
        ------
        OSError
            With the errno of the cause (no space, no permission); what was there before stays.
        """
        write(path, {each.name: getattr(self, each.name) for each in fields(self)})


def _set(model: Topics, name: str, value: Any) -> None:
    object.__setattr__(model, name, value)  # the way into a frozen dataclass, before it is used


def read_only(array: Any) -> Array:
    """Return an array that others cannot write to, copied where they could."""
    values = np.ascontiguousarray(array, dtype=np.float64)
    if values.flags.writeable and np.may_share_memory(values, array):
        values = values.copy()
    values.flags.writeable = False
    return values


def check_name(name: Any) -> None:
    """Refuse a text that cannot name a topic."""
    fits = isinstance(name, str) and 0 < len(name.strip()) <= LONGEST_NAME and name.isprintable()
    check(fits, "name of topic", name=repr(name)[:40])
