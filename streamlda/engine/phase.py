"""Phases of the engine and their shared counters."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from streamlda.documents import CHECK_TEXTS, TOPICS_NEED, DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError, require
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.moments import Moments
from streamlda.spectral.seeds import seed_topics
from streamlda.spectral.support import HeldOutPairs, Spectrum
from streamlda.spectral.topics import (
    ESTIMATE,
    RoundMoments,
    SpectralTopics,
    alpha_0_estimate,
    diagnostics,
    recover_topics,
    solve_alpha_0,
)
from streamlda.utils.arrays import Tree, frozen


@dataclass(slots=True)
class Counters:
    """Counts of an engine: documents and tokens, and rounds of its phases."""

    documents_seen: int = 0
    documents_skipped: int = 0
    tokens_seen: int = 0
    rounds_finished: int = 0
    #: Documents that the projection of the current round was made of; "behind_map" in files.
    projection_documents: int = 0

    def count(self, documents: DocumentBatch, sign: int = 1) -> None:
        """Count documents and tokens, or take them back (sign -1)."""
        usable = int(np.count_nonzero(documents.usable))
        self.documents_seen += sign * usable
        self.documents_skipped += sign * (documents.n_documents - usable)
        self.tokens_seen += sign * int(documents.lengths.sum())

    def require_documents(self) -> None:
        """Raise unless there are enough documents for topics."""
        require(
            self.documents_seen >= 2,
            TOPICS_NEED,
            documents_seen=self.documents_seen,
            documents_skipped=self.documents_skipped,
            remedy=CHECK_TEXTS,
            error=InsufficientDataError,
        )

    def after(self, other: Self) -> Self:
        """Return these counters, of a phase that continues with the rounds of another."""
        self.rounds_finished = other.rounds_finished
        self.projection_documents = other.projection_documents
        return self


@dataclass(eq=False)
class Phase(ABC):
    """A pure state machine: documents in, topics out, until another phase continues."""

    settings: EngineSettings
    counters: Counters

    @abstractmethod
    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take documents from `start` on, none beyond the end of the phase; return how many."""

    def follow(self, documents: DocumentBatch) -> None:
        """Take a few documents more at once, whether or not a minibatch is full."""
        start = 0
        while start < documents.n_documents:
            start += self.add(documents, start)

    def next(self) -> "Phase":
        """Return the phase that continues, once the documents taken have been counted."""
        return self

    @abstractmethod
    def rounds(self) -> list[Moments]:
        """Return the sums that topics are made of, those of most documents first."""

    def find_held_out(self) -> HeldOutPairs | None:
        """Return pairs through a projection that was made of other documents, if there are any."""
        return None

    def topics(self) -> SpectralTopics:
        """Return the topics of the first sum."""
        K, alpha_0 = self.settings.n_components, self._alpha_0
        moments = RoundMoments.of(self.rounds()[0])
        if alpha_0 is None:
            alpha_0 = solve_alpha_0(moments, self._distinct_topics(self.find_held_out()))
        return recover_topics(moments, K, alpha_0)

    @property
    def _alpha_0(self) -> float | None:
        """The alpha_0 that topics are made with; None is estimated."""
        return self.settings.alpha_0

    def _distinct_topics(self, held_out: HeldOutPairs | None) -> int:
        """Return how many topics alpha_0 is estimated from: none that is known to be noise."""
        K, alpha_0 = self.settings.n_components, self.settings.working_alpha_0
        above = None if held_out is None else held_out.spectrum(alpha_0).above
        return K if above is None else min(K, above)

    def _alpha_0_estimate(self, alpha_0: float, held_out: HeldOutPairs | None) -> dict[str, Any]:
        return alpha_0_estimate(alpha_0, self._distinct_topics(held_out))

    def snapshot(self) -> TopicModel:
        """Return a model without vocabulary; the phase is not changed."""
        return self._model(self.topics(), self.rounds())

    @abstractmethod
    def state(self) -> Tree:
        """Return all that is needed to continue but settings and counters."""

    def _require_documents(self) -> None:
        self.counters.require_documents()

    def _model(self, topics: SpectralTopics, rounds: list[Moments]) -> TopicModel:
        """Return spectral topics with the word frequencies of their sums."""
        topics = seed_topics(topics, self.settings.seed_topics)
        frequencies = np.sum([part.word_totals[:, 0] for part in rounds], axis=0)
        held_out = self.find_held_out()
        supported, spectrum = topics.is_supported, Spectrum(topics.pair_eigenvalues, None)
        if held_out is not None:
            spectrum = held_out.spectrum(topics.alpha_0)
            supported = topics.find_supported(spectrum.above or 0)
        documents = None if held_out is None else held_out.documents
        known = diagnostics(topics, spectrum, supported, documents)
        if self.settings.alpha_0 is None:
            estimate = self._alpha_0_estimate(topics.alpha_0, held_out)
            known[ESTIMATE] = estimate
            known["warnings"] += [estimate["reason"]] * (not estimate["identified"])
        return TopicModel(
            components=frozen(topics.normalize()),
            alpha=topics.alpha,
            background=frequencies / frequencies.sum(),
            settings=asdict(self.settings),
            diagnostics={
                **known,
                "documents_skipped": self.counters.documents_skipped,
                "rounds_finished": self.counters.rounds_finished,
            },
            documents_seen=self.counters.documents_seen,
            tokens_seen=self.counters.tokens_seen,
        )


def learn_rows(phase: Phase, documents: DocumentBatch) -> Phase:
    """Return the phase that continues after documents, which are counted."""
    start = 0
    while start < documents.n_documents:
        stop = start + phase.add(documents, start)
        phase.counters.count(documents.rows(start, stop))
        phase = phase.next()
        start = stop
    return phase
