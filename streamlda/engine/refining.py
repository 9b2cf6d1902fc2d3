"""The phase that continues by likelihood: every minibatch of documents moves refined topics.

It begins from a model of the first documents (`streamlda.engine.fit`), as after as many steps as
these documents make. Steps weigh less and less, so topics settle where a stream does not turn;
where it does, `streamlda.engine.following` finds new ones.

Equal documents give equal topics, to the last bit, however they are cut into batches, with any
number of threads, snapshots and resumptions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.settings import EngineSettings
from streamlda.errors import failure
from streamlda.model.diagnostics import warn_of_background
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.refine import of_start, start_of
from streamlda.refinement.schedule import stream_settings
from streamlda.refinement.shared_start import SharedStart
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.spectral.moments import Moments
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Array, Tree

#: Fewer documents do not make the steps that a refinement needs, however often it sees them.
LEAST_DOCUMENTS = 200

#: Documents that are learned at a time.
PART_DOCUMENTS = 1000


@dataclass(eq=False)
class Refinement(Phase):
    """Topics that every minibatch moves.

    Time O(nnz K) a document and O(K V) a step or snapshot. Memory: 8 (d K + 2 d + K), and
    16 K V + 16 MiB for a step.
    """

    stepwise: StepwiseEM
    #: Diagnostics of the topics that it started from.
    start: Mapping[str, Any]
    #: Sum of word frequencies over documents, shape (d,).
    frequencies: Array
    #: What it shares with other refinements that it can be merged with, and began from.
    shared: SharedStart | None = None

    def __post_init__(self) -> None:
        if self.settings.refines and self.stepwise.scores is None:
            self.stepwise.scores = np.empty(0)

    @classmethod
    def of_start(
        cls,
        settings: EngineSettings,
        counters: Counters,
        start: SharedStart,
        rest: Iterable[DocumentBatch] = (),
    ) -> Self:
        """Begin from a shared start, with documents that waited for their minibatch."""
        frequencies = np.zeros(settings.n_features)
        made = cls(settings, counters, start.stepwise.copy(), start.known, frequencies, start)
        for part in rest:
            made.stepwise.add(part)
            add_frequencies(frequencies, part)
        return made

    def merge_with(self, other: Self) -> Self:
        """Return one phase with the documents of another of the same start too.

        Of two starts the later counts: it was made of documents that members of the other had.
        """
        assert self.shared is not None
        assert other.shared is not None
        later = other.shared.follows(self.shared)
        # One that has learned nothing changes nothing.
        if self.shared.follows(other.shared) or not (later or other.frequencies.any()):
            return self
        if later or not self.frequencies.any():
            frequencies, stepwise = other.frequencies.copy(), other.stepwise.copy()
        else:
            frequencies = self.frequencies + other.frequencies
            stepwise = self.shared.merge_with([self.stepwise, other.stepwise])
        own = stepwise, other.start, frequencies, other.shared
        return type(self)(self.settings, self.counters, *own)

    @classmethod
    def of_model(cls, settings: EngineSettings, counters: Counters, model: TopicModel) -> Self:
        """Continue from a model, refined or spectral, as after the steps of its documents."""
        n, plan = model.documents_seen, stream_settings(settings.warmup_documents)
        plan = replace(plan, seeds=model.seeds)
        stepwise = StepwiseEM.of_model(model, plan, max(1, n // plan.batch_documents))
        return cls(settings, counters, stepwise, start_of(model), model.background * n)

    @classmethod
    def after(
        cls, settings: EngineSettings, counters: Counters, first: TopicModel, rows: DocumentBatch
    ) -> Self | None:
        """Continue from a model of the first documents kept, by one pass over the others.

        None where that was not refined.
        """
        at = first.documents_seen + int(first.diagnostics["documents_skipped"])
        if "refinement" not in first.diagnostics:
            return None
        begun = cls.of_model(settings, counters, first)
        while at < rows.n_documents:
            at += begun.add(rows, at)
        return begun

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Move the topics by some documents."""
        part = batch.rows(start, start + PART_DOCUMENTS)
        documents = part.where(part.nonempty)
        self.stepwise.add(documents)
        # One after the other, so that it does not matter how the stream was cut.
        add_frequencies(self.frequencies, documents)
        return part.n_documents

    def follow(self, documents: DocumentBatch) -> None:
        """Take one step with these documents alone."""
        self.stepwise.learn(documents)
        add_frequencies(self.frequencies, documents)

    @property
    def components(self) -> Array:
        """Word probabilities of each topic, (K, V)."""
        return self.stepwise.components

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; topics keep their rows. O(V K)."""
        self.settings = replace(self.settings, n_features=change.after)
        self.stepwise.change_words(change)
        kept = change.rows(self.frequencies)
        # Where all words left, the shares of those that enter are all that is known.
        self.frequencies = kept if kept.any() else change.distribution(self.frequencies)

    def rounds(self) -> list[Moments]:
        """Raise: there are no sums any more."""
        raise failure(
            "sums cannot be read: an engine that refines has dropped them",
            documents_seen=self.counters.documents_seen,
            warmup_documents=self.settings.warmup_documents,
            remedy="take a snapshot, or learn with refine=False (of a daemon: "
            "topics.refine = false)",
        )

    def snapshot(self) -> TopicModel:
        """Return a model of all documents; spectral diagnostics are of the start."""
        self._require_documents()
        found = self.stepwise.copy_flushed()
        known = of_start(self.start)
        known["refinement"] = {
            "documents": self.counters.documents_seen,
            "start_documents": self.start["documents_behind_topics"],
            "steps": found.steps,
            "batch_documents": found.settings.batch_documents,
            "start_topics": known.pop("start_topics", [*range(self.settings.n_components)]),
        }
        # Members that begin again have no documents of their own yet.
        words = self.frequencies if self.frequencies.any() else found.background
        model = TopicModel(
            components=found.components,
            alpha=found.alpha,
            background=words / words.sum(),
            settings=asdict(self.settings),
            diagnostics={**known, "documents_skipped": self.counters.documents_skipped},
            documents_seen=self.counters.documents_seen,
            tokens_seen=self.counters.tokens_seen,
        )
        return warn_of_background(model)

    def state(self) -> Tree:
        """Return topics, frequencies and the start."""
        own = {"stepwise": self.stepwise.state(), "frequencies": self.frequencies}
        shared = {} if self.shared is None else {"shared": self.shared.state()}
        return {"refinement": {**own, **shared, "start": dict(self.start)}}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, state: Tree) -> Self:
        """Continue from what `state` returned, bit for bit."""
        own = state["refinement"]
        stepwise, frequencies = StepwiseEM.from_state(own["stepwise"]), np.array(own["frequencies"])
        shared = SharedStart.from_state(own["shared"]) if "shared" in own else None
        return cls(settings, counters, stepwise, own["start"], frequencies, shared)


def add_frequencies(totals: Array, documents: DocumentBatch) -> None:
    """Add the word frequencies of some documents with tokens, one after the other."""
    weights = documents.counts / np.repeat(documents.lengths, np.diff(documents.row_pointers))
    np.add.at(totals, documents.word_ids, weights)
