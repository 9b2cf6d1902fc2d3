"""What a fitted topic model gives as a scikit-learn transformer; the base of `StreamLDA`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError
from streamlda.estimator_learning import LearningEstimator
from streamlda.matrices import rounded
from streamlda.model.evaluation import CompletionResult, DocumentCompletion, top_words
from streamlda.model.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.model.representatives import most_of_topics
from streamlda.model.topic_model import TopicModel
from streamlda.private.plan import Plan
from streamlda.settings.build import window_settings
from streamlda.settings.seeds import names_of_columns
from streamlda.text.vocabulary import Vocabulary

Array = NDArray[np.float64]


class BaseTopicEstimator(LearningEstimator):
    """Fitted attributes and inference, read from the model that a fit has made."""

    @property
    @abstractmethod
    def _fitted(self) -> TopicModel:
        """The model as of the last document; an AttributeError where there is none."""

    @abstractmethod
    def _check_fitted(self) -> None:
        """Raise a NotFittedError where there is no model."""

    @property
    def components_(self) -> Array:
        """Word probabilities of each topic."""
        return self._fitted.components

    @property
    def n_components_(self) -> int:
        """Number of topics."""
        return self._fitted.n_components

    @property
    def snapshots_(self) -> list[TopicModel]:
        """The private models of the last call that paid for any, oldest first."""
        self._check_fitted()
        return list(vars(self).get("_snapshots", []))

    @property
    def privacy_(self) -> dict[str, Any]:
        """The privacy statement."""
        return dict(self._fitted.privacy)

    @property
    def prevalence_(self) -> Array | None:
        """Share of all tokens that each topic has; None where it was not measured."""
        return self._fitted.prevalence

    @property
    def alpha_(self) -> Array:
        """Dirichlet parameters of the topic mixtures: the prior."""
        return self._fitted.alpha

    @property
    def alpha_0_(self) -> float:
        """Sum of `alpha_`."""
        return self._fitted.alpha_0

    @property
    def background_(self) -> Array:
        """Word frequencies of the documents."""
        return self._fitted.background

    @property
    def diagnostics_(self) -> dict[str, Any]:
        """What the data cannot support."""
        return dict(self._fitted.diagnostics)

    @property
    def documents_seen_(self) -> int:
        """Documents learned from."""
        return self._fitted.documents_seen

    def transform(self, X: Any) -> Any:
        """Return the topic proportions of documents; the model is not changed.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or list of str
            Word counts, or texts after a fit of texts. A text on which the analyzer fails counts as
            a document without words, with a warning.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1. Each row depends only on its document.
        """
        return self._in_container(X)

    def _transform(self, X: Any) -> Array:
        self._check_fitted()
        X = self._validated(X, reset=False)
        topics = smoothed(self.components_, self.background_, SMOOTHING)
        batch = DocumentBatch.from_matrix(X, integral=False)
        proportions: Array = topic_proportions(batch, topics, self.alpha_)
        return proportions.astype(np.float32) if X.dtype == np.float32 else proportions

    def score(self, X: Any, y: Any = None) -> float:
        """Return the log-likelihood, in nats, of held-out halves of documents.

        Document completion (`streamlda.model.evaluation.DocumentCompletion`): topic proportions
        come from a random half of a document's tokens, the other half is scored. Only tokens can be
        split: fractional entries are rounded to whole ones, with a warning.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts of documents that were not learned from.
        y : ignored

        Raises
        ------
        ValueError
            If rounding keeps less than half of the sum of `X`, as of TF-IDF, or if no document has
            2 tokens.
        """
        return float(self._completion(X).log_likelihood_nats)

    def perplexity(self, X: Any) -> float:
        """Return the perplexity of held-out halves of documents; see `score`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts of documents that were not learned from.
        """
        return float(self._completion(X).perplexity)

    def top_words(self, n: int = 10, names: Any = None) -> list[list[str]]:
        """Return the `n` most probable words of each topic.

        Parameters
        ----------
        n : int, default 10
        names : iterable of str, or object with ``get_feature_names_out``, optional
            A name for each column, such as the fitted ``CountVectorizer``; by default the column
            names of a fitted data frame, else the word ids.

        Raises
        ------
        ValueError
            If there is not one name for each column.
        """
        self._check_fitted()
        known = self._named(names) or [str(column) for column in range(self.n_features_in_)]
        return [[known[i] for i in row] for row in top_words(self.components_, n)]

    def representative_rows(self, X: Any, n: int = 5) -> list[list[tuple[int, float]]]:
        """Return the documents with most of each topic: rows of `X`, the best first.

        With `epsilon` too: what is returned about documents is not protected.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts. Rows of fewer than 3 tokens are left out.
        n : int, default 5
            Rows of each topic, fewer if it is the largest of fewer documents.

        Returns
        -------
        list of K lists of (row, proportion)
        """
        at_least(1, n=n)
        self._check_fitted()
        batch = DocumentBatch.from_matrix(self._validated(X, reset=False), integral=False)
        usable = np.flatnonzero(batch.usable).tolist()
        theta = self._fitted.transform(batch.where(batch.usable))
        return [
            [(usable[row], float(theta[row, k])) for row in rows]
            for k, rows in enumerate(most_of_topics(theta, n))
        ]

    def to_model(self, names: Any = None) -> TopicModel:
        """Return what was learned as a `TopicModel`.

        Parameters
        ----------
        names : iterable of str, or object with ``get_feature_names_out``, optional
            As in `top_words`; stored as a given vocabulary.
        """
        self._check_fitted()
        vocabulary: Vocabulary | None = getattr(self, "vocabulary_", None)
        if names is not None or vocabulary is None:
            known = self._named(names)
            vocabulary = None if known is None else Vocabulary.given(known)
        return replace(self._fitted, vocabulary=vocabulary)

    def plan(self, n_rows: int, n_features: int) -> Plan:
        """Return what a private fit will give, from numbers alone.

        Nothing is read and nothing is spent.

        Parameters
        ----------
        n_rows : int
            Number of rows; without `documents_per_snapshot` they are one window.
        n_features : int
            Columns, words.

        Returns
        -------
        Plan
            Stages, noise and the topics to expect; `str` shows it in words.

        Raises
        ------
        InvalidSettingError
            Without epsilon and delta, or for parameters that do not fit together.
        """
        settings = self._settings(self._seed())
        require(
            settings.private,
            "a plan needs a private fit",
            epsilon=self.get_params()["epsilon"],
            remedy="set epsilon and delta",
        )
        rows = None if settings.snapshots.every else n_rows
        asked, _ = window_settings(settings, n_features, rows)
        return Plan.of(asked, n_rows)

    def save(self, path: str | os.PathLike[str], names: Any = None) -> None:
        """Write the model to a file that `streamlda.load` reads.

        Parameters
        ----------
        path : str or path-like
        names : iterable of str, or object with ``get_feature_names_out``, optional
            As in `top_words`.
        """
        self.to_model(names).save(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _named(self, names: Any) -> list[str] | None:
        """Return a name for each column, or None where there are none."""
        if names is None:
            names = names_of_columns(vars(self))
        elif hasattr(names, "get_feature_names_out"):
            names = names.get_feature_names_out()
        if names is None:
            return None
        require(
            isinstance(names, Iterable) and not isinstance(names, str),
            "names must be words, or an object that gives them by get_feature_names_out",
            type=type(names).__name__,
        )
        known = list(names)
        require(
            len(known) == self.n_features_in_,
            "names must have one word for each column",
            n_names=len(known),
            n_features=self.n_features_in_,
            remedy="pass the vectorizer that made the counts",
        )
        return known

    def _completion(self, X: Any) -> CompletionResult:
        self._check_fitted()
        X = self._validated(X, reset=False)
        completion = DocumentCompletion(self.components_, self.alpha_, self.background_)
        completion.add(rounded(X))
        result = completion.result()
        require(
            result.held_out_tokens,
            "documents must have at least 2 tokens to be scored",
            held_out_tokens=0,
            n_samples=X.shape[0],
            remedy="pass more or longer documents",
            error=InsufficientDataError,
        )
        return result
