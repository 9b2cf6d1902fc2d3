"""Parts of `StreamLDA`: what its parameters ask, what its model gives, and rows as counts."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from streamlda.documents import DocumentBatch
from streamlda.engine.settings import SUMMING_WARMUP, WHITENED_TENSOR, EngineSettings
from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.clipping import ClipBounds
from streamlda.private.matrix import Users
from streamlda.private.settings import PrivateSettings

Array = NDArray[np.float64]

#: Rows with fractional entries are scaled to this many tokens: so many that the correction for
#: words drawn together with themselves vanishes.
PSEUDO_TOKENS = 1e6

#: Parameters that say nothing without epsilon, and must be left as they are then.
_ONLY_PRIVATE = {
    "delta": None,
    "documents_per_snapshot": None,
    "documents_per_user": None,
    "snapshots": None,
    "ledger": None,
    "noise_in_state": False,
}


class Refining(NamedTuple):
    """What is asked of a refinement.

    Attributes
    ----------
    passes : int or None
        None leaves it to the number of documents, and to whether they follow the model.
    sweeps : int
    """

    passes: int | None
    sweeps: int


NO_REFINEMENT = Refining(0, 0)


class Asked:
    """The parameters of an estimator, checked where they are used; a base of `StreamLDA`."""

    n_components: int
    alpha_0: float | str
    solver: str
    documents_per_round: int | None
    memory_documents: int | None
    n_restarts: int | None
    n_iterations: int | None
    warmup_documents: int | None
    oversampling: int
    refinement_passes: int | str
    refinement_sweeps: int
    random_state: Any
    epsilon: float | None
    delta: float | None
    documents_per_snapshot: int | None
    privacy_unit: str
    documents_per_user: int | None
    neighboring_relation: str
    mode: str
    snapshots: int | None
    clipping: str | ClipBounds
    ledger: str | os.PathLike[str] | None
    stream: str
    noise_in_state: bool

    def _asks_for_privacy(self, users: Users | None) -> bool:
        if self.epsilon is not None:
            return True
        given = [name for name, unset in _ONLY_PRIVATE.items() if getattr(self, name) != unset]
        given += ["users"] if users is not None else []
        if given:
            raise InvalidSettingError(
                "what only a private fit uses must come with epsilon, got epsilon=None and "
                f"{', '.join(given)}; set epsilon and delta, or leave it out"
            )
        return False

    def _refinement(self) -> Refining:
        """Check what is asked of a refinement, and return it."""
        passes, sweeps = self.refinement_passes, self.refinement_sweeps
        if passes != "auto" and not (isinstance(passes, Integral) and passes >= 0):
            raise InvalidSettingError(
                "refinement_passes must be a whole number >= 0 or 'auto', got "
                f"refinement_passes={passes!r}; 0 leaves the refinement out"
            )
        if not (isinstance(sweeps, Integral) and sweeps >= 0):
            raise InvalidSettingError(
                "refinement_sweeps must be a whole number >= 0, got "
                f"refinement_sweeps={sweeps!r}; 0 leaves them out"
            )
        possible = self.epsilon is None and self.solver == WHITENED_TENSOR
        found = Refining(
            (None if possible else 0) if passes == "auto" else int(passes),
            int(sweeps),
        )
        if self.epsilon is not None and any(found):
            raise InvalidSettingError(
                "a refinement reads documents without noise, so it must not come with epsilon, got "
                f"refinement_passes={passes} refinement_sweeps={sweeps} epsilon={self.epsilon}; "
                "leave it out, or fit without epsilon"
            )
        return found

    def _private_settings(self, batch: DocumentBatch, seed: int, ends: bool) -> PrivateSettings:
        slots, snapshots = self.documents_per_snapshot, self.snapshots
        if self.epsilon is None or self.delta is None:
            raise InvalidSettingError(
                "a private fit must have epsilon and delta, got "
                f"epsilon={self.epsilon} delta={self.delta}; take a delta well below 1 / n_samples"
            )
        if self.documents_per_round is not None or self.memory_documents is not None:
            raise InvalidSettingError(
                "the rounds of a private fit must be shares of its window, got "
                f"documents_per_round={self.documents_per_round} "
                f"memory_documents={self.memory_documents} epsilon={self.epsilon}; leave them out"
            )
        if ends:
            slots = batch.n_documents
            if self.privacy_unit == "user" or self.mode == "prefix":
                snapshots = 1 if snapshots is None else snapshots
        if slots is None:
            raise InvalidSettingError(
                "partial_fit must know how many rows a private snapshot is made of, got "
                "documents_per_snapshot=None; set it, or pass all rows to fit"
            )
        return PrivateSettings(
            n_components=self.n_components,
            n_features=batch.n_features,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            documents_per_snapshot=slots,
            alpha_0=self._checked_alpha_0(),
            neighboring_relation=self.neighboring_relation,
            privacy_unit=self.privacy_unit,
            documents_per_user=self.documents_per_user,
            snapshots=snapshots,
            mode=self.mode,
            clipping=self.clipping,
            oversampling=self.oversampling,
            seed=seed,
            noise_in_state=self.noise_in_state,
            refinement_rounds=0 if self.refinement_passes == 0 else None,
            **self._of_solver(),
        )

    def _checked_alpha_0(self) -> float | None:
        """Check alpha_0 and return it, None for "auto"."""
        if self.alpha_0 != "auto" and not isinstance(self.alpha_0, Real):
            raise InvalidSettingError(
                f"alpha_0 must be a number or 'auto', got alpha_0={self.alpha_0!r}"
            )
        return None if self.alpha_0 == "auto" else float(self.alpha_0)

    def _seed(self) -> int:
        if isinstance(self.random_state, int):
            return self.random_state
        return int(check_random_state(self.random_state).randint(2**31))

    def _settings(self, n_features: int, *, endless: bool = False) -> EngineSettings:
        """Return what an engine is asked for; `endless` if it may refine a stream."""
        warmup = self.warmup_documents
        if warmup is None and not endless:
            warmup = SUMMING_WARMUP
        given: dict[str, Any] = {} if warmup is None else {"warmup_documents": warmup}
        return EngineSettings(
            n_components=self.n_components,
            n_features=n_features,
            alpha_0=self._checked_alpha_0(),
            oversampling=self.oversampling,
            seed=self._seed(),
            documents_per_round=self.documents_per_round,
            memory_documents=self.memory_documents,
            refine=False if self.refinement_passes == 0 else None,
            **given,
            **self._of_solver(),
        )

    def _of_solver(self) -> dict[str, Any]:
        """Return the settings of the solver; those left open are for the engine to choose."""
        numbers = {"n_restarts": self.n_restarts, "n_iterations": self.n_iterations}
        given = {name: number for name, number in numbers.items() if number is not None}
        return {"solver": self.solver, **given}


class Learned(ABC):
    """Fitted attributes, read from the model; a base of `StreamLDA`."""

    @property
    @abstractmethod
    def _fitted(self) -> TopicModel:
        """The model as of the last document."""

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


def counts_of(X: Any, asked: Refining = NO_REFINEMENT) -> tuple[DocumentBatch, Refining]:
    """Return a batch of counts, and what refinement it can have.

    Fractional rows become very long documents, which have no sweeps.
    """
    batch = DocumentBatch.from_matrix(X, integral=False)
    if batch.whole:
        return batch, asked
    if asked.sweeps:
        raise InvalidDocumentsError(
            "sweeps give a topic to every token, so counts must be whole numbers, got fractional "
            "values and refinement_sweeps above 0; pass CountVectorizer output, or set it to 0"
        )
    warnings.warn(
        "counts must be whole numbers of tokens, got fractional values: rows are taken as word "
        "frequencies without sampling noise; pass CountVectorizer output, not TF-IDF",
        UserWarning,
        stacklevel=4,
    )
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    counts = batch.counts * (PSEUDO_TOKENS / batch.lengths[rows])
    layout = (batch.word_ids, batch.row_pointers, batch.n_features)
    return DocumentBatch(counts, *layout, integral=False), asked._replace(sweeps=0)
