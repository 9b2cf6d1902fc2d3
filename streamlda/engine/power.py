"""The phase with an online power method: each power iteration takes the next documents.

Wang & Anandkumar (2016), Algorithm 2, on LDA documents (``online-power``), or all components at
once (``simultaneous``), in whitened coordinates::

    warm-up    The first documents give a projection W as in `streamlda.engine.warmup`, and by their
               own pairs a whitening V = W R with V' M2 V = I.
    rounds     Each associates n fresh documents with the current probes u: M3(V, Vu, Vu). All
               documents also add to M1 and to the pairs G = E P2 V.
    refining   Once k (R + 1) rounds (R for ``simultaneous``) have found all components, each
               further round turns every one of them. With n left open it takes 3 times as many
               documents as were read before it; topics use it once it has as many as the last.

*Whitening again.* V comes from the warm-up alone, so that later V' M2 V = N is not quite I, and the
components a_i = V' mu_i sqrt(w_i) of M3, sum_i a_i a_i' = N, are not quite orthogonal. A fixed
point of the iteration is a_i itself up to second order, while a topic is read off along a vector
that is orthogonal to all other a_j: that is ``N^-1 a_i``, since ``A' (A A')^-1 A = I`` for A
square. Hence ``mu_i ~ G_c N^-1 v_i``, with G_c = M2 V and N = V' G_c over all documents. Between
rounds, whenever documents have doubled, V becomes ``V N^(-1/2)`` and vectors with it; the sums G
are linear in V and follow exactly. The Dirichlet corrections of a round are likewise made with the
moments of all documents up to its end.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.rounds import (
    held_out_state,
    moments_state,
    restored_held_out,
    restored_moments,
)
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import first_projection, held_out_pairs
from streamlda.errors import InsufficientDataError, failure
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.coordinates import change_basis, inverse_root, pairs_within
from streamlda.spectral.moments import Moments
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import Components, DeflatedPower, SimultaneousPower
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.topics import (
    SUPPORT_ANGLE,
    SpectralTopics,
    topics_along,
    whitened_projection,
)
from streamlda.utils.arrays import State, named, with_prefix

Array = NDArray[np.float64]

#: Documents of a round until all components are found, where the settings leave it open.
FIRST_ROUNDS = 1000

#: Documents of a round of refining over all before it, where the settings leave it open.
REFINING_GROWTH = 3


class _Association(DocumentAssociation):
    """Keeps what a round ended with: `OnlinePower` begins the next one at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.values = self.noise = np.zeros(0)
        #: Probes that their images lie along; None after a round of values alone.
        self.still: NDArray[np.bool_] | None = None

    def spread(self) -> Array:
        spread = super().spread()
        images, self.values = self.answer()
        if images is not None:
            along = np.sum(self._probes * images, axis=0)
            self.still = along > np.cos(SUPPORT_ANGLE) * np.linalg.norm(images, axis=0)
        # One standard error of T(u, u, u), in each of the directions that u may turn to.
        self.noise = spread * np.sqrt(self.dimension / self.documents)
        return spread


class _Found(NamedTuple):
    """Components, and the sampling noise of each eigenvector, times its eigenvalue."""

    components: Components
    noise: Array
    #: Warnings of the power method, unless the components come from a round of refining.
    messages: tuple[str, ...]


@dataclass(eq=False)
class OnlineRounds(Phase):
    """Rounds of an online power method: a pure state machine.

    An unknown alpha_0 is taken as 1: it is needed while documents are read. Where the stream ends
    in the warm-up (`ending`), this is divided into the rounds it needs.

    Memory: `EngineSettings.state_bytes`, and ``8 d L`` for the probes in word space. Time:
    O(nnz (K + L)) a document, O(d K (K + L)) a round.
    """

    moments: Moments
    #: What the warm-up says of its own directions.
    beginning: HeldOutPairs | None = None
    ending: bool = False

    def __post_init__(self) -> None:
        settings, moments = self.settings, self.moments
        #: Columns of V; fewer than `n_components` where the warm-up has fewer directions.
        self.dimension = moments.whitening.shape[1]
        self.simultaneous = settings.solver == "simultaneous"
        # Documents of the last whitening, and of the last round that ended.
        self._whitened_documents, self._round_documents = moments.documents, 0
        self._messages: list[str] = []
        n = settings.documents_per_round or FIRST_ROUNDS
        if self.ending and settings.documents_per_round is None:
            n = max(1, min(FIRST_ROUNDS, moments.documents // self._rounds_needed))
        self.power = OnlinePower(self._new_method(), self._association(), n)
        self._still = np.zeros(self.power.method.probes.shape[1], dtype=np.bool_)
        self._noise = np.full(self.dimension, np.inf)

    @classmethod
    def begun(
        cls,
        settings: EngineSettings,
        counters: Counters,
        documents: DocumentBatch,
        *,
        ending: bool = False,
    ) -> Self:
        """Return the phase after the documents of a warm-up, one of them usable."""
        held_out = held_out_pairs(documents, settings)
        sketch = Moments(first_projection(documents, settings), triple_columns=0)
        sketch.add(documents)
        V = whitened_projection(sketch, settings.n_components, settings.working_alpha_0)
        moments = Moments(V, triple_columns=0)
        moments.add(documents)
        made, start = cls(settings, counters, moments, held_out, ending), 0
        while start < documents.n_documents:
            stop = documents.find_end(made.power.remaining, start)
            made._take(documents.rows(start, stop))
            start = stop
        return made

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Learn from documents up to the end of the round."""
        part = batch.rows(start, batch.find_end(self.power.remaining, start))
        self.moments.add(part)
        self._take(part)
        return part.n_documents

    def _take(self, part: DocumentBatch) -> None:
        if int(part.usable.sum()) < self.power.remaining:
            self.power.add(part)
        else:
            self._end_round(part)

    def _end_round(self, part: DocumentBatch) -> None:
        """End a round with these documents, and choose the length of the next one."""
        power = self.power
        refining, association = power.finished, self._corrected()
        probes, before = power.method.probes, int(power.components().finished.sum())
        self._round_documents = power.documents_per_round
        power.association = association
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            power.add(part)
        self._messages += [str(each.message) for each in caught]
        if refining:
            self._messages = []
        if association.still is not None:
            self._still = association.still
        found = power.components()
        if refining or self.simultaneous:
            self._noise = self._noise_of(association, self._still)
        elif int(found.finished.sum()) > before:
            # The probe that became the component is where its eigenvalue was measured.
            best = int(np.argmax(np.abs(probes.T @ found.eigenvectors[:, before])))
            self._noise[before] = self._noise_of(association, self._still)[best]
        self.counters.rounds_finished += 1
        if self.moments.documents >= 2 * self._whitened_documents:
            self._rewhiten()
        if power.finished and self.settings.documents_per_round is None:
            self.power.documents_per_round = REFINING_GROWTH * self.moments.documents

    def _new_method(self) -> DeflatedPower | SimultaneousPower:
        settings, k = self.settings, self.dimension
        if self.simultaneous:
            return SimultaneousPower(k, k, n_iterations=settings.n_iterations, seed=settings.seed)
        return DeflatedPower(
            *(k, k),
            n_restarts=settings.n_restarts,
            n_iterations=settings.n_iterations,
            seed=settings.seed,
        )

    @property
    def _rounds_needed(self) -> int:
        """Rounds that find all components."""
        R = self.settings.n_iterations
        return R if self.simultaneous else self.dimension * (R + 1)

    @property
    def documents_missing(self) -> int:
        """Documents that rounds still need to find all components."""
        if self.power.finished:
            return 0
        rounds = self._rounds_needed - self.power.rounds
        return rounds * self.power.documents_per_round - self.power.association.documents

    def _association(self) -> _Association:
        """Return an association through V, corrected by the moments so far."""
        moments, alpha_0 = self.moments, self.settings.working_alpha_0
        pairs = moments.whitening.T @ moments.pair_moment()
        return _Association(moments.whitening, alpha_0, moments.first_moment(), pairs)

    def _corrected(self) -> _Association:
        """Return the running round with Dirichlet corrections from all documents so far."""
        association = self._association()
        only = self.power.method.wants_values_only
        association.begin(self.power.method.probes, values_only=only)
        association.restore(self.power.association.state())
        return association

    def _noise_of(self, association: _Association, still: NDArray[np.bool_]) -> Array:
        """Return the noise of a round, infinite where vectors have not converged.

        A mean of two components is a fixed point too, but then another vector is not. So vectors
        that are turned all at once have converged where all have; each has the place that its value
        has in their order.
        """
        if not self.simultaneous:
            return np.where(still, association.noise, np.inf)
        order = np.argsort(-association.values, kind="stable")
        return np.where(still.all(), association.noise[order], np.inf)

    def _rewhiten(self) -> None:
        """Replace V by V N^(-1/2), and all that is in its coordinates."""
        moments = self.moments
        self._whitened_documents = moments.documents
        basis = inverse_root(pairs_within(moments, self.settings.working_alpha_0))
        moments.whitening = np.ascontiguousarray(moments.whitening @ basis)
        moments.pair_cross = np.ascontiguousarray(moments.pair_cross @ basis)
        state = self.power.state()
        state |= with_prefix(change_basis(named(state, "method."), basis), "method.")
        self.power = OnlinePower.from_state(state, self._restore, self._association())

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> DeflatedPower | SimultaneousPower:
        return (SimultaneousPower if self.simultaneous else DeflatedPower).from_state(state)

    def _found(self) -> _Found:
        """Return the components, by the running round when it is longer than the one before."""
        power = self.power
        if power.finished and power.association.documents >= self._round_documents:
            method, association = self._restore(power.method.state()), self._corrected()
            images, values = association.answer()
            association.spread()
            method.advance(images, values)
            assert association.still is not None
            noise = self._noise_of(association, association.still)
            return _Found(method.components(), noise, ())
        found = power.components()
        noise = np.where(found.finished, self._noise[: found.finished.size], np.inf)
        return _Found(found, noise, tuple(self._messages))

    def rounds(self) -> list[Moments]:
        """Return the one sum."""
        self._require_documents()
        return [self.moments]

    def held_out(self) -> HeldOutPairs | None:
        """Return half of the warm-up, through a projection of the other half."""
        return self.beginning

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        reason = f"an online solver does not estimate alpha_0; {alpha_0:g} is used"
        return {"value": alpha_0, "identified": False, "reason": reason}

    def topics(self) -> SpectralTopics:
        """Return the topics found so far, ``mu_i ~ G_c N^-1 v_i``; time O(d K^2).

        Those still in work are marked as not supported. There may be fewer than `n_components`:
        those not yet begun, or beyond the rank of the warm-up, are missing.
        """
        return self._topics(self._found())

    def _topics(self, found: _Found) -> SpectralTopics:
        self._require_documents()
        if found.components.eigenvalues.size == 0:
            raise failure(
                "an online solver needs at least one round of documents",
                documents_seen=self.counters.documents_seen,
                documents_per_round=self.power.documents_per_round,
                remedy="take shorter rounds or more documents",
                error=InsufficientDataError,
            )
        moments, alpha_0 = self.moments, self.settings.working_alpha_0
        root = inverse_root(pairs_within(moments, alpha_0))
        return topics_along(
            moments.first_moment(),
            moments.pair_moment(),
            moments.whitening,
            found.components.eigenvalues,
            root @ root @ found.components.eigenvectors,
            found.noise,
            alpha_0,
            moments.documents,
        )

    def snapshot(self) -> TopicModel:
        """Return a model of the topics found so far, which says what is missing."""
        found = self._found()
        model = self._model(self._topics(found), [self.moments])
        finished = int(found.components.finished.sum())
        known = {
            **model.diagnostics,
            "components_finished": finished,
            "documents_missing": self.documents_missing,
        }
        messages = self._warnings(found.messages, model.n_components, finished)
        known["warnings"] = [*known["warnings"], *messages]
        return replace(model, diagnostics=known)

    def _warnings(self, said: tuple[str, ...], n_topics: int, finished: int) -> list[str]:
        wanted, messages, missing = self.settings.n_components, [*said[-1:]], self.documents_missing
        if len(said) > 1:
            messages[0] += f" (and {len(said) - 1} components likewise)"
        if missing:
            messages.append(
                f"the rounds of {self.settings.solver} must all end before every topic is found, "
                f"got documents_missing={missing} components_finished={finished} "
                f"n_components={wanted}; read that many more documents, or take fewer per round"
            )
        elif n_topics < wanted:
            messages.append(
                f"word pairs of the warm-up tell {n_topics} of {wanted} topics apart; read more "
                "documents in the warm-up or ask for fewer topics"
            )
        return messages

    def state(self) -> State:
        """Return sums and components."""
        arrays = moments_state("current.", self.moments) | held_out_state(self.beginning)
        arrays |= with_prefix(self.power.state(), "power.")
        arrays |= {"online.noise": self._noise.copy(), "online.still": self._still.astype(np.uint8)}
        values = {
            "messages": list(self._messages),
            "behind_components": self._round_documents,
            "behind_map": self._whitened_documents,
        }
        return arrays, {"online": values}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Resume from what `state` returned, bit for bit."""
        arrays, values = saved[0], saved[1]["online"]
        moments = restored_moments("current.", arrays)
        phase = cls(settings, counters, moments, restored_held_out(arrays))
        phase._messages = list(values["messages"])
        phase._round_documents = int(values["behind_components"])
        phase._whitened_documents = int(values["behind_map"])
        phase._noise = arrays["online.noise"].copy()
        phase._still = arrays["online.still"].astype(np.bool_)
        power, association = named(arrays, "power."), phase._association()
        phase.power = OnlinePower.from_state(power, phase._restore, association)
        return phase
