"""The phase with an online power method: each power iteration takes the next documents.

Wang & Anandkumar (2016), Algorithm 2, on LDA documents (``online-power``), or all components at
once (``simultaneous``), in whitened coordinates::

    warm-up    The first documents are kept and give a projection W as in `streamlda.engine.warmup`,
               and by their own pairs a whitening V = W R with V' M2 V = I.
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

*Forgetting.* Means over the whole stream tend to a mixture of all topics that ever were, and
``V N^(-1/2)`` spans what V spans: new topics outside of it stay unseen. A power step from G would
not do either, for G = M2 V is zero on words that the warm-up never met. So with `memory_documents`
the stream is cut into *generations* of half as many documents, each with a warm-up, a projection
and sums of its own (`streamlda.engine.generation`)::

    begin      A new V comes from the first documents. Topics of the generation before are seen
               through it, V' mu_i, and refined unless the first round shows that they are no
               longer there: then a search begins. Vectors are there if T(I, v, v) is along v for
               each of them and they are orthogonal, to 0.5 radians; in k dimensions that leaves
               nothing but the components.
    end        The last round, of a third of the documents or more, ends with the generation.
               Its sums and components are kept, those of the generation before are dropped.
    topics     come from the kept generation until the running one is sure of its own by a round
               half as long as the last of the kept one; then from the running one, averaged with
               the kept one topic by topic where they agree.

When all topics change within a generation, the next one is of new documents alone: after
`memory_documents` more documents at most the error is that of a new engine on half as many.

Memory O(d (k + L)), less than the tensor's when K is large; no K^3. On planted topics (200,000
documents; d = 50, K = 5 and d = 1000, K = 10) the mean L1 error is 0.003 and 0.019 for
``simultaneous``, 0.004 and 0.019 for ``online-power``, 0.003 and 0.018 for ``whitened-tensor``.
With a warm-up of 400 of 40,000 documents, N^-1 at the end lowers it from 0.055 to 0.010 for
``online-power``, and whitening again from 0.032 to 0.012 for ``simultaneous``. ``online-power`` has
less to show until it has found all, after 60,000 documents at K = 10. When all topics (d = 1000,
K = 10) change after 110,000 documents, the error after 180,000 more is 0.027 for both with a memory
of 200,000, that of a new engine on 100,000, and 1.5 without.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from streamlda.checks import failure, require
from streamlda.documents import DocumentBatch
from streamlda.engine.generation import (
    Generation,
    GenerationSnapshot,
    generation_length,
    rounds_needed,
)
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.rounds import (
    held_out_state,
    moments_state,
    restored_held_out,
    restored_moments,
)
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import WarmUpDocuments, first_projection, held_out_pairs
from streamlda.errors import InsufficientDataError
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.topics import SpectralTopics, average_rounds, whitened_projection
from streamlda.utils.arrays import Arrays, State

#: Documents of a generation for each round that a search needs, where rounds are left open: they
#: are then of 25 documents or more.
LEAST_OF_SEARCH = 270

#: The running generation is read once its round has this share of the last round of the kept one.
LEAST_ROUND_SHARE = 0.5


class Generations(Phase):
    """Generations of an online power method: a warm-up, the running one, and the one before.

    An unknown alpha_0 is taken as 1: it is needed while documents are read.

    Memory: `EngineSettings.state_bytes`, ``8 d L`` for the probes in word space, and the warm-up
    documents while they are kept. Time: O(nnz (K + L)) a document, O(d K (K + L)) a round.
    """

    def __init__(self, settings: EngineSettings, counters: Counters) -> None:
        _check_length(settings)
        super().__init__(settings, counters)
        self._warmup = WarmUpDocuments(settings.warmup_documents)
        self._running: Generation | None = None
        self._ended: GenerationSnapshot | None = None
        #: What the newest warm-up says of its own directions.
        self._held_out: HeldOutPairs | None = None

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take documents up to the end of the warm-up or of a round."""
        running = self._running
        if running is None:
            return self._warmup.add(batch, start)
        part = batch.rows(start, running.end_of_round(batch, start))
        self.counters.rounds_finished += running.add(part)
        return part.n_documents

    def next(self) -> Phase:
        """Return this phase; begin a generation where the warm-up is full, or end the one there."""
        if self._running is not None and self._running.ended:
            self._ended, self._running = self._running.snapshot(), None
        elif self._running is None and self._warmup.full:
            self._begin()
        return self

    def _begin(self, *, ending: bool = False) -> None:
        """Leave a warm-up; a stream that ends in it is divided into the rounds it needs."""
        warmup, settings = self._warmup.batch(), self.settings
        if warmup.usable.any():
            alpha_0 = settings.working_alpha_0
            self._held_out = held_out_pairs(warmup, settings)
            sketch = Moments(first_projection(warmup, settings), triple_columns=0)
            sketch.add(warmup)
            V = whitened_projection(sketch, settings.n_components, alpha_0)
            moments = Moments(V, triple_columns=0)
            moments.add(warmup)
            before = None if self._ended is None else self._ended.topics(settings)
            self._running = Generation(settings, moments, before, ending=ending)
            self.counters.rounds_finished += self._running.take_warmup(warmup)
        self._warmup.clear()

    def _snapshots(self) -> list[GenerationSnapshot]:
        """Return the generations that topics are read from, the one that decides first."""
        running = None if self._running is None else self._running.snapshot()
        if self._ended is None:
            return [] if running is None else [running]
        least = LEAST_ROUND_SHARE * self._ended.documents
        if running is None or not running.sound or running.documents < least:
            return [self._ended]
        return [running, self._ended]

    def _readable(self) -> Generations:
        """Return the phase, or a copy that has left the first warm-up where this has not."""
        self._require_documents()
        if self._running is not None or self._ended is not None:
            return self
        other = Generations(self.settings, replace(self.counters))
        other._warmup.add(self._warmup.batch(), 0)
        other._begin(ending=True)
        return other

    def rounds(self) -> list[Moments]:
        """Return the sums of the generations that topics are read from."""
        return [found.moments for found in self._readable()._snapshots()]

    def held_out(self) -> HeldOutPairs | None:
        """Return half of the newest warm-up, through a projection of the other half."""
        return self._held_out

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        reason = f"an online solver does not estimate alpha_0; {alpha_0:g} is used"
        return {"value": alpha_0, "identified": False, "reason": reason}

    def topics(self) -> SpectralTopics:
        """Return the topics found so far; those still in work are marked as not supported.

        There may be fewer than `n_components`: those not yet begun, or beyond the rank of the
        warm-up, are left out.
        """
        reader = self._readable()
        return reader._topics(reader._snapshots())

    def _topics(self, snapshots: list[GenerationSnapshot]) -> SpectralTopics:
        first, *others = snapshots
        if first.found.eigenvalues.size == 0:
            running = self._running
            raise failure(
                "an online solver needs at least one round of documents",
                documents_seen=self.counters.documents_seen,
                documents_per_round=running and running.power.documents_per_round,
                remedy="take shorter rounds or more documents",
                error=InsufficientDataError,
            )
        found = first.topics(self.settings)
        for other in others:
            found = average_rounds(found, other.topics(self.settings))
        return found

    def snapshot(self) -> TopicModel:
        """Return a model of the topics found so far, which says what is missing."""
        reader = self._readable()
        snapshots = reader._snapshots()
        rounds = [found.moments for found in snapshots]
        found = reader._topics(snapshots)
        model = reader._model(found, rounds)
        diagnostics = dict(model.diagnostics)
        # While a generation is kept, its topics stand in for those that are missing.
        running = reader._running if reader._ended is None else None
        missing = 0 if running is None else running.documents_missing
        finished = int(snapshots[0].found.finished.sum())
        messages = self._messages(snapshots[0], model.n_components, missing, finished)
        diagnostics["warnings"] = [*diagnostics["warnings"], *messages]
        diagnostics["components_finished"] = finished
        diagnostics["documents_missing"] = missing
        return replace(model, diagnostics=diagnostics)

    def _messages(
        self, read: GenerationSnapshot, n_topics: int, missing: int, finished: int
    ) -> list[str]:
        wanted, messages = self.settings.n_components, list(read.messages[-1:])
        if len(read.messages) > 1:
            messages[0] += f" (and {len(read.messages) - 1} components likewise)"
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
        """Return both generations and the warm-up."""
        arrays: Arrays = {}
        values: dict[str, Any] = {"refining": None, "kept": None}
        if self._running is not None:
            arrays |= moments_state("current.", self._running.moments)
        if self._ended is not None:
            arrays |= moments_state("finished.", self._ended.moments)
        arrays |= self._warmup.state() | held_out_state(self._held_out)
        if self._running is not None:
            more, values["refining"] = self._running.state()
            arrays |= more
        if self._ended is not None:
            more, values["kept"] = self._ended.state()
            arrays |= more
        return arrays, values

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        arrays, values = saved
        phase = cls(settings, counters)
        phase._warmup.restore(arrays, settings.n_features)
        phase._held_out = restored_held_out(arrays)
        if values["refining"] is not None:
            moments = restored_moments("current.", arrays)
            phase._running = Generation.from_state(settings, moments, (arrays, values["refining"]))
        if values["kept"] is not None:
            moments = restored_moments("finished.", arrays)
            phase._ended = GenerationSnapshot.from_state(moments, (arrays, values["kept"]))
        return phase


def _check_length(settings: EngineSettings) -> None:
    """Raise unless a generation holds the trial of earlier topics and all rounds of a search."""
    length = generation_length(settings)
    rounds = rounds_needed(settings, settings.n_components) + 1
    least = 2 * rounds * (settings.documents_per_round or LEAST_OF_SEARCH)
    require(
        length is None or 2 * length >= least,
        "half of memory_documents must hold all rounds that find topics",
        memory_documents=settings.memory_documents,
        rounds=rounds,
        documents_per_round=settings.documents_per_round,
        remedy=f"take memory_documents={least} or more, or shorter rounds",
    )
