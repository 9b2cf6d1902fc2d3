"""Counts of the records of a run, by outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from streamlda.checks import require
from streamlda.documents import CHECK_TEXTS, MIN_TOKENS
from streamlda.errors import InsufficientDataError
from streamlda.stream.source import EMPTY, RecordBatch
from streamlda.text.encoding import UNREADABLE, EncodedTexts

#: Most damaged or empty files that are named.
MOST_NAMED = 20


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
    #: Files that broke off or hold no record, by reason; the first by name; bytes after the breaks.
    damaged: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)
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
        for file in batch.damage:
            self.damaged[file.reason] += 1
            self.lost_bytes += file.lost_bytes or 0
            self._name(file.name, file.reason)

    def add_encoded(
        self, encoded: EncodedTexts, documents: int, *, learns_short: bool = False
    ) -> None:
        """Count the outcomes of this many documents among texts that may be blank."""
        if learns_short:
            self.few_words += int(np.count_nonzero(encoded.batch.known & ~encoded.batch.usable))
        unreadable = len(encoded.unreadable)
        self.tokens += encoded.tokens
        self.removed.update(encoded.removed)
        self.unseen_tokens += encoded.unseen_tokens
        self.short += documents - unreadable - int(np.count_nonzero(encoded.batch.usable))
        # A text on which the analyzer failed is a reject.
        self.documents -= unreadable
        self.rejects.update({UNREADABLE: unreadable} if unreadable else {})

    def _add_notes(self, notes: Iterable[str]) -> None:
        self.notes = tuple(dict.fromkeys((*self.notes, *notes)))[:MOST_NAMED]

    def _name(self, name: str, reason: str) -> None:
        # Files that broke off are named before empty ones.
        if len(self.named) >= MOST_NAMED and reason != EMPTY and EMPTY in self.named.values():
            self.named.pop(next(n for n, why in self.named.items() if why == EMPTY))
        if len(self.named) < MOST_NAMED:
            self.named[name] = reason

    @property
    def has_document(self) -> bool:
        """True if a record was a document, or the outcome of some is unknown."""
        return self.documents > self.short or self.skipped > 0

    @property
    def unseen_fraction(self) -> float:
        """Fraction of the tokens outside the vocabulary, 0 without tokens."""
        return self.unseen_tokens / max(1, self.tokens)

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

    def update(self, other: RecordCounts) -> None:
        """Add the counts of another part of the stream."""
        for each in fields(self):
            mine, more = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, Counter):
                mine.update(more)
            elif isinstance(mine, int):
                setattr(self, each.name, mine + more)
        self.fields = self.fields or other.fields
        self._add_notes(other.notes)
        for name, reason in other.named.items():
            self._name(name, reason)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without `records`."""
        # `asdict` would make pairs of the entries of a Counter.
        found = {each.name: copy(getattr(self, each.name)) for each in fields(self)}
        del found["records"]
        return found

    @classmethod
    def from_json(cls, values: Mapping[str, Any], records: int) -> Self:
        """Return the counts of `to_json`."""
        counters = {name: Counter(values[name]) for name in ("rejects", "removed", "damaged")}
        lists = {name: tuple(values.get(name, ())) for name in ("fields", "notes")}
        return cls(records, **{**values, **counters, **lists})


def fields_found(fields: Sequence[str]) -> str:
    """Return the part of a message about the fields of a record without that of the text."""
    return f"; there the fields are {', '.join(fields)}" if fields else ""


def check_has_document(has_one: bool, slots: int) -> None:
    """Refuse to pay for records of which none is a document (`InsufficientDataError`)."""
    require(
        has_one,
        f"a private run needs documents of {MIN_TOKENS} known words or more, and no record is one",
        slots=slots,
        remedy=f"{CHECK_TEXTS} (in UTF-8, words in lower case, no stop words); nothing was spent",
        error=InsufficientDataError,
    )
