"""The engine with an online power method: each power iteration asks the next documents.

Wang & Anandkumar (2016), Algorithm 2, on LDA documents (``online-power``), or all components at
once (``simultaneous``), in whitened coordinates::

    warm-up    The first documents are kept and give a map W as in `streamlda.engine`, and from
               their own pairs a whitening map V = W R with V' M2 V = I.
    rounds     Each associates n fresh documents with the current probes u: M3(V, Vu, Vu). All
               documents also add to M1 and to the pairs G = E P2 V, so that topics are read off
               as mu_i ~ G_c u_i from everything that was seen.

Memory O(d (k + L)), less than the tensor's when K is large; no K^3. It is offered because it is the
method of the paper and follows a stream that drifts; `streamlda.engine` uses every document for
every component and is more accurate for the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.decomposition.online import DocumentAssociation, OnlinePower
from streamlda.decomposition.power import Components, DeflatedPower, SimultaneousPower
from streamlda.documents import DocumentBatch
from streamlda.engine import WHITENED_TENSOR, Arrays, Engine, EngineSettings, first_round, named
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.moments import Moments
from streamlda.threads import one_blas_thread
from streamlda.topics import Seen, SpectralTopics, topics_along, whitened_map


class PowerEngine(Engine):
    """Learns topics by an online power method; what `Engine` says holds but for the rounds.

    Parameters
    ----------
    settings : EngineSettings
        With a solver other than ``"whitened-tensor"``. An unknown alpha_0 is taken as 1: it is
        needed while documents are read.
    """

    def __init__(self, settings: EngineSettings) -> None:
        if settings.solver == WHITENED_TENSOR:
            raise InvalidSettingError(
                f"an online solver must be chosen for this engine, got solver={settings.solver!r}"
            )
        super().__init__(settings)
        self._power: OnlinePower[DocumentBatch] | None = None

    @property
    def _alpha_0(self) -> float:
        return 1.0 if self.settings.alpha_0 is None else self.settings.alpha_0

    @property
    def components_finished(self) -> int:
        """Topics whose iterations have come to their end."""
        return 0 if self._power is None else int(self._power.components().finished.sum())

    def _add_part(self, batch: DocumentBatch, start: int) -> int:
        if self._current is None:
            return self._keep(batch, start)
        assert self._power is not None
        part = batch.rows(start, batch.n_documents)
        self._current.add(part)
        self._power.add(part)
        self.rounds_finished = self._power.rounds
        return part.n_documents

    def _begin_rounds(self) -> None:
        if any(part.usable.any() for part in self._warmup):
            self._start_power(first_round(self._warmup, self.settings))
            assert self._current is not None
            assert self._power is not None
            for part in self._warmup:
                self._current.add(part)
                self._power.add(part)
        self._warmup.clear()
        self._warmup_documents = self._warmup_entries = 0

    def _start_power(self, moments: Moments) -> None:
        """Whiten by the pairs of the warm-up, and begin to ask."""
        V = whitened_map(Seen.of(moments), self.settings.n_components, self._alpha_0)
        self._current = Moments(V, triple_columns=0)
        sketch = Moments(V, triple_columns=0)
        for part in self._warmup:
            sketch.add(part)
        self._power = self._new_power(V, sketch.first_moment(), V.T @ sketch.pair_moment())

    def _association(
        self, V: NDArray[np.float64], first: NDArray[np.float64], pairs: NDArray[np.float64]
    ) -> DocumentAssociation:
        self._seen_first, self._seen_pairs = first, pairs
        return DocumentAssociation(V, self._alpha_0, first, pairs)

    def _new_power(
        self, V: NDArray[np.float64], first: NDArray[np.float64], pairs: NDArray[np.float64]
    ) -> OnlinePower[DocumentBatch]:
        settings = self.settings
        common: dict[str, Any] = {
            "n_iterations": settings.n_iterations,
            "seed": settings.seed,
        }
        method: DeflatedPower | SimultaneousPower
        if settings.solver == "simultaneous":
            method = SimultaneousPower(V.shape[1], V.shape[1], **common)
        else:
            method = DeflatedPower(V.shape[1], V.shape[1], n_restarts=settings.n_restarts, **common)
        association = self._association(V, first, pairs)
        return OnlinePower(method, association, settings.documents_per_round)

    def _rounds(self) -> list[Moments]:
        if self._current is None:
            super()._rounds()  # raises if there are too few documents
            self._begin_rounds()
        assert self._current is not None
        return [self._current]

    def topics(self) -> SpectralTopics:
        """Return the topics found so far; those still in work are marked as not supported.

        Raises
        ------
        InsufficientDataError
            If fewer than 2 documents had 3 tokens, or no round has come to its end.
        """
        with one_blas_thread():
            return self._topics_of(self._rounds())

    def _topics_of(self, rounds: list[Moments]) -> SpectralTopics:
        assert self._power is not None
        found = self._power.components()
        if found.eigenvalues.size == 0:
            raise InsufficientDataError(
                "an online solver needs at least one round of documents, got "
                f"documents_seen={self.documents_seen} "
                f"documents_per_round={self.settings.documents_per_round}; "
                "take shorter rounds or more documents"
            )
        moments = rounds[0]
        return topics_along(
            moments.first_moment(),
            moments.pair_moment(),
            moments.whitening,
            *_sorted(found),
            self._alpha_0,
            moments.documents,
        )

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values."""
        arrays, values = super().state()
        if self._power is not None:
            arrays |= {f"power.{name}": array for name, array in self._power.state().items()}
            arrays["seen.first"], arrays["seen.pairs"] = self._seen_first, self._seen_pairs
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit."""
        engine = super().from_state(arrays, values)
        power = named(arrays, "power.")
        if power:
            assert engine._current is not None
            seen = named(arrays, "seen.")
            association = engine._association(
                engine._current.whitening, seen["first"], seen["pairs"]
            )
            simultaneous = engine.settings.solver == "simultaneous"
            restore = SimultaneousPower.from_state if simultaneous else DeflatedPower.from_state
            engine._power = OnlinePower.from_state(power, restore, association)
        return engine


def new_engine(settings: EngineSettings) -> Engine:
    """Return the engine for the solver that the settings name."""
    return Engine(settings) if settings.solver == WHITENED_TENSOR else PowerEngine(settings)


def _sorted(
    found: Components,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    order = np.argsort(-found.eigenvalues, kind="stable")
    return found.eigenvalues[order], found.eigenvectors[:, order], found.finished[order]
