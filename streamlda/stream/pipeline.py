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

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import AHEAD, CHECK_TEXTS, TOPICS_NEED, UNDATED, DocumentBatch
from streamlda.errors import InsufficientDataError, VocabularyError
from streamlda.learner import Learner
from streamlda.model.representatives import CandidateDocuments
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import Provenance
from streamlda.stream.account import Account
from streamlda.stream.blocks import Blocks, cuts
from streamlda.stream.counts import RecordCounts, check_has_document, fields_found
from streamlda.stream.event_time import MOST_AHEAD_SECONDS
from streamlda.stream.growing_words import GrowingWords
from streamlda.stream.illustrations import Illustrations
from streamlda.stream.schedule import Released, Schedule
from streamlda.stream.source import Behind, LocatedTexts, Position, RecordBatch, Reject
from streamlda.stream.time_bins import InNoBin, TimeBins, TimeSpan
from streamlda.stream.vocabulary_choice import PrivateVocabularySelection, VocabularyLearner
from streamlda.text.encoding import UNREADABLE
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, named, with_prefix

#: Reason of a `Reject` for a document too short to learn from.
SHORT = "short"

#: Begins the names of the arrays that words grow by.
GROWING = "growing."

Words = Vocabulary | VocabularyLearner | PrivateVocabularySelection
LearnerT = TypeVar("LearnerT", bound=Learner)


class Pipeline(Generic[LearnerT]):
    """Feeds a learner from record batches; see the module. Not safe for several threads.

    Memory: the learner, one block of documents and, while words are learned, their documents.

    Documents that words are learned from are learned from like all others; records that words are
    selected from are used for nothing else. `make_learner` is called once the words are known, with
    the record slot of the first row. `schedule` is of a learner that counts no slots: others know
    themselves when something is due. `about` are plain JSON values that each model records.
    `on_reject` gets every rejected record and, with the reason ``"short"``, every short document.
    Documents go to the learner with their bin of `time_bins`, if event times are read; one later
    than `most_ahead_seconds` from now is in no bin.
    `candidates` are documents that models show, of a learner that allows it. `provenance` gets
    every record, for the ledger of a private learner.
    """

    def __init__(
        self,
        words: Words,
        make_learner: Callable[[Vocabulary, int], LearnerT],
        *,
        schedule: Schedule | None = None,
        about: Mapping[str, Any] | None = None,
        reading: Mapping[str, Any] | None = None,
        on_reject: Callable[[Reject], None] | None = None,
        time_bins: TimeBins | None = None,
        most_ahead_seconds: float = MOST_AHEAD_SECONDS,
        candidates: CandidateDocuments | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.words = words
        self.counts = RecordCounts()
        self.account = Account()
        #: Where the source stands behind the last record taken; None before it is open.
        self.behind: Behind | None = None
        self.vocabulary: Vocabulary | None = None
        self.vocabulary_documents = 0
        self.first_slot = 0
        self.snapshots = 0
        self._make_learner = make_learner
        self._learner: LearnerT | None = None
        self._schedule = schedule or Schedule()
        self._about = dict(about or {})
        self.reading = dict(reading or {})
        self._on_reject = on_reject
        self._time_bins = time_bins
        self._most_ahead = most_ahead_seconds
        self._span = TimeSpan()
        self.provenance = provenance
        self._waiting = LocatedTexts()
        self._voted = 0
        self._released_at = 0
        self._blocks = Blocks()
        self._illustrations = Illustrations(candidates)
        self._growing: GrowingWords | None = None
        if isinstance(words, VocabularyLearner):
            self._growing = words.growing()
        if isinstance(words, Vocabulary):
            self.begin(words)

    def begin(self, vocabulary: Vocabulary, first_slot: int = 0) -> LearnerT:
        """Take the words, and make the learner whose first row has this record slot."""
        self.vocabulary, self.first_slot = vocabulary, first_slot
        self._learner = self._make_learner(vocabulary, first_slot)
        self._illustrations.begin(vocabulary, self._learner, {})
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
        return self._schedule.due(self.records, self._released_at, self.snapshots)

    @property
    def warmup(self) -> tuple[int, int] | None:
        """Documents of what comes before topics, and at most how many; None after it.

        First the words are learned, then the warm-up of the learner begins with the same documents.
        """
        if self._learner is not None:
            return self._learner.progress.warmup
        if isinstance(self.words, VocabularyLearner):
            return len(self._waiting.texts), self.words.documents
        return None

    @property
    def in_no_bin(self) -> InNoBin | None:
        """Documents in no bin by reason; None if there are no bins."""
        if self._time_bins is None:
            return None
        late = 0 if self._learner is None else self._learner.progress.late
        return InNoBin(self.counts.undated, self.counts.ahead, late)

    @property
    def outcomes(self) -> dict[str, int]:
        """Records by what became of them; documents that wait for the words are not among them."""
        return self.counts.outcomes(len(self._waiting.texts))

    @property
    def since_release(self) -> int:
        """Records taken since the last release: those of the running stage, or of a snapshot."""
        return self.records - self._released_at

    @property
    def fraction_of_window(self) -> float:
        """Fraction of the time between snapshots after which a clock may end what is running.

        Infinite while the words are not known: no clock ends the choice of them.
        """
        if self._learner is None:
            return math.inf
        private = self._learner.private
        return 1.0 if private is None else private.fraction_of_window

    @property
    def rounds(self) -> int:
        """Rounds, or stages, that were finished; the start of a refinement is one more."""
        return 0 if self._learner is None else self._learner.progress.rounds

    # Records.

    def begin_at(self, behind: Behind) -> None:
        """Begin, or resume, where the source stands."""
        self.behind = behind
        self.account.begin(behind.passed)

    @property
    def position(self) -> Position | None:
        """Where the source stands behind the last record taken."""
        return None if self.behind is None else self.behind.position

    def check_account(self) -> None:
        """Raise `AccountError` unless each record before the position is in the state once."""
        if self.behind is not None:
            self.account.check(self.behind.passed, self.records)

    def shown_account(self) -> dict[str, int] | None:
        """Return records in the state and records that the source has passed; None if unknown."""
        return None if self.behind is None else self.account.shown(self.behind.passed)

    def _move(self, batch: RecordBatch) -> None:
        """Take the position behind records together with them."""
        self.account.add(batch)
        self.behind = batch.behind or self.behind

    def add(self, batch: RecordBatch) -> None:
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
        self._move(batch)
        if self.provenance is not None:
            self.provenance.add_texts(batch.located(first), batch.texts)
        self.counts.records += batch.n_records
        self.counts.documents += batch.n_documents
        self.counts.rejects.update(reject.reason for reject in batch.rejects)
        self.counts.fields = self.counts.fields or batch.fields
        self.counts.add_damage(batch.damage)
        if self._on_reject is not None:
            for reject in batch.rejects:
                self._on_reject(reject)
        if self.counts_slots:
            self._add_slots(batch)
        elif self._learner is None:
            self._wait(batch.with_text(first))
        else:
            self._learn(batch.with_text(first))

    def _add_slots(self, batch: RecordBatch) -> None:
        """Give every record its slot: a row, or a vote for words."""
        if self._learner is None:
            assert isinstance(self.words, PrivateVocabularySelection)
            for text in batch.texts:
                self.words.vote(text or "")
            self._voted += batch.n_records
            return
        assert self.vocabulary is not None
        encoded = self.vocabulary.encode([text or "" for text in batch.texts])
        taken = self._learner.add(encoded.batch, batch.users or None)
        assert taken == batch.n_records, "polls end where stages do"
        self.counts.add_encoded(encoded, batch.n_documents)

    def _wait(self, found: LocatedTexts) -> None:
        """Keep documents until there are enough to learn the words from."""
        assert isinstance(self.words, VocabularyLearner)
        waiting = self._waiting
        waiting.add(found)
        if self.words.enough(len(waiting.texts), waiting.characters):
            self._learn_words()

    def _learn_words(self) -> None:
        """Learn the words from the first documents, and then topics from all that wait."""
        assert isinstance(self.words, VocabularyLearner)
        waiting = self._waiting
        first = self.words.beginning(waiting.texts)
        self.begin(self.words.learn(first))
        self._waiting, self.vocabulary_documents = LocatedTexts(), len(first)
        self._learn(waiting)

    def _learn(self, found: LocatedTexts) -> None:
        assert self.vocabulary is not None
        assert self._learner is not None
        texts, start = found.texts, 0
        times = np.array(found.times, dtype=np.float64)
        growing = self._growing
        for stop in cuts(texts, growing.borders() if growing else ()):
            encoded = self.vocabulary.encode(texts[start:stop])
            self._illustrations.add(texts[start:stop], found.locations[start:stop], encoded.batch)
            self.counts.add_encoded(encoded, stop - start)
            if self._on_reject is not None:
                for i in np.flatnonzero(~encoded.batch.usable).tolist():
                    reason = UNREADABLE if i in encoded.unreadable else SHORT
                    self._on_reject(Reject(*found.locations[start + i][:2], reason))
            batch = encoded.batch
            if self._time_bins is not None:
                bins = self._time_bins.starts(times[start:stop], time.time() + self._most_ahead)
                batch = batch.dated(bins)
                usable = bins[batch.usable]
                self._span.add(times[start:stop][batch.usable][usable != AHEAD])
                self.counts.undated += int(np.count_nonzero(usable == UNDATED))
                self.counts.ahead += int(np.count_nonzero(usable == AHEAD))
            for block in self._blocks.add(batch):
                self._learner.add(block)
            if growing is not None:
                growing.add(texts[start:stop])
                if not growing.missing:
                    self._grow(growing)
            start = stop

    def _grow(self, growing: GrowingWords) -> None:
        """Let words enter and leave, if the learner can."""
        assert self.vocabulary is not None
        assert self._learner is not None
        self.flush()
        if found := growing.grow(self.vocabulary, self._learner):
            self.vocabulary, change = found
            self._illustrations.change_words(change)

    # Releases.

    @property
    def ends_well(self) -> bool:
        """Whether there is something to release where the source ends."""
        if self.counts_slots:
            private = None if self._learner is None else self._learner.private
            return self._learner is not None and (private is None or private.ends_well)
        return self.due is not None and (self.since_release > 0 or not self.snapshots)

    def release(self) -> Released:
        """Make what is due, or end what is running here: a model, or why there is none.

        Raises `AccountError` where records before the position are missing, or here twice, and
        `BudgetExceededError` or `LedgerError` if a private learner is not allowed it, and
        `InsufficientDataError` if it would pay for lines of which none was a document.
        """
        self.check_account()
        words = self.words if self._learner is None else None
        choice = words if isinstance(words, PrivateVocabularySelection) else None
        if self.provenance is not None and self.provenance.by_slots:
            check_has_document((choice or self.counts).has_document, self.records)
        self._released_at = self.records
        if choice is not None:
            self.begin(choice.choose(), choice.first_slot + choice.slots)
            return Released(None)
        try:
            if self._learner is None:
                if not self._waiting.texts:
                    return Released(None, "no document came")
                self._learn_words()
            assert self._learner is not None
            self.flush()
            model = self._learner.release(self.vocabulary, self.facts())
        except (InsufficientDataError, VocabularyError) as error:
            return Released(None, str(error))
        return self._released(self._illustrations.beside(model))

    def _released(self, model: TopicModel | None) -> Released:
        assert self._learner is not None
        if model is None:
            private = self._learner.private
            return (
                Released(None)
                if private is None
                else Released(None, private.missed, private.shows_nothing)
            )
        self.snapshots += 1
        if not self.counts_slots and (found := self.shown_account()):
            model = replace(model, diagnostics={**model.diagnostics, "account": found})
        bins, span, self._span = self._time_bins, self._span, TimeSpan()
        return Released(model if bins is None else self._dated(model, span, bins.unit))

    def _dated(self, model: TopicModel, span: TimeSpan, unit: str) -> TopicModel:
        """Return a model that says from when its documents are, in bins of this unit."""
        interval, timeline = model.interval, model.timeline
        if interval is not None:
            start, end = span.shown()
            interval = replace(interval, start=start, end=end)
        if timeline is not None:
            timeline = replace(timeline, unit=unit)
        return replace(model, interval=interval, timeline=timeline)

    def skip(self, records: int) -> None:
        """Count records that a release has used, and that are skipped unread."""
        self.counts.records += records
        self.counts.skipped += records
        self._released_at = self.records
        if self.provenance is not None:
            self.provenance.clear()

    def note(self, batch: RecordBatch, *, released: bool) -> None:
        """Note which records were read elsewhere, or are skipped because they were `released`."""
        self._move(batch)
        if self.provenance is not None:
            self.provenance.add_texts(batch.located(1), batch.texts, released=released)

    def caught_up(self, skipped: int, model: TopicModel | None) -> Released:
        """Go on after a release that no checkpoint knows of, whose records are skipped unread."""
        self.skip(skipped)
        return self._released(model)

    def facts(self, skipped: int = 0) -> dict[str, Any]:
        """Return what a model of now, or after records that are skipped, says of its stream."""
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
        if self._learner is not None and self._blocks.waiting is not None:
            self._learner.add(self._blocks.flush())

    def insufficient(self, reason: str = "") -> InsufficientDataError:
        """Return the error of a run that ends without topics: what came, privately slots alone."""
        counts = self.counts
        if self.counts_slots:
            of = f"documents_per_snapshot={self._schedule.every}"
            if self._learner is None and isinstance(self.words, PrivateVocabularySelection):
                of = f"vocabulary_documents={self.words.slots}"
            return InsufficientDataError(
                reason
                or "a private snapshot needs a whole window of record slots, got "
                f"slots={counts.records} {of}; take smaller windows, or read more"
            )
        rejects = "".join(f" {name}={n}" for name, n in sorted(counts.rejects.items()))
        return InsufficientDataError(
            f"{TOPICS_NEED}, got documents={counts.documents} short={counts.short} "
            f"rejects={counts.rejects.total()}{rejects}{fields_found(counts.fields)}; "
            f"{CHECK_TEXTS}" + (f" ({reason})" if reason else "")
        )

    # State.

    @property
    def waiting(self) -> DocumentBatch | None:
        """Documents that wait for a full block."""
        return self._blocks.waiting

    def beside(self) -> Arrays:
        """Return what is kept for models to show, and for words to grow, as named arrays."""
        growing = {} if self._growing is None else self._growing.state()
        return self._illustrations.state() | with_prefix(growing, GROWING)

    def values(self) -> dict[str, Any]:
        """Return plain JSON values to keep beside the state of the learner."""
        # `asdict` would make pairs of the entries of a Counter.
        counts = {each.name: copy(getattr(self.counts, each.name)) for each in fields(self.counts)}
        return {
            "reading": self.reading,
            "places": counts.pop("records"),
            "first_place": self.first_slot,
            "stages": self.rounds,
            "snapshots": self.snapshots,
            "released_at": self._released_at,
            "vocabulary_documents": self.vocabulary_documents,
            "span": self._span.to_json(),
            "counts": counts,
            "account": self.account.to_json(),
            "provenance": None if self.provenance is None else self.provenance.to_json(),
        }

    def adopt(
        self,
        vocabulary: Vocabulary,
        learner: LearnerT,
        counts: RecordCounts,
        vocabulary_documents: int,
    ) -> None:
        """Go on from a learner that was fed elsewhere, by the counts of its records."""
        self.vocabulary, self._learner, self.counts = vocabulary, learner, counts
        self.vocabulary_documents = vocabulary_documents
        self._illustrations.begin(vocabulary, learner, {})

    def restore(
        self,
        vocabulary: Vocabulary,
        learner: LearnerT,
        values: Mapping[str, Any],
        waiting: DocumentBatch | None = None,
        beside: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Go on from the state of a learner, `values`, documents that waited, and `beside`."""
        self.vocabulary, self._learner = vocabulary, learner
        self._illustrations.begin(vocabulary, learner, beside or {})
        # A run may let words grow from a restart on.
        if self._growing is not None and (grown := named(beside or {}, GROWING)):
            self._growing.restore(grown)
        self._blocks, self._waiting = Blocks(waiting), LocatedTexts()
        counts = dict(values["counts"])
        for name in ("rejects", "removed", "damaged"):
            counts[name] = Counter(counts[name])
        counts["fields"] = tuple(counts["fields"])
        self.counts = RecordCounts(records=int(values["places"]), **counts)
        self.account = Account(values["account"])
        self.first_slot, self.snapshots = int(values["first_place"]), int(values["snapshots"])
        self._span = TimeSpan(*values["span"])
        self._released_at = int(values["released_at"])
        self.vocabulary_documents = int(values["vocabulary_documents"])
        if self.provenance is not None and values["provenance"] is not None:
            self.provenance.restore(values["provenance"])
