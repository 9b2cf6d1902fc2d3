"""The engine with an online power method: each power iteration asks the next documents.

Wang & Anandkumar (2016), Algorithm 2, on LDA documents (``online-power``), or all components at
once (``simultaneous``), in whitened coordinates::

    warm-up    The first documents are kept and give a map W as in `streamlda.engine.engine`, and
    from
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

*Forgetting.* Means over the whole stream tend to a mixture of all topics that ever were, and
``V N^(-1/2)`` spans what V spans: new topics outside of it stay unseen. A power step from G would
not do either, for G = M2 V is zero on words that the warm-up never met. So with `memory_documents`
the stream falls into *generations* of half as many documents, each with a warm-up, a map and sums
of its own (`streamlda.engine.generation`)::

    begin      A new V comes from the first documents. Topics of the generation before are seen
               through it, V' mu_i, and refined unless the first round shows that they are no
               longer there: then they are searched anew. Vectors are there if T(I, v, v) is along
               v for each of them and they are orthogonal, to 0.5 radians; in k dimensions that
               leaves nothing but the components.
    end        The last round, of a third of the documents or more, ends with the generation.
               Its sums and components are kept, those of the generation before are dropped.
    topics     come from the kept generation until the running one is sure of its own by a round
               half as long as the last of the kept one; then from the running one, averaged with
               the kept one topic by topic where they agree.

When all topics change within a generation, the next one is of new documents alone: after
`memory_documents` more documents at most the error is that of a new engine on half as many.

Memory O(d (k + L)), less than the tensor's when K is large; no K^3. On planted topics (200,000
documents; d = 50, K = 5 and d = 1000, K = 10) the mean L1 error is 0.003 and 0.019 for
``simultaneous``, 0.004 and 0.019 for ``online-power``, 0.003 and 0.018 for
`streamlda.engine.engine`. With a warm-up of 400 of 40,000 documents, N^-1 at the end lowers it from
0.055 to 0.010 for ``online-power``, and V anew from 0.032 to 0.012 for ``simultaneous``. Until
``online-power`` has found all, after 60,000 documents at K = 10, it has less to show. When all
topics (d = 1000, K = 10) change after 110,000 documents, the error after 180,000 more is 0.027 for
both with a memory of 200,000, that of a new engine on 100,000, and 1.5 without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Arrays, Engine, first_projection
from streamlda.engine.generation import (
    Generation,
    GenerationSnapshot,
    generation_length,
    rounds_needed,
    topics_of,
)
from streamlda.engine.refining import RefiningEngine
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.moments import Moments
from streamlda.spectral.power import Components
from streamlda.spectral.topics import SpectralTopics, average_rounds, whitened_projection
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import one_blas_thread

#: Documents of a generation for each round that a search needs, where rounds are left open: they
#: are then of 25 documents or more.
LEAST_OF_SEARCH = 270

#: The running generation is read once its round has this share of the last round of the kept one.
LEAST_ROUND_SHARE = 0.5


class PowerEngine(Engine):
    """Learns topics by an online power method; what `Engine` says holds but for the rounds.

    Parameters
    ----------
    settings : EngineSettings
        With a solver other than ``"whitened-tensor"``. An unknown alpha_0 is taken as 1: it is
        needed while documents are read.

    Raises
    ------
    InvalidSettingError
        If the solver is another, or `memory_documents` too few for the rounds of a search.

    Notes
    -----
    Memory: `EngineSettings.state_bytes`, ``8 d L`` for the probes in word space, and the warm-up
    documents while they are kept; one that forgets has a warm-up at the beginning of every
    generation.
    Time: O(nnz (K + L)) a document, O(d K (K + L)) a round.
    """

    def __init__(self, settings: EngineSettings) -> None:
        if settings.solver == WHITENED_TENSOR:
            raise InvalidSettingError(
                f"an online solver must be chosen for this engine, got solver={settings.solver!r}"
            )
        _check_length(settings)
        super().__init__(settings)
        self._running: Generation | None = None
        # Components of the kept generation; its sums are `_finished`.
        self._kept: GenerationSnapshot | None = None

    @property
    def components_finished(self) -> int:
        """Topics whose iterations have come to their end."""
        speaking = self._speaking()
        return int(speaking[0][1].found.finished.sum()) if speaking else 0

    @property
    def documents_missing(self) -> int:
        """Documents that rounds still need to find all components; known after the warm-up."""
        if self._running is None or self._kept is not None:
            return 0
        return self._running.documents_missing

    def _add_part(self, batch: DocumentBatch, start: int) -> int:
        running = self._running
        if running is None:
            return self._keep(batch, start)
        part = batch.rows(start, running.end_of_round(batch, start))
        self.rounds_finished += running.add(part)
        if running.ended:
            self._finished, self._kept = running.moments, running.read()
            self._running = self._current = None
        return part.n_documents

    def _begin_rounds(self, *, ending: bool = False) -> None:
        """Leave a warm-up; a stream that ends in it is divided into the rounds it needs."""
        kept = self._warmup
        self._warmup = []
        self._warmup_documents = self._warmup_entries = 0
        if any(part.usable.any() for part in kept):
            self._running = self._new_generation(kept, ending)
            self._current = self._running.moments
            self.rounds_finished += self._running.take_kept(kept)

    def _new_generation(self, kept: list[DocumentBatch], ending: bool) -> Generation:
        """Whiten by the pairs of a warm-up, and begin to ask."""
        settings = self.settings
        sketch = Moments(first_projection(kept, settings), triple_columns=0)
        for part in kept:
            sketch.add(part)
        alpha_0 = 1.0 if settings.alpha_0 is None else settings.alpha_0
        moments = Moments(
            whitened_projection(sketch, settings.n_components, alpha_0), triple_columns=0
        )
        for part in kept:
            moments.add(part)
        before = None
        if self._finished is not None and self._kept is not None:
            before = topics_of(self._finished, self._kept, settings)
        return Generation(settings, moments, before, ending=ending)

    def _speaking(self) -> list[tuple[Moments, GenerationSnapshot]]:
        """Return the generations that topics are read from, the one that decides first."""
        running = None
        if self._running is not None:
            running = self._running.moments, self._running.read()
        if self._finished is None or self._kept is None:
            return [] if running is None else [running]
        kept = self._finished, self._kept
        least = LEAST_ROUND_SHARE * self._kept.documents
        if running is None or not running[1].sound or running[1].documents < least:
            return [kept]
        return [running, kept]

    def _rounds(self) -> list[Moments]:
        speaking = self._speaking()
        if self.documents_seen < 2 or not speaking:
            return super()._rounds()
        return [moments for moments, _ in speaking]

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
            (_, read), *_ = reader._speaking()
        missing, finished = reader.documents_missing, int(read.found.finished.sum())
        messages = list(read.messages[-1:])
        if len(read.messages) > 1:
            messages[0] += f" (and {len(read.messages) - 1} components likewise)"
        if missing:
            messages.append(
                f"the rounds of {self.settings.solver} must all end before every topic is found, "
                f"got documents_missing={missing} components_finished={finished} "
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
        diagnostics["components_finished"] = finished
        diagnostics["documents_missing"] = missing
        return replace(model, diagnostics=diagnostics)

    def _reader(self) -> PowerEngine:
        """Return the engine, or one that has left the first warm-up where this one has not."""
        if self._running is not None or self._kept is not None:
            return self
        other = type(self).from_state(*self.state())
        other._begin_rounds(ending=True)
        return other

    def _topics_of(self, rounds: list[Moments]) -> SpectralTopics:
        return self._topics()

    def _topics(self) -> SpectralTopics:
        (moments, read), *others = self._speaking()
        if read.found.eigenvalues.size == 0:
            raise InsufficientDataError(
                "an online solver needs at least one round of documents, got "
                f"documents_seen={self.documents_seen} "
                f"documents_per_round={self._documents_per_round}; "
                "take shorter rounds or more documents"
            )
        found = topics_of(moments, read, self.settings)
        for other in others:
            found = average_rounds(found, topics_of(*other, self.settings))
        return found

    @property
    def _documents_per_round(self) -> int | None:
        return None if self._running is None else self._running.power.documents_per_round

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values."""
        arrays, values = super().state()
        values["refining"] = values["kept"] = None
        if self._running is not None:
            more, values["refining"] = self._running.state()
            arrays |= more
        if self._kept is not None:
            found = self._kept.found
            arrays["kept.eigenvalues"] = found.eigenvalues.copy()
            arrays["kept.eigenvectors"] = found.eigenvectors.copy()
            arrays["kept.finished"] = found.finished.astype(np.uint8)
            arrays["kept.noise"] = self._kept.noise.copy()
            values["kept"] = {
                "documents": self._kept.documents,
                "sound": self._kept.sound,
                "messages": list(self._kept.messages),
            }
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit."""
        engine = super().from_state(arrays, values)
        if engine._current is not None:
            engine._running = Generation.from_state(
                engine.settings, engine._current, arrays, values["refining"]
            )
        if values["kept"] is not None:
            found = Components(
                arrays["kept.eigenvalues"].copy(),
                arrays["kept.eigenvectors"].copy(),
                arrays["kept.finished"].astype(np.bool_),
            )
            engine._kept = GenerationSnapshot(
                found,
                arrays["kept.noise"].copy(),
                int(values["kept"]["documents"]),
                bool(values["kept"]["sound"]),
                tuple(values["kept"]["messages"]),
            )
        return engine


def new_engine(settings: EngineSettings) -> Engine:
    """Return the engine that the settings ask for: one that refines, sums, or asks the stream."""
    if settings.refines:
        return RefiningEngine(settings)
    return Engine(settings) if settings.solver == WHITENED_TENSOR else PowerEngine(settings)


def restored_engine(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Engine:
    """Return the engine whose state this is, whatever its kind."""
    if "refinement" in values:
        return RefiningEngine.from_state(arrays, values)
    tensor = values["settings"].get("solver", WHITENED_TENSOR) == WHITENED_TENSOR
    return (Engine if tensor else PowerEngine).from_state(arrays, values)


def _check_length(settings: EngineSettings) -> None:
    """Raise unless a generation holds the trial of earlier topics and all rounds of a search."""
    length = generation_length(settings)
    rounds = rounds_needed(settings, settings.n_components) + 1
    least = 2 * rounds * (settings.documents_per_round or LEAST_OF_SEARCH)
    if length is not None and 2 * length < least:
        raise InvalidSettingError(
            "half of memory_documents must hold all rounds that find topics, got "
            f"memory_documents={settings.memory_documents} rounds={rounds} "
            f"documents_per_round={settings.documents_per_round}; "
            f"take memory_documents={least} or more, or shorter rounds"
        )
