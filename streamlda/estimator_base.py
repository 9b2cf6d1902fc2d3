"""What a fitted topic model gives as a scikit-learn transformer; the base of `StreamLDA`."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError
from streamlda.model.evaluation import CompletionResult, DocumentCompletion, top_words
from streamlda.model.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.model.topic_model import TopicModel
from streamlda.text.vocabulary import Vocabulary

Array = NDArray[np.float64]

#: Rows with fractional entries are scaled to this many tokens, where the correction for
#: words drawn together with themselves vanishes.
PSEUDO_TOKENS = 1e6


class BaseTopicEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Fitted attributes and inference, read from the model that a fit has made."""

    n_components: int
    random_state: Any

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
    def privacy_(self) -> dict[str, Any]:
        """The privacy statement."""
        return dict(self._fitted.privacy)

    @property
    def alpha_(self) -> Array:
        """Dirichlet parameters of the topic mixtures."""
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

    def transform(self, X: Any) -> Array:
        """Return the topic proportions of documents; the model is not changed.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1. A row depends on its document alone.
        """
        self._check_fitted()
        X = self._validated(X, reset=False)
        topics = smoothed(self.components_, self.background_, SMOOTHING)
        batch = DocumentBatch.from_matrix(X, integral=False)
        proportions: Array = topic_proportions(batch, topics, self.alpha_)
        return proportions.astype(X.dtype, copy=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the log-likelihood, in nats, of held-out halves of documents.

        Document completion (`streamlda.model.evaluation.DocumentCompletion`): topic proportions
        come from a random half of a document's tokens, the other half is scored. Rows with
        fractional entries cannot be split; they are rounded to whole tokens.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts of documents that were not learned from.
        y : ignored
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

    def top_words(self, n: int = 10, names: Iterable[str] | None = None) -> list[list[str]]:
        """Return the `n` most probable words of each topic.

        Parameters
        ----------
        n : int, default 10
        names : iterable of str, optional
            Names of the words, such as ``CountVectorizer.get_feature_names_out()``; by default
            the column names of a fitted data frame, else the word ids.
        """
        self._check_fitted()
        if names is None:
            names = getattr(self, "feature_names_in_", map(str, range(self.n_features_in_)))
        known = list(names)
        return [[known[i] for i in row] for row in top_words(self.components_, n)]

    def to_model(self, names: Iterable[str] | None = None) -> TopicModel:
        """Return what was learned as a `TopicModel`.

        Parameters
        ----------
        names : iterable of str, optional
            As in `top_words`; stored as a given vocabulary.
        """
        self._check_fitted()
        if names is None:
            names = getattr(self, "feature_names_in_", None)
        vocabulary = None if names is None else Vocabulary.given(names)
        return replace(self._fitted, vocabulary=vocabulary)

    def save(self, path: str | os.PathLike[str], names: Iterable[str] | None = None) -> None:
        """Write the model to a file that `streamlda.load` reads.

        Parameters
        ----------
        path : str or path-like
        names : iterable of str, optional
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

    def _seed(self) -> int:
        if isinstance(self.random_state, int):
            return self.random_state
        return int(check_random_state(self.random_state).randint(2**31))

    def _warn_of_few_words(self, n_features: int) -> None:
        if self.n_components > n_features:
            warnings.warn(
                "there should be at least as many words as topics, got "
                f"n_components={self.n_components} n_features={n_features}: the topics "
                "beyond the words repeat the corpus frequencies; ask for fewer topics",
                UserWarning,
                stacklevel=3,
            )

    def _validated(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        return validate_data(
            self,
            X,
            reset=reset,
            ensure_min_samples=min_samples,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_non_negative=True,
        )

    def _completion(self, X: Any) -> CompletionResult:
        self._check_fitted()
        X = self._validated(X, reset=False)
        completion = DocumentCompletion(self.components_, self.alpha_, self.background_)
        whole = X.copy()
        if hasattr(whole, "data") and hasattr(whole, "eliminate_zeros"):
            np.rint(whole.data, out=whole.data)
        else:
            np.rint(whole, out=whole)
        completion.add(DocumentBatch.from_matrix(whole))
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


def counts_of(X: Any, gibbs_sweeps: int = 0) -> DocumentBatch:
    """Return a batch of counts; fractional rows become very long documents, without sweeps."""
    batch = DocumentBatch.from_matrix(X, integral=False)
    if batch.whole:
        return batch
    require(
        not gibbs_sweeps,
        "sweeps give a topic to every token, so counts must be whole numbers, got fractional "
        "values and gibbs_sweeps above 0",
        remedy="pass CountVectorizer output, or set it to 0",
        error=InvalidDocumentsError,
    )
    warnings.warn(
        "counts must be whole numbers of tokens, got fractional values: rows are taken as word "
        "frequencies without sampling noise; pass CountVectorizer output, not TF-IDF",
        UserWarning,
        stacklevel=3,
    )
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    counts = batch.counts * (PSEUDO_TOKENS / batch.lengths[rows])
    layout = (batch.word_ids, batch.row_pointers, batch.n_features)
    return DocumentBatch(counts, *layout, integral=False)
