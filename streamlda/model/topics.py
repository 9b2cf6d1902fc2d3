"""Topics over words: the content of a model, its checks, and inference with it."""

from __future__ import annotations

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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.container import to_json
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, at_least, between, failure, require
from streamlda.model.evaluation import top_words
from streamlda.model.faults import check, fault
from streamlda.model.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.model.model_file import ARRAYS, COUNTS, OBJECTS, vocabulary_parts, write
from streamlda.model.over_time import Interval, Timeline, check_utc
from streamlda.model.relevance import Relevance
from streamlda.privacy.statement import not_private
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import read_texts

#: A model of one class, which functions of models return too.
Model = TypeVar("Model", bound="Topics")

#: Setting of a model with the names of topics, by their ids as strings; longest of them.
TOPIC_NAMES, LONGEST_NAME = "topic_names", 100

#: Setting of a model that ranks the words shown of its topics.
RELEVANCE = "relevance"

#: How far a sum of probabilities may be from 1.
SUM_TOLERANCE = 1e-6


def current_versions() -> dict[str, str]:
    """Return the versions of Python, streamlda and the packages its numbers depend on."""
    return {"python": platform.python_version(), **_package_versions()}


@cache
def _package_versions() -> dict[str, str]:
    """Return those of packages; they are read from files, in 4 milliseconds."""
    return {n: version(n) for n in ("streamlda", "numpy", "numba", "scipy", "scikit-learn")}


@dataclass(frozen=True, eq=False, kw_only=True)
class Topics:
    """K topics over V words, with their origin; `TopicModel` says what each field is."""

    components: NDArray[np.float64]
    alpha: NDArray[np.float64]
    background: NDArray[np.float64]
    prevalence: NDArray[np.float64] | None = None
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
        for name in ARRAYS:
            _set(self, name, read_only(name, getattr(self, name)))
        shape = self.components.shape
        check(
            len(shape) == 2
            and 0 not in shape
            and (self.alpha.shape, self.background.shape) == (shape[:1], shape[1:]),
            "shapes",
            components=shape,
            alpha=self.alpha.shape,
            background=self.background.shape,
        )
        check_probabilities("components", self.components)
        check_probabilities("background", self.background)
        low = self.alpha.min()
        check(low > 0, "alpha of model", min=low)
        for name in COUNTS:
            at_least(0, **{name: getattr(self, name)})
            _set(self, name, operator.index(getattr(self, name)))
        for name in OBJECTS:
            _set(self, name, plain_object(name, getattr(self, name)))
        for name in plain_object(TOPIC_NAMES, self.settings.get(TOPIC_NAMES, {})).values():
            check_name(name)
        between(0, 1, relevance=self.settings.get(RELEVANCE, 1.0), remedy="rank words by 1")
        check_utc("created", self.created)
        self._check_shares()
        if self.vocabulary is not None:
            words, columns = self.vocabulary.n_features, self.n_features
            check(words == columns, "vocabulary", words=words, columns=columns)
            to_json(vocabulary_parts(self.vocabulary)[0])

    def _check_shares(self) -> None:
        """Check what is said of each topic: it must be said of K."""
        K = self.n_components
        interval = None if self.interval is None else self.interval.prevalence
        if self.prevalence is not None:
            _set(self, "prevalence", read_only("prevalence", self.prevalence))
        for name, shares in (("prevalence", self.prevalence), ("interval.prevalence", interval)):
            if shares is not None:
                check_probabilities(name, np.array(shares))
        lengths = {
            "prevalence": K if self.prevalence is None else len(self.prevalence),
            "interval": K if interval is None else len(interval),
            "timeline": K if self.timeline is None else self.timeline.tokens.shape[1],
            "representative_documents": K
            if self.representative_documents is None
            else len(self.representative_documents),
        }
        for name, n in lengths.items():
            require(n == K, f"{name} must be of all topics", topics=K, got=n)
        if self.representative_documents is not None:
            plain = json.loads(to_json(list(map(list, self.representative_documents))))
            _set(self, "representative_documents", plain)

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
    def shares(self) -> list[float | None]:
        """Prevalence of each topic as plain values; None where it was not measured."""
        if self.prevalence is None:
            return [None] * self.n_components
        return [float(share) for share in self.prevalence]

    @property
    def order(self) -> list[int]:
        """Rows of the topics, the most prevalent first."""
        found: list[int] = np.argsort(-self.weights, kind="stable").tolist()
        return found

    @property
    def has_ids(self) -> bool:
        """Whether the topics have ids that stay theirs while a stream changes."""
        known = self.diagnostics.get("topic_ids")
        return isinstance(known, list) and len(known) == self.n_components

    @property
    def ids(self) -> list[int]:
        """Ids of the topics; their rows, where `has_ids` is False."""
        found: list[int] = self.diagnostics["topic_ids"] if self.has_ids else []
        return found or list(range(self.n_components))

    @property
    def names(self) -> list[str | None]:
        """Names of the topics: those given, or else those of the seeds; None of the others."""
        given: Mapping[str, str] = self.settings.get(TOPIC_NAMES, {})
        own = zip(self.ids, self.seed_names, strict=True)
        return [given.get(str(id_), name) for id_, name in own]

    @property
    def seed_names(self) -> list[str | None]:
        """Names of the topics that have seeds; None of the others."""
        own: list[str | None] = [str(seed["name"]) for seed in self._seed_topics]
        return own + [None] * (self.n_components - len(own))

    @property
    def seeds(self) -> tuple[tuple[int, ...], ...]:
        """Columns of the seed words of the seeded topics, which are the first."""
        return tuple(tuple(seed["columns"]) for seed in self._seed_topics)

    @property
    def _seed_topics(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self.settings.get("seed_topics", [])
        return found

    @property
    def weights(self) -> NDArray[np.float64]:
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
        between(0, 1, relevance=relevance, remedy="1 shows the most probable words")
        return replace(self, settings={**self.settings, RELEVANCE: float(relevance)})

    def top_columns(self, n: int) -> list[list[int]]:
        """Return the columns of the words that `top_words` shows of each topic."""
        at_least(1, n=n)
        n = min(n, self.n_features)
        if (weight := self.relevance) == 1:
            found: list[list[int]] = top_words(self.components, n).tolist()
            return found
        words = Relevance(self.components, self.weights)
        return [words.top(k, weight, n) for k in range(self.n_components)]

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
        return [
            [(self.feature_name(i), float(row[i])) for i in ids]
            for row, ids in zip(self.components, self.top_columns(n), strict=True)
        ]

    def feature_name(self, word_id: int) -> str:
        """Return the word of a column, as `Vocabulary.feature_name`; its number without words."""
        return str(word_id) if self.vocabulary is None else self.vocabulary.feature_name(word_id)

    def transform(self, documents: Any) -> NDArray[np.float64]:
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
        return DocumentBatch.from_matrix(documents) if texts is None else self.encode(texts)

    def encode(self, texts: Any) -> DocumentBatch:
        """Return texts as counts of the words of the model, (n_documents, V); O(characters).

        Texts as `Vocabulary.encode` takes them.
        `VocabularyError` if the model has no vocabulary.
        """
        if self.vocabulary is None:
            raise fault("no vocabulary")
        encoded = self.vocabulary.encode(texts)
        for document in encoded.unreadable:
            rule = "the analyzer of a model must read each text"
            raise failure(rule, document=document, error=InvalidDocumentsError)
        return encoded.batch

    @cached_property
    def smoothed(self) -> NDArray[np.float64]:
        """Topics with `inference.SMOOTHING` of background, (K, V), by which `transform` infers."""
        return smoothed(self.components, self.background, SMOOTHING)

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


def read_only(name: str, array: Any) -> NDArray[np.float64]:
    """Return an array of finite numbers that others cannot write to, copied where they could."""
    values = np.ascontiguousarray(array, dtype=np.float64)
    if values.flags.writeable and np.may_share_memory(values, array):
        values = values.copy()
    values.flags.writeable = False
    rule = f"{name} must be finite, got {name} with NaN or infinity"
    require(np.isfinite(values).all(), rule, remedy="fit the model again")
    return values


def check_probabilities(name: str, values: NDArray[np.float64]) -> None:
    """Refuse rows that are no distributions."""
    low = values.min()
    error = np.abs(values.sum(axis=-1) - 1).max()
    require(
        low >= 0 and error <= SUM_TOLERANCE,
        f"{name} must be probabilities, each row with the sum 1 within {SUM_TOLERANCE}",
        min=low,
        largest_error=error,
        remedy="clip and normalize them first",
    )


def check_name(name: Any) -> None:
    """Refuse what is no name of a topic."""
    require(
        isinstance(name, str) and 0 < len(name.strip()) <= LONGEST_NAME and name.isprintable(),
        f"the name of a topic must be a line of 1 to {LONGEST_NAME} characters",
        name=repr(name)[:40],
        remedy="shorten it, or pass None for no name",
    )


def plain_object(name: str, value: Any) -> dict[str, Any]:
    """Return the object as it will be read back, so that a save cannot fail later."""
    require(
        isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        f"{name} must be a mapping with string keys",
        type=type(value).__name__,
        remedy="pass a dict",
    )
    plain: dict[str, Any] = json.loads(to_json(dict(value)))
    return plain
