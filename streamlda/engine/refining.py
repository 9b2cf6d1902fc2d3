"""The phase that goes on by likelihood: spectral topics first, then every document moves them.

::

    start      The first `warmup_documents` documents give spectral topics as in
               `streamlda.engine.rounds`. As many of the latest documents are kept.
    choice     If the documents follow the model (`follows_model`), spectral topics are consistent
               and stay: the engine goes on in rounds.
    refining   Else a `StepwiseEM` starts from them, goes over the kept documents, and from there
               every minibatch of new ones moves the topics. Sums and projections are dropped; what
               they say of the data stays with every model, as of the start.
    annealed   After 100 steps, of a twentieth of the warm-up each, the topics are annealed. No
               document is kept from here on.

A snapshot before the start refines a copy over the documents kept, as many passes as they need
(`streamlda.refinement.refine`); one while topics are still annealed ends the annealing in a copy,
over the latest documents. The phase itself stays as it is. So a short stream gets refined topics
too, and a long one the better ones of a slow annealing: on 195,000 abstracts with K = 50,
held-out perplexity by the number of documents was

=================================== ====== ====== ====== ======= =======
documents                           20,000 30,000 50,000 100,000 195,000
=================================== ====== ====== ====== ======= =======
annealed over the warm-up alone       1701   1633   1568    1498    1457
annealed over 100,000 documents       1997   1809   1616    1454    1404
the same, ended in a copy             1701   1615   1535    1454    1404
=================================== ====== ====== ====== ======= =======

with 2003 for the spectral topics of the first 20,000. Where documents follow the model it is the
other way round: mean-field inference has an error that no number of documents removes. With five
topics over 50 words it is 0.03 after 100,000 of them, and 0.005 for spectral topics.

Equal documents give equal topics, to the last bit, however they are cut into batches, with any
number of threads, snapshots and resumptions. Only where 4 million counts end the warm-up before its
last document, or documents follow the model, the sums that go on differ by rounding between one cut
and another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import State, named, with_prefix
from streamlda.checks import failure
from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.recent_documents import PART_DOCUMENTS, RecentDocuments
from streamlda.engine.settings import EngineSettings
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import ExpectedTokens
from streamlda.refinement.refine import of_start
from streamlda.refinement.schedule import ending_settings, passes_for, stream_settings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.spectral.moments import Moments

Array = NDArray[np.float64]

#: Fewer documents do not make the steps that a refinement needs, however often it sees them.
LEAST_DOCUMENTS = 200

#: Of documents that follow the model, `alpha_fit` is 1 and the topics mix to the word frequencies.
#: Planted ones, from 2000 documents on and with all topics supported, kept within 0.02 and 0.05 of
#: that (five settings of 4 to 50 topics); three corpora of text with 5 to 50 topics were at 0.04 or
#: more for the one and at 0.10 or more for the other.
ALPHA_FIT_TOLERANCE, MIX_TOLERANCE = 0.03, 0.07

#: Where alpha_0 is estimated, `alpha_fit` is 1 whatever documents are. Planted ones with 4 to 20
#: topics kept within 0.013 of the word frequencies then; the three corpora were at 0.044 or more.
ESTIMATED_MIX_TOLERANCE = MIX_TOLERANCE / 2


@dataclass(eq=False)
class Refinement(Phase):
    """Topics that every minibatch moves, from spectral ones on.

    Time O(nnz K) a document and O(K V) a step; a snapshot goes over the kept documents, and takes
    O(K V) once topics are annealed. Memory: ``refining_bytes``, the kept documents while topics are
    annealed, and 16 K V + 32 MiB for a step.
    """

    stepwise: StepwiseEM
    #: Diagnostics of the spectral topics that it started from.
    start: Mapping[str, Any]
    #: Sum of word frequencies over documents, shape (d,).
    frequencies: Array
    recent: RecentDocuments

    @classmethod
    def begun(
        cls,
        settings: EngineSettings,
        counters: Counters,
        model: TopicModel,
        frequencies: Array,
        recent: RecentDocuments,
    ) -> Self:
        """Start from a spectral model, and go over the recent documents."""
        steps = stream_settings(settings.warmup_documents)
        stepwise = StepwiseEM(model.components, model.alpha, model.background, steps)
        stepwise.add(recent.latest())
        return cls(settings, counters, stepwise, model.diagnostics, frequencies, recent)

    @classmethod
    def of_model(cls, settings: EngineSettings, counters: Counters, model: TopicModel) -> Self:
        """Go on from a refined model, as a stream would that has made as many steps.

        The topics weigh as much as those of a stream then, and are annealed.
        """
        n, done = counters.documents_seen, model.diagnostics["refinement"]
        plan = stream_settings(settings.warmup_documents)
        size = int(done.get("batch_documents", plan.batch_documents))
        plan = replace(plan, batch_documents=size, annealing_steps=0)
        # Without passes, as many as one would have made.
        steps = max(1, int(done.get("steps", n // size)))
        stepwise = StepwiseEM.of_model(model, plan, steps)
        start = {k: v for k, v in model.diagnostics.items() if k != "refinement"}
        recent = RecentDocuments(settings.warmup_documents)
        return cls(settings, counters, stepwise, start, model.background * n, recent)

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Move the topics by some documents, and keep them while topics are annealed."""
        part = batch.rows(start, start + PART_DOCUMENTS)
        documents = part.where(part.usable)
        if self.stepwise.flatness:
            self.recent.add(documents)
        else:
            self.recent.clear()
        self.stepwise.add(documents)
        weights = documents.counts / np.repeat(documents.lengths, np.diff(documents.row_pointers))
        # One after the other, so that it does not matter how the stream was cut.
        np.add.at(self.frequencies, documents.word_ids, weights)
        return part.n_documents

    def rounds(self) -> list[Moments]:
        """Raise: there are no sums any more."""
        raise failure(
            "sums must be there to be read, but an engine that refines has dropped them",
            documents_seen=self.counters.documents_seen,
            warmup_documents=self.settings.warmup_documents,
            remedy="take a snapshot, or learn with refine=False (of a daemon: "
            "topics.refine = false)",
        )

    def snapshot(self) -> TopicModel:
        """Return a model, its annealing ended in a copy; spectral diagnostics are of the start."""
        found = self._annealed()
        done = {
            "documents": self.counters.documents_seen,
            "start_documents": self.start["documents_behind_topics"],
            "steps": found.steps,
            "batch_documents": self.stepwise.settings.batch_documents,
            "annealing_left": self.stepwise.flatness,
            "start_topics": list(range(self.settings.n_components)),
        }
        return TopicModel(
            components=found.components,
            alpha=found.alpha,
            background=self.frequencies / self.frequencies.sum(),
            settings=asdict(self.settings),
            diagnostics={
                **of_start(self.start),
                "documents_skipped": self.counters.documents_skipped,
                "refinement": done,
            },
            documents_seen=self.counters.documents_seen,
            tokens_seen=self.counters.tokens_seen,
        )

    def expected(self) -> ExpectedTokens | None:
        """Return the tokens of topics by E-steps, those of the documents that wait as well."""
        found = self.stepwise.copy()
        found.flush()
        return ExpectedTokens(
            *(found.topic_tokens, found.alpha, found.settings.inner_iterations, found.by_bin)
        )

    def _annealed(self) -> StepwiseEM:
        """Return a copy that has its last documents, and its annealing ended."""
        found = self.stepwise.copy()
        found.flush()
        if not found.flatness:
            return found
        kept = self.recent.latest()
        settings, passes = ending_settings(found, kept.n_documents)
        found = found.copy(settings)
        for _ in range(passes):
            found.add(kept)
        found.flush()
        return found

    def state(self) -> State:
        """Return topics, frequencies, the start, and the recent documents while annealed."""
        arrays, stepwise = self.stepwise.state()
        arrays = with_prefix(arrays, "refinement.") | {"frequencies": self.frequencies}
        if self.stepwise.flatness:
            arrays |= self.recent.state()
        refinement = {"follows": False, "start": dict(self.start), "stepwise": stepwise}
        return arrays, {"refinement": refinement}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        arrays, values = saved
        refinement = values["refinement"]
        return cls(
            settings,
            counters,
            StepwiseEM.from_state(named(arrays, "refinement."), refinement["stepwise"]),
            refinement["start"],
            np.array(arrays["frequencies"]),
            RecentDocuments.from_state(arrays, settings),
        )


def start_documents(settings: EngineSettings) -> int:
    """Return how many documents the spectral topics that a refinement starts from are made of."""
    return max(2, settings.warmup_documents)


def follows_model(model: TopicModel) -> bool:
    """Return whether the documents of a spectral model look like draws from a topic model.

    Then every topic stands above sampling noise, the eigenvalues give Dirichlet parameters that sum
    to alpha_0, and topics mixed by these parameters are the word frequencies. Of real text the
    last two do not hold. Where alpha_0 is estimated, it is chosen so that the parameters sum to
    it, which says little: half the tolerance is left for the mixture then. Time O(K V).
    """
    found = model.diagnostics
    if found["directions_supported"] < model.n_components or not all(found["topic_supported"]):
        return False
    mixed = model.alpha @ model.components / model.alpha.sum()
    off = float(np.abs(mixed - model.background).sum())
    estimated = model.settings["alpha_0"] is None
    most = ESTIMATED_MIX_TOLERANCE if estimated else MIX_TOLERANCE
    return abs(found["alpha_fit"] - 1) < ALPHA_FIT_TOLERANCE and off < most


def needed_passes(model: TopicModel, documents: int) -> int:
    """Return how many passes over N documents refine a spectral model of them.

    0 where spectral topics are the better ones: if the documents follow the model, or are too few.
    """
    if documents < LEAST_DOCUMENTS or follows_model(model):
        return 0
    return passes_for(documents)
