"""The phase with an online power method: each power iteration takes the next documents.

Wang & Anandkumar (2016), Algorithm 2, on LDA documents, in whitened coordinates::

    warm-up    The first documents give a projection W (`streamlda.engine.projections`), by their
               own pairs a whitening V = W R with V' M2 V = I.
    rounds     Each associates n fresh documents with the current probes u: M3(V, Vu, Vu). All
               documents also add to M1 and to the pairs G = E P2 V.
    refining   Once k (R + 1) rounds have found all components, each further round turns every one
               of them. With n left open it takes as many documents as were read before it.

*Whitening again.* V comes from the warm-up alone, so that later V' M2 V = N is not quite I, and the
components a_i = V' mu_i sqrt(w_i) of M3, sum_i a_i a_i' = N, are not quite orthogonal. A fixed
point of the iteration is a_i itself up to second order, while a topic is read off along a vector
that is orthogonal to all other a_j: that is ``N^-1 a_i``, since ``A' (A A')^-1 A = I`` for A
square. Hence ``mu_i ~ G_c N^-1 v_i``, with G_c = M2 V and N = V' G_c over all documents. The
Dirichlet corrections of a round are likewise made with the moments of all documents up to its end.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.projections import first_projection, make_held_out_pairs
from streamlda.engine.rounds import (
    get_held_out_state,
    moments_state,
    restore_held_out,
    restore_moments,
)
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError, failure
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.moments import Moments
from streamlda.spectral.online import OnlinePower
from streamlda.spectral.power import DeflatedPower
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.topics import SpectralTopics, topics_along
from streamlda.spectral.whitening import second_moment_within, whitening_root
from streamlda.utils.arrays import Array, Tree

#: Documents of a round until all components are found, where the settings leave it open.
FIRST_ROUNDS = 1000

#: A direction whose pairs fell below this share of the largest was noise of the warm-up: to whiten
#: it again would only enlarge it.
LEAST_PAIR = 0.1


@dataclass(eq=False)
class OnlineRounds(Phase):
    """Rounds of an online power method: a pure state machine.

    An unknown alpha_0 is taken as 1: it is needed while documents are read. Memory:
    `EngineSettings.state_bytes`. Time: O(nnz (K + L)) a document, O(d K (K + L)) a round.
    """

    moments: Moments
    association: DocumentAssociation
    power: OnlinePower[DocumentBatch]
    #: What the warm-up says of its own directions.
    beginning: HeldOutPairs | None = None

    @classmethod
    def begin(
        cls,
        settings: EngineSettings,
        counters: Counters,
        documents: DocumentBatch,
        *,
        ending: bool = False,
    ) -> Self:
        """Return the phase after the documents of a warm-up, one of them usable.

        Where the stream ends in the warm-up, rounds read it again until they have found all
        components, and have refined them once.
        """
        held_out = make_held_out_pairs(documents, settings)
        sketch = Moments(first_projection(documents, settings), triple_columns=0)
        sketch.add(documents)
        first, W = sketch.first_moment(), sketch.whitening
        pairs = sketch.pair_moment(spend=True)
        inner = second_moment_within(first, pairs, W, settings.working_alpha_0)
        # Before another array of words by directions is made.
        del sketch, pairs
        V = np.ascontiguousarray(W @ whitening_root(inner, settings.n_components))
        del W
        moments = Moments(V, triple_columns=0)
        moments.add(documents)
        k, lengths = V.shape[1], (settings.n_restarts, settings.n_iterations)
        method = DeflatedPower(
            k, k, n_restarts=lengths[0], n_iterations=lengths[1], seed=settings.seed
        )
        association = _association(moments, settings)
        power = OnlinePower(method, association, settings.documents_per_round or FIRST_ROUNDS)
        made, start = cls(settings, counters, moments, association, power, held_out), 0
        while start < documents.n_documents:
            stop = documents.find_end(power.remaining, start)
            made._take(documents.rows(start, stop))
            start = stop
            if start == documents.n_documents and ending and power.rounds <= made._rounds_needed:
                start = 0
        return made

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Learn from documents up to the end of the round."""
        part = batch.rows(start, batch.find_end(self.power.remaining, start))
        self.moments.add(part)
        self._take(part)
        return part.n_documents

    def _take(self, part: DocumentBatch) -> None:
        ends = int(part.usable.sum()) >= self.power.remaining
        if ends:
            self.association.centre(*_moments_through(self.moments))
        self.power.add(part)
        if ends:
            self.counters.rounds_finished += 1
            if self.power.finished and self.settings.documents_per_round is None:
                self.power.documents_per_round = self.moments.documents

    @property
    def documents_missing(self) -> int:
        """Documents that rounds still need to find all components."""
        if self.power.finished:
            return 0
        rounds = self._rounds_needed - self.power.rounds
        return rounds * self.power.documents_per_round - self.power.association.documents

    @property
    def _rounds_needed(self) -> int:
        return self.power.method.n_components * (self.settings.n_iterations + 1)

    def rounds(self) -> list[Moments]:
        """Return the one sum."""
        self._require_documents()
        return [self.moments]

    def find_held_out(self) -> HeldOutPairs | None:
        """Return half of the warm-up, through a projection of the other half."""
        return self.beginning

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        reason = f"an online solver does not estimate alpha_0; {alpha_0:g} is used"
        return {"value": alpha_0, "identified": False, "reason": reason}

    def topics(self) -> SpectralTopics:
        """Return the topics found so far, ``mu_i ~ G_c N^-1 v_i``; time O(d K^2).

        Those not yet found, or beyond the rank of the warm-up, repeat the word frequencies.
        """
        self._require_documents()
        found, settings = self.power.components(), self.settings
        if found.eigenvalues.size == 0:
            raise failure(
                "an online solver has ended the rounds of no component yet",
                documents_seen=self.counters.documents_seen,
                documents_per_round=self.power.documents_per_round,
                n_iterations=settings.n_iterations,
                remedy="take shorter rounds or more documents",
                error=InsufficientDataError,
            )
        moments, alpha_0, n = self.moments, settings.working_alpha_0, len(found.eigenvalues)
        V, first, pairs = moments.whitening, moments.first_moment(), moments.pair_moment()
        within = second_moment_within(first, pairs, V, alpha_0)
        inverse = np.linalg.pinv(within, LEAST_PAIR, hermitian=True)
        # A topic whose vector is turned by r in k directions has an L1 error of about r times this.
        spread = np.sqrt(2 * V.shape[1] / np.pi)
        return topics_along(
            *(first, pairs, V),
            *(found.eigenvalues, inverse @ found.eigenvectors, spread * self.power.residuals[:n]),
            *(settings.n_components, alpha_0, moments.documents),
        )

    def snapshot(self) -> TopicModel:
        """Return a model of the topics found so far, which says what is missing."""
        model, missing = super().snapshot(), self.documents_missing
        finished, warnings = self.power.method.n_found, list(model.diagnostics["warnings"])
        if missing:
            warnings.append(
                f"the rounds of {self.settings.solver} have not found every topic yet, "
                f"got documents_missing={missing} components_finished={finished} "
                f"n_components={self.settings.n_components}; read that many more documents, or "
                "take fewer per round"
            )
        counts = {"components_finished": finished, "documents_missing": missing}
        known = {**model.diagnostics, **counts, "warnings": warnings}
        return replace(model, diagnostics=known)

    def state(self) -> Tree:
        """Return sums and components."""
        own = {"current": moments_state(self.moments), "power": self.power.state(), "online": True}
        return own | get_held_out_state(self.beginning)

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, state: Tree) -> Self:
        """Resume from what `state` returned, bit for bit."""
        moments = restore_moments(state["current"])
        association = _association(moments, settings)
        power = OnlinePower.from_state(state["power"], association)
        return cls(settings, counters, moments, association, power, restore_held_out(state))


def _association(moments: Moments, settings: EngineSettings) -> DocumentAssociation:
    """Return an association through V, corrected by the moments so far."""
    made = _moments_through(moments)
    return DocumentAssociation(moments.whitening, settings.working_alpha_0, *made)


def _moments_through(moments: Moments) -> tuple[Array, Array]:
    """Return M1, and V' P2 V; time O(d k^2)."""
    return moments.first_moment(), moments.pairs_within()
