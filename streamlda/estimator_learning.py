"""How rows come to the learner of an estimator: checked, and encoded if they are texts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy

from streamlda.checks import failure, require
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import InvalidDocumentsError
from streamlda.estimator_protocol import ScikitLearnEstimator, validated
from streamlda.learner import Learner, Users, feed
from streamlda.matrices import holds_texts, texts_of
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.noise import Noise, SecureNoise
from streamlda.private.matrix import MatrixFit
from streamlda.settings.build import window_settings
from streamlda.settings.load import settings_of_parameters
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.seeds import seeded_by_columns
from streamlda.stream.blocks import cuts
from streamlda.stream.growing_words import GrowingWords
from streamlda.stream.vocabulary_choice import VocabularyLearner, check_of_texts
from streamlda.text.vocabulary import Vocabulary

#: Attributes for the columns of a fit.
COLUMNS = ("n_features_in_", "feature_names_in_", "vocabulary_", "_growing")

#: Their values, where there are any.
Columns = dict[str, Any]


class LearningEstimator(ScikitLearnEstimator):
    """The side of `StreamLDA` that learns: columns, parameters, an engine or private sums."""

    n_components: int
    random_state: Any
    #: Parameters that `partial_fit` goes on with.
    _begun_with: dict[str, Any]
    #: Of a fit of texts, and what changes these words.
    vocabulary_: Vocabulary
    _growing: GrowingWords | None
    _learner: Engine | MatrixFit | None
    _model: TopicModel | None

    @property
    def _is_private(self) -> bool:
        """Whether what was learned is private."""
        return hasattr(self, "_learner") and not isinstance(self._learner, Engine)

    def _seed(self) -> int:
        if isinstance(self.random_state, int):
            return self.random_state
        if self.random_state is None:  # NumPy's global generator, as everywhere in scikit-learn.
            return int(np.random.randint(2**31))  # noqa: NPY002
        from sklearn.utils import check_random_state

        return int(check_random_state(self.random_state).randint(2**31))

    def _settings(self, seed: int, users: Users | None = None) -> RunSettings:
        """Return the parameters as settings, checked."""
        given = {**self.get_params(deep=False), "random_state": seed}
        del given["verbose"]
        if isinstance(public := given.get("public_model"), LearningEstimator):
            given["public_model"] = public.to_model()
        settings = settings_of_parameters(given)
        require(
            settings.private or users is None,
            "users need epsilon, whose unit they are",
            epsilon=self.epsilon,
            remedy="set epsilon and delta, or leave users out",
        )
        return settings

    def _warn_of_few_words(self, n_features: int) -> None:
        if self.n_components > n_features:
            warnings.warn(
                "there should be at least as many words as topics, got "
                f"n_components={self.n_components} n_features={n_features}: the topics "
                "beyond the words repeat the corpus frequencies; ask for fewer topics",
                UserWarning,
                stacklevel=4,
            )

    def _warn_of_unreadable(self, failed: int, n_texts: int) -> None:
        if failed:
            message = f"the analyzer failed on {failed} of {n_texts} texts: rows of no words"
            warnings.warn(message, UserWarning, stacklevel=5)

    def _first_rows(self, X: Any, analyzer: Any, *, whole: bool) -> tuple[Any, Columns]:
        """Return the checked rows that a fit begins with, or its `whole`; and columns by attribute.

        Of texts, words are learned first. Columns are set with what is learned
        (`_set_beginning`): a fit that fails changes none.
        """
        new = type(self)(**self.get_params(deep=False))
        parameters = new.get_params(deep=False)
        texts = texts_of(X) if parameters["epsilon"] is None else None
        every = parameters["grow_every"]
        check_of_texts(analyzer, every, texts is not None, X)
        if texts is not None:
            words = VocabularyLearner.by(analyzer, self.n_components, every)
            of_all = every is not None and whole
            new.vocabulary_ = words.learn(texts if of_all else words.beginning(texts))
            new._growing = words.growing()
        X = new._validated(X, reset=True, min_samples=1 + whole)
        self._warn_of_few_words(X.shape[1])
        return X, {name: vars(new)[name] for name in COLUMNS if name in vars(new)}

    def _learn_growing(self, learner: Learner, texts: list[str]) -> None:
        """Learn from texts whose words grow."""
        growing = self._growing
        assert growing is not None
        start = failed = 0
        for stop in cuts(texts, growing.borders()):
            encoded = self.vocabulary_.encode(texts[start:stop])
            failed += len(encoded.unreadable)
            feed(learner, encoded.batch)
            growing.add(texts[start:stop])
            if not growing.missing and (found := growing.grow(self.vocabulary_, learner)):
                self.vocabulary_ = found[0]
                self.n_features_in_ = self.vocabulary_.n_features
            start = stop
        self._warn_of_unreadable(failed, len(texts))

    def _set_beginning(self, columns: Columns) -> None:
        """Remember the columns and the parameters of a new fit."""
        for name in COLUMNS:
            self.__dict__.pop(name, None)
        self.__dict__.update(columns)
        self._begun_with = self._lasting_parameters()

    def _lasting_parameters(self) -> dict[str, Any]:
        """Return the parameters without the seed, and without what is for one `fit` alone."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        if parameters["refinement_passes"] != 0:
            parameters["refinement_passes"] = "auto"
        for name in ("gibbs_sweeps", "random_state", "verbose"):
            del parameters[name]
        return parameters

    def _check_parameters_kept(self) -> None:
        now, begun = self._lasting_parameters(), self._begun_with
        changed = [name for name in begun if now[name] != begun[name]]
        old = ", ".join(f"{name}={begun[name]!r}" for name in changed)
        require(
            not changed,
            "parameters must stay as they were when a fit began",
            **{name: now[name] for name in changed},
            remedy=f"set {old} again, or call fit",
        )

    def _validated(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        if hasattr(self, "vocabulary_") and (texts := texts_of(X)) is not None:
            encoded = self.vocabulary_.encode(texts)
            self._warn_of_unreadable(len(encoded.unreadable), len(texts))
            X = encoded.batch.to_csr()
        require(
            scipy.sparse.issparse(X) or not (isinstance(X, Mapping) or holds_texts(X)),
            "X must be a matrix of word counts or, without epsilon, a list of texts",
            type=type(X).__name__,
            remedy="put texts into a list; or count words, for example by scikit-learn's "
            "CountVectorizer (with epsilon: public words); or learn from files by the command "
            "streamlda fit",
            error=InvalidDocumentsError,
        )
        matrix: Any = X
        if scipy.sparse.issparse(X) and matrix.format != "csr" and matrix.dtype.kind in "biu":
            # Conversion adds up duplicates, which small integers cannot hold.
            matrix = matrix.astype(np.float64)
        return validated(self, matrix, reset=reset, min_samples=min_samples)

    def _no_snapshot(self) -> Exception:
        from streamlda.estimator_errors import NoSnapshotError

        values: dict[str, int] = {"copied": True}
        remedy = "fit it"
        if isinstance(self._learner, MatrixFit):
            values = {"slots_missing": self._learner.slots_missing}
            remedy = "pass that many further rows to partial_fit"
            if self._learner.failed_at is not None:
                remedy = "a call failed half way: fit another estimator with other rows"
        return failure(
            "a private estimator must have read a whole window before its topics are read",
            **values,
            documents_per_snapshot=self.documents_per_snapshot,
            remedy=remedy,
            error=NoSnapshotError,
        )

    @staticmethod
    def _new_noise() -> Noise:
        """Return the noise of a private fit; there is no parameter for it on purpose."""
        return SecureNoise()

    def _fit_privately(
        self,
        settings: RunSettings,
        X: Any,
        users: Users | None,
        columns: Columns | None,
        *,
        finish: bool,
    ) -> Self:
        """Learn rows; columns come with the first ones."""
        batch = DocumentBatch.from_matrix(X)
        ends = finish and settings.snapshots.every is None
        learner = vars(self).get("_learner")
        if columns is not None:
            names, rows = columns.get("feature_names_in_"), batch.n_documents if ends else None
            asked, public = window_settings(settings, batch.n_features, rows, names)
            asked = seeded_by_columns(asked, settings.topics.seeds, columns, stacklevel=4)
            stream = settings.source.stream or "matrix"
            learner = MatrixFit(asked, self._new_noise(), settings.privacy.ledger, stream, public)
        assert isinstance(learner, MatrixFit)
        try:
            learner.add(batch, users, finish=finish)
        finally:
            # Also after an error on the way: what was released stays released.
            if learner.begun and (not finish or learner.model is not None):
                self._keep(None if ends else learner, learner.model, columns)
                self._snapshots = learner.models
        return self

    def _keep(
        self, learner: Engine | MatrixFit | None, model: TopicModel | None, columns: Columns | None
    ) -> None:
        """Take over what was learned; columns come with a new fit."""
        self._learner, self._model = learner, model
        if columns is not None:
            self._set_beginning(columns)

    def _check_goes_on(self) -> None:
        """Refuse to go on with a fit that has ended, or with other parameters."""
        if self._is_private and not isinstance(self._learner, MatrixFit):
            raise failure(
                "a private fit that has ended, or a copy or pickle of it, must not go on: it keeps "
                "the published model only, got no sums",
                remedy="call fit, or save the state of a running learner with "
                "streamlda.storage.state",
            )
        self._check_parameters_kept()
