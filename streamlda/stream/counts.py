"""Counts of the records of a run: by outcome, and against those that its source has passed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from streamlda.documents import CHECK_TEXTS, MIN_TOKENS
from streamlda.errors import AccountError, InsufficientDataError, failure, require
from streamlda.stream.source import WHOLE, RecordBatch
from streamlda.text.encoding import UNREADABLE, EncodedTexts

#: Most sentences about a source, and parts of a wrong account, that are kept.
MOST_NOTES, MOST_PARTS = 20, 3


@dataclass(slots=True)
class RecordCounts:
    """Counts of records and documents, by outcome."""

    records: int = 0
    documents: int = 0
    #: Documents of fewer than 3 tokens in the vocabulary.
    short: int = 0
    #: Tokens of encoded documents, stop words excluded, and those outside the vocabulary.
    tokens: int = 0
    unseen_tokens: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    #: Documents without a time, and with one later than the clock allows, if times are read.
    undated: int = 0
    ahead: int = 0
    #: Records of a release that a crash cut off from its checkpoint, of unknown outcome.
    skipped: int = 0
    #: Pieces that were no text (`TextAnalyzer.clean`).
    removed: Counter[str] = field(default_factory=Counter)
    #: Fields of a record that lacks that of the text.
    fields: tuple[str, ...] = field(default=(), compare=False)
    #: Stored bytes behind the places where files broke off.
    lost_bytes: int = 0
    #: Short documents that have tokens, and are refined with.
    few_words: int = 0
    #: Sentences about how the source was read.
    notes: tuple[str, ...] = field(default=(), compare=False)

    def add_batch(self, batch: RecordBatch) -> None:
        """Count the records of a batch, before they are encoded."""
        self.records += batch.n_records
        self.documents += batch.n_documents
        self.rejects.update(reject.reason for reject in batch.rejects)
        self.fields = self.fields or batch.fields
        self._add_notes(batch.notes)
        self.lost_bytes += batch.lost_bytes

    def add_encoded(
        self, texts: EncodedTexts, documents: int, *, learns_short: bool = False
    ) -> None:
        """Count the outcomes of this many documents among texts that may be blank."""
        if learns_short:
            self.few_words += int(np.count_nonzero(texts.batch.nonempty & ~texts.batch.usable))
        unreadable = len(texts.unreadable)
        self.tokens += texts.tokens
        self.removed.update(texts.removed)
        self.unseen_tokens += texts.unseen_tokens
        self.short += documents - unreadable - int(np.count_nonzero(texts.batch.usable))
        # A text on which the analyzer failed is a reject.
        self.documents -= unreadable
        self.rejects.update({UNREADABLE: unreadable} if unreadable else {})

    def _add_notes(self, notes: Iterable[str]) -> None:
        self.notes = tuple(dict.fromkeys((*self.notes, *notes)))[:MOST_NOTES]

    @property
    def has_document(self) -> bool:
        """True if a record was a document, or the outcome of some is unknown."""
        return self.documents > self.short or self.skipped > 0

    def outcomes(self, waiting: int) -> dict[str, int]:
        """Return records by outcome, without documents that wait."""
        rejected = self.rejects.total()
        return {
            "learned": self.documents - self.short + self.few_words - waiting,
            "short": self.short - self.few_words,
            "rejected": rejected,
            "blank": self.records - self.documents - rejected - self.skipped,
            "skipped": self.skipped,
        }

    def update(self, other: Self) -> None:
        """Add the counts of another part of the stream."""
        for each in fields(self):
            mine, more = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, int | Counter):
                setattr(self, each.name, mine + more)
        self.fields = self.fields or other.fields
        self._add_notes(other.notes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without `records`."""
        # `asdict` would make pairs of the entries of a Counter.
        return {each.name: copy(getattr(self, each.name)) for each in fields(self)[1:]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], records: int) -> Self:
        """Return the counts of `to_json`."""
        counters = {name: Counter(values[name]) for name in ("rejects", "removed")}
        lists = {name: tuple(values[name]) for name in ("fields", "notes")}
        return cls(records, **{**values, **counters, **lists})


class Account:
    """Records taken of each part of a stream, against the records passed (`Behind.passed`)."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        state = state or {"begins": {}, "taken": {}, "known": True}
        self._begins: dict[str, int] = {**state["begins"]}
        self._taken = Counter[str](state["taken"])
        # False after records of a source that counts none: no account is held of them.
        self._known = bool(state["known"])

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain JSON values."""
        return {"begins": self._begins, "taken": dict(self._taken), "known": self._known}

    def begin(self, counts: Mapping[str, int]) -> None:
        """Begin parts that are new, at the position of the source."""
        self._begins = {**counts, **self._begins}

    def add(self, batch: RecordBatch) -> None:
        """Take the records of a batch."""
        passed = None if batch.behind is None else batch.behind.passed
        if not passed:
            self._known = self._known and not batch.n_records
            return
        if WHOLE in passed:
            # The records of one part have many locations, such as files.
            counts = {WHOLE: batch.n_records}
        else:
            counts = Counter(at.location for at in batch.locations)
        for part in passed.keys() - self._begins.keys():
            self._begins[part] = passed[part] - counts.get(part, 0)
        self._taken.update(counts)

    def count_records(self, counts: Mapping[str, int]) -> dict[str, int] | None:
        """Return records in the state, and records passed; None where the source counts none."""
        if not (self._known and self._begins and counts):
            return None
        # A part that the source has no more is where it was left.
        behind = sum(counts.get(part, n + self._taken[part]) for part, n in self._begins.items())
        return {"records": self._taken.total(), "passed": behind - sum(self._begins.values())}

    def check(self, counts: Mapping[str, int], records: int) -> None:
        """Raise `AccountError` unless a state of these `records` has each passed record once."""
        if (shown := self.count_records(counts)) is None:
            return
        differing = {
            part: found
            for part, begin in self._begins.items()
            if part in counts and (found := begin + self._taken[part] - counts[part])
        }
        if not differing and shown["records"] == records:
            return
        raise failure(
            "the state lacks records that the source passed, or has some twice",
            **shown,
            in_state=records,
            too_many=dict([*differing.items()][:MOST_PARTS]),
            remedy="this is a fault of the program: report it with the lines of the log before it; "
            "a daemon resumes from its last checkpoint by itself",
            error=AccountError,
        )


def fields_found(fields: Sequence[str]) -> str:
    """Return the part of a message about the fields of a record without that of the text."""
    return f"; there the fields are {', '.join(fields)}" if fields else ""


def check_has_document(has_one: bool, slots: int) -> None:
    """Refuse to pay for records of which none is a document (`InsufficientDataError`)."""
    rule = f"no record is a document of {MIN_TOKENS} known words or more"
    remedy = f"{CHECK_TEXTS} (in UTF-8, words in lower case, no stop words); nothing was spent"
    require(has_one, rule, slots=slots, remedy=remedy, error=InsufficientDataError)
