"""Phases that sum: a warm-up, rounds after it, or one sum through a shared projection."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.alpha_0 import tested_alpha_0
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.engine.refining import (
    LEAST_DOCUMENTS,
    Refinement,
    add_frequencies,
    start_documents,
)
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import (
    WarmUpDocuments,
    better_projection,
    first_projection,
    held_out_pairs,
)
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import choice_of, parted
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import passes_for
from streamlda.spectral.joint_power import MANY_COMPONENTS
from streamlda.spectral.kept_documents import topics_of_documents
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.topics import ESTIMATE, SpectralTopics
from streamlda.utils.arrays import Arrays, State, named, with_prefix

Array = NDArray[np.float64]


def round_length(used: int, settings: EngineSettings, *, first: bool) -> int:
    """Return how many documents a round has whose projection was made of `used` documents.

    The first round has these same documents and at least one more, a later one only others.
    """
    return max(int(settings.round_growth * used), used + first)


@dataclass(eq=False)
class Rounds(Phase):
    """Sums through a projection that is replaced by a better one whenever a round is full.

    The last full round is kept. The documents that gave the first projection are tested in halves
    (`beginning`); later rounds have a projection of other documents. An engine that refines keeps
    its recent documents too, and those set aside, which no sum has, until it has those of the
    start; then a refinement goes on, or rounds where that is not better.

    With many topics the triple sums would be most of the work and the memory. Before a refinement
    they are left out, for the documents themselves answer the power method
    (`streamlda.spectral.kept_documents`); no round ends meanwhile.
    """

    current: Moments
    finished: Moments | None = None
    beginning: HeldOutPairs | None = None
    refines: bool = False
    recent: RecentDocuments | None = None
    aside: RecentDocuments | None = None
    #: What the choice of these topics compared, and the alpha_0 that documents set aside prefer to
    #: its estimate, if they do; for diagnostics.
    choice: dict[str, Any] = field(default_factory=dict)

    @property
    def annealed(self) -> bool:
        """Whether it is known that topics stay spectral."""
        return self.recent is None

    @classmethod
    def begun(
        cls,
        settings: EngineSettings,
        counters: Counters,
        documents: DocumentBatch,
        aside: DocumentBatch | None = None,
    ) -> Self:
        """Begin with documents that are kept for a refinement, and others that are set aside."""
        recent, others = RecentDocuments(settings.warmup_documents), RecentDocuments.aside()
        recent.add(documents)
        if aside is not None:
            others.add(aside)
        # Before there are sums: it has a projection and sums of its own meanwhile.
        held_out = held_out_pairs(documents, settings)
        moments = _first_sums(settings, counters, documents, by_documents=by_documents(settings))
        return cls(settings, counters, moments, None, held_out, True, recent, others)

    @property
    def _by_documents(self) -> bool:
        """Whether topics come from the documents kept, for the triple moment is not summed."""
        return self.recent is not None and not self.current.triple_columns

    @property
    def _length(self) -> int:
        if self._by_documents:
            return sys.maxsize
        first = self.counters.rounds_finished == 0
        return round_length(self.counters.projection_documents, self.settings, first=first)

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take documents up to the end of the round, or of the start of a refinement."""
        stop = start + self._length - self.current.documents
        if self.recent is not None:
            missing = start_documents(self.settings) - self.counters.documents_seen
            stop = min(stop, batch.end_of(missing, start))
        part = batch.rows(start, stop)
        learned = part
        if self.aside is not None:
            learned, aside = parted(part, self.counters.documents_seen)
            self.aside.add(aside)
        if self.recent is not None:
            self.recent.add(learned)
        self.current.add(learned)
        return part.n_documents

    def next(self) -> Phase:
        """Begin the next round where this one is full, and the refinement if it is time."""
        if self.current.documents >= self._length:
            self._begin_round()
        enough = self.counters.documents_seen >= start_documents(self.settings)
        if self.recent is None or not enough:
            return self
        assert self.aside is not None
        self.choice = self._tested().choice
        begun = Refinement.begun(
            self.settings, self.counters, *self._start(), self.recent, self.aside
        )
        model = begun.snapshot()
        if "refinement" in model.diagnostics:
            # Its trial is over where nothing is annealed.
            return begun.next()
        self.choice |= choice_of(model)
        # Spectral topics stay, and the documents set aside are summed as well.
        if self._by_documents:
            W, t = self.current.whitening, self.settings.n_triple_columns
            self.current = Moments(W, t)
            self.current.add(self.recent.latest())
        if self.aside.parts:
            self.current.add(self.aside.latest())
        self.recent = self.aside = None
        if self.current.documents >= self._length:
            self._begin_round()
        return self

    def _start(self) -> tuple[TopicModel, Array]:
        """Return the model of the sums and the word frequencies, which are of all documents."""
        rounds = self.rounds()
        frequencies: Array = np.sum([part.word_totals[:, 0] for part in rounds], axis=0)
        if self.aside is not None and self.aside.parts:
            add_frequencies(frequencies, self.aside.latest())
        model = self._model(self.topics(), rounds)
        return replace(model, background=frequencies / frequencies.sum()), frequencies

    def topics(self) -> SpectralTopics:
        """Return the topics of the sums, or of the documents kept where these answer."""
        if not self._by_documents:
            return super().topics()
        K, alpha_0 = self.settings.n_components, self.settings.alpha_0
        assert self.recent is not None
        assert alpha_0 is not None
        self._require_documents()
        return topics_of_documents(self.recent.latest(), self.current, K, alpha_0)

    @property
    def _alpha_0(self) -> float | None:
        tested = self.choice.get(ESTIMATE)
        return self.settings.alpha_0 if tested is None else float(tested["value"])

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        known: dict[str, Any] | None = self.choice.get(ESTIMATE)
        return known or super()._alpha_0_estimate(alpha_0, held_out)

    def _tested(self) -> Self:
        """Return the phase with the alpha_0 that documents set aside prefer to an estimate."""
        enough = self.counters.documents_seen >= LEAST_DOCUMENTS
        if self._alpha_0 is not None or self.aside is None or not (enough and self.aside.parts):
            return self

        def models(values: Iterable[float | None]) -> Iterator[TopicModel]:
            for value in values:
                yield replace(self, settings=replace(self.settings, alpha_0=value)).start()

        found = tested_alpha_0(models, self.settings.n_components, self.aside.latest())
        return self if found is None else replace(self, choice={**self.choice, ESTIMATE: found})

    def start(self) -> TopicModel:
        """Return the model that a refinement begins from."""
        model, _ = self._start()
        return model

    def taking_words(self) -> Refinement | None:
        """Return a refinement of topics that stayed spectral: sums know no words but their own."""
        if not self.refines or self.recent is not None:
            return None
        model, _ = self._start()
        return Refinement.of_model(self.settings, self.counters, model)

    def _begin_round(self) -> None:
        # The memory of the round before the last serves the new one. It is made, and written to,
        # before the projection is sought, so that every change of rounds takes as much as the next.
        ended = self.current
        spare = self.finished or Moments(ended.whitening, self.settings.n_triple_columns)
        spare.restart(ended.whitening)
        self.finished = ended
        self.counters.rounds_finished += 1
        self.counters.projection_documents = ended.documents
        spare.restart(better_projection(ended, self.settings))
        self.current = spare

    def rounds(self) -> list[Moments]:
        """Return the kept rounds of 2 documents or more, the larger first."""
        self._require_documents()
        rounds = [part for part in (self.current, self.finished) if part and part.documents > 1]
        return sorted(rounds, key=lambda part: -part.documents)

    def held_out(self) -> HeldOutPairs | None:
        """Return the pairs of the round, or half of the beginning, that has most documents."""
        later = [self.current, self.finished][: self.counters.rounds_finished]
        found = [HeldOutPairs.of(part) for part in later if part and part.documents > 1]
        found += [self.beginning] if self.beginning else []
        return max(found, key=lambda pairs: pairs.documents, default=None)

    def snapshot(self) -> TopicModel:
        """Return a model; one that may still refine is refined over the recent documents.

        If that is not better, its sums lack the documents set aside.
        """
        return self._tested().tested_snapshot()

    def tested_snapshot(self) -> TopicModel:
        """Return the model of `snapshot`, with the alpha_0 that is known."""
        if self.recent is None or self.counters.documents_seen < LEAST_DOCUMENTS:
            model = super().snapshot()
            return replace(model, diagnostics={**model.diagnostics, **self.choice})
        model, _ = self._start()
        kept = self.recent.latest()
        aside = None if self.aside is None else self.aside.latest()
        seed = self.settings.seed % 2**63
        return refined(model, kept, passes=passes_for(kept.n_documents), seed=seed, aside=aside)

    def state(self) -> State:
        """Return both rounds, documents kept, and whether a refinement was decided on."""
        arrays: Arrays = {}
        for name, part in (("current", self.current), ("finished", self.finished)):
            if part is not None:
                arrays |= moments_state(f"{name}.", part)
        arrays |= held_out_state(self.beginning)
        for prefix, kept in (("kept.", self.recent), ("aside.", self.aside)):
            if kept is not None:
                arrays |= kept.state(prefix)
        values = refinement_values(self.refines, follows=self.recent is None)
        return arrays, {**values, "choice": self.choice} if self.choice else values

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Resume from what `state` returned, bit for bit."""
        arrays, values = saved
        refinement = values.get("refinement")
        recent = aside = None
        if refinement is not None and not refinement["follows"]:
            d = settings.n_features
            recent = RecentDocuments(settings.warmup_documents).restore(arrays, d)
            aside = RecentDocuments.aside().restore(arrays, d, "aside.")
        finished = restored_moments("finished.", arrays) if "finished.tally" in arrays else None
        current, refines = restored_moments("current.", arrays), refinement is not None
        beginning = restored_held_out(arrays)
        choice = dict(values.get("choice", {}))
        return cls(settings, counters, current, finished, beginning, refines, recent, aside, choice)


@dataclass(eq=False)
class WarmUp(Phase):
    """The first documents, kept until there are enough for a projection."""

    refines: bool

    #: Nothing is known yet.
    annealed = False

    def __post_init__(self) -> None:
        self.kept = WarmUpDocuments(self.settings.warmup_documents)

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Keep documents up to the end of the warm-up."""
        return self.kept.add(batch, start)

    def next(self) -> Phase:
        """Begin the rounds where the warm-up is full; one without a usable document is dropped."""
        if not self.kept.full:
            return self
        if not self.kept.batch().usable.any():
            self.kept.clear()
            return self
        return self._rounds(self.counters, refines=self.refines).next()

    def _rounds(self, counters: Counters, *, refines: bool) -> Rounds:
        """Return the first round: the projection of the documents kept, and their sums."""
        warmup, settings = self.kept.batch(), self.settings
        if refines:
            return Rounds.begun(settings, counters, *parted(warmup))
        held_out = held_out_pairs(warmup, settings)
        return Rounds(settings, counters, _first_sums(settings, counters, warmup), None, held_out)

    def _ended(self, *, refines: bool = False) -> Rounds:
        """Return the rounds as if the warm-up ended here, to be read."""
        self._require_documents()
        return self._rounds(replace(self.counters), refines=refines)

    def settled(self) -> Rounds:
        """Return the first round."""
        return self._ended()

    def rounds(self) -> list[Moments]:
        """Return the first round."""
        return self._ended().rounds()

    def topics(self) -> SpectralTopics:
        """Return the topics of the first round."""
        return self._ended().topics()

    def snapshot(self) -> TopicModel:
        """Return a model of the documents kept, refined if that is better."""
        said: dict[str, Any] = {}
        if self.refines and self.counters.documents_seen >= LEAST_DOCUMENTS:
            ended = self._ended(refines=True)._tested()
            model = ended.tested_snapshot()
            if "refinement" in model.diagnostics:
                return model
            said = {**ended.choice, **choice_of(model)}
        return replace(self._ended(), choice=said).snapshot()

    def state(self) -> State:
        """Return the documents kept."""
        return self.kept.state(), refinement_values(self.refines, follows=False)


@dataclass(eq=False)
class SharedSums(Phase):
    """Sums of all documents through one projection, which is never replaced.

    Without a `beginning` the projection is one of other documents.
    """

    moments: Moments
    beginning: HeldOutPairs | None = None

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take all documents."""
        self.moments.add(batch.rows(start, batch.n_documents))
        return batch.n_documents - start

    def rounds(self) -> list[Moments]:
        """Return the one sum."""
        self._require_documents()
        return [self.moments]

    def held_out(self) -> HeldOutPairs | None:
        """Return the pairs of all documents, or of half of those that gave the projection."""
        return self.beginning or HeldOutPairs.of(self.moments)

    def state(self) -> State:
        """Return the sums."""
        arrays = moments_state("current.", self.moments) | held_out_state(self.beginning)
        return arrays, {"shared_map": True}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        moments = restored_moments("current.", saved[0])
        return cls(settings, counters, moments, restored_held_out(saved[0]))


def by_documents(settings: EngineSettings) -> bool:
    """Whether the documents of a start answer the power method, in place of triple sums.

    An alpha_0 that is to be estimated needs many answers, which sums give sooner.
    """
    return settings.n_components >= MANY_COMPONENTS and settings.alpha_0 is not None


def _first_sums(
    settings: EngineSettings,
    counters: Counters,
    documents: DocumentBatch,
    *,
    by_documents: bool = False,
) -> Moments:
    """Return the sums of the documents that the first projection is made of."""
    t = 0 if by_documents else settings.n_triple_columns
    moments = Moments(first_projection(documents, settings), t)
    moments.add(documents)
    counters.projection_documents = moments.documents
    return moments


def refinement_values(refines: bool, *, follows: bool) -> dict[str, Any]:
    """Return what a state says of a refinement before it: nothing if there will be none."""
    said = {"follows": follows, "start": {}, "stepwise": None}
    return {"refinement": said} if refines else {}


def moments_state(prefix: str, moments: Moments) -> Arrays:
    """Return sums and their projection as named arrays."""
    return with_prefix({"whitening": moments.whitening, **moments.state()}, prefix)


def held_out_state(held_out: HeldOutPairs | None) -> Arrays:
    """Return held-out pairs as named arrays; nothing if there are none."""
    return {} if held_out is None else with_prefix(held_out.state(), "beginning.")


def restored_held_out(arrays: Mapping[str, NDArray[Any]]) -> HeldOutPairs | None:
    """Return what `held_out_state` was called on."""
    state = named(arrays, "beginning.")
    return HeldOutPairs.from_state(state) if state else None


def restored_moments(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Moments:
    """Go on from what `moments_state` returned."""
    own = named(arrays, prefix)
    return Moments.from_state(own.pop("whitening"), own)
