"""Phases that sum: a warm-up, rounds after it, or one sum through a shared projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import Arrays, State, named, with_prefix
from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.recent_documents import RecentDocuments
from streamlda.engine.refining import Refinement, follows_model, needed_passes, start_documents
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import (
    WarmUpDocuments,
    better_projection,
    first_projection,
    held_out_pairs,
)
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.refine import refined
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.topics import SpectralTopics


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
    its recent documents too, until it has those of the start; then a refinement goes on, or rounds
    where documents follow the model.
    """

    current: Moments
    finished: Moments | None = None
    beginning: HeldOutPairs | None = None
    refines: bool = False
    recent: RecentDocuments | None = None

    @property
    def _length(self) -> int:
        first = self.counters.rounds_finished == 0
        return round_length(self.counters.projection_documents, self.settings, first=first)

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take documents up to the end of the round, or of the start of a refinement."""
        stop = start + self._length - self.current.documents
        if self.recent is not None:
            missing = start_documents(self.settings) - self.counters.documents_seen
            stop = min(stop, batch.end_of(missing, start))
        part = batch.rows(start, stop)
        self.current.add(part)
        if self.recent is not None:
            self.recent.add(part)
        return part.n_documents

    def next(self) -> Phase:
        """Begin the next round where this one is full, and the refinement if it is time."""
        if self.current.documents >= self._length:
            self._begin_round()
        enough = self.counters.documents_seen >= start_documents(self.settings)
        if self.recent is None or not enough:
            return self
        recent, model = self.recent, self._model(self.topics(), self.rounds())
        if follows_model(model):
            self.recent = None
            return self
        totals = np.sum([part.word_totals[:, 0] for part in self.rounds()], axis=0)
        # This phase is over: the memory of its sums goes before the documents are gone over.
        del self.current, self.finished
        return Refinement.begun(self.settings, self.counters, model, totals, recent)

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
        """Return a model; one that may still refine is refined over the recent documents."""
        model = super().snapshot()
        if self.recent is None:
            return model
        kept = self.recent.latest()
        passes = needed_passes(model, kept.n_documents)
        return refined(model, kept, passes=passes, seed=self.settings.seed % 2**63)

    def documents(self) -> DocumentBatch | None:
        """Return the recent documents."""
        return self.recent.latest() if self.recent is not None and self.recent.parts else None

    def state(self) -> State:
        """Return both rounds, the recent documents, and whether a refinement was decided on."""
        arrays: Arrays = {}
        for name, part in (("current", self.current), ("finished", self.finished)):
            if part is not None:
                arrays |= moments_state(f"{name}.", part)
        arrays |= held_out_state(self.beginning)
        if self.recent is not None:
            arrays |= self.recent.state()
        return arrays, refinement_values(self.refines, follows=self.recent is None)

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        arrays, values = saved
        refinement = values.get("refinement")
        recent = None
        if refinement is not None and not refinement["follows"]:
            recent = RecentDocuments.from_state(arrays, settings)
        finished = restored_moments("finished.", arrays) if "finished.tally" in arrays else None
        current, refines = restored_moments("current.", arrays), refinement is not None
        beginning = restored_held_out(arrays)
        return cls(settings, counters, current, finished, beginning, refines, recent)


@dataclass(eq=False)
class WarmUp(Phase):
    """The first documents, kept until there are enough for a projection."""

    refines: bool

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
        return self._rounds(self.counters).next()

    def _rounds(self, counters: Counters) -> Rounds:
        """Return the first round: the projection of the documents kept, and their sums."""
        warmup, settings = self.kept.batch(), self.settings
        moments = Moments(first_projection(warmup, settings), settings.n_triple_columns)
        moments.add(warmup)
        recent = None
        if self.refines:
            recent = RecentDocuments(settings.warmup_documents)
            recent.add(warmup)
        counters.projection_documents = moments.documents
        held_out = held_out_pairs(warmup, settings)
        return Rounds(settings, counters, moments, None, held_out, self.refines, recent)

    def _ended(self) -> Rounds:
        """Return the rounds as if the warm-up ended here, to be read."""
        self._require_documents()
        return self._rounds(replace(self.counters))

    def rounds(self) -> list[Moments]:
        """Return the first round."""
        return self._ended().rounds()

    def topics(self) -> SpectralTopics:
        """Return the topics of the first round."""
        return self._ended().topics()

    def snapshot(self) -> TopicModel:
        """Return a model of the documents kept."""
        return self._ended().snapshot()

    def documents(self) -> DocumentBatch | None:
        """Return the documents kept."""
        kept = self.kept.batch()
        return kept.where(kept.usable)

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


def refinement_values(refines: bool, *, follows: bool) -> dict[str, Any]:
    """Return what a state says of a refinement before it: nothing if there will be none."""
    return {"refinement": {"follows": follows, "start": {}, "stepwise": None}} if refines else {}


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
