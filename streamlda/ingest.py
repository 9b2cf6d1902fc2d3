"""From a source to an engine: polls, learns the words, counts what comes and what is passed over.

Documents are encoded in blocks that depend on the documents alone, never on how fast they came:
equal streams give equal models, through a file or through a slow pipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from streamlda.analysis import TextAnalyzer
from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.engine import Engine
from streamlda.errors import InsufficientDataError, InvalidSettingError, SourceError
from streamlda.source import Place, Poll, Reject, Source
from streamlda.vocabulary import Vocabulary

#: Documents encoded at once, and about how many characters of them at most.
BLOCK_DOCUMENTS = 4096
BLOCK_CHARACTERS = 2**23

#: The words are learned from at most this many characters (64 MB of ASCII text).
VOCABULARY_CHARACTERS = 2**26

#: Longest wait for a document before a request to stop is looked at, in seconds.
POLL_SECONDS = 0.5

#: Reason of a `Reject` for a document too short to learn from.
SHORT = "short"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsToLearn:
    """Which words to take from the first documents of a stream.

    Parameters
    ----------
    size : int or None, default 8000
        Most words, the most frequent first; None for all.
    min_document_frequency : int, float or None, default None
        As in `Vocabulary.learn`; None is a two-hundredth of the documents, at least 1 and at
        most 5.
    max_document_frequency : int or float, default 0.5
        As in `Vocabulary.learn`.
    documents : int, default 20000
        Documents to learn from; also ends at `VOCABULARY_CHARACTERS`.
    analyzer : TextAnalyzer, optional
        How texts are split; without English stop words unless told otherwise.
    """

    size: int | None = 8000
    min_document_frequency: float | None = None
    max_document_frequency: float = 0.5
    documents: int = 20_000
    analyzer: TextAnalyzer = field(default_factory=lambda: TextAnalyzer(stop_words="english"))

    def __post_init__(self) -> None:
        if self.documents < 1:
            raise InvalidSettingError(
                "words must be learned from at least 1 document, got "
                f"vocabulary_documents={self.documents}"
            )

    def learn(self, texts: Sequence[str]) -> Vocabulary:
        """Return the vocabulary of `texts`. Time O(characters); errors as `Vocabulary.learn`."""
        least = self.min_document_frequency
        return Vocabulary.learn(
            texts,
            size=self.size,
            min_document_frequency=min(5, max(1, len(texts) // 200)) if least is None else least,
            max_document_frequency=self.max_document_frequency,
            analyzer=self.analyzer,
        )


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
    """

    documents: int = 0
    short: int = 0
    tokens: int = 0
    unseen_tokens: int = 0
    rejects: Counter[str] = field(default_factory=Counter)

    @property
    def unseen_share(self) -> float:
        """Share of the tokens outside the vocabulary, 0 without tokens."""
        return self.unseen_tokens / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingestion brought.

    Attributes
    ----------
    vocabulary : Vocabulary
        Given, or learned on the way.
    engine : Engine
        Ready for `Engine.snapshot`, and for more documents.
    counts : Counts
        What was met.
    vocabulary_documents : int
        Documents that the words were learned from; 0 for a given vocabulary.
    seconds : float
        Wall-clock time of the run.
    stopped : bool
        True when it was asked to stop before the source ended.
    failure : SourceError or None
        What ended the source before its time. Everything read before has been learned from.
    """

    vocabulary: Vocabulary
    engine: Engine
    counts: Counts
    vocabulary_documents: int
    seconds: float
    stopped: bool
    failure: SourceError | None = None


class Ingestion:
    """Feeds an engine from a source, once: make it, `run` it, and perhaps `stop` it.

    Memory: the engine, the first documents while the words are learned, and a block. Reading and
    encoding take turns with the engine, which uses all cores in its turn: a thread for it was
    measured to gain 3 % on two cores.

    Parameters
    ----------
    source : Source
        Polled to its end; not closed.
    vocabulary : Vocabulary or WordsToLearn
        The words, or how to choose them. The documents they are learned from are learned from
        like all others.
    make_engine : callable from Vocabulary to Engine
        Called once, when the words are known.
    max_documents : int, optional
        Documents after which to stop reading.
    on_progress : callable of Counts, optional
        Called after every poll.
    on_reject : callable of Reject, optional
        Called for every record that the source passed over, and with the reason ``"short"`` for
        every short document, once it is encoded.

    Attributes
    ----------
    counts : Counts
        What was met so far.

    Raises
    ------
    InvalidSettingError
        If `max_documents` is below 1.
    """

    def __init__(
        self,
        source: Source,
        vocabulary: Vocabulary | WordsToLearn,
        make_engine: Callable[[Vocabulary], Engine],
        *,
        max_documents: int | None = None,
        on_progress: Callable[[Counts], None] | None = None,
        on_reject: Callable[[Reject], None] | None = None,
    ) -> None:
        if max_documents is not None and max_documents < 1:
            raise InvalidSettingError(
                f"max_documents must be at least 1, got max_documents={max_documents}"
            )
        self.counts = Counts()
        self._source = source
        self._make_engine = make_engine
        self._max_documents = max_documents
        self._on_progress = on_progress or (lambda counts: None)
        self._on_reject = on_reject or (lambda reject: None)
        self._words = None if isinstance(vocabulary, Vocabulary) else vocabulary
        self._vocabulary = vocabulary if isinstance(vocabulary, Vocabulary) else None
        self._learned_from = 0
        self._engine: Engine | None = None
        self._held = _Held()
        self._stop = False

    def stop(self) -> None:
        """Ask `run` to finish what it has read and return; safe in a signal handler."""
        self._stop = True

    def run(self) -> Ingested:
        """Read until the source ends, `max_documents` are read or `stop` is called.

        Raises
        ------
        InsufficientDataError
            If no document came, or all were short; the message counts what came instead.
        VocabularyError, InvalidSettingError
            If no vocabulary can be learned, or the engine cannot be made for it.
        SourceError
            If the source fails before anything was learned; later failures are returned.
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
        if self._held.texts:
            self._flush()
        if failure and (self._engine is None or self._engine.documents_seen == 0):
            raise failure
        if self._engine is None or self._vocabulary is None or self.counts.documents == 0:
            raise self._insufficient("no document came")
        if self._engine.documents_seen == 0:
            raise self._insufficient(f"every document has fewer than {MIN_TOKENS} known words")
        return Ingested(
            vocabulary=self._vocabulary,
            engine=self._engine,
            counts=self.counts,
            vocabulary_documents=self._learned_from,
            seconds=perf_counter() - start,
            stopped=self._stop and not ended,
            failure=failure,
        )

    def _poll(self) -> bool:
        """Take what is there; return whether it was the last."""
        limit = self._max_documents
        left = BLOCK_DOCUMENTS if limit is None else limit - self.counts.documents
        poll = self._source.poll(min(left, BLOCK_DOCUMENTS), POLL_SECONDS)
        for reject in poll.rejects:
            self.counts.rejects[reject.reason] += 1
            self._on_reject(reject)
        for text, place in zip(poll.texts, places(poll, self.counts.documents), strict=True):
            self._held.add(text, place)
            if self._held_enough():
                self._flush()
        self.counts.documents += len(poll.texts)
        return poll.exhausted or self.counts.documents == limit

    def _held_enough(self) -> bool:
        if self._vocabulary is None and self._words is not None:
            return self._held.has(self._words.documents, VOCABULARY_CHARACTERS)
        return self._held.has(BLOCK_DOCUMENTS, BLOCK_CHARACTERS)

    def _flush(self) -> None:
        """Learn the words first, if that is still to be done, then from all that is held."""
        held, self._held = self._held, _Held()
        if self._vocabulary is None:
            assert self._words is not None
            self._vocabulary = self._words.learn(held.texts)
            self._learned_from = len(held.texts)
            self._engine = self._make_engine(self._vocabulary)
        assert self._engine is not None
        block = _Held()
        for text, place in zip(held.texts, held.places, strict=True):
            block.add(text, place)
            if block.has(BLOCK_DOCUMENTS, BLOCK_CHARACTERS):
                self._engine.add(self._encode(block, self._vocabulary))
                block = _Held()
        if block.texts:
            self._engine.add(self._encode(block, self._vocabulary))

    def _encode(self, block: _Held, vocabulary: Vocabulary) -> DocumentBatch:
        encoded = vocabulary.encode(block.texts)
        self.counts.tokens += encoded.tokens
        self.counts.unseen_tokens += encoded.unseen_tokens
        short = np.flatnonzero(~encoded.batch.usable).tolist()
        self.counts.short += len(short)
        for i in short:
            self._on_reject(Reject(*block.places[i], SHORT))
        return encoded.batch

    def _insufficient(self, what: str) -> InsufficientDataError:
        counts = self.counts
        rejects = "".join(f" {reason}={n}" for reason, n in sorted(counts.rejects.items()))
        return InsufficientDataError(
            f"topics need documents of at least {MIN_TOKENS} known words, but {what}: got "
            f"documents={counts.documents} short={counts.short} "
            f"rejects={counts.rejects.total()}{rejects}; "
            "check the format, the text field, the token pattern and the vocabulary"
        )


class _Held:
    """Documents that wait for more, and where they stand."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: list[Place] = []
        self.characters = 0

    def add(self, text: str, place: Place) -> None:
        self.texts.append(text)
        self.places.append(place)
        self.characters += len(text)

    def has(self, documents: int, characters: int) -> bool:
        return len(self.texts) >= documents or self.characters >= characters


def places(poll: Poll, documents_before: int) -> Sequence[Place]:
    """Return where the texts of a poll stand; numbers of the stream if its source does not say."""
    if len(poll.places) == len(poll.texts):
        return poll.places
    first = documents_before + 1
    return [Place("stream", first + i) for i in range(len(poll.texts))]
