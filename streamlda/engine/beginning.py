"""The phase that a stream begins with: documents are kept until there are enough for topics.

Where the stream turns meanwhile, those before are dropped (`streamlda.engine.watch`).

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
from streamlda.engine.watch import WarmUpWatch
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
        #: What `latest` made of all documents; it is in no state.
        self._latest: TopicModel | None = None
        #: A source that ends is fitted as a whole.
        watched = self.refines and entries == 0
        self.watch = WarmUpWatch(self.settings) if watched else None

    def end(self, batch: DocumentBatch, start: int) -> int:
        """Return where the warm-up or a block of it ends, or else the batch."""
        end = warmup_end(batch, start, *self.kept.missing)
        if self.watch is not None:
            end = min(end, start + self.watch.missing(self.kept.n_documents))
        return end

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Keep documents up to the end of the warm-up or of a block."""
        return self.kept.add(batch.rows(0, self.end(batch, start)), start)

    def next(self) -> Phase:
        """Continue from a fit of the documents kept; one without a usable document is dropped."""
        if self.watch is not None and self.watch.missing(self.kept.n_documents) <= 0:
            self._drop_before_turn(self.watch)
        if not self.kept.full:
            return self
        if not self.kept.batch().usable.any():
            self.kept.clear()
            if self.watch is not None:
                self.watch.documents = 0
            return self
        phase = self._fitted()[0] if self.refines else self._round()
        phase.counters = self.counters.after(phase.counters)
        return phase.next()

    def _drop_before_turn(self, watch: WarmUpWatch) -> None:
        kept = self.kept.batch()
        at = watch.since_turn(kept, self.counters.documents_seen)
        if at is not None:
            self.kept.clear()
            self.kept.add(kept.rows(at, len(kept)), 0)
            self._latest = None

    @property
    def switches(self) -> int:
        """How often documents before a turn were dropped."""
        return 0 if self.watch is None else self.watch.switches

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
            return self._of_stream(self._fitted()[1])
        documents, n = self.kept.batch(), self.settings.warmup_documents
        while 2 * n <= self.counters.documents_seen:
            n *= 2
        if self._first is None or self._first.documents_seen < n:
            self._first = fit(self.settings, documents.rows(0, documents.find_end(n)))[1]
        goes_on = Refinement.after(self.settings, replace(self.counters), self._first, documents)
        return self._fitted()[1] if goes_on is None else goes_on.snapshot()

    def latest(self) -> TopicModel:
        """Return `snapshot` where documents have doubled since; else go once over the new ones."""
        if not self.refines or self.unfinished:
            return self.snapshot()
        known, goes_on = self._latest, None
        if known is not None and self.kept.n_documents < 2 * known.documents_seen:
            goes_on = Refinement.after(self.settings, self.counters, known, self.kept.batch())
        if goes_on is not None:
            return self._of_stream(goes_on.snapshot())
        self._latest = self._fitted()[1]
        return self._of_stream(self._latest)

    def _of_stream(self, model: TopicModel) -> TopicModel:
        """Return a model of the documents since a turn with the counts of the stream."""
        if self.watch is None or not self.watch.switches:
            return model
        known = {"documents_skipped": self.counters.documents_skipped, **self.watch.diagnostics}
        return replace(
            model,
            diagnostics={**model.diagnostics, **known},
            documents_seen=self.counters.documents_seen,
            tokens_seen=self.counters.tokens_seen,
        )

    def whole(self, samples: Callable[[], Samples]) -> TopicModel:
        """Return a model of all documents of a source that has ended."""
        if not self.unfinished:
            return self.snapshot()
        return fit(self.settings, self.kept.batch(), samples=samples)[1]

    def state(self) -> State:
        """Return the documents kept, and what watches them."""
        arrays, values = self.kept.state(), {"refines": self.refines}
        if self.watch is not None:
            watch = self.watch.state()
            arrays, values = arrays | watch[0], values | watch[1]
        return arrays, values

    def restore(self, saved: State) -> None:
        """Take back what `state` returned."""
        self.kept.restore(saved[0], self.settings.n_features)
        if self.watch is not None:
            self.watch.restore(saved)
