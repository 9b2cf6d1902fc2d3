"""The pipeline of every run, from records to topics.

::

    records -> words, once they are known -> counts -> blocks -> learner -> release

A pure state machine: it reads no source and no file. Equal streams give equal topics, to the last
bit, however polls were cut and however often the run was resumed.

An `Engine` gets documents. A private learner counts *record slots*: it gets a row for every record,
a blank one where there is no document, so that the slot of a document depends only on how many
records came before it.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import AHEAD, CHECK_TEXTS, TOPICS_NEED, UNDATED, DocumentBatch
from streamlda.errors import InsufficientDataError, VocabularyError, require
from streamlda.learner import NEVER_BY_ITSELF, Learner, LearnerProgress
from streamlda.model.representatives import CandidateDocuments
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import Provenance
from streamlda.stream import vocabulary_choice
from streamlda.stream.counts import Account, RecordCounts, check_has_document, fields_found
from streamlda.stream.event_time import MOST_AHEAD_SECONDS
from streamlda.stream.source import Behind, LocatedText, Position, RecordBatch
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Tree

#: Attributes of a pipeline that a checkpoint keeps.
KEPT = ("first_slot", "snapshots", "released_at", "vocabulary_documents", "span")

#: A block ends with the row that fills it, by number of rows or of counts (12 bytes each).
BLOCK_ROWS = 4096
BLOCK_COUNTS = 2**20

#: Characters encoded at once; tables of words take some 8 times as many bytes.
ENCODED_CHARACTERS = 2**23

Words = (
    Vocabulary | vocabulary_choice.VocabularyLearner | vocabulary_choice.PrivateVocabularySelection
)
LearnerT = TypeVar("LearnerT", bound=Learner)


class ReleaseResult(NamedTuple):
    """A model, or the reason that there is none, and True if no document is to be seen."""

    model: TopicModel | None
    missed: str = ""
    shows_nothing: bool = False


class Pipeline(Generic[LearnerT]):
    """A learner that is fed from record batches. Not safe for several threads.

    A release of an engine is due every `every` records, `most` times at most. Models record
    `about`, checkpoints `reading`, the settings of text: both are JSON values.
    """

    def __init__(
        self,
        words: Words,
        make_learner: Callable[[Vocabulary, int], LearnerT],
        *,
        every: int | None = None,
        most: int | None = None,
        about: Mapping[str, Any] | None = None,
        text_settings: Mapping[str, Any] | None = None,
        time_bins: str | None = None,
        most_ahead_seconds: float = MOST_AHEAD_SECONDS,
        candidates: CandidateDocuments | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.words = words
        self.counts = RecordCounts()
        self.account = Account()
        #: Position of the source behind the last record taken; None before it is open.
        self.behind: Behind | None = None
        self.vocabulary: Vocabulary | None = None
        self.vocabulary_documents = self.first_slot = self.snapshots = self.released_at = 0
        #: Earliest and latest event time since the last release, if there is one.
        self.span: list[float] = []
        self._make_learner = make_learner
        #: None until the words are known.
        self.learner: LearnerT | None = None
        self._every, self._most = every, most
        self._about, self.reading = dict(about or {}), dict(text_settings or {})
        self.provenance = provenance
        self._time_bins, self._most_ahead = time_bins, most_ahead_seconds
        self._waiting: list[LocatedText] = []
        self._characters = 0
        self.blocks, self._candidates = Blocks(), candidates
        self._growing: vocabulary_choice.GrowingWords | None = None
        if isinstance(words, vocabulary_choice.VocabularyLearner) and words.grow_every is not None:
            self._growing = vocabulary_choice.GrowingWords(words)
        if isinstance(words, Vocabulary):
            self.begin(words)

    def begin(self, vocabulary: Vocabulary, first_slot: int = 0) -> LearnerT:
        """Begin with these words, and make the learner whose first row has this record slot."""
        self.first_slot = first_slot
        learner = self._make_learner(vocabulary, first_slot)
        self.take(vocabulary, learner)
        return learner

    def take(self, vocabulary: Vocabulary, learner: LearnerT) -> None:
        """Take a learner, which may have been fed elsewhere; private ones show no documents."""
        self.vocabulary, self.learner = vocabulary, learner
        if learner.counts_slots:
            self._candidates = None

    @property
    def counts_slots(self) -> bool:
        """True if every record takes a record slot."""
        if self.learner is not None:
            return self.learner.counts_slots
        return isinstance(self.words, vocabulary_choice.PrivateVocabularySelection)

    @property
    def records(self) -> int:
        """Records taken, which are slots where slots are counted."""
        return self.counts.records

    @property
    def due(self) -> int | None:
        """Records until a release is due: 0 now, None if none will be."""
        if self.learner is not None and self.learner.counts_slots:
            return self.learner.due
        if isinstance(self.words, vocabulary_choice.PrivateVocabularySelection):
            return self.words.slots - self.records + self.words.first_slot
        if self._most is not None and self.snapshots >= self._most:
            return None
        if (every := self._every) is None:
            return NEVER_BY_ITSELF
        return max(0, every * (self.released_at // every + 1) - self.records)

    @property
    def progress(self) -> LearnerProgress:
        """Progress of the learner; before the words are known, of the documents they wait for."""
        if self.learner is not None:
            return self.learner.progress
        if not isinstance(self.words, vocabulary_choice.VocabularyLearner):
            return LearnerProgress()
        return LearnerProgress(warmup=(len(self._waiting), self.words.documents))

    @property
    def outcomes(self) -> dict[str, int]:
        """Records by outcome; documents that wait for the words are not among them."""
        return self.counts.outcomes(len(self._waiting))

    @property
    def since_release(self) -> int:
        """Records taken since the last release."""
        return self.records - self.released_at

    @property
    def has_words(self) -> bool:
        """True once the words are known; before, no clock ends a window."""
        return self.learner is not None

    # Records.

    def begin_at(self, behind: Behind) -> None:
        """Begin, or resume, at the position of the source."""
        self.behind = behind
        self.account.begin(behind.passed)

    @property
    def position(self) -> Position | None:
        """Position of the source behind the last record taken."""
        return None if self.behind is None else self.behind.position

    def check_account(self) -> None:
        """Raise `AccountError` unless each record before the position is in the state once."""
        if self.behind is not None:
            self.account.check(self.behind.passed, self.records)

    def get_account(self) -> dict[str, int] | None:
        """Return records in the state and records that the source has passed; None if unknown."""
        return None if self.behind is None else self.account.count_records(self.behind.passed)

    def figures(self) -> dict[str, Any]:
        """Return what is shown of it, as plain values; None is not known."""
        counts, progress, until_topics = self.counts, self.progress, self.due
        learner: Any = self.learner
        if self.counts_slots and until_topics is not None:
            until_topics = None if learner is None else learner.slots_missing
        in_no_bin = counts.undated, counts.ahead, progress.late
        return {
            "documents": self.outcomes,
            "rejects": dict(counts.rejects),
            "releases": self.snapshots,
            "rounds": progress.rounds,
            "places": self.records,
            "places_left": None if until_topics == NEVER_BY_ITSELF else until_topics,
            "warmup": progress.warmup,
            "in_no_bin": None if self._time_bins is None else in_no_bin,
            "account": self.get_account(),
        }

    def _move(self, batch: RecordBatch) -> None:
        """Take the position behind records together with them."""
        self.account.add(batch)
        self.behind = batch.behind or self.behind

    def add(self, batch: RecordBatch) -> None:
        """Take records, at most those until a release is `due`. Time O(characters + learning)."""
        rule, n, due = "records come after a release is due", batch.n_records, self.due
        fits = due is not None and n <= due
        require(fits, rule, records=n, due=due, remedy="call release first")
        first = self.counts.records + 1
        self._move(batch)
        if self.provenance is not None:
            self.provenance.add_texts(batch.get_locations(first), batch.texts)
        self.counts.add_batch(batch)
        if self.counts_slots:
            self._add_slots(batch)
        elif self.learner is None:
            self._wait(batch.get_documents(first))
        else:
            self._learn(batch.get_documents(first))

    def _add_slots(self, batch: RecordBatch) -> None:
        """Give every record its slot: a row, or a vote for words."""
        texts = [text or "" for text in batch.texts]
        if self.learner is None:
            assert isinstance(self.words, vocabulary_choice.PrivateVocabularySelection)
            for text in texts:
                self.words.vote(text)
            return
        assert self.vocabulary is not None
        encoded = self.vocabulary.encode(texts)
        taken = self.learner.add(encoded.batch, batch.users or None)
        assert taken == batch.n_records, "polls end where stages do"
        self.counts.add_encoded(encoded, batch.n_documents)

    def _wait(self, documents: list[LocatedText]) -> None:
        """Keep documents until there are enough to learn the words from."""
        assert isinstance(self.words, vocabulary_choice.VocabularyLearner)
        self._waiting += documents
        self._characters += sum(len(text) for text, *_ in documents)
        if self.words.is_enough(len(self._waiting), self._characters):
            self._learn_words()

    def _learn_words(self) -> None:
        """Learn the words from the first documents, and then topics from all that wait."""
        assert isinstance(self.words, vocabulary_choice.VocabularyLearner)
        first = self.words.cut_beginning([text for text, *_ in self._waiting])
        self.begin(self.words.learn(first))
        waiting, self._waiting, self.vocabulary_documents = self._waiting, [], len(first)
        self._learn(waiting)

    def _learn(self, documents: list[LocatedText]) -> None:
        """Learn from documents in parts, none of which is on both sides of a border of words."""
        start = 0
        while start < len(documents):
            most = len(documents) if self._growing is None else self._growing.missing
            stop = find_cut(documents, start, start + most)
            self._learn_part(*map(list, zip(*documents[start:stop], strict=True)))
            start = stop

    def _learn_part(self, texts: list[Any], locations: list[Any], times: list[Any]) -> None:
        assert self.vocabulary is not None
        assert self.learner is not None
        encoded = self.vocabulary.encode(texts)
        batch, short = encoded.batch, self.learner.learns_short
        is_learned = batch.nonempty if short else batch.usable
        if self._candidates is not None:
            ids = [at.id or f"{at.location}:{at.record}" for at in locations]
            self._candidates.add(batch, ids, texts)
        self.counts.add_encoded(encoded, len(texts), learns_short=short)
        if self._time_bins is not None:
            batch = batch.dated(self._find_bins(np.array(times, dtype=np.float64), is_learned))
        for block in self.blocks.add(batch):
            self.learner.add(block)
        if self._growing is not None:
            self._growing.add(texts)
            if not self._growing.missing:
                self.flush()
                self.vocabulary, change = self._growing.grow(self.vocabulary, self.learner)
                if change is not None and self._candidates is not None:
                    self._candidates.change_words(change)

    def _find_bins(self, times: NDArray[Any], is_learned: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the bins of event time, and count the learned documents in no bin."""
        assert self._time_bins is not None
        bins = find_bins(times, self._time_bins, time.time() + self._most_ahead)
        times, learned = times[is_learned], bins[is_learned]
        known = [*self.span, *times[np.isfinite(times) & (learned != AHEAD)].tolist()]
        self.span = [min(known), max(known)] if known else []
        self.counts.undated += int(np.count_nonzero(learned == UNDATED))
        self.counts.ahead += int(np.count_nonzero(learned == AHEAD))
        return bins

    # Releases.

    @property
    def ends_well(self) -> bool:
        """True if a release can be made where the source ends."""
        if self.counts_slots:
            private = None if self.learner is None else self.learner.private
            return self.learner is not None and (private is None or private.ends_well)
        return self.due is not None and (self.since_release > 0 or not self.snapshots)

    def release(self, *, last: bool = False) -> ReleaseResult:
        """Publish the due snapshot, or close the current window early: a model, or why none."""
        self.check_account()
        words = self.words if self.learner is None else None
        choice = words if isinstance(words, vocabulary_choice.PrivateVocabularySelection) else None
        if self.provenance is not None and self.provenance.by_slots:
            check_has_document((choice or self.counts).has_document, self.records)
        self.released_at = self.records
        if choice is not None:
            self.begin(choice.choose(), choice.first_slot + choice.slots)
            return ReleaseResult(None)
        try:
            if self.learner is None:
                if not self._waiting:
                    return ReleaseResult(None, "no document came")
                self._learn_words()
            assert self.learner is not None
            self.flush()
            if last:
                self.learner.end()
            model = self.learner.release(self.vocabulary, self.facts())
        except (InsufficientDataError, VocabularyError) as error:
            return ReleaseResult(None, str(error))
        if model is not None and self._candidates is not None:
            model = replace(model, representative_documents=self._candidates.show(model))
        return self.make_released(model)

    def make_released(self, model: TopicModel | None) -> ReleaseResult:
        """Return a model with the facts of the stream, or why there is none."""
        assert self.learner is not None
        if model is None:
            private = self.learner.private
            missed = () if private is None else (private.missed, private.shows_nothing)
            return ReleaseResult(None, *missed)
        self.snapshots += 1
        if not self.counts_slots and (found := self.get_account()):
            model = replace(model, diagnostics={**model.diagnostics, "account": found})
        ends = [datetime.fromtimestamp(time, UTC).isoformat() for time in self.span]
        self.span = []
        if ends and model.interval is not None:
            model = replace(model, interval=replace(model.interval, start=ends[0], end=ends[1]))
        if self._time_bins is not None and model.timeline is not None:
            model = replace(model, timeline=replace(model.timeline, unit=self._time_bins))
        return ReleaseResult(model)

    def skip(self, records: int) -> None:
        """Count records of an earlier release, which are skipped unread."""
        self.counts.records += records
        self.counts.skipped += records
        self.released_at = self.records
        if self.provenance is not None:
            self.provenance.clear()

    def pass_records(self, batch: RecordBatch, *, released: bool) -> None:
        """Pass records that were read elsewhere, or that were `released` before."""
        self._move(batch)
        if self.provenance is not None:
            self.provenance.add_texts(batch.get_locations(1), batch.texts, released=released)

    def facts(self, skipped: int = 0) -> dict[str, Any]:
        """Return the facts of the stream for a model of now, or after records that are skipped."""
        found = {**self._about, "places": self.records + skipped}
        if self.vocabulary_documents:
            found["vocabulary_documents"] = self.vocabulary_documents
        if (growing := self._growing) is not None:
            found["vocabulary_changes"] = {"entered": growing.entered, "left": growing.left}
        if self.counts_slots:
            found["snapshot"] = self.snapshots + 1
        return found

    def flush(self) -> None:
        """Give the learner the documents that wait for a full block."""
        if self.learner is not None and self.blocks.waiting is not None:
            self.learner.add(self.blocks.flush())

    def make_shortage_error(self, reason: str = "") -> InsufficientDataError:
        """Return the error of a run that ends without topics; a private one names slots alone."""
        counts = self.counts
        if self.counts_slots:
            rule = "the record slots make no whole window"
            remedy = "take smaller windows, or read more"
            got = f"slots={counts.records} window={self._every}"
            return InsufficientDataError(reason or f"{rule}, got {got}; {remedy}")
        rejects = "".join(f" {name}={n}" for name, n in sorted(counts.rejects.items()))
        return InsufficientDataError(
            f"{TOPICS_NEED}, got documents={counts.documents} short={counts.short} "
            f"rejects={counts.rejects.total()}{rejects}{fields_found(counts.fields)}; "
            + "; ".join([*counts.notes, CHECK_TEXTS + (f" ({reason})" if reason else "")])
        )

    # State.

    def beside(self) -> Tree:
        """Return the state of what is shown beside topics, and of growing words."""
        parts = {"growing": self._growing, "candidates": self._candidates}
        return {name: part.state() for name, part in parts.items() if part is not None}

    def values(self) -> dict[str, Any]:
        """Return plain JSON values to keep beside the state of the learner."""
        return {
            **{name: getattr(self, name) for name in KEPT},
            "reading": self.reading,
            "places": self.records,
            "counts": self.counts.to_json(),
            "account": self.account.to_json(),
            "provenance": None if self.provenance is None else self.provenance.to_json(),
        }

    def restore(
        self,
        vocabulary: Vocabulary,
        learner: LearnerT,
        values: Mapping[str, Any],
        waiting: DocumentBatch | None = None,
        beside: Tree | None = None,
    ) -> None:
        """Resume from the state of a learner, `values`, documents that waited, and `beside`."""
        self.take(vocabulary, learner)
        # A run may let words grow, or show documents, from a restart on.
        beside = beside or {}
        if self._candidates is not None and "candidates" in beside:
            self._candidates.restore(beside["candidates"], vocabulary.n_features)
        if self._growing is not None and "growing" in beside:
            self._growing.restore(beside["growing"])
        self.blocks, self._waiting = Blocks(waiting), []
        self.counts = RecordCounts.from_json(values["counts"], int(values["places"]))
        self.account = Account(values["account"])
        vars(self).update((name, values[name]) for name in KEPT)
        if self.provenance is not None and values["provenance"] is not None:
            self.provenance.restore(values["provenance"])


def find_bins(times: NDArray[np.float64], unit: str, latest: float = math.inf) -> NDArray[np.int64]:
    """Return the start of the bin of each time; `UNDATED` for NaN, `AHEAD` after the `latest`."""
    starts = np.full(len(times), UNDATED, dtype=np.int64)
    dated = np.flatnonzero(np.isfinite(times))
    seconds = np.floor(times[dated]).astype(np.int64)
    # Weeks of NumPy begin on a Thursday, as 1970 did.
    shift = np.timedelta64(3 if unit == "week" else 0, "D")
    code = "h" if unit == "hour" else unit[0].upper()
    bins = (seconds.astype("datetime64[s]") + shift).astype(f"datetime64[{code}]")
    starts[dated] = (bins.astype("datetime64[s]") - shift).astype(np.int64)
    starts[times > latest] = AHEAD
    return starts


class Blocks:
    """Rows that wait for their block, at first those of a checkpoint.

    Floating-point sums depend on the grouping of documents. So an engine is given blocks that end
    at a number of rows or of counts; a checkpoint keeps the rest, which waits, beside the state.
    """

    def __init__(self, waiting: DocumentBatch | None = None) -> None:
        self._parts: list[DocumentBatch] = []
        self._rows = self._counts = 0
        if waiting is not None:
            self._keep(waiting)

    def add(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:
        """Take rows, and yield the blocks that they fill. Time O(counts)."""
        start = 0
        while start < batch.n_documents:
            part = batch.rows(start, self._end(batch, start))
            start += part.n_documents
            self._keep(part)
            if self._rows >= BLOCK_ROWS or self._counts >= BLOCK_COUNTS:
                yield self.flush()

    def _end(self, batch: DocumentBatch, start: int) -> int:
        """Return the row after the last that the running block takes."""
        pointers = batch.row_pointers
        full = pointers[start] + BLOCK_COUNTS - self._counts
        by_counts = int(np.searchsorted(pointers[start + 1 :], full)) + start + 1
        return min(batch.n_documents, start + BLOCK_ROWS - self._rows, by_counts)

    def _keep(self, part: DocumentBatch) -> None:
        # The batch of the rows may be far larger.
        self._parts.append(part.copy())
        self._rows += part.n_documents
        self._counts += len(part.counts)

    @property
    def waiting(self) -> DocumentBatch | None:
        """Rows that wait, or None. Time and memory O(counts)."""
        return DocumentBatch.joined(self._parts) if self._parts else None

    def flush(self) -> DocumentBatch:
        """Return the rows that wait, of which there must be some, and forget them."""
        block = DocumentBatch.joined(self._parts)
        self._parts = []
        self._rows = self._counts = 0
        return block


def find_cut(documents: Sequence[tuple[str, Any, Any]], start: int, stop: int) -> int:
    """Return where to cut documents into a part of about `ENCODED_CHARACTERS`, `stop` at most."""
    characters = 0
    for at in range(start, min(stop, len(documents))):
        characters += len(documents[at][0])
        if characters >= ENCODED_CHARACTERS:
            return at + 1
    return min(stop, len(documents))
