"""The phase that a stream begins with: documents are kept until there are enough for topics.

Those of a source that ends are all kept, within a limit, and fitted together where it ends. Topics
before are those of the first documents, as many as a power of two of warm-ups has, refined by one
pass over the others. So readings on the way take at most twice the time of the last fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from streamlda.documents import DocumentBatch
from streamlda.engine.fit import begun, fit
from streamlda.engine.phase import Phase
from streamlda.engine.refining import Refinement
from streamlda.engine.warmup import WarmUpDocuments, warmup_end
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import Samples
from streamlda.spectral.moments import Moments
from streamlda.utils.arrays import State


@dataclass(eq=False)
class WarmUp(Phase):
    """The first documents, kept until there are enough to be fitted."""

    refines: bool

    #: Nothing is known yet.
    settled = False

    def __post_init__(self) -> None:
        most, entries = self.settings.warmup_documents, self.settings.kept_entries
        if self.refines and entries > 0:
            self.kept = WarmUpDocuments(sys.maxsize, entries)
        else:
            self.kept = WarmUpDocuments(most)
        #: Topics of the first documents, where there are more than a warm-up.
        self._first: TopicModel | None = None

    def end(self, batch: DocumentBatch, start: int) -> int:
        """Return where the warm-up ends, or else the batch."""
        return warmup_end(batch, start, *self.kept.missing)

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Keep documents up to the end of the warm-up."""
        return self.kept.add(batch, start)

    def next(self) -> Phase:
        """Go on from a fit of the documents kept; one without a usable document is dropped."""
        if not self.kept.full:
            return self
        if not self.kept.batch().usable.any():
            self.kept.clear()
            return self
        phase = self._fitted()[0] if self.refines else self._round()
        phase.counters = self.counters.after(phase.counters)
        return phase.next()

    def _fitted(self) -> tuple[Phase, TopicModel]:
        """Return the phase and the model of the documents kept."""
        self._require_documents()
        return fit(self.settings, self.kept.batch())

    def _round(self) -> Phase:
        self._require_documents()
        return begun(self.settings, replace(self.counters), self.kept.batch())

    def rounds(self) -> list[Moments]:
        """Return the first round."""
        return self._round().rounds()

    @property
    def unfinished(self) -> bool:
        """Whether `snapshot` gives other topics than `whole`."""
        return self.kept.n_documents >= self.settings.warmup_documents

    def snapshot(self) -> TopicModel:
        """Return a model of the documents kept, refined if that is better."""
        if not self.refines:
            return self._round().snapshot()
        if not self.unfinished:
            return self._fitted()[1]
        documents, n = self.kept.batch(), self.settings.warmup_documents
        while 2 * n <= self.counters.documents_seen:
            n *= 2
        if self._first is None or self._first.documents_seen < n:
            self._first = fit(self.settings, documents.rows(0, documents.end_of(n)))[1]
        goes_on = Refinement.after(self.settings, replace(self.counters), self._first, documents)
        return self._fitted()[1] if goes_on is None else goes_on.snapshot()

    def whole(self, samples: Callable[[], Samples]) -> TopicModel:
        """Return a model of all documents of a source that has ended."""
        if not self.unfinished:
            return self.snapshot()
        return fit(self.settings, self.kept.batch(), samples=samples)[1]

    def state(self) -> State:
        """Return the documents kept."""
        return self.kept.state(), {"refines": self.refines}
