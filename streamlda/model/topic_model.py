"""The topic model: what is published, shown and used for inference."""

from __future__ import annotations

import hashlib
import json
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, failure, require
from streamlda.container import to_json, valid_content
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, VocabularyError
from streamlda.model import MAX_DISTANCE
from streamlda.model.content import (
    check_probabilities,
    check_shapes,
    check_vocabulary,
    plain_object,
    read_only,
)
from streamlda.model.evaluation import top_words
from streamlda.model.hierarchy import reduced
from streamlda.model.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.model.matching import Comparison, compared
from streamlda.model.merging import merged
from streamlda.model.model_file import ARRAYS, COUNTS, OBJECTS, members, read, write
from streamlda.model.over_time import Interval, Timeline, checked_shares, utc_time
from streamlda.model.table import html_table
from streamlda.model.versions import current_versions
from streamlda.privacy.statement import not_private
from streamlda.text import functions
from streamlda.text.functions import Analyze
from streamlda.text.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicModel:
    """K topics over V words, with their origin.

    Writable arrays are copied, so that later writes do not change the model; read-only arrays are
    shared. Memory O(K V).

    Parameters
    ----------
    components : ndarray of shape (K, V), float64
        Word probabilities of each topic; every row sums to 1.
    alpha : ndarray of shape (K,), float64
        Dirichlet parameters of the topic mixtures, above 0.
    background : ndarray of shape (V,), float64
        Word frequencies of the corpus (M1); they sum to 1.
    prevalence : ndarray of shape (K,), float64, or None
        Share of all tokens learned from that each topic has, measured by the proportions of the
        documents; sums to 1. None where it was not measured: files of version 1.
    interval : Interval or None
        What came since the model before this one.
    timeline : Timeline or None
        Tokens of each topic by event time, if records have one.
    representative_documents : sequence of K sequences of mappings, or None
        The documents with most of each topic, if the fit was set to keep them, among those of which
        it is the largest topic: ``id``, ``proportion`` (0 to 1) and, where set, ``text``.
    vocabulary : Vocabulary or None
        How text becomes word ids; None for a model of matrices whose columns have no names.
    settings, diagnostics, versions : mapping
        Plain JSON values: the settings of the fit, its diagnostics, and versions of packages.
    documents_seen, tokens_seen : int
        Size of the corpus so far.
    privacy : mapping
        The privacy statement (`streamlda.privacy.statement`); `not_private` by default.
        Old files say ``{"statement": "none"}``, which means the same.
    created : str
        Date and time in ISO 8601, UTC.

    Raises
    ------
    InvalidSettingError
        Naming the rule and the value that breaks it.
    VocabularyError
        If the words cannot be stored, or are not V.
    """

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
        check_shapes(self.components, self.alpha, self.background)
        check_probabilities("components", self.components)
        check_probabilities("background", self.background)
        low = self.alpha.min()
        require(low > 0, "alpha must be > 0", min=low, remedy="fit fewer topics")
        for name in COUNTS:
            at_least(0, **{name: getattr(self, name)})
            _set(self, name, operator.index(getattr(self, name)))
        for name in OBJECTS:
            _set(self, name, plain_object(name, getattr(self, name)))
        utc_time("created", self.created)
        self._check_shares()
        if self.vocabulary is not None:
            check_vocabulary(self.vocabulary, self.n_features)

    def _check_shares(self) -> None:
        """Check what is said of each topic: it must be said of K."""
        K = self.n_components
        if self.prevalence is not None:
            _set(self, "prevalence", checked_shares("prevalence", self.prevalence, K))
        shares = None if self.interval is None else self.interval.prevalence
        lengths = {
            "interval": K if shares is None else len(shares),
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
    def names(self) -> list[str | None]:
        """Names of the topics, those of the seeds; None of the others."""
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

    def _repr_html_(self) -> str:
        return html_table(self)

    def visualize(self, *, title: str = "Topic report", n_words: int = 10) -> Any:
        """Return the report about this model, to be shown in a notebook or saved.

        Parameters and cost as `streamlda.visualize`, which it calls.
        """
        # Who draws stands above who is drawn: the package knows it, this module does not.
        return sys.modules["streamlda"].visualize(self, title=title, n_words=n_words)

    def top_words(self, n: int = 10) -> list[list[tuple[str, float]]]:
        """Return the most probable words of each topic, most probable first.

        Equal probabilities come in the order of their ids. Time O(K V), memory O(V).

        Parameters
        ----------
        n : int, default 10
            Words for each topic; all V if there are fewer.

        Returns
        -------
        list of K lists of (word, probability)
            Hashed words as `Vocabulary.feature_name` names them; ids without a vocabulary.
        """
        at_least(1, n=n)
        top = top_words(self.components, min(n, self.n_features)).tolist()
        return [
            [(self.feature_name(i), float(row[i])) for i in ids]
            for row, ids in zip(self.components, top, strict=True)
        ]

    def shared_columns(self, n: int = 10) -> list[int]:
        """Return how many of the n most probable columns of each topic several words share.

        Such hashed columns are named ``"cat|dog"``: which of the words the topic is about is not
        known. 0 for vocabularies of other kinds. Time O(K V), memory O(V).
        """
        at_least(1, n=n)
        if self.vocabulary is None or self.vocabulary.names is None:
            return [0] * self.n_components
        top = top_words(self.components, min(n, self.n_features)).tolist()
        return [sum(map(self.vocabulary.shared, columns)) for columns in top]

    def feature_name(self, word_id: int) -> str:
        """Return the word of a column, as `Vocabulary.feature_name`; its number without words."""
        return str(word_id) if self.vocabulary is None else self.vocabulary.feature_name(word_id)

    def transform(self, documents: Any) -> NDArray[np.float64]:
        """Return the topic proportions of documents; the model is not changed.

        Time O(nnz K) an iteration; topics are smoothed with `inference.SMOOTHING` of background.

        Parameters
        ----------
        documents : sequence of str, DocumentBatch, or array-like or sparse matrix of counts
            Texts need a model with a vocabulary; words outside it are ignored. A document
            without a known word gets the proportions of the prior.

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
        if not isinstance(documents, DocumentBatch):
            texts = isinstance(documents, Sequence) and all(isinstance(d, str) for d in documents)
            documents = self.encode(documents) if texts else DocumentBatch.from_matrix(documents)
        return topic_proportions(documents, self.smoothed, self.alpha)

    def compare(self, other: TopicModel, *, max_distance: float = MAX_DISTANCE) -> Comparison:
        """Return which topics this model and another have in common, and how they differ.

        Topics are paired so that the sum of their Hellinger distances is least. Time O(K K' V + (K
        + K')^3), memory O(K K' + V).

        Parameters
        ----------
        other : TopicModel
            Of words in common that are half of the tokens of each, or more.
        max_distance : float, default 0.55
            Hellinger distance beyond which two topics are different, 0 to 1.

        Returns
        -------
        Comparison
            `streamlda.model.matching.Comparison`: pairs with distance and words that rose and
            fell from this model to the other, and the topics that only one has.

        Raises
        ------
        VocabularyError
            If there are too few words in common.
        InvalidSettingError
            If `max_distance` lies outside 0..1, or the other is no model.
        """
        return compared(self, other, max_distance=max_distance)

    def merge(self, *others: TopicModel, max_distance: float = MAX_DISTANCE) -> TopicModel:
        """Return one model of this one and others that have learned from other documents.

        Topics nearer than `max_distance` become one topic, their mean weighted by tokens; all
        others are kept. Topics with names come first, then those of this model. Words are those of
        all models: a word that a model does not know has no tokens there. Interval, documents to
        show, and measures that some of the models lack are None. A single fit over all documents is
        better. ``diagnostics["merged_models"]`` says where each topic came from. Time O(K^2 V +
        K^3) and memory O(K V), for each other model.

        Parameters
        ----------
        *others : TopicModel
            Of the same analyzer, the same hashed columns, or matrices of one width. Documents
            that are in two of them count twice.
        max_distance : float, default 0.55
            Hellinger distance beyond which two topics are different, 0 to 1.

        Returns
        -------
        TopicModel
            Of all words, with the topics of all.

        Raises
        ------
        VocabularyError
            If words cannot be brought together.
        InvalidSettingError
            If one is no model, a model comes twice or does not know its number of documents,
            `max_distance` lies outside 0..1, or no privacy statement would be true: private and
            other models, private ones of different units or the same record slots of one ledger.
        """
        return merged((self, *others), max_distance=max_distance)

    def reduce(self, n_topics: int) -> TopicModel:
        """Return the model with fewer topics: those that are most alike are joined.

        `streamlda.model.hierarchy` says how. Tokens, prevalence and alpha of joined topics add up,
        and so do shares of the interval and the timeline. Joined topics have no NPMI, since it was
        not counted, and no topic has documents to show, since their proportions change.
        ``diagnostics["reduced_from"]`` has the rows that each topic is made of. Privacy stays what
        it was. Time O(K^2 V + K^3), memory O(K V + K^2).

        Parameters
        ----------
        n_topics : int
            1 to K.

        Returns
        -------
        TopicModel
            Of the same words, with ``n_topics`` topics.

        Raises
        ------
        InvalidSettingError
            If `n_topics` is no whole number from 1 to K.
        """
        return reduced(self, n_topics)

    def encode(self, texts: Sequence[str]) -> DocumentBatch:
        """Return texts as counts of the words of the model, (n_documents, V); others are left out.

        Time and memory O(characters).

        Raises
        ------
        VocabularyError
            If the model has no vocabulary.
        """
        if self.vocabulary is None:
            raise failure(
                "a model must have a vocabulary to read text, got a model of matrices",
                remedy="pass counts, or save it with the names of its words",
                error=VocabularyError,
            )
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

        Permissions follow the umask.

        Raises
        ------
        OSError
            With the errno of the cause (no space, no permission); what was there before stays.
        """
        write(path, {each.name: getattr(self, each.name) for each in fields(self)})


def load(path: str | os.PathLike[str], *, analyzer: str | Analyze | None = None) -> TopicModel:
    """Read a model file; everything in it is checked before the model is made.

    Time O(K V); memory twice the size of the file while it is read, then once, and the words.

    Parameters
    ----------
    path : str or path-like
        A file of `TopicModel.save`.
    analyzer : str or callable, optional
        What finds the words of texts, for a model that was made with ``"module:function"``: this
        name, or the function. The file has only the name, and a function that a file names is not
        called unless the user names it too. Those that packages announce need not be given.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        As the system gives them, if the file cannot be opened.
    ModelFileError
        If it is not a whole, unaltered model file.
    NewerFormatError
        If a later version of streamlda wrote it.
    """
    file = read(path)
    with valid_content("model", path, remedy="fit and save the model again"):
        model = TopicModel(**members(file))
    if analyzer is not None and model.vocabulary is not None:
        functions.allow(analyzer, model.vocabulary.analyzer.function_name)
    return model


def _set(model: TopicModel, name: str, value: Any) -> None:
    object.__setattr__(model, name, value)  # the way into a frozen dataclass, before it is used
