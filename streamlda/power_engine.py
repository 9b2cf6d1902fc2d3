"""The engine with an online power method: each power iteration asks the next documents.

Wang & Anandkumar (2016), Algorithm 2, on LDA documents (``online-power``), or all components at
once (``simultaneous``), in whitened coordinates::

    warm-up    The first documents are kept and give a map W as in `streamlda.engine`, and from
               their own pairs a whitening map V = W R with V' M2 V = I.
    rounds     Each associates n fresh documents with the current probes u: M3(V, Vu, Vu). All
               documents also add to M1 and to the pairs G = E P2 V.
    refining   Once k (R + 1) rounds (R for ``simultaneous``) have found all components, each
               further round turns every one of them. With n left open it takes 3 times as many
               documents as were read before it; topics use it once it has as many as the last.

*Whitening anew.* V comes from the warm-up alone, so that later V' M2 V = N is not quite I, and the
components a_i = V' mu_i sqrt(w_i) of M3, sum_i a_i a_i' = N, are not quite orthogonal. A fixed
point of the iteration is a_i itself up to second order, while a topic is read off along a vector
that is orthogonal to all other a_j: that is ``N^-1 a_i``, since ``A' (A A')^-1 A = I`` for A
square. Hence ``mu_i ~ G_c N^-1 v_i``, with G_c = M2 V and N = V' G_c over all documents. Between
rounds, whenever documents have doubled, V becomes ``V N^(-1/2)`` and vectors with it; the sums G
are linear in V and follow exactly. The Dirichlet corrections of a round are likewise made with the
moments of all documents up to its end.

Memory O(d (k + L)), less than the tensor's when K is large; no K^3. A stream that drifts is
followed in part only: rounds ask new documents, but pairs are means over all of them. On planted
topics (200,000 documents; d = 50, K = 5 and d = 1000, K = 10) the mean L1 error is 0.003 and 0.019
for ``simultaneous``, 0.004 and 0.019 for ``online-power``, 0.003 and 0.018 for `streamlda.engine`.
With a warm-up of 400 of 40,000 documents, N^-1 at the end lowers it from 0.055 to 0.010 for
``online-power``, and V anew from 0.032 to 0.012 for ``simultaneous``. Until ``online-power`` has
found all, after 60,000 documents at K = 10, it has less to show.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.decomposition.online import DocumentAssociation, OnlinePower
from streamlda.decomposition.power import (
    Components,
    DeflatedPower,
    SimultaneousPower,
    unit_columns,
)
from streamlda.documents import DocumentBatch
from streamlda.engine import WHITENED_TENSOR, Arrays, Engine, EngineSettings, first_map, named
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.model import TopicModel
from streamlda.moments import Moments
from streamlda.threads import one_blas_thread
from streamlda.topics import SpectralTopics, topics_along, whitened_map
from streamlda.vocabulary import Vocabulary
from streamlda.whitening import centred_pairs

#: Documents of a round until all components are found, where the settings leave it open.
FIRST_ROUNDS = 1000

#: Documents of a round of refining over all before it, where the settings leave it open.
REFINING_GROWTH = 3

#: A direction whose pairs fell below this share of what the warm-up showed was noise: whitening it
#: anew would only enlarge it.
LEAST_PAIR = 0.1


class _Association(DocumentAssociation):
    """Remembers what a round ended with: `OnlinePower` begins the next one at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.values = self.noise = np.zeros(0)

    def spread(self) -> NDArray[np.float64]:
        spread = super().spread()
        self.values = self.answer()[1]
        # One standard error of T(u, u, u), in each of the directions that u may turn to.
        self.noise = spread * np.sqrt(self.dimension / self.documents)
        return spread


class _Read(NamedTuple):
    """Components with their noise, and whether a round of refining is behind them."""

    found: Components
    noise: NDArray[np.float64]
    refined: bool


class PowerEngine(Engine):
    """Learns topics by an online power method; what `Engine` says holds but for the rounds.

    Parameters
    ----------
    settings : EngineSettings
        With a solver other than ``"whitened-tensor"``. An unknown alpha_0 is taken as 1: it is
        needed while documents are read.

    Notes
    -----
    Memory: `EngineSettings.state_bytes`, ``8 d L`` for the probes in word space, and the warm-up
    documents while they are kept.
    Time: O(nnz (K + L)) a document, O(d K (K + L)) a round.
    """

    def __init__(self, settings: EngineSettings) -> None:
        if settings.solver == WHITENED_TENSOR:
            raise InvalidSettingError(
                f"an online solver must be chosen for this engine, got solver={settings.solver!r}"
            )
        super().__init__(settings)
        self._power: OnlinePower[DocumentBatch] | None = None
        # What the power method warned of while it sought components.
        self._messages: list[str] = []
        # Sampling noise of each eigenvector, times its eigenvalue; infinite until it is found.
        self._noise = np.zeros(0)
        # Documents of the last round that ended.
        self._behind_components = 0

    @property
    def _alpha_0(self) -> float:
        return 1.0 if self.settings.alpha_0 is None else self.settings.alpha_0

    @property
    def components_finished(self) -> int:
        """Topics whose iterations have come to their end."""
        return 0 if self._power is None else int(self._power.components().finished.sum())

    @property
    def documents_missing(self) -> int:
        """Documents that rounds still need to find all components; known after the warm-up."""
        if self._power is None or self._power.finished:
            return 0
        rounds = self._rounds_needed(self._power.association.dimension) - self._power.rounds
        return rounds * self._power.documents_per_round - self._power.association.documents

    def _rounds_needed(self, n_components: int) -> int:
        R = self.settings.n_iterations
        return R if self._simultaneous else n_components * (R + 1)

    @property
    def _simultaneous(self) -> bool:
        return self.settings.solver == "simultaneous"

    def _add_part(self, batch: DocumentBatch, start: int) -> int:
        if self._power is None:
            return self._keep(batch, start)
        assert self._current is not None
        stop = self._end_of_round(batch, start)
        part = batch.rows(start, stop)
        self._current.add(part)
        self._take(part)
        return part.n_documents

    def _end_of_round(self, batch: DocumentBatch, start: int) -> int:
        """Return the document after the last one that the running round takes of the batch."""
        assert self._power is not None
        usable = np.flatnonzero(batch.usable[start:])
        remaining = self._power.remaining
        return start + int(usable[remaining - 1]) + 1 if remaining <= len(usable) else len(batch)

    def _begin_rounds(self, *, ending: bool = False) -> None:
        """Leave the warm-up; a stream that ends in it is divided into the rounds it needs."""
        kept = self._warmup
        self._warmup = []
        self._warmup_documents = self._warmup_entries = 0
        if any(part.usable.any() for part in kept):
            self._start_power(kept, ending)
            for part in kept:
                start = 0
                while start < len(part):
                    stop = self._end_of_round(part, start)
                    self._take(part.rows(start, stop))
                    start = stop

    def _start_power(self, kept: list[DocumentBatch], ending: bool) -> None:
        """Whiten by the pairs of the warm-up, and begin to ask."""
        settings = self.settings
        sketch = Moments(first_map(kept, settings), triple_columns=0)
        for part in kept:
            sketch.add(part)
        V = whitened_map(sketch, settings.n_components, self._alpha_0)
        self._current = Moments(V, triple_columns=0)
        for part in kept:
            self._current.add(part)
        self._behind_map = sketch.documents
        k = V.shape[1]
        method: DeflatedPower | SimultaneousPower
        if self._simultaneous:
            method = SimultaneousPower(k, k, n_iterations=settings.n_iterations, seed=settings.seed)
        else:
            method = DeflatedPower(
                *(k, k),
                n_restarts=settings.n_restarts,
                n_iterations=settings.n_iterations,
                seed=settings.seed,
            )
        n = settings.documents_per_round
        if n is None:
            n = FIRST_ROUNDS
            if ending:
                n = max(1, min(n, sketch.documents // self._rounds_needed(k)))
        self._noise = np.full(k, np.inf)
        self._power = OnlinePower(method, self._association(), n)

    def _association(self) -> _Association:
        """Return an association through the current map, corrected by the current moments."""
        moments = self._current
        assert moments is not None
        V = moments.whitening
        pairs = V.T @ moments.pair_moment()
        return _Association(V, self._alpha_0, moments.first_moment(), pairs)

    def _take(self, part: DocumentBatch) -> None:
        """Answer with documents that are in the moments already, at most the rest of a round."""
        assert self._current is not None
        assert self._power is not None
        if int(part.usable.sum()) < self._power.remaining:
            self._power.add(part)
            return
        refining, association = self._power.finished, self._corrected()
        probes, before = self._power.method.probes, self.components_finished
        self._behind_components = self._power.documents_per_round
        self._power.association = association
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._power.add(part)
        self._messages += [str(each.message) for each in caught]
        self.rounds_finished = self._power.rounds
        if refining:
            self._messages = []
        found = self._power.components()
        if refining or self._simultaneous:
            self._noise = self._noise_of(association)
        elif int(found.finished.sum()) > before:
            # The probe that became the component is where its eigenvalue was asked.
            best = int(np.argmax(np.abs(probes.T @ found.eigenvectors[:, before])))
            self._noise[before] = self._noise_of(association)[best]
        if self._current.documents >= 2 * self._behind_map:
            self._whiten_anew()
        if self._power.finished and self.settings.documents_per_round is None:
            self._power.documents_per_round = REFINING_GROWTH * self._current.documents

    def _corrected(self) -> _Association:
        """Return the running round with Dirichlet corrections from all documents so far."""
        assert self._power is not None
        association = self._association()
        only = self._power.method.wants_values_only
        association.begin(self._power.method.probes, values_only=only)
        association.restore(self._power.association.state())
        return association

    def _noise_of(self, association: _Association) -> NDArray[np.float64]:
        """Return the noise of a round in the order that its vectors have now."""
        # The simultaneous method sorts its vectors by the values they had.
        order = np.argsort(-association.values, kind="stable")
        return association.noise[order] if self._simultaneous else association.noise

    def _whiten_anew(self) -> None:
        """Replace V by V N^(-1/2), and all that is in its coordinates."""
        moments, power = self._current, self._power
        assert moments is not None
        assert power is not None
        self._behind_map = moments.documents
        turn = _inverse_root(self._pairs_within(moments))
        moments.whitening = np.ascontiguousarray(moments.whitening @ turn)
        moments.pair_cross = np.ascontiguousarray(moments.pair_cross @ turn)
        state = power.state()
        state |= {f"method.{k}": v for k, v in _turned(named(state, "method."), turn).items()}
        self._power = OnlinePower.from_state(state, self._restore, self._association())

    def _pairs_within(self, moments: Moments) -> NDArray[np.float64]:
        """Return N = V' M2 V over all documents."""
        V = moments.whitening
        inner = V.T @ centred_pairs(moments.first_moment(), moments.pair_moment(), V, self._alpha_0)
        return (inner + inner.T) / 2

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> DeflatedPower | SimultaneousPower:
        return (SimultaneousPower if self._simultaneous else DeflatedPower).from_state(state)

    def _rounds(self) -> list[Moments]:
        if self.documents_seen < 2 or self._current is None:
            return super()._rounds()
        return [self._current]

    def topics(self) -> SpectralTopics:
        """Return the topics found so far; those still in work are marked as not supported.

        There may be fewer than `n_components`: those not yet begun, or beyond the rank of the
        warm-up, are left out.

        Raises
        ------
        InsufficientDataError
            If fewer than 2 documents had 3 tokens, or no round has come to its end.
        """
        if self.documents_seen < 2:
            self._rounds()  # raises
        with one_blas_thread():
            return self._reader()._topics()

    def snapshot(
        self,
        vocabulary: Vocabulary | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> TopicModel:
        """Return a topic model of what has been learned so far; as `Engine.snapshot`."""
        if self.documents_seen < 2:
            self._rounds()  # raises
        with one_blas_thread():
            reader = self._reader()
            model = super(PowerEngine, reader).snapshot(vocabulary, settings)
        missing = reader.documents_missing
        messages = [] if reader._read().refined else list(reader._messages[-1:])
        if messages and len(reader._messages) > 1:
            messages[0] += f" (and {len(reader._messages) - 1} components likewise)"
        if missing:
            messages.append(
                f"the rounds of {self.settings.solver} must all end before every topic is found, "
                f"got documents_missing={missing} "
                f"components_finished={reader.components_finished} "
                f"n_components={self.settings.n_components}; "
                "read that many more documents, or take fewer per round"
            )
        elif model.n_components < self.settings.n_components:
            messages.append(
                f"word pairs of the warm-up tell {model.n_components} of "
                f"{self.settings.n_components} topics apart; read more documents in the warm-up "
                "or ask for fewer topics"
            )
        diagnostics: dict[str, Any] = dict(model.diagnostics)
        diagnostics["warnings"] = [*diagnostics["warnings"], *messages]
        diagnostics["components_finished"] = reader.components_finished
        diagnostics["documents_missing"] = missing
        return replace(model, diagnostics=diagnostics)

    def _reader(self) -> PowerEngine:
        """Return the engine, or one that has left the warm-up where this one has not."""
        if self._power is not None:
            return self
        other = type(self).from_state(*self.state())
        other._begin_rounds(ending=True)
        return other

    def _topics_of(self, rounds: list[Moments]) -> SpectralTopics:
        return self._topics()

    def _topics(self) -> SpectralTopics:
        assert self._power is not None
        assert self._current is not None
        read, moments = self._read(), self._current
        found, noise = read.found, read.noise
        if found.eigenvalues.size == 0:
            raise InsufficientDataError(
                "an online solver needs at least one round of documents, got "
                f"documents_seen={self.documents_seen} "
                f"documents_per_round={self._power.documents_per_round}; "
                "take shorter rounds or more documents"
            )
        root = _inverse_root(self._pairs_within(moments))
        return topics_along(
            moments.first_moment(),
            moments.pair_moment(),
            moments.whitening,
            found.eigenvalues,
            root @ root @ found.eigenvectors,
            np.where(found.finished, noise[: found.finished.size], np.inf),
            self._alpha_0,
            moments.documents,
        )

    def _read(self) -> _Read:
        """Return the components, by the running round when it is longer than the one before."""
        power = self._power
        assert power is not None
        if not power.finished or power.association.documents < self._behind_components:
            return _Read(power.components(), self._noise, power.finished and not self._messages)
        method, association = self._restore(power.method.state()), self._corrected()
        images, values = association.answer()
        association.spread()
        method.advance(images, values)
        return _Read(method.components(), self._noise_of(association), True)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values."""
        arrays, values = super().state()
        if self._power is not None:
            arrays |= {f"power.{name}": array for name, array in self._power.state().items()}
            arrays["refining.noise"] = self._noise.copy()
        values["refining"] = {
            "messages": list(self._messages),
            "behind_components": self._behind_components,
        }
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit."""
        engine = super().from_state(arrays, values)
        engine._messages = list(values["refining"]["messages"])
        engine._behind_components = int(values["refining"]["behind_components"])
        power = named(arrays, "power.")
        if power:
            engine._noise = arrays["refining.noise"].copy()
            engine._power = OnlinePower.from_state(power, engine._restore, engine._association())
        return engine


def new_engine(settings: EngineSettings) -> Engine:
    """Return the engine for the solver that the settings name."""
    return Engine(settings) if settings.solver == WHITENED_TENSOR else PowerEngine(settings)


def restored_engine(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Engine:
    """Return the engine whose state this is, whatever its solver."""
    tensor = values["settings"].get("solver", WHITENED_TENSOR) == WHITENED_TENSOR
    return (Engine if tensor else PowerEngine).from_state(arrays, values)


def _inverse_root(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return N^(-1/2) on directions that are there, and the identity on the others."""
    values, vectors = np.linalg.eigh(pairs)
    scale = np.ones_like(values)
    np.divide(1.0, np.sqrt(np.maximum(values, LEAST_PAIR)), out=scale, where=values >= LEAST_PAIR)
    root: NDArray[np.float64] = (vectors * scale) @ vectors.T
    return root


def _turned(method: Arrays, turn: NDArray[np.float64]) -> Arrays:
    """Return the state of a power method in the coordinates of the map V `turn`."""
    probes = turn @ method["probes"]
    if "vectors" not in method:
        turned, corner = np.linalg.qr(probes)
        return {"probes": turned * np.where(np.diag(corner) < 0, -1.0, 1.0)}
    vectors = turn @ method["vectors"]
    # l v x v x v with v of length 1 becomes l |v|^3 times such a cube.
    values = method["values"] * np.linalg.norm(vectors, axis=0) ** 3
    return {
        "probes": unit_columns(probes, method["probes"]),
        "vectors": unit_columns(vectors, method["vectors"]),
        "values": values,
    }
