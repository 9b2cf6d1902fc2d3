"""Records to topics: the one pipeline that every run turns, whoever turns it.

::

    records -> words, once they are known -> counts -> blocks -> learner -> what is due

A pure state machine: it reads no source, no file and no clock. ``fit`` polls a source that ends,
``run`` works in a daemon with checkpoints, a Dask worker reads a shard, a site answers a round; all
give it `RecordBatch` after `RecordBatch` and make what is due. Equal streams give equal topics, to
the last bit, however polls were cut and however often the run was taken up again.

Two kinds of learner: an `Engine` gets documents; a private one counts *record slots*: it gets a row
for every record, a blank one where there is no document, so that the slot of a document depends
only on how many records came before it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, VocabularyError
from streamlda.model.topic_model import TopicModel
from streamlda.stream.blocks import Blocks
from streamlda.stream.source import RecordBatch, RecordLocation, Reject
from streamlda.stream.vocabulary_choice import PrivateVocabularySelection, VocabularyLearner
from streamlda.text.vocabulary import Vocabulary

#: Reason of a `Reject` for a document too short to learn from.
SHORT = "short"

#: Records until something is due, where nothing is due before the end of the source.
AT_THE_END = sys.maxsize

#: Characters encoded at once; tables of words take some 8 times as many bytes.
ENCODED_CHARACTERS = 2**23

Users = Sequence[str | bytes | None]
Words = Vocabulary | VocabularyLearner | PrivateVocabularySelection


class Learner(Protocol):
    """What a pipeline feeds: an engine, a private learner, the shares of a site, sums of a shard."""

    @property
    def counts_slots(self) -> bool:
        """Whether every record takes a row, a blank one where there is no document."""

    @property
    def due(self) -> int | None:
        """Rows until a release must be made: 0 now, None never."""

    @property
    def rounds_finished(self) -> int:
        """Rounds, or stages, that were finished; above 0 once a warm-up is over."""

    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Learn from rows up to where something is due; return how many were taken."""

    def release(self) -> bool:
        """Make what is due; return whether there are topics that were not there before."""

    def snapshot(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> TopicModel:
        """Return the topics of now."""

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return arrays and plain JSON values to go on from."""


LearnerT = TypeVar("LearnerT", bound=Learner)


def feed(learner: Learner, batch: DocumentBatch, users: Users | None = None) -> int:
    """Give a learner rows and make what falls due; return the rows taken, fewer only at its end."""
    start = 0
    while start < batch.n_documents and learner.due is not None:
        rest = batch if start == 0 else batch.rows(start, batch.n_documents)
        start += learner.add(rest, None if users is None else users[start:])
        if learner.due == 0:
            learner.release()
    return start


@dataclass(slots=True)
class RecordCounts:
    """What a run has met: records, documents among them, and what became of them.

    `short` documents have fewer than 3 tokens in the vocabulary; `tokens` are those of encoded
    documents, stop words excluded, and `unseen_tokens` those of them outside the vocabulary.
    """

    records: int = 0
    documents: int = 0
    short: int = 0
    tokens: int = 0
    unseen_tokens: int = 0
    rejects: Counter[str] = field(default_factory=Counter)

    @property
    def unseen_fraction(self) -> float:
        """Fraction of the tokens outside the vocabulary, 0 without tokens."""
        return self.unseen_tokens / max(1, self.tokens)

    def update(self, other: RecordCounts) -> None:
        """Add what another part of the stream has met."""
        for name in ("records", "documents", "short", "tokens", "unseen_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rejects.update(other.rejects)


class Released(NamedTuple):
    """What was due: a model, or why there is none."""

    model: TopicModel | None
    missed: str = ""


class Progress(NamedTuple):
    """What a batch of records added: documents learned from, and documents too short for it."""

    learned: int
    short: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When an engine is asked for a snapshot: every so many records, and at most so often."""

    every: int | None = None
    most: int | None = None

    def due(self, records: int, snapshots: int) -> int | None:
        """Return the records until the next snapshot."""
        if self.most is not None and snapshots >= self.most:
            return None
        return AT_THE_END if self.every is None else self.every * (snapshots + 1) - records


@dataclass(slots=True)
class _Waiting:
    """Documents that wait until the words are known."""

    texts: list[str] = field(default_factory=list)
    locations: list[RecordLocation] = field(default_factory=list)
    characters: int = 0


class Pipeline(Generic[LearnerT]):
    """Feeds a learner from record batches; see the module. Not safe for several threads.

    Memory: the learner, one block of documents and, while words are learned, their documents.

    Parameters
    ----------
    words : Vocabulary, VocabularyLearner or PrivateVocabularySelection
        The words, or how to find them. Documents that they are learned from are learned from like
        all others; records that they are selected from are used for nothing else.
    make_learner : callable of (Vocabulary, int)
        Called once the words are known, with the record slot of the first row.
    schedule : Schedule, optional
        Of a learner that counts no slots; others know themselves when something is due.
    about : mapping, optional
        Plain JSON values that each model records.
    on_reject : callable of Reject, optional
        Called for every rejected record and, with the reason ``"short"``, for every short document.
    """

    def __init__(
        self,
        words: Words,
        make_learner: Callable[[Vocabulary, int], LearnerT],
        *,
        schedule: Schedule | None = None,
        about: Mapping[str, Any] | None = None,
        on_reject: Callable[[Reject], None] | None = None,
    ) -> None:
        self.words = words
        self.counts = RecordCounts()
        self.vocabulary: Vocabulary | None = None
        self.vocabulary_documents = 0
        self.first_slot = 0
        self.snapshots = 0
        self._make_learner = make_learner
        self._learner: LearnerT | None = None
        self._schedule = schedule or Schedule()
        self._about = dict(about or {})
        self._on_reject = on_reject
        self._waiting = _Waiting()
        self._voted = 0
        self._released_at = 0
        self._blocks = Blocks()
        if isinstance(words, Vocabulary):
            self.begin(words)

    def begin(self, vocabulary: Vocabulary, first_slot: int = 0) -> LearnerT:
        """Take the words, and make the learner whose first row has this record slot."""
        self.vocabulary, self.first_slot = vocabulary, first_slot
        self._learner = self._make_learner(vocabulary, first_slot)
        return self._learner

    @property
    def learner(self) -> LearnerT | None:
        """The learner; None until the words are known."""
        return self._learner

    @property
    def counts_slots(self) -> bool:
        """Whether every record takes a record slot."""
        if self._learner is not None:
            return self._learner.counts_slots
        return isinstance(self.words, PrivateVocabularySelection)

    @property
    def records(self) -> int:
        """Records taken; of those that count from the beginning of the stream, slots."""
        return self.counts.records

    @property
    def due(self) -> int | None:
        """Records until something is due: 0 now, None if nothing will be."""
        if self._learner is not None and self._learner.counts_slots:
            return self._learner.due
        if isinstance(self.words, PrivateVocabularySelection):
            return self.words.slots - self._voted
        return self._schedule.due(self.records, self.snapshots)

    @property
    def fresh(self) -> bool:
        """Whether records were taken since the last release."""
        return self.records > self._released_at

    @property
    def rounds(self) -> int:
        """Rounds, or stages, that were finished."""
        return 0 if self._learner is None else self._learner.rounds_finished

    # Records.

    def add(self, batch: RecordBatch) -> Progress:
        """Take records, at most those until something is `due`. Time O(characters + learning)."""
        due = self.due
        require(
            due is not None and batch.n_records <= due,
            "records must not come after something is due",
            records=batch.n_records,
            due=due,
            remedy="make what is due first",
        )
        first = self.counts.records + 1
        self.counts.records += batch.n_records
        self.counts.documents += batch.n_documents
        self.counts.rejects.update(reject.reason for reject in batch.rejects)
        if self._on_reject is not None:
            for reject in batch.rejects:
                self._on_reject(reject)
        if self.counts_slots:
            return self._add_slots(batch)
        located = zip(batch.texts, batch.located(first), strict=True)
        texts, locations = [], []
        for text, location in located:
            if text is not None:
                texts.append(text)
                locations.append(location)
        if self._learner is not None:
            return self._learn(texts, locations)
        return self._wait(texts, locations)

    def _add_slots(self, batch: RecordBatch) -> Progress:
        """Give every record its slot: a row, or a vote for words."""
        if self._learner is None:
            assert isinstance(self.words, PrivateVocabularySelection)
            for text in batch.texts:
                self.words.vote(text or "")
            self._voted += batch.n_records
            return Progress(batch.n_documents, 0)
        assert self.vocabulary is not None
        encoded = self.vocabulary.encode([text or "" for text in batch.texts])
        taken = self._learner.add(encoded.batch, batch.users or None)
        assert taken == batch.n_records, "polls end where stages do"
        self.counts.tokens += encoded.tokens
        self.counts.unseen_tokens += encoded.unseen_tokens
        learned = int(np.count_nonzero(encoded.batch.usable))
        self.counts.short += batch.n_documents - learned
        return Progress(learned, batch.n_documents - learned)

    def _wait(self, texts: list[str], locations: list[RecordLocation]) -> Progress:
        """Keep documents until there are enough to learn the words from."""
        assert isinstance(self.words, VocabularyLearner)
        waiting = self._waiting
        waiting.texts += texts
        waiting.locations += locations
        waiting.characters += sum(map(len, texts))
        if not self.words.enough(len(waiting.texts), waiting.characters):
            return Progress(0, 0)
        return self._learn_words()

    def _learn_words(self) -> Progress:
        """Learn the words from the first documents, and then topics from all that wait."""
        assert isinstance(self.words, VocabularyLearner)
        waiting, self._waiting = self._waiting, _Waiting()
        first = self.words.beginning(waiting.texts)
        self.vocabulary_documents = len(first)
        self.begin(self.words.learn(first))
        return self._learn(waiting.texts, waiting.locations)

    def _learn(self, texts: list[str], locations: list[RecordLocation]) -> Progress:
        assert self.vocabulary is not None
        assert self._learner is not None
        learned, start = 0, 0
        for stop in _cuts(texts):
            encoded = self.vocabulary.encode(texts[start:stop])
            self.counts.tokens += encoded.tokens
            self.counts.unseen_tokens += encoded.unseen_tokens
            learned += int(np.count_nonzero(encoded.batch.usable))
            if self._on_reject is not None:
                for i in np.flatnonzero(~encoded.batch.usable).tolist():
                    self._on_reject(Reject(*locations[start + i], SHORT))
            for block in self._blocks.add(encoded.batch):
                self._learner.add(block)
            start = stop
        self.counts.short += len(texts) - learned
        return Progress(learned, len(texts) - learned)

    # Releases.

    def release(self) -> Released:
        """Make what is due, or a snapshot of now: a model, or why there is none.

        Raises
        ------
        BudgetExceededError, LedgerError
            If the budget or the ledger of a private learner does not allow it.
        """
        self._released_at = self.records
        if self._learner is None and isinstance(self.words, PrivateVocabularySelection):
            self.begin(self.words.choose(), self.words.first_slot + self.words.slots)
            return Released(None)
        try:
            if self._learner is None:
                self._learn_words()
            assert self._learner is not None
            self.flush()
            if not self._learner.counts_slots:
                self.snapshots += 1
            if not self._learner.release():
                return Released(None, getattr(self._learner, "missed", ""))
            if self._learner.counts_slots:
                self.snapshots += 1
            return Released(self._learner.snapshot(self.vocabulary, self.facts()))
        except (InsufficientDataError, VocabularyError) as error:
            return Released(None, str(error))

    def facts(self) -> dict[str, Any]:
        """Return what a model of now records of its stream."""
        found = {**self._about, "places": self.records}
        if self.vocabulary_documents:
            found["vocabulary_documents"] = self.vocabulary_documents
        return found

    def flush(self) -> None:
        """Give the learner the documents that wait for a full block."""
        if self._learner is not None and self._blocks.waiting is not None:
            self._learner.add(self._blocks.flush())

    # State.

    @property
    def waiting(self) -> DocumentBatch | None:
        """Documents that wait for a full block."""
        return self._blocks.waiting

    def values(self) -> dict[str, Any]:
        """Return plain JSON values to keep beside the state of the learner."""
        return {
            "places": self.records,
            "first_place": self.first_slot,
            "snapshots": self.snapshots,
            "released_at": self._released_at,
            "vocabulary_documents": self.vocabulary_documents,
            "counts": {
                "documents": self.counts.documents,
                "short": self.counts.short,
                "tokens": self.counts.tokens,
                "unseen_tokens": self.counts.unseen_tokens,
                "rejects": dict(self.counts.rejects),
            },
        }


def _cuts(texts: Sequence[str]) -> Iterator[int]:
    """Yield where to cut texts so that parts have about `ENCODED_CHARACTERS` at most."""
    characters = 0
    for number, text in enumerate(texts, 1):
        characters += len(text)
        if characters >= ENCODED_CHARACTERS or number == len(texts):
            yield number
            characters = 0
