"""From a source to an engine: polls, learns the words, counts what comes and what is passed over.

Documents are encoded in blocks that depend on the documents alone, never on how fast they came:
equal streams give equal models, through a file or through a slow pipe.

A private engine counts *places*: with ``blanks=True`` it is given a row for every record of the
stream, an empty one where there is no document, so that the row of a document depends only on how
many records came before it. Its words can be chosen from the first places of the stream, by a
release of their own (`PrivateVocabularySelection`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, cast

import numpy as np

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidSettingError, SourceError
from streamlda.stream.source import RecordBatch, RecordLocation, Reject, Source
from streamlda.stream.vocabulary_choice import (
    VOCABULARY_CHARACTERS,
    PrivateVocabularySelection,
    VocabularyLearner,
)
from streamlda.text.vocabulary import Vocabulary

#: Documents encoded at once, and about how many characters of them at most.
BLOCK_DOCUMENTS = 4096
BLOCK_CHARACTERS = 2**23

#: Longest wait for a document before a request to stop is looked at, in seconds.
POLL_SECONDS = 0.5

#: Reason of a `Reject` for a document too short to learn from.
SHORT = "short"


class Learner(Protocol):
    """What an ingestion asks of the engine that it feeds."""

    @property
    def documents_seen(self) -> int:
        """Documents it can learn from. Not asked with ``blanks=True``."""

    def add(self, batch: DocumentBatch, /) -> None:
        """Learn from a batch."""


class UserLearner(Learner, Protocol):
    """A learner that is told whose the documents are."""

    def add(self, batch: DocumentBatch, users: Sequence[str | None] | None = None, /) -> None:
        """Learn from a batch.

        Parameters
        ----------
        batch : DocumentBatch of n rows
        users : sequence of n str or None, optional
            None for blanks and where the user is not known. Without it that holds of all rows:
            so come those before the first document.
        """


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from streamlda.engine.engine import Engine

    LearnerT = TypeVar("LearnerT", bound=Learner, default=Engine)
else:
    from typing import TypeVar

    LearnerT = TypeVar("LearnerT", bound=Learner)


@dataclass(slots=True)
class Counts:
    """What an ingestion met so far.

    Attributes
    ----------
    documents : int
        Texts that the source brought, short ones included.
    short : int
        Documents with fewer than 3 tokens in the vocabulary; nothing is learned from them.
    tokens : int
        Tokens of encoded documents, stop words excluded.
    unseen_tokens : int
        Those of them outside the vocabulary.
    rejects : Counter of str
        Records that the source passed over, by reason.
    blanks : int
        Rows without a document, for rejects and blank lines; 0 unless they were asked for.
    """

    documents: int = 0
    short: int = 0
    tokens: int = 0
    unseen_tokens: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    blanks: int = 0

    @property
    def places(self) -> int:
        """Rows read: documents and blanks."""
        return self.documents + self.blanks

    @property
    def unseen_share(self) -> float:
        """Share of the tokens outside the vocabulary, 0 without tokens."""
        return self.unseen_tokens / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class Ingested(Generic[LearnerT]):
    """What an ingestion brought.

    Attributes
    ----------
    vocabulary : Vocabulary
        Given, or learned on the way.
    engine : Learner
        The engine that was made; ready for a snapshot, and for more documents.
    counts : Counts
        What was met.
    vocabulary_documents : int
        Documents (with blanks: places) that the words were learned or selected from; 0 for a
        given vocabulary.
    seconds : float
        Wall-clock time of the run.
    stopped : bool
        True when it was asked to stop before the source ended.
    failure : SourceError or None
        What ended the source before its time. Everything read before has been learned from.
    """

    vocabulary: Vocabulary
    engine: LearnerT
    counts: Counts
    vocabulary_documents: int
    seconds: float
    stopped: bool
    failure: SourceError | None = None


class Ingestion(Generic[LearnerT]):
    """Feeds an engine from a source, once: make it, `run` it, and perhaps `stop` it.

    Memory: the engine, the first documents while the words are learned, and a block. Reading and
    encoding take turns with the engine, which uses all cores in its turn: a thread for it was
    measured to gain 3 % on two cores.

    Parameters
    ----------
    source : Source
        Polled to its end; not closed.
    vocabulary : Vocabulary, WordsToLearn or WordsToSelect
        The words, or how to choose them. The documents they are learned from are learned from
        like all others; those they are selected from, which needs `blanks`, are not.
    make_engine : callable from Vocabulary to Learner
        Called once, when the words are known. If the source says whose the documents are, the
        engine must be a `UserLearner`; if not, its `add` is called with a batch alone.
    max_documents : int, optional
        Documents after which to stop reading; with `blanks` it counts records, whatever they say.
    on_progress : callable of Counts, optional
        Called after every poll.
    on_reject : callable of Reject, optional
        Called for every record that the source passed over, and with the reason ``"short"`` for
        every short document, once it is encoded.
    blanks : bool, default False
        Whether every reject and every blank line becomes an empty row at its own place, so that
        replacing a record leaves all others at their rows. Blocks are still cut by characters:
        what counts is the number of a row in the stream, not in its batch.
    block_documents : int, optional
        Rows of a block, whatever their length: where a clock is looked at between blocks, their
        ends must not depend on what documents say. By default up to 4096, fewer long ones.

    Attributes
    ----------
    counts : Counts
        What was met so far.

    Raises
    ------
    InvalidSettingError
        If `max_documents` is below 1, or words are to be selected without `blanks`.
    """

    def __init__(
        self,
        source: Source,
        vocabulary: Vocabulary | VocabularyLearner | PrivateVocabularySelection,
        make_engine: Callable[[Vocabulary], LearnerT],
        *,
        max_documents: int | None = None,
        on_progress: Callable[[Counts], None] | None = None,
        on_reject: Callable[[Reject], None] | None = None,
        blanks: bool = False,
        block_documents: int | None = None,
    ) -> None:
        if max_documents is not None and max_documents < 1:
            raise InvalidSettingError(
                f"max_documents must be at least 1, got max_documents={max_documents}"
            )
        if isinstance(vocabulary, PrivateVocabularySelection) and not blanks:
            raise InvalidSettingError(
                "words must be selected from places, which count every record, got blanks=False; "
                "pass blanks=True, and a private engine"
            )
        self.counts = Counts()
        self._source = source
        self._make_engine = make_engine
        self._max_documents = max_documents
        self._on_progress = on_progress or (lambda counts: None)
        self._on_reject = on_reject or (lambda reject: None)
        self._blanks = blanks
        self._block: tuple[int, float] = (BLOCK_DOCUMENTS, BLOCK_CHARACTERS)
        if block_documents is not None:
            self._block = block_documents, math.inf
        self._has_users = False
        self._n_records = 0
        self._words = vocabulary if isinstance(vocabulary, VocabularyLearner) else None
        self._votes = vocabulary if isinstance(vocabulary, PrivateVocabularySelection) else None
        self._vocabulary = vocabulary if isinstance(vocabulary, Vocabulary) else None
        self._learned_from = 0
        self._engine: LearnerT | None = None
        self._held = _Held()
        self._stop = False

    def stop(self) -> None:
        """Ask `run` to finish what it has read and return; safe in a signal handler."""
        self._stop = True

    def run(self) -> Ingested[LearnerT]:
        """Read until the source ends, `max_documents` are read or `stop` is called.

        With `blanks`, nothing is raised or left out because of what documents say: whether there
        is enough to learn from is for the engine to tell, privately.

        Raises
        ------
        InsufficientDataError
            If no document came, or all were short; the message counts what came instead. With
            `blanks`, only if no record came, or too few to select the words from.
        VocabularyError, InvalidSettingError
            If no vocabulary can be learned, or the engine cannot be made for it.
        SourceError
            If the source fails before anything was learned; later failures are returned. A poll
            that `RecordBatch.check` refuses is a failure too.
        """
        start = perf_counter()
        if self._vocabulary is not None:
            self._engine = self._make_engine(self._vocabulary)
        ended = False
        failure: SourceError | None = None
        while not (ended or failure or self._stop):
            try:
                ended = self._poll()
            except SourceError as error:
                failure = error
            self._on_progress(self.counts)
        if self._held.rows:
            self._flush()
        engine = self._engine
        # What a private engine could learn from is not for anybody to see, in an error either.
        learned = engine is not None and (
            self.counts.places > 0 if self._blanks else engine.documents_seen > 0
        )
        if failure and not learned:
            raise failure
        if self._votes is not None and engine is None:
            raise InsufficientDataError(
                "words must be chosen from all the places set for it, got "
                f"places={self.counts.places} vocabulary_documents={self._votes.slots}; nothing "
                "was released: choose from fewer places, or read more"
            )
        if engine is None or self._vocabulary is None or self.counts.places == 0:
            raise self._insufficient("no document came")
        if not learned:
            raise self._insufficient(f"every document has fewer than {MIN_TOKENS} known words")
        return Ingested(
            vocabulary=self._vocabulary,
            engine=engine,
            counts=self.counts,
            vocabulary_documents=self._learned_from,
            seconds=perf_counter() - start,
            stopped=self._stop and not ended,
            failure=failure,
        )

    def _poll(self) -> bool:
        """Take what is there; return whether it was the last."""
        limit = self._max_documents
        left = BLOCK_DOCUMENTS if limit is None else limit - self.counts.places
        asked = min(left, BLOCK_DOCUMENTS)
        batch = self._source.poll(asked, POLL_SECONDS)
        batch.check(asked)
        self._has_users = self._has_users or bool(batch.users)
        for reject in batch.rejects:
            self.counts.rejects[reject.reason] += 1
            self._on_reject(reject)
        for row in self._rows(batch):
            if self._votes is not None and self._learned_from < self._votes.slots:
                self._vote(row, self._votes)
                continue
            self._held.add(row)
            if self._held_enough():
                self._flush()
        self._n_records += batch.n_records
        self.counts.documents += batch.n_documents
        self.counts.blanks += batch.n_records - batch.n_documents if self._blanks else 0
        return batch.exhausted or self.counts.places == limit

    def _rows(self, batch: RecordBatch) -> Iterator[_Row]:
        """Yield the documents of a batch and, if blanks are counted, one for each other record."""
        users = batch.users or [None] * batch.n_records
        locations = batch.located(self._n_records + 1)
        for text, location, user in zip(batch.texts, locations, users, strict=True):
            if text is not None:
                yield _Row(text, location, user)
            elif self._blanks:
                yield _BLANK

    def _vote(self, row: _Row, votes: PrivateVocabularySelection) -> None:
        """Let a row vote for the words, and choose them after the last."""
        votes.vote(row.text)
        self._learned_from += 1
        if self._learned_from == votes.slots:
            self._vocabulary = votes.choose()
            self._engine = self._make_engine(self._vocabulary)

    def _held_enough(self) -> bool:
        if self._vocabulary is None and self._words is not None:
            return self._held.has(self._words.documents, VOCABULARY_CHARACTERS)
        return self._held.has(*self._block)

    def _flush(self) -> None:
        """Learn the words first, if that is still to be done, then from all that is held."""
        held, self._held = self._held, _Held()
        if self._vocabulary is None:
            assert self._words is not None
            self._vocabulary = self._words.learn([row.text for row in held.rows])
            self._learned_from = len(held.rows)
            self._engine = self._make_engine(self._vocabulary)
        block = _Held()
        for row in held.rows:
            block.add(row)
            if block.has(*self._block):
                self._learn(block, self._vocabulary)
                block = _Held()
        if block.rows:
            self._learn(block, self._vocabulary)

    def _learn(self, block: _Held, vocabulary: Vocabulary) -> None:
        encoded = vocabulary.encode([row.text for row in block.rows])
        self.counts.tokens += encoded.tokens
        self.counts.unseen_tokens += encoded.unseen_tokens
        for i in np.flatnonzero(~encoded.batch.usable).tolist():
            location = block.rows[i].location
            if location is not None:
                self.counts.short += 1
                self._on_reject(Reject(*location, SHORT))
        assert self._engine is not None
        if self._has_users:
            users = [row.user for row in block.rows]
            cast(UserLearner, self._engine).add(encoded.batch, users)
        else:
            self._engine.add(encoded.batch)

    def _insufficient(self, what: str) -> InsufficientDataError:
        counts = self.counts
        rejects = "".join(f" {reason}={n}" for reason, n in sorted(counts.rejects.items()))
        return InsufficientDataError(
            f"topics need documents of at least {MIN_TOKENS} known words, but {what}: got "
            f"documents={counts.documents} short={counts.short} "
            f"rejects={counts.rejects.total()}{rejects}; "
            "check the format, the text field, the token pattern and the vocabulary"
        )


class _Row(NamedTuple):
    """A text, where it stands, and whose it is; a blank stands nowhere."""

    text: str
    location: RecordLocation | None
    user: str | None


_BLANK = _Row("", None, None)


class _Held:
    """Rows that wait for more."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.characters = 0

    def add(self, row: _Row) -> None:
        self.rows.append(row)
        self.characters += len(row.text)

    def has(self, documents: int, characters: float) -> bool:
        return len(self.rows) >= documents or self.characters >= characters
