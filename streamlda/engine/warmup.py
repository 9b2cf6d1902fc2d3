"""The phase that a stream begins with: documents are kept until there are enough for topics.

There are no topics yet that could show a turn of the stream, so the words of all documents so far
predict each block before they are counted. Where blocks are predicted worse than those before, the
warm-up ends before these, and `streamlda.engine.following` finds topics of them.

Documents of a source that ends are all kept, within a limit, and fitted together where it ends.
Topics before are those of the first documents, as many as a power of two of warm-ups has, refined
by one pass over the others. So readings on the way take at most twice the time of the last fit.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.fit import begin_rounds, fit
from streamlda.engine.phase import Phase
from streamlda.engine.projections import WARMUP_MAX_ENTRIES, warmup_end
from streamlda.engine.refining import LEAST_DOCUMENTS, Refinement
from streamlda.engine.turns import Scores, count_words, score_by_words
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import Samples
from streamlda.refinement.schedule import stream_settings
from streamlda.spectral.moments import Moments
from streamlda.utils.arrays import Tree

#: Readings of a young stream are fitted anew where it has so many times the documents of the last
#: fit. With 2 all readings together take half as long again and predict no better.
GROWN = 3


@dataclass(eq=False)
class WarmUp(Phase):
    """The first documents, kept until there are enough to be fitted."""

    refines: bool

    def __post_init__(self) -> None:
        settings = self.settings
        #: Whether all documents of a source are fitted together.
        self._whole = self.refines and settings.kept_entries > 0
        self._most = sys.maxsize if self._whole else settings.warmup_documents
        self._most_entries = max(self._whole * settings.kept_entries, WARMUP_MAX_ENTRIES)
        #: Documents of a block, those of all blocks, and how well words before predicted these.
        self._block = stream_settings(settings.warmup_documents).batch_documents
        self._scored, self._words = 0, np.zeros(settings.n_features)
        self._scores = Scores(max(1, settings.warmup_documents // self._block))
        #: Documents of a turn that has ended the warm-up; they are not counted.
        self.newer: DocumentBatch | None = None
        #: Topics of the first documents, where there are more than a warm-up.
        self._first: TopicModel | None = None
        #: What `latest` made of all documents; it is in no state.
        self._latest: TopicModel | None = None
        self._clear()

    def _clear(self) -> None:
        self._parts: list[DocumentBatch] = []
        self.n_documents = self._entries = self._scored = 0

    def end(self, batch: DocumentBatch, start: int) -> int:
        """Return where the warm-up or a block of it ends, or else the batch."""
        missing = self._most - self.n_documents, self._most_entries - self._entries
        end = warmup_end(batch, start, *missing)
        if self.refines and not self._whole:
            end = min(end, start + self._scored + self._block - self.n_documents)
        return end

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Keep a copy of documents up to the end of the warm-up or of a block."""
        part = batch.rows(start, self.end(batch, start)).copy()
        self._parts.append(part)
        self.n_documents += part.n_documents
        self._entries += len(part.counts)
        return part.n_documents

    @property
    def batch(self) -> DocumentBatch:
        """The documents as one batch, one at least: sums must not depend on how they came."""
        self._parts = [DocumentBatch.joined(self._parts)]
        return self._parts[0]

    def next(self) -> Phase:
        """Continue from a fit of the documents kept; one without a usable document is dropped."""
        turn = None
        if self.refines and not self._whole and self.n_documents == self._scored + self._block:
            turn = self._turn()
        full = self.n_documents >= self._most or self._entries >= self._most_entries
        if turn is None and not full:
            return self
        if not self.batch.usable.any():
            self._clear()
            return self
        if turn is not None:
            self.newer = self.batch.rows(turn, sys.maxsize)
            self._parts = [self.batch.rows(0, turn)]
            self.counters.count(self.newer, -1)
        phase = self._fit_documents()[0] if self.refines else self._round()
        phase.counters = self.counters.after(phase.counters)
        return phase.next()

    def _turn(self) -> int | None:
        """Return where documents begin that those before predict worse, if they are enough."""
        newest = self.batch.rows(self._scored, self.n_documents)
        block, blocks = newest.where(newest.usable), 0
        if self._words.any() and len(block):
            blocks = self._scores.add(score_by_words(self._words, block))
        self._words += count_words(block)
        self._scored = self.n_documents
        older = self.batch.rows(0, self.n_documents - blocks * self._block)
        is_turn = blocks and np.count_nonzero(older.usable) >= LEAST_DOCUMENTS
        return len(older) if is_turn else None

    def _fit_documents(self) -> tuple[Phase, TopicModel]:
        """Return the phase and the model of the documents kept."""
        self._require_documents()
        return fit(self.settings, self.batch)

    def _round(self) -> Phase:
        self._require_documents()
        return begin_rounds(self.settings, replace(self.counters), self.batch)

    def rounds(self) -> list[Moments]:
        """Return the first round."""
        return self._round().rounds()

    @property
    def has_rest(self) -> bool:
        """True if `snapshot` gives other topics than `whole`."""
        return self.n_documents >= self.settings.warmup_documents

    def snapshot(self) -> TopicModel:
        """Return a model of the documents kept, refined if that is better."""
        if not self.refines:
            return self._round().snapshot()
        if not self.has_rest:
            return self._fit_documents()[1]
        documents, n = self.batch, self.settings.warmup_documents
        while 2 * n <= self.counters.documents_seen:
            n *= 2
        if self._first is None or self._first.documents_seen < n:
            self._first = fit(self.settings, documents.rows(0, documents.find_end(n)))[1]
        refined = Refinement.after(self.settings, replace(self.counters), self._first, documents)
        return self._fit_documents()[1] if refined is None else refined.snapshot()

    def latest(self) -> TopicModel:
        """Return `snapshot` where documents are `GROWN` times as many; else learn the new ones."""
        if not self.refines or self.has_rest:
            return self.snapshot()
        known, refined = self._latest, None
        if known is not None and self.n_documents < GROWN * known.documents_seen:
            refined = Refinement.after(self.settings, self.counters, known, self.batch)
        if refined is not None:
            return refined.snapshot()
        self._latest = self._fit_documents()[1]
        return self._latest

    def whole(self, samples: Callable[[], Samples]) -> TopicModel:
        """Return a model of all documents of a source that has ended."""
        if not self.has_rest:
            return self.snapshot()
        return fit(self.settings, self.batch, samples=samples)[1]

    def state(self) -> Tree:
        """Return the documents kept, and how well words predicted them."""
        own = {"refines": self.refines, "scored": self._scored, "scores": self._scores.state()}
        own |= {"words": self._words.copy()} if self._scored else {}
        return {"warmup": own | ({"kept": self.batch.arrays} if self._parts else {})}

    def restore(self, own: Tree) -> None:
        """Take back what `state` returned."""
        self._scores.restore(own["scores"])
        if own["scored"]:
            self._words = own["words"].copy()
        if "kept" in own:
            d = self.settings.n_features
            given = DocumentBatch(**own["kept"], n_features=d, integral=False)
            self._parts, self.n_documents = [given.copy()], len(given)
            self._entries = len(given.counts)
        self._scored = own["scored"]
