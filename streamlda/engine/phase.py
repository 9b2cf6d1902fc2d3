"""What an engine is at a time: one phase, and the counters that all of its phases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

import numpy as np

from streamlda.arrays import Arrays
from streamlda.checks import require
from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError
from streamlda.model.topic_model import TopicModel
from streamlda.spectral.moments import Moments
from streamlda.spectral.topics import SpectralTopics, diagnostics


@dataclass(slots=True)
class Counters:
    """What an engine has met. The engine counts documents and tokens, its phases rounds."""

    documents_seen: int = 0
    documents_skipped: int = 0
    tokens_seen: int = 0
    rounds_finished: int = 0
    #: Documents that the projection of the current round was made of.
    projection_documents: int = 0

    def state(self) -> dict[str, int]:
        """Return them by the names that they have in files."""
        values = asdict(self)
        return values | {"behind_map": values.pop("projection_documents")}

    @classmethod
    def from_state(cls, values: Mapping[str, Any]) -> Self:
        """Return what `state` was called on."""
        names = {"behind_map": "projection_documents"}
        return cls(**{names.get(name, name): int(value) for name, value in values.items()})


class Phase(Protocol):
    """A pure state machine: documents in, topics out, until another phase goes on."""

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Take documents from `start` on, none beyond the end of the phase; return how many."""

    def next(self) -> Phase:
        """Return the phase that goes on, once the documents taken have been counted."""

    def rounds(self) -> list[Moments]:
        """Return the sums that topics are made of, those of most documents first."""

    def topics(self) -> SpectralTopics:
        """Return the spectral topics of all documents that these sums hold."""

    def snapshot(self) -> TopicModel:
        """Return a model without vocabulary; the phase is not changed."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return all that is needed to go on but settings and counters."""


def require_documents(counters: Counters) -> None:
    """Raise unless there are enough documents for topics."""
    require(
        counters.documents_seen >= 2,
        f"topics need at least 2 documents of at least {MIN_TOKENS} tokens",
        documents_seen=counters.documents_seen,
        documents_skipped=counters.documents_skipped,
        remedy="check the text field, the token pattern and the vocabulary",
        error=InsufficientDataError,
    )


def spectral_model(
    found: SpectralTopics, rounds: list[Moments], settings: EngineSettings, counters: Counters
) -> TopicModel:
    """Return the model of spectral topics, with the word frequencies of the rounds behind them."""
    frequencies = np.sum([part.word_totals[:, 0] for part in rounds], axis=0)
    return TopicModel(
        components=found.normalized(),
        alpha=found.alpha,
        background=frequencies / frequencies.sum(),
        settings=asdict(settings),
        diagnostics={
            **diagnostics(found),
            "documents_skipped": counters.documents_skipped,
            "rounds_finished": counters.rounds_finished,
        },
        documents_seen=counters.documents_seen,
        tokens_seen=counters.tokens_seen,
    )
