"""What learns: an engine, a private learner, the share of a site, the sums of a shard."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from streamlda.columns import ColumnChange
from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.text.vocabulary import Vocabulary

Users = Sequence[str | bytes | None]

#: Rows until something is due, for a learner that leaves it to its caller when topics are read.
NEVER_BY_ITSELF = sys.maxsize


class Learner(ABC):
    """Takes rows of documents, and says when a release of what it has learned is due."""

    #: Whether every record takes a row, a blank one where there is no document.
    counts_slots: ClassVar[bool] = False

    #: Whether words and documents may be shown beside what is learned: never with privacy.
    shows_documents: ClassVar[bool] = False

    @property
    def due(self) -> int | None:
        """Rows until a release must be made: 0 now, None if none is left."""
        return NEVER_BY_ITSELF

    @property
    def rounds_finished(self) -> int:
        """Rounds, or stages, that were finished."""
        return 0

    @property
    def past_warmup(self) -> bool:
        """Whether a warm-up is over, or there was none, before a round is finished."""
        return False

    @property
    def warmup(self) -> tuple[int, int] | None:
        """Documents of the warm-up so far, and at most how many it takes; None after it."""
        return None

    @property
    def late(self) -> int:
        """Documents older than the time bins that are held."""
        return 0

    def change_words(self, change: ColumnChange, documents: DocumentBatch | None = None) -> bool:
        """Go on with other words in some columns; False, and nothing changed, if it cannot.

        `documents`, over the columns from now on, say whose the words that enter are.
        """
        return False

    @property
    def fraction_of_window(self) -> float:
        """Fraction of the time between snapshots after which a clock may end what is running."""
        return 1.0

    @property
    def ends_well(self) -> bool:
        """Whether there is something to release where the stream ends."""
        return True

    @property
    def least_missing(self) -> int:
        """Fewest further rows with which the end of the stream can still give topics."""
        return 0

    @property
    def missed(self) -> str:
        """Why the last release gave no topics, if it did not."""
        return ""

    @property
    def shows_nothing(self) -> bool:
        """Whether the last release was the first of a window, and showed no document."""
        return False

    @abstractmethod
    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Learn from rows up to where something is due; return how many were taken."""

    @abstractmethod
    def release(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel | None:
        """Make what is due, or end what is running here; return its topics, if it has any.

        They come with the words and with further settings.
        """


def feed(
    learner: Learner,
    batch: DocumentBatch,
    users: Users | None = None,
    *,
    last: bool = False,
    on_model: Callable[[TopicModel], object] = lambda model: None,
) -> None:
    """Give rows to a learner and make what falls due; tell of the models that it gives.

    Rows after the last release of a learner are dropped; if they are the `last` ones, also those
    that are too few for further topics.
    """
    start = 0
    while start < batch.n_documents and learner.due is not None:
        if last and learner.least_missing > batch.n_documents - start:
            break
        rest = batch if start == 0 else batch.rows(start, batch.n_documents)
        start += learner.add(rest, None if users is None else users[start:])
        if learner.due == 0 and (model := learner.release()) is not None:
            on_model(model)
