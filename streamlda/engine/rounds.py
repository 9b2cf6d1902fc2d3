"""Phases that sum: rounds after a warm-up, or one sum through a shared projection."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from streamlda.documents import DocumentBatch
from streamlda.engine import projections
from streamlda.engine.phase import Counters, Phase
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.joint_power import MANY_COMPONENTS
from streamlda.spectral.kept_documents import topics_of_documents
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import HeldOutPairs
from streamlda.spectral.topics import ESTIMATE, SpectralTopics
from streamlda.utils.arrays import Tree, from_arrays, to_arrays

#: Documents of a round over those that its projection was made of.
ROUND_GROWTH = 5


@dataclass(eq=False)
class Rounds(Phase):
    """Sums through a projection that is replaced by a better one whenever a round is full.

    The last full round is kept. The documents that gave the first projection are tested in halves
    (`beginning`); later rounds have a projection of other documents.
    """

    current: Moments
    finished: Moments | None = None
    beginning: HeldOutPairs | None = None
    #: What the choice of these topics compared, and the alpha_0 that held-out documents prefer to
    #: its estimate, if they do; for diagnostics.
    choice: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, settings: EngineSettings, counters: Counters, documents: DocumentBatch) -> Self:
        """Return the first round: the projection of the first documents, and their sums."""
        # Before there are sums: it has a projection and sums of its own meanwhile.
        held_out = projections.make_held_out_pairs(documents, settings)
        first = projections.first_projection(documents, settings)
        moments = Moments(first, settings.n_triple_columns)
        moments.add(documents)
        counters.projection_documents = moments.documents
        return cls(settings, counters, moments, None, held_out)

    @property
    def documents_left(self) -> int:
        """Documents until the round is full."""
        first = self.counters.rounds_finished == 0
        # The first round has the documents of its projection and at least one more.
        used = self.counters.projection_documents
        return max(int(ROUND_GROWTH * used), used + first) - self.current.documents

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take documents up to the end of the round."""
        part = batch.rows(start, start + self.documents_left)
        self.current.add(part)
        return part.n_documents

    def next(self) -> Phase:
        """Begin the next round where this one is full."""
        if self.documents_left <= 0:
            self._begin_round()
        return self

    @property
    def _alpha_0(self) -> float | None:
        tested = self.choice.get(ESTIMATE)
        return self.settings.alpha_0 if tested is None else float(tested["value"])

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        known: dict[str, Any] | None = self.choice.get(ESTIMATE)
        return known or super()._alpha_0_estimate(alpha_0, held_out)

    def _begin_round(self) -> None:
        ended = self.current
        self.finished = None
        projection = projections.better_projection(ended, self.settings)
        self.finished, self.current = ended, Moments(projection, self.settings.n_triple_columns)
        self.counters.rounds_finished += 1
        self.counters.projection_documents = ended.documents

    def rounds(self) -> list[Moments]:
        """Return the kept rounds of 2 documents or more, the larger first."""
        self._require_documents()
        rounds = [part for part in (self.current, self.finished) if part and part.documents > 1]
        return sorted(rounds, key=lambda part: -part.documents)

    def find_held_out(self) -> HeldOutPairs | None:
        """Return the pairs of the round, or half of the beginning, that has most documents."""
        later = [self.current, self.finished][: self.counters.rounds_finished]
        found = [HeldOutPairs.of(part) for part in later if part and part.documents > 1]
        found += [self.beginning] if self.beginning else []
        return max(found, key=lambda pairs: pairs.documents, default=None)

    def snapshot(self) -> TopicModel:
        """Return a model of both rounds; the phase is not changed."""
        model = super().snapshot()
        return replace(model, diagnostics={**model.diagnostics, **self.choice})

    def state(self) -> Tree:
        """Return both rounds."""
        finished = {} if self.finished is None else {"finished": moments_state(self.finished)}
        own = {"current": moments_state(self.current), **finished, "choice": self.choice}
        return own | get_held_out_state(self.beginning)

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, state: Tree) -> Self:
        """Resume from what `state` returned, bit for bit."""
        finished = restore_moments(state["finished"]) if "finished" in state else None
        parts = restore_moments(state["current"]), finished, restore_held_out(state)
        return cls(settings, counters, *parts, state["choice"])


@dataclass(eq=False)
class KeptRound(Rounds):
    """A first round without triple sums, for the documents themselves answer the power method.

    With many topics the triple sums would be most of the work and the memory
    (`streamlda.spectral.kept_documents`). It takes no further documents.
    """

    kept: DocumentBatch = field(kw_only=True)

    @classmethod
    def of_documents(
        cls,
        settings: EngineSettings,
        counters: Counters,
        documents: DocumentBatch,
        choice: dict[str, Any],
    ) -> Self:
        """Return the round of documents that are kept for it."""
        held_out, projection = projections.make_pairs_and_projection(documents, settings)
        moments = Moments(projection, 0)
        moments.add(documents)
        counters.projection_documents = moments.documents
        return cls(settings, counters, moments, None, held_out, choice, kept=documents)

    def topics(self) -> SpectralTopics:
        """Return the topics of the documents kept."""
        K, alpha_0 = self.settings.n_components, self._alpha_0
        if alpha_0 is None:
            alpha_0 = self.settings.working_alpha_0
        self._require_documents()
        return topics_of_documents(self.kept, self.current, K, alpha_0)

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        reason = f"so few documents do not tell alpha_0 of many topics; {alpha_0:g} is used"
        known: dict[str, Any] | None = self.choice.get(ESTIMATE)
        return known or {"value": alpha_0, "identified": False, "reason": reason}


@dataclass(eq=False)
class SharedSums(Phase):
    """Sums of all documents through one projection of other documents, which is never replaced."""

    moments: Moments

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take all documents."""
        self.moments.add(batch.rows(start, batch.n_documents))
        return batch.n_documents - start

    def rounds(self) -> list[Moments]:
        """Return the one sum."""
        self._require_documents()
        return [self.moments]

    def find_held_out(self) -> HeldOutPairs | None:
        """Return the pairs of all documents."""
        return HeldOutPairs.of(self.moments)

    def state(self) -> Tree:
        """Return the sums."""
        return {"current": moments_state(self.moments), "shared_map": True}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, state: Tree) -> Self:
        """Continue from what `state` returned, bit for bit."""
        return cls(settings, counters, restore_moments(state["current"]))


def by_documents(settings: EngineSettings) -> bool:
    """Return True if documents in memory answer the power method, in place of triple sums."""
    return settings.solver == WHITENED_TENSOR and settings.n_components >= MANY_COMPONENTS


def moments_state(moments: Moments) -> Tree:
    """Return sums and their projection."""
    return {"whitening": moments.whitening, **moments.state()}


def restore_moments(state: Tree) -> Moments:
    """Continue from what `moments_state` returned."""
    return Moments.from_state(state["whitening"], state)


def get_held_out_state(held_out: HeldOutPairs | None) -> Tree:
    """Return held-out pairs by their name; nothing if there are none."""
    return {} if held_out is None else {"beginning": to_arrays(held_out, "")}


def restore_held_out(state: Tree) -> HeldOutPairs | None:
    """Return what `get_held_out_state` was called on."""
    return from_arrays(HeldOutPairs, state["beginning"], "") if "beginning" in state else None
