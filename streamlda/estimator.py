"""`StreamLDA`: the engine as a scikit-learn estimator."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import wraps
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamlda import errors
from streamlda.documents import DocumentBatch, read_counts
from streamlda.engine.engine import Engine
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.learner import Users, feed
from streamlda.model.evaluation import CompletionResult, document_completion
from streamlda.model.hierarchy import keep_rows
from streamlda.model.inference import SMOOTHING, smooth, topic_proportions
from streamlda.model.naming import carry_names
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.clipping import ClipBounds
from streamlda.private.learner import PrivateLearner
from streamlda.private.matrix import blank_invalid_rows, fit_rows, learner_of_rows
from streamlda.scaleout import collections
from streamlda.settings import build
from streamlda.settings.load import settings_of_parameters
from streamlda.settings.table import RunSettings
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from streamlda.texts import holds_texts, read_texts
from streamlda.utils.arrays import Array
from streamlda.utils.progress import show_progress


class NoSnapshotError(errors.InsufficientDataError, NotFittedError):  # type: ignore[misc]
    """A private estimator that has not read a whole window of rows yet."""


_FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "ended": "a private fit that has ended, or a copy or pickle of it, cannot continue: it "
            "keeps the published model only; call fit",
            "names": "names have not one word for each column; pass the vectorizer that made the "
            "counts",
            "users": "users are given without epsilon, whose unit they are; set epsilon and delta, "
            "or leave users out",
        },
        errors.InvalidDocumentsError: {
            "matrix": "X must be a matrix of word counts or, without epsilon, documents: a list, "
            "series or table of one column of texts, or of lists or bags of words; choose the "
            "column, or count words by scikit-learn's CountVectorizer (with epsilon: public words)",
            "no texts": "X has no document; check how it was read",
            "no words": "texts are given to a fit of a matrix of word counts, which has no words; "
            "count them by the CountVectorizer of that matrix, or fit texts",
        },
        NoSnapshotError: {
            "no snapshot": "a private estimator has read no whole window yet; fit it, or pass that "
            "many further rows to partial_fit (to another one, if a call failed half way)",
        },
    }
)
_check = _FAULTS.check

#: Share of the tokens of later texts that may be of new words, beyond that of the first texts.
MOST_UNSEEN = 0.1
NEW_WORDS = (
    "{:.0%} of the words of these texts are not those of the first call of partial_fit, and are "
    "ignored: begin with more texts, or let words enter by streamlda run (vocabulary.grow_every)"
)

#: Attributes for the columns of a fit, and those that there are by name.
COLUMNS = ("n_features_in_", "feature_names_in_", "vocabulary_", "_unseen_share")
NewColumns = dict[str, Any] | None


def _by_fit(name: str) -> Any:
    """Return an attribute of the model as of the last document as one of the estimator."""

    def read(lda: "StreamLDA") -> Any:
        value = getattr(lda._current, name)
        return copy(value) if isinstance(value, dict) else value

    return property(read)


def _by_model(name: str) -> Callable[..., Any]:
    """Return the method of a model as one of the estimator."""
    method = getattr(TopicModel, name)

    @wraps(method)
    def call(lda: "StreamLDA", *arguments: Any, **options: Any) -> Any:
        return method(lda.to_model(), *arguments, **options)

    return call


def _warn_about_topics(model: TopicModel | None, stacklevel: int = 3) -> None:
    for message in () if model is None else model.diagnostics.get("warnings", ()):
        warnings.warn(message, errors.TopicWarning, stacklevel=stacklevel)


class StreamLDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation by online tensor decomposition (Wang and Anandkumar, 2016).

    Parameters
    ----------
    n_components : int, default 10
        Number of topics K.
    alpha_0 : float or "auto", default 1.0
        Sum of the Dirichlet parameters of the topic mixtures: the larger, the more topics a
        document mixes. ``"auto"`` estimates it, and ``diagnostics_["alpha_0_estimate"]`` says
        whether the estimate can be trusted. With `epsilon` and much noise, at most 0.12 counts.
    solver : {"whitened-tensor", "online-power", "noisy-power", "simultaneous"}
        "whitened-tensor" sums a small tensor; the others use new rows for each power iteration.
        "online-power" is without `epsilon`, "noisy-power" and "simultaneous" are with it.
    documents_per_round, n_restarts, n_iterations, oversampling, warmup_documents : int or None
        As in `EngineSettings`. With `epsilon` None makes 3 restarts and 4 iterations, or 8.
    seed_topics : mapping or sequence of str, default ()
        Subjects of the first topics: ``{"space": ["orbit", "launch"]}``, or lines such as
        ``"space: orbit launch"``. Words are names of columns, or their numbers.
    refinement_passes : int, "auto" or "thorough", default "auto"
        Passes of `fit` over `X` that move the spectral topics towards higher likelihood. ``"auto"``
        chooses them by the size of `X` and keeps refined topics if they predict held-out rows
        better; with `epsilon`, new rows refine them. 0 leaves spectral topics; all else lets every
        row of `partial_fit` move them. Numbers and words but 0 and "auto" are without `epsilon`.
    random_state : int, RandomState instance or None, default None
        Seed of random projections, restarts and sweeps, never of privacy noise.
    relevance : float, default 1.0
        Rank of the words shown of a topic, as in `TopicModel.rank_words`: 1 by probability.
    epsilon, delta : float or None, default None
        Publish only differentially private snapshots, within this budget of a privacy unit; `delta`
        is well below one over the number of rows.
    documents_per_snapshot, snapshots : int or None
        Rows of a window, at least 100 (None: all rows of a `fit`); and the maximum number of
        snapshots, needed for users.
    privacy_unit, documents_per_user : {"document", "user"}, and int or None
        Unit that the guarantee protects. With "user", pass `users`, and the most documents of each.
    neighboring_relation : {"zero-out", "replace-one"}, default "zero-out"
        A document (or those of a user), or blank rows in its place ("add-remove" of earlier
        versions); or another in its place. The number of rows is published under both.
    mode : {"window", "prefix"}, default "window"
        Topics of each window by itself, or of all rows since the first.
    clipping : {"quantile", "worst-case"} or ClipBounds, default "quantile"
        Bounds on the sums of one document: a private quantile, the largest norms, or public ones.
    ledger, stream : path or None, default None, and str, default "matrix"
        File that remembers what was spent, and the name of the rows there, one for each matrix.
        Without it private fits have one account in this process: a fit of rows that another had
        says the epsilon of both, and warns. *Other processes know nothing of it*.
    public_model : str, path-like, TopicModel, fitted StreamLDA or None, default None
        With `epsilon`: topics of public documents, or of a private fit of other documents, with
        which a window begins if its rows fit them (``diagnostics_["public_model"]``). Columns must
        be the same, or are found by ``feature_names_in_``. A clone forgets fits: pass `to_model`.
    verbose : int, default 0
        Above 0, fits without `epsilon` show their progress, in a terminal or a notebook.

    Attributes
    ----------
    components_, n_components_ : ndarray of shape (n_components_, n_features), and int
        Word probabilities of each topic; rows sum to 1. A `fit` that refines has the most prevalent
        topic first. Topics are fewer if noise hides some.
    prevalence_ : ndarray of shape (n_components_,), or None
        Share of each topic in all tokens so far; None if it was not measured.
    alpha_, alpha_0_ : ndarray of shape (n_components_,), and float
        Dirichlet parameters of the topic mixtures, the prior, and their sum. Refinements fit them.
    background_, documents_seen_ : ndarray of shape (n_features,), and int
        Word frequencies, and number of documents of 3 tokens or more (with `epsilon`, of rows).
    diagnostics_ : dict
        Limits of what the data support: ``warnings`` in words; eigenvalues of word pairs and their
        noise; which spectral topics are supported; ``alpha_0_estimate``; the ``refinement``.
    privacy_, snapshots_ : dict, and list of TopicModel
        Privacy statement, and private snapshots of the last call that paid for any, oldest first.
    vocabulary_, n_features_in_, feature_names_in_ : Vocabulary, int, ndarray of str
        Words of a fit of texts, their number, and names of columns when `X` had some.

    Notes
    -----
    `partial_fit` uses each document once. Memory O(n_features K + K^3), the warm-up documents and a
    sample of at most 17 MiB; time O(nnz K + K^3) a document, and O(nnz K) once topics are refined.
    Fractional entries of `X` are taken as word frequencies, with a warning.

    With `epsilon`, the parameters, the number of rows (a row is a record slot, a blank one too),
    the columns of `X` and their names are public. A vocabulary that was learned from the same
    documents, as by ``CountVectorizer``, voids the guarantee. Fractions are refused. Pickles and
    copies keep only the published model: they cannot continue. What `score`, `perplexity` and
    `transform` return about documents is not protected.

    Examples
    --------
    >>> from streamlda import StreamLDA
    >>> from streamlda.simulate import PlantedLDA
    >>> X = PlantedLDA(3, 100, seed=0).documents(2000).to_csr()
    >>> lda = StreamLDA(n_components=3, random_state=0).fit(X)
    >>> lda.components_.shape, lda.transform(X).shape
    ((3, 100), (2000, 3))
    """

    components_: Array = _by_fit("components")
    n_components_: int = _by_fit("n_components")
    prevalence_: Array | None = _by_fit("prevalence")
    alpha_: Array = _by_fit("alpha")
    alpha_0_: float = _by_fit("alpha_0")
    background_: Array = _by_fit("background")
    diagnostics_: dict[str, Any] = _by_fit("diagnostics")
    documents_seen_: int = _by_fit("documents_seen")
    privacy_: dict[str, Any] = _by_fit("privacy")
    vocabulary_: Vocabulary
    _begun_with: dict[str, Any]
    _unseen_share = 0.0
    # The learner is None once a private fit has ended, the model until it is read or released.
    _learner: Engine | PrivateLearner | None
    _model: TopicModel | None
    # The topics that were read last, in whose rows later ones are shown.
    _shown: TopicModel | None = None

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha_0: float | str = 1.0,
        solver: str = WHITENED_TENSOR,
        documents_per_round: int | None = None,
        n_restarts: int | None = None,
        n_iterations: int | None = None,
        warmup_documents: int | None = None,
        oversampling: int = 50,
        seed_topics: Any = (),
        refinement_passes: int | str = "auto",
        random_state: Any = None,
        relevance: float = 1.0,
        epsilon: float | None = None,
        delta: float | None = None,
        documents_per_snapshot: int | None = None,
        privacy_unit: str = "document",
        documents_per_user: int | None = None,
        neighboring_relation: str = "zero-out",
        mode: str = "window",
        snapshots: int | None = None,
        clipping: str | ClipBounds = "quantile",
        ledger: str | os.PathLike[str] | None = None,
        stream: str = "matrix",
        public_model: Any = None,
        verbose: int = 0,
    ) -> None:
        # As they are given: scikit-learn sets and clones parameters by these names.
        self.__dict__.update((name, value) for name, value in locals().items() if name != "self")

    def fit(
        self, X: Any, y: Any = None, *, users: Users | None = None, analyzer: Any = None
    ) -> Self:
        """Learn topics from documents, and forget all earlier ones.

        With `epsilon`: publish a snapshot of all rows, or of each window. The price stays spent.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or texts
            Word counts; or, without `epsilon`, a list, series, array, iterator or table of one
            column of texts, lists of words or bags of words (a dict of counts). A missing one is a
            row without words. Words that are given are kept as they are, but stop words and
            words in too many documents are left out. Words are learned from the first 20,000
            documents and kept as ``vocabulary_``. Or a Dask bag, array or delayed matrices,
            learned from on the current client, or a data frame of Spark with one column of texts
            (`streamlda.scaleout.collections`).
        y : ignored
        users : sequence of str, bytes or None, of length n_samples, optional
            The user of each row, for ``privacy_unit="user"``; rows without a user add nothing.
        analyzer : str, callable or TextAnalyzer, optional
            A function from a text to the list of its words, or ``"module:function"``, with English
            stop words left out; or a `TextAnalyzer` with its own.

        Raises
        ------
        ValueError, BudgetExceededError, LedgerError
            For bad parameters, counts and ledgers; see `streamlda.errors`.

        Warns
        -----
        TopicWarning
            If documents do not bear out the topics; after `partial_fit`, where topics are read.
        """
        if collections.is_collection(X):
            collections.fit_collection(self, X, users, analyzer)
            _warn_about_topics(self._model)
            return self
        settings = self._settings(self._seed(), users)
        X, columns = self._first_rows(X, analyzer, whole=True)
        if settings.private:
            return self._fit_privately(settings, X, users, columns, finish=True)
        batch = read_counts(X)
        asked = build.fit_settings(settings, batch.n_features)
        asked = build.seed_by_columns(asked, settings.topics.seeds, columns)
        with show_progress(self.verbose):
            self._keep(*Engine.fit(asked, batch, build.choose_passes(settings.topics)), columns)
        _warn_about_topics(self._model)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, users: Users | None = None, analyzer: Any = None
    ) -> Self:
        """Learn from further documents, in batches of any size.

        Topics that were read keep their rows: later ones are matched to them.
        With `epsilon`: publish a snapshot whenever a window is full; before, nothing is fitted.

        Parameters
        ----------
        X, y, users, analyzer
            As in `fit`. Words and `analyzer` are those of the first batch; a warning says if many
            words are not. Partitions of a collection are learned here, one after the other.
        """
        if collections.is_collection(X):
            collections.learn_parts(self, X, analyzer)
            return self
        columns: NewColumns = None
        reset = not hasattr(self, "_learner")
        # Later ones are as they were checked at first.
        checks = reset or self._is_private or users is not None
        settings = self._settings(self._seed() if reset else 0, users) if checks else None
        if reset:
            X, columns = self._first_rows(X, analyzer, whole=False)
        else:
            self._check_continues()
            X = self._validate_rows(X, reset=False, fits=True)
        if settings is not None and settings.private:
            return self._fit_privately(settings, X, users, columns, finish=False)
        batch = read_counts(X)
        if settings is not None and columns is not None:
            asked = build.engine_settings(settings, batch.n_features)
            learner = Engine(build.seed_by_columns(asked, settings.topics.seeds, columns))
        else:
            assert isinstance(self._learner, Engine)
            learner = self._learner
            # Before it learns: also after an error on the way, topics are those of its rows.
            self._shown, self._model = self._model or self._shown, None
        with show_progress(self.verbose):
            feed(learner, batch)
        self._keep(learner, None, columns)
        return self

    @property
    def snapshots_(self) -> list[TopicModel]:
        """The private models of the last call that paid for any, oldest first."""
        _ = self._current
        return [self._rank_words(model) for model in vars(self).get("_snapshots", [])]

    def transform(self, X: Any) -> Any:
        """Return the topic proportions of documents; the model is not changed.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or list of str
            Word counts, or texts after a fit of texts; one that the analyzer fails on has no words.
            Collections as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components), or of Dask, or an RDD of Spark
            Rows sum to 1. Each row depends only on its document.
        """
        model = self._current
        if collections.is_collection(X):
            return collections.transform_collection(self, X)
        X = self._validate_rows(X, reset=False)
        topics = smooth(model.components, model.background, SMOOTHING)
        batch = DocumentBatch.from_matrix(X, integral=False)
        return topic_proportions(batch, topics, model.alpha)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the log-likelihood, in nats, of held-out halves of documents, as in `transform`.

        Proportions come from a random half of a document's tokens, the other half is scored
        (`DocumentCompletion`). Rows of fractional entries are taken as very long documents.
        """
        return float(self._completion(X).log_likelihood_nats)

    def perplexity(self, X: Any) -> float:
        """Return the perplexity of held-out halves of documents `X`; see `score`."""
        return float(self._completion(X).perplexity)

    def top_words(self, n: int = 10) -> list[list[str]]:
        """Return the first `n` words of each topic by `relevance`; ids of words without names."""
        return [[word for word, _ in words] for words in self.to_model().top_words(n)]

    def to_model(self, names: Any = None) -> TopicModel:
        """Return the learned topics as a `TopicModel`.

        Parameters
        ----------
        names : iterable of str, or object with ``get_feature_names_out``, optional
            A name for each column; by default those of the fit.
        """
        model, vocabulary = self._current, vars(self).get("vocabulary_")
        if hasattr(names, "get_feature_names_out"):
            names = names.get_feature_names_out()
        elif names is None and vocabulary is None:
            names = vars(self).get("feature_names_in_")
        if names is not None:
            words, n_features = list(names), self.n_features_in_
            _check(len(words) == n_features, "names", n_names=len(words), n_features=n_features)
            vocabulary = Vocabulary.given(words)
        return self._rank_words(replace(model, vocabulary=vocabulary))

    def set_topic_names(self, names: Mapping[int, str | None] | Sequence[str | None]) -> Self:
        """Name topics by their rows, as `TopicModel.rename`; or all of them in a sequence.

        Names stay with their topics in `partial_fit`, and are in `to_model` and its files. A topic
        that is gone takes its name along. `fit` forgets them.
        """
        rows = dict(names if isinstance(names, Mapping) else enumerate(names))
        self._model = self._current.rename(rows)
        return self

    document_table = _by_model("document_table")
    topics_per_class = _by_model("topics_per_class")
    topics_over_time = _by_model("topics_over_time")
    topics_of_word = _by_model("topics_of_word")
    visualize = _by_model("visualize")
    save = _by_model("save")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner") and (not self._is_private or self._model is not None)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if self._is_private:
            # Raw sums must not leave the process; what was published may.
            state["_learner"] = None
        return state

    @property
    def _current(self) -> TopicModel:
        """The model as of the last document; made only when documents came since."""
        if self._is_private and self._model is None:
            learner, size = self._learner, self.documents_per_snapshot
            missing = learner.slots_missing if isinstance(learner, PrivateLearner) else None
            raise _FAULTS.make("no snapshot", slots_missing=missing, documents_per_snapshot=size)
        check_is_fitted(self)
        if self._model is None:
            assert isinstance(self._learner, Engine)
            model = self._learner.latest()
            if (shown := self._shown) is not None:
                model = carry_names(keep_rows(model, shown), shown)
            self._model = model
            _warn_about_topics(model, stacklevel=4)
        return self._model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _rank_words(self, model: TopicModel) -> TopicModel:
        return model if self.relevance == 1 else model.rank_words(self.relevance)

    def _completion(self, X: Any) -> CompletionResult:
        model = self._current
        if collections.is_collection(X):
            return collections.complete_collection(self, X)
        X = self._validate_rows(X, reset=False)
        topics = model.components, model.alpha, model.background
        return document_completion(read_counts(X, 4), *topics)

    @property
    def _is_private(self) -> bool:
        return hasattr(self, "_learner") and not isinstance(self._learner, Engine)

    def _seed(self) -> int:
        if isinstance(self.random_state, int):
            return self.random_state
        # None is NumPy's global generator, as everywhere in scikit-learn.
        return int(check_random_state(self.random_state).randint(2**31))

    def _settings(self, seed: int, users: Users | None = None) -> RunSettings:
        """Return the parameters as settings, checked."""
        given = {**self.get_params(deep=False), "random_state": seed}
        del given["verbose"]
        if isinstance(public := given["public_model"], StreamLDA):
            given["public_model"] = public.to_model()
        settings = settings_of_parameters(given)
        _check(settings.private or users is None, "users", epsilon=self.epsilon)
        return settings

    def _first_rows(self, X: Any, analyzer: Any, *, whole: bool) -> tuple[Any, dict[str, Any]]:
        """Return checked rows, and columns by attribute, which `_keep` sets once a fit succeeds."""
        new = type(self)(**self.get_params(deep=False))
        texts = read_texts(X) if self.epsilon is None else None
        if texts is not None:
            _check(texts, "no texts", documents=0)
            X, words = texts, VocabularyLearner.by(analyzer, self.n_components)
            new.vocabulary_ = words.learn(words.cut_beginning(texts))
        X = new._validate_rows(X, reset=True, min_samples=1 + whole, fits=True)
        return X, {name: vars(new)[name] for name in COLUMNS if name in vars(new)}

    def _list_fixed(self) -> dict[str, Any]:
        """Return the parameters that must stay while a fit continues."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        if parameters["refinement_passes"] != 0:
            parameters["refinement_passes"] = "auto"
        for name in ("random_state", "relevance", "verbose"):
            del parameters[name]
        return parameters

    def _validate_rows(
        self, X: Any, *, reset: bool, min_samples: int = 1, fits: bool = False
    ) -> Any:
        # Of rows of a private fit those that cannot be documents are blanks.
        checks = not fits or self.epsilon is None
        texts = None if fits and self.epsilon is not None else read_texts(X)
        if texts is not None:
            _check(texts, "no texts", documents=0)
            _check(hasattr(self, "vocabulary_"), "no words", type=type(X).__name__)
            encoded = self.vocabulary_.encode(texts)
            if failed := len(encoded.unreadable):
                message = f"the analyzer failed on {failed} of {len(texts)} texts: rows of no words"
                warnings.warn(message, UserWarning, stacklevel=4)
            unseen = encoded.unseen_tokens / max(1, encoded.tokens)
            if reset:
                self._unseen_share = unseen
            elif fits and unseen > self._unseen_share + MOST_UNSEEN:
                self._unseen_share = 1.0
                warnings.warn(NEW_WORDS.format(unseen), UserWarning, stacklevel=3)
            X = encoded.batch.to_csr()
        _check(not holds_texts(X), "matrix", type=type(X).__name__)
        return validate_data(
            self,
            X,
            reset=reset,
            ensure_min_samples=min_samples,
            # `DocumentBatch` adds up duplicates of the others, which small integers cannot hold.
            accept_sparse=("csr", "csc", "coo", "bsr"),
            dtype="numeric",
            ensure_all_finite=checks,
            ensure_non_negative=checks,
        )

    @staticmethod
    def _new_noise() -> Noise:
        """Return the noise of a private fit; there is no parameter for it on purpose."""
        return SecureNoise()

    def _fit_privately(
        self, settings: RunSettings, X: Any, users: Users | None, columns: NewColumns, finish: bool
    ) -> Self:
        """Learn rows; columns come with the first ones."""
        batch = DocumentBatch.from_matrix(blank_invalid_rows(X))
        ends = finish and settings.snapshots.every is None
        learner = vars(self).get("_learner")
        if columns is not None:
            names, rows = columns.get("feature_names_in_"), batch.n_documents if ends else None
            asked, public = build.window_settings(settings, batch.n_features, rows, names)
            asked = build.seed_by_columns(asked, settings.topics.seeds, columns, stacklevel=4)
            stream = settings.source.stream or "matrix"
            learner = learner_of_rows(asked, self._new_noise(), stream, public)
        assert isinstance(learner, PrivateLearner)
        try:
            fit_rows(learner, batch, users, settings.privacy.ledger, finish=finish)
        finally:
            # Also after an error on the way: what was released stays released.
            model = learner.models[-1] if learner.models else None
            if learner.documents_seen and (not finish or model is not None):
                self._keep(None if ends else learner, model, columns)
                self._snapshots = learner.models
        return self

    def _keep(
        self, learner: Engine | PrivateLearner | None, model: TopicModel | None, columns: NewColumns
    ) -> None:
        """Take over a result; columns come with a new fit."""
        before = vars(self).get("_model")
        if columns is None and before is not None and model is not None:
            model = carry_names(model, before)
        self._learner, self._model = learner, model
        if columns is not None:
            self._shown = None
            for name in COLUMNS:
                self.__dict__.pop(name, None)
            self.__dict__.update(columns)
            self._begun_with = self._list_fixed()

    def _check_continues(self) -> None:
        """Refuse to continue a fit that has ended, or with other parameters."""
        _check(isinstance(self._learner, Engine | PrivateLearner), "ended")
        now, begun = self._list_fixed(), self._begun_with
        changed = [name for name in begun if now[name] != begun[name]]
        old = ", ".join(f"{name}={begun[name]!r}" for name in changed)
        values = {name: now[name] for name in changed}
        rule, remedy = "parameters were changed after a fit began", f"set {old} again, or call fit"
        errors.require(not changed, rule, **values, remedy=remedy)
