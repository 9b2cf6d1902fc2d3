"""Interface of everything that learns from documents."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.text.columns import ColumnChange
from streamlda.text.vocabulary import Vocabulary

Users = Sequence[str | bytes | None]

#: Rows until something is due, for a learner that leaves it to its caller when topics are read.
NEVER_BY_ITSELF = sys.maxsize


class LearnerProgress(NamedTuple):
    """Progress of a learner: rounds or stages finished, warm-up, late documents, an end to come."""

    rounds: int = 0
    #: Documents of the warm-up so far, and at most how many it takes; None after it.
    warmup: tuple[int, int] | None = None
    #: Documents older than the time bins that are held.
    late: int = 0
    #: Whether a release after `Learner.end` gives better topics than one now.
    unfinished: bool = False


class PrivateProgress(NamedTuple):
    """State of a private learner, from public numbers and released sums."""

    #: Whether the end of the stream may end the running stage.
    ends_well: bool
    #: Fewest further rows with which the end of the stream can still give topics.
    least_missing: int
    #: Reason why the last release gave no topics; empty if it gave some.
    missed: str
    #: Whether the last release was the first of a window, and showed no document.
    shows_nothing: bool


class Learner(ABC):
    """A learner takes rows of documents, and says when a release of what it learned is due."""

    #: Whether every record takes a row, a blank one where there is no document. Then neither words
    #: nor documents are shown beside topics.
    counts_slots: ClassVar[bool] = False

    @property
    def due(self) -> int | None:
        """Rows until a release must be made: 0 now, None if none is left."""
        return NEVER_BY_ITSELF

    @property
    def learns_short(self) -> bool:
        """True if documents of one and two tokens are learned too."""
        return False

    @property
    def progress(self) -> LearnerProgress:
        """Progress of the learner."""
        return LearnerProgress()

    @property
    def private(self) -> PrivateProgress | None:
        """State that only a private learner has; None for others."""
        return None

    def change_words(self, change: ColumnChange, documents: DocumentBatch | None = None) -> bool:
        """Continue with other words in some columns; False, and nothing changed, if it cannot.

        `documents`, over the new columns, show which topics the words that enter belong to.
        """
        return False

    def end(self) -> None:  # noqa: B027 (most learners keep no documents)
        """Note that the source has ended: the next release is of all documents that are kept."""

    @abstractmethod
    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Learn from rows up to where something is due; return how many were taken."""

    @abstractmethod
    def release(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel | None:
        """Publish the due snapshot, or close the current window early. Return its model or None.

        The model comes with the words and with further settings.
        """


def feed(
    learner: Learner,
    batch: DocumentBatch,
    users: Users | None = None,
    *,
    last: bool = False,
    on_model: Callable[[TopicModel], object] = lambda model: None,
) -> None:
    """Give rows to a learner, publish what falls due, and pass the models to `on_model`.

    Rows after the last release are dropped; of the `last` rows, also those that are too few.
    """
    start = 0
    while start < batch.n_documents and learner.due is not None:
        private = learner.private if last else None
        if private is not None and private.least_missing > batch.n_documents - start:
            break
        rest = batch if start == 0 else batch.rows(start, batch.n_documents)
        start += learner.add(rest, None if users is None else users[start:])
        if learner.due == 0 and (model := learner.release()) is not None:
            on_model(model)
