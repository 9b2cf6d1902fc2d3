"""`StreamLDA`: the engine as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamlda.documents import DocumentBatch
from streamlda.engine import Engine, EngineSettings
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.evaluation import DocumentCompletion, top_words
from streamlda.inference import SMOOTHING, smoothed, topic_proportions
from streamlda.model import TopicModel
from streamlda.vocabulary import Vocabulary

Array = NDArray[np.float64]

#: Rows with fractional entries are scaled to this many tokens: so many that the correction for
#: words drawn together with themselves vanishes.
PSEUDO_TOKENS = 1e6

#: The name of the default way from moments to topics; the only one so far.
WHITENED_TENSOR = "whitened-tensor"


class StreamLDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation learned in one pass by online tensor decomposition.

    Parameters
    ----------
    n_components : int, default 10
        Number of topics K.
    alpha_0 : float or "auto", default 1.0
        Sum of the Dirichlet parameters of the topic mixtures: the larger, the more topics a
        document mixes. ``"auto"`` estimates it; that is exact when documents follow the model and
        too large on most real text.
    solver : {"whitened-tensor"}, default "whitened-tensor"
        How topics are found from the moments.
    warmup_documents : int, default 10000
        First documents that are kept in memory to find where to look.
    oversampling : int, default 50
        Directions kept beyond K while summing.
    random_state : int, RandomState instance or None, default None
        Seed of the random maps and restarts.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Word probabilities of each topic; rows sum to 1. Most prevalent topic first.
    alpha_ : ndarray of shape (n_components,)
        Dirichlet parameters of the topic mixtures.
    alpha_0_ : float
        Their sum.
    background_ : ndarray of shape (n_features,)
        Word frequencies of the documents (M1).
    diagnostics_ : dict
        What the data cannot support: ``warnings`` in words, condition number, eigenvalues with
        their noise, which topics are supported.
    documents_seen_ : int
        Documents learned from (those with at least 3 tokens).
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the words, when `X` had string column names.

    See Also
    --------
    streamlda.load : Read a saved model.

    Notes
    -----
    One pass: each document is used when it comes and then forgotten, so `partial_fit` may go on
    for ever. Memory O(n_features K + K^3) and the warm-up documents; time O(nnz K + K^3) a
    document [1]_. The fitted attributes are computed when they are first read after a
    `partial_fit`, in O(n_features K^2 + K^4).

    Kernels run on all cores (``numba.set_num_threads``) through OpenMP, which cannot be used in a
    forked child once its parent has used it: choose spawn in `multiprocessing`.

    `X` holds counts. Fractional entries are taken as word frequencies known without sampling
    noise, with a warning.

    References
    ----------
    .. [1] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS.

    Examples
    --------
    >>> from streamlda import StreamLDA
    >>> from streamlda.simulate import PlantedLDA
    >>> X = PlantedLDA(3, 100, seed=0).documents(2000).to_csr()
    >>> lda = StreamLDA(n_components=3, random_state=0).fit(X)
    >>> lda.components_.shape, lda.transform(X).shape
    ((3, 100), (2000, 3))
    """

    _engine: Engine
    #: None when documents came since it was made.
    _model: TopicModel | None

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha_0: float | str = 1.0,
        solver: str = WHITENED_TENSOR,
        warmup_documents: int = 10_000,
        oversampling: int = 50,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.alpha_0 = alpha_0
        self.solver = solver
        self.warmup_documents = warmup_documents
        self.oversampling = oversampling
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn topics from documents, forgetting what was learned before.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts.
        y : ignored

        Raises
        ------
        ValueError
            If counts are negative or not finite, or if fewer than 2 documents have 3 tokens.
        """
        X = self._validated(X, reset=True, min_samples=2)
        return self._learn(X, reset=True)._read()

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from further documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word counts.
        y : ignored
        """
        reset = not self.__sklearn_is_fitted__()
        return self._learn(self._validated(X, reset=reset), reset=reset)

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
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        topics = smoothed(self.components_, self.background_, SMOOTHING)
        batch = DocumentBatch.from_matrix(X, integral=False)
        proportions: Array = topic_proportions(batch, topics, self.alpha_)
        return proportions.astype(X.dtype, copy=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the log-likelihood, in nats, of held-out halves of documents.

        Document completion (`streamlda.evaluation.DocumentCompletion`): topic proportions come
        from a random half of a document's tokens, the other half is scored. Rows with fractional
        entries cannot be split; they are rounded to whole tokens.

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
        check_is_fitted(self)
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
        check_is_fitted(self)
        if names is None:
            names = getattr(self, "feature_names_in_", None)
        vocabulary = None if names is None else Vocabulary.given(names)
        return self._engine.snapshot(vocabulary, {"solver": self.solver})

    def save(self, path: str | os.PathLike[str], names: Iterable[str] | None = None) -> None:
        """Write the model to a file that `streamlda.load` reads.

        Parameters
        ----------
        path : str or path-like
        names : iterable of str, optional
            As in `top_words`.
        """
        self.to_model(names).save(path)

    @property
    def components_(self) -> Array:
        """Word probabilities of each topic."""
        return self._fitted.components

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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_engine")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _fitted(self) -> TopicModel:
        """The model as of the last document; sought anew only when documents came since."""
        if not self.__sklearn_is_fitted__():
            # AttributeError, so that hasattr() tells a fitted estimator from a new one.
            raise AttributeError("an estimator must be fitted before its topics are read")
        self._read()
        assert self._model is not None
        return self._model

    def _read(self) -> Self:
        self._model = self._model or self._engine.snapshot()
        return self

    def _learn(self, X: Any, *, reset: bool) -> Self:
        batch = _counts(X)
        if reset:
            if self.n_components > batch.n_features:
                warnings.warn(
                    "there should be at least as many words as topics, got "
                    f"n_components={self.n_components} n_features={batch.n_features}: the topics "
                    "beyond the words repeat the corpus frequencies; ask for fewer topics",
                    UserWarning,
                    stacklevel=3,
                )
            engine = Engine(self._settings(batch.n_features))
            engine.add(batch)
            self._engine = engine
        else:
            self._engine.add(batch)
        self._model = None
        return self

    def _settings(self, n_features: int) -> EngineSettings:
        if self.solver != WHITENED_TENSOR:
            raise InvalidSettingError(
                f"the solver must be {WHITENED_TENSOR!r}, got solver={self.solver!r}"
            )
        if self.alpha_0 != "auto" and not isinstance(self.alpha_0, Real):
            raise InvalidSettingError(
                f"alpha_0 must be a number or 'auto', got alpha_0={self.alpha_0!r}"
            )
        seed = self.random_state
        if not isinstance(seed, int):
            seed = int(check_random_state(seed).randint(2**31))
        return EngineSettings(
            n_components=self.n_components,
            n_features=n_features,
            alpha_0=None if self.alpha_0 == "auto" else float(self.alpha_0),
            warmup_documents=self.warmup_documents,
            oversampling=self.oversampling,
            seed=seed,
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

    def _completion(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        completion = DocumentCompletion(self.components_, self.alpha_, self.background_)
        whole = X.copy()
        if hasattr(whole, "data") and hasattr(whole, "eliminate_zeros"):
            np.rint(whole.data, out=whole.data)
        else:
            np.rint(whole, out=whole)
        completion.add(DocumentBatch.from_matrix(whole))
        result = completion.result()
        if result.held_out_tokens == 0:
            raise InsufficientDataError(
                "documents must have at least 2 tokens to be scored, got "
                f"held_out_tokens=0 n_samples={X.shape[0]}; pass more or longer documents"
            )
        return result


def _counts(X: Any) -> DocumentBatch:
    """Return a batch of counts; fractional rows become very long documents."""
    batch = DocumentBatch.from_matrix(X, integral=False)
    if bool(np.all(batch.counts == np.rint(batch.counts))):
        return batch
    warnings.warn(
        "counts must be whole numbers of tokens, got fractional values: rows are taken as word "
        "frequencies without sampling noise; pass CountVectorizer output, not TF-IDF",
        UserWarning,
        stacklevel=4,
    )
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    counts = batch.counts * (PSEUDO_TOKENS / batch.lengths[rows])
    return DocumentBatch(
        counts, batch.word_ids, batch.row_pointers, batch.n_features, integral=False
    )
