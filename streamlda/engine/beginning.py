"""The phase that a stream begins with: documents are kept until there are enough for topics."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamlda.documents import DocumentBatch
from streamlda.engine.fit import fit
from streamlda.engine.phase import Phase
from streamlda.engine.rounds import Rounds
from streamlda.engine.warmup import WarmUpDocuments, warmup_end
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.moments import Moments
from streamlda.spectral.topics import SpectralTopics
from streamlda.utils.arrays import State


@dataclass(eq=False)
class WarmUp(Phase):
    """The first documents, kept until there are enough to be fitted."""

    refines: bool

    #: Nothing is known yet.
    settled = False

    def __post_init__(self) -> None:
        self.kept = WarmUpDocuments(self.settings.warmup_documents)

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
        phase = self._fitted()[0]
        projection_documents = phase.counters.projection_documents
        phase.counters = self.counters
        phase.counters.projection_documents = projection_documents
        return phase.next()

    def _fitted(self) -> tuple[Phase, TopicModel]:
        """Return the phase and the model of the documents kept."""
        self._require_documents()
        if self.refines:
            return fit(self.settings, self.kept.batch())
        phase = self._round()
        return phase, phase.snapshot()

    def _round(self) -> Rounds:
        self._require_documents()
        counters = replace(self.counters)
        return Rounds.begun(self.settings, counters, self.kept.batch())

    def rounds(self) -> list[Moments]:
        """Return the first round."""
        return self._round().rounds()

    def topics(self) -> SpectralTopics:
        """Return the topics of the first round."""
        return self._round().topics()

    def snapshot(self) -> TopicModel:
        """Return a model of the documents kept, refined if that is better."""
        return self._fitted()[1]

    def state(self) -> State:
        """Return the documents kept."""
        return self.kept.state(), {"refines": self.refines}
