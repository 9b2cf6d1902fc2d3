"""The phase that goes on by likelihood: spectral topics first, then every document moves them.

::

    start      The first `warmup_documents` documents give spectral topics as in
               `streamlda.engine.rounds`. As many of the latest documents are kept, and some are set
               aside (`streamlda.refinement.choice`), which nothing learns until the choice.
    choice     A `StepwiseEM` starts from them and goes over the kept documents. If its topics, with
               the annealing ended in a copy, do not predict the documents set aside better, the
               spectral topics stay: the engine goes on in rounds.
    refining   Else every minibatch of new ones moves the topics. Sums and projections are dropped;
               what they say of the data stays with every model, as of the start.
               Some are still set aside, and learned after one or two warm-ups more: a stream may
               turn to other things, and topics that follow it predict its beginning worse.
    annealed   After 100 steps, of a twentieth of the warm-up each, the topics are annealed. They
               are compared with their start once more, and begin again from it, without annealing,
               where they are not better. Then they learn the documents set aside, and neither
               these nor others are kept from here on.

A snapshot before the start refines a copy over the documents kept, as many passes as they need
(`streamlda.refinement.refine`); one while topics are still annealed ends the annealing in a copy,
over the latest documents. Either is a model of the start where that predicts the documents set
aside no worse. The phase itself stays as it is. So a short stream gets refined topics
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
other way round: with five topics over 50 words the error of refined ones is 0.03 after 100,000
documents, and 0.005 for spectral topics.

Equal documents give equal topics, to the last bit, however they are cut into batches, with any
number of threads, snapshots and resumptions. Only where 4 million counts end the warm-up before its
last document, or the spectral topics stay, the sums that go on differ by rounding between one cut
and another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure
from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase, RefiningPhase
from streamlda.engine.recent_documents import PART_DOCUMENTS, RecentDocuments
from streamlda.engine.settings import EngineSettings
from streamlda.model.diagnostics import warn_of_background
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import Choice, choose
from streamlda.refinement.refine import of_start, start_of
from streamlda.refinement.schedule import ending_settings, stream_settings, unflattened
from streamlda.refinement.shared_start import SharedStart
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.spectral.moments import Moments
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Arrays, State, named, with_prefix

Array = NDArray[np.float64]

#: Fewer documents do not make the steps that a refinement needs, however often it sees them.
LEAST_DOCUMENTS = 200


@dataclass(eq=False)
class Refinement(RefiningPhase):
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
    #: While topics are annealed, the documents set aside, and the topics and alpha that they are
    #: compared with there; else None.
    trial: Trial | None = None
    #: What it shares with other refinements that it can be merged with, and began from.
    shared: SharedStart | None = None

    @classmethod
    def of_start(cls, settings: EngineSettings, counters: Counters, shared: SharedStart) -> Self:
        """Begin from a start that others begin from as well."""
        nothing = np.zeros(settings.n_features), RecentDocuments(settings.warmup_documents)
        begun, known = shared.begun(), shared.known
        return cls(settings, counters, begun, known, *nothing, shared=shared)

    def going_on_from(self, shared: SharedStart) -> Refinement:
        """Return the phase with a start that replaces its own; counts and words stay."""
        return replace(self, stepwise=shared.begun(), start=shared.known, shared=shared)

    def merged(self, other: Refinement) -> Refinement:
        """Return one phase with the documents of another of the same start too."""
        assert self.shared is not None
        # One that has learned nothing changes nothing.
        if not other.frequencies.any():
            return self
        stepwise = other.stepwise.copy()
        if self.frequencies.any():
            stepwise = self.shared.merged([self.stepwise, other.stepwise])
        frequencies = self.frequencies + other.frequencies
        return replace(self, stepwise=stepwise, frequencies=frequencies)

    @property
    def annealed(self) -> bool:
        """Whether topics are annealed."""
        return not self.stepwise.flatness

    @classmethod
    def begun(
        cls,
        settings: EngineSettings,
        counters: Counters,
        model: TopicModel,
        frequencies: Array,
        recent: RecentDocuments,
        aside: RecentDocuments,
    ) -> Self:
        """Start from a spectral model, and go over the recent documents."""
        kept, steps = recent.latest(), stream_settings(settings.warmup_documents)
        steps = unflattened(steps, model, kept)
        stepwise = StepwiseEM(model.components, model.alpha, model.background, steps)
        stepwise.add(kept)
        newer, missing = RecentDocuments.aside(), settings.warmup_documents
        trial = Trial(model.components, model.alpha, aside, newer, missing)
        return cls(settings, counters, stepwise, model.diagnostics, frequencies, recent, trial)

    @classmethod
    def of_model(cls, settings: EngineSettings, counters: Counters, model: TopicModel) -> Self:
        """Go on from a model, refined or spectral, as a stream would that has made as many steps.

        The topics weigh as much as those of a stream then, and are annealed.
        """
        n, done = counters.documents_seen, model.diagnostics.get("refinement", {})
        plan = stream_settings(settings.warmup_documents)
        size = int(done.get("batch_documents", plan.batch_documents))
        plan = replace(plan, batch_documents=size, annealing_steps=0, seeds=model.seeds)
        # Without passes, as many as one would have made.
        steps = max(1, int(done.get("steps", n // size)))
        stepwise = StepwiseEM.of_model(model, plan, steps)
        recent = RecentDocuments(settings.warmup_documents)
        frequencies = model.background * n
        return cls(settings, counters, stepwise, start_of(model), frequencies, recent)

    @classmethod
    def after(
        cls, settings: EngineSettings, counters: Counters, whole: TopicModel, kept: DocumentBatch
    ) -> Self | None:
        """Go on from a model of the first documents kept, by one pass over the others.

        None where that was not refined, or of half of the documents or fewer.
        """
        at = whole.documents_seen + int(whole.diagnostics["documents_skipped"])
        if "refinement" not in whole.diagnostics or kept.n_documents >= 2 * at:
            return None
        then = replace(counters, documents_seen=whole.documents_seen)
        begun = cls.of_model(settings, then, whole)
        while at < kept.n_documents:
            at += begun.add(kept, at)
        begun.counters = counters
        return begun

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Move the topics by some documents, and keep them while topics are annealed."""
        stop = start + PART_DOCUMENTS
        if self.trial is not None:
            # The trial ends with the annealing, however the stream was cut.
            stop = min(stop, batch.end_of(min(self._annealing_left, self.trial.missing), start))
        part = batch.rows(start, stop)
        documents = learned = part.where(part.usable)
        if self.trial is not None:
            self.trial, learned = self.trial.parted(documents, self.settings.warmup_documents)
        if self.stepwise.flatness:
            self.recent.add(learned)
        self.stepwise.add(learned)
        # One after the other, so that it does not matter how the stream was cut.
        add_frequencies(self.frequencies, documents)
        return part.n_documents

    def next(self) -> Phase:
        """End the trial, and keep no documents, once topics are annealed."""
        if self.stepwise.flatness:
            return self
        if self.trial is not None:
            trial, self.trial = self.trial, None
            if not trial.choice(self._refined(self.stepwise), self.recent).refined:
                self.stepwise = self._without_annealing(trial)
            for documents in trial.documents():
                self.stepwise.add(documents)
        self.recent.clear()
        return self

    def taking_words(self) -> Refinement | None:
        """Return the phase itself, unless it shares a start, whose columns are those of others."""
        return self if self.shared is None else None

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
        self.recent.change_words(change)
        if self.trial is not None:
            self.trial.aside.change_words(change)
            self.trial.newer.change_words(change)
            components = np.ascontiguousarray(change.distribution(self.trial.components.T).T)
            self.trial = self.trial._replace(components=components)

    @property
    def _annealing_left(self) -> int:
        """Documents that the annealing still takes."""
        steps = self.stepwise.settings.annealing_steps - self.stepwise.steps
        return steps * self.stepwise.settings.batch_documents - self.stepwise.waiting

    def _without_annealing(self, trial: Trial) -> StepwiseEM:
        """Begin again from the start, over the recent documents."""
        plain = replace(
            self.stepwise.settings, start_flatness=0.0, annealing=0.0, annealing_steps=0
        )
        stepwise = StepwiseEM(
            trial.components, trial.alpha, self.frequencies / self.frequencies.sum(), plain
        )
        if self.recent.parts:
            stepwise.add(self.recent.latest())
        return stepwise

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
        """Return a model, its annealing ended in a copy; spectral diagnostics are of the start.

        It is one of the start where that predicts the documents set aside no worse.
        """
        self._require_documents()
        found = self._annealed()
        if self.trial is None:
            return self._refined(found)
        choice = self.trial.choice(self._refined(found), self.recent)
        said = choice.diagnostics
        if not choice.refined:
            known = {**self.start, **said}
            return self._published(self.trial.components, self.trial.alpha, known)
        for documents in self.trial.documents():
            found.add(documents)
        found.flush()
        model = self._refined(found)
        return replace(model, diagnostics={**model.diagnostics, **said})

    def _refined(self, found: StepwiseEM) -> TopicModel:
        """Return the model of refined topics."""
        known = of_start(self.start)
        done = {
            "documents": self.counters.documents_seen,
            "start_documents": self.start["documents_behind_topics"],
            "steps": found.steps,
            "batch_documents": self.stepwise.settings.batch_documents,
            "annealing_left": self.stepwise.flatness,
            "start_topics": known.pop("start_topics", [*range(self.settings.n_components)]),
        }
        known["refinement"] = done
        model = self._published(found.components, found.alpha, known)
        return warn_of_background(model)

    def _published(self, components: Array, alpha: Array, known: dict[str, Any]) -> TopicModel:
        return TopicModel(
            components=components,
            alpha=alpha,
            background=self.frequencies / self.frequencies.sum(),
            settings=asdict(self.settings),
            diagnostics={**known, "documents_skipped": self.counters.documents_skipped},
            documents_seen=self.counters.documents_seen,
            tokens_seen=self.counters.tokens_seen,
        )

    def _annealed(self) -> StepwiseEM:
        """Return a copy that has its last documents, and its annealing ended."""
        found = self.stepwise.flushed()
        # Of words that left, there may be no documents.
        if not found.flatness or not self.recent.parts:
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
        if self.trial is not None:
            arrays |= self.trial.state()
        refinement = {"follows": False, "start": dict(self.start), "stepwise": stepwise}
        if self.shared is not None:
            own, refinement["shared"] = self.shared.state()
            arrays |= with_prefix(own, "shared.")
        return arrays, {"refinement": refinement}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        arrays, values = saved
        refinement = values["refinement"]
        shared = refinement.get("shared")
        return cls(
            settings,
            counters,
            StepwiseEM.from_state(named(arrays, "refinement."), refinement["stepwise"]),
            refinement["start"],
            np.array(arrays["frequencies"]),
            RecentDocuments(settings.warmup_documents).restore(arrays, settings.n_features),
            Trial.from_state(arrays, settings.n_features),
            SharedStart.from_state(named(arrays, "shared."), shared) if shared else None,
        )


class Trial(NamedTuple):
    """What refined topics must be better than, and where: on documents that neither learned.

    These are some of the latest one or two warm-ups. After `missing` documents the older ones are
    learned, and the `newer` ones take their place.
    """

    components: Array
    alpha: Array
    aside: RecentDocuments
    newer: RecentDocuments
    missing: int

    def parted(self, documents: DocumentBatch, every: int) -> tuple[Trial, DocumentBatch]:
        """Set some usable documents aside, not beyond `missing`; return those to learn now."""
        numbers = every - self.missing + np.arange(documents.n_documents)
        chosen = numbers % aside_stride(every) == 0
        self.newer.add(documents.where(chosen))
        learned, missing = documents.where(~chosen), self.missing - documents.n_documents
        if missing:
            return self._replace(missing=missing), learned
        learned = DocumentBatch.joined([learned, *_latest(self.aside)])
        newer = RecentDocuments.aside()
        return self._replace(aside=self.newer, newer=newer, missing=every), learned

    def documents(self) -> list[DocumentBatch]:
        """Return those set aside, as batches."""
        return [*_latest(self.aside), *_latest(self.newer)]

    def choice(self, refined: TopicModel, learned: RecentDocuments) -> Choice:
        """Compare refined topics with their start; without documents the start is kept."""
        aside = self.documents()
        if not (aside and learned.parts):
            return Choice(False, 0)
        start = replace(refined, components=self.components, alpha=self.alpha)
        return choose(start, refined, DocumentBatch.joined(aside), learned.latest())

    def state(self) -> Arrays:
        """Return it as named arrays."""
        missing = np.array([self.missing], dtype=np.int64)
        own = {"components": self.components, "alpha": self.alpha, "missing": missing}
        kept = self.aside.state("aside.") | self.newer.state("newer.")
        return with_prefix(own, "trial.") | kept

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], n_features: int) -> Self | None:
        """Resume from what `state` returned; a refinement without a trial has none."""
        own = named(arrays, "trial.")
        if not own:
            return None
        aside, newer = (
            RecentDocuments.aside().restore(arrays, n_features, name)
            for name in ("aside.", "newer.")
        )
        missing = int(own["missing"][0])
        return cls(own["components"].copy(), own["alpha"].copy(), aside, newer, missing)


def _latest(kept: RecentDocuments) -> list[DocumentBatch]:
    return [kept.latest()] if kept.parts else []


def aside_stride(documents: int) -> int:
    """Return of how many documents one is set aside, so that few documents have enough."""
    return max(5, min(20, documents // 200), documents // 1000)


def add_frequencies(totals: Array, documents: DocumentBatch) -> None:
    """Add the word frequencies of some usable documents, one after the other."""
    weights = documents.counts / np.repeat(documents.lengths, np.diff(documents.row_pointers))
    np.add.at(totals, documents.word_ids, weights)


def start_documents(settings: EngineSettings) -> int:
    """Return how many documents the spectral topics that a refinement starts from are made of."""
    return max(2, settings.warmup_documents)
