"""What a run has met of its records, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamlda.checks import require
from streamlda.documents import CHECK_TEXTS, MIN_TOKENS
from streamlda.errors import InsufficientDataError
from streamlda.stream.source import EMPTY, Damage
from streamlda.text.encoding import UNREADABLE, EncodedTexts

#: Most damaged or empty files that are named.
MOST_NAMED = 20


@dataclass(slots=True)
class RecordCounts:
    """What a run has met: records, documents among them, and what became of them.

    `short` documents have fewer than 3 tokens in the vocabulary; of the others, `undated` ones have
    no event time or one before the first bin, and `ahead` ones one that is later than the clock
    allows, if times are read. `tokens` are those of encoded
    documents, stop words excluded, and `unseen_tokens` those of them outside the vocabulary.
    `removed` are pieces that were no text (`TextAnalyzer.clean`).
    `skipped` records were taken by a release that a crash cut off from its checkpoint: what became
    of each is not known. `fields` are names of those of a record without that of the text.
    `damaged` are files that broke off or hold no record, by reason, of which the first are `named`
    with it; `lost_bytes` are what is after the breaks, as stored, at most.
    """

    records: int = 0
    documents: int = 0
    short: int = 0
    tokens: int = 0
    unseen_tokens: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    undated: int = 0
    ahead: int = 0
    skipped: int = 0
    removed: Counter[str] = field(default_factory=Counter)
    fields: tuple[str, ...] = field(default=(), compare=False)
    damaged: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)
    lost_bytes: int = 0

    def add_encoded(self, encoded: EncodedTexts, documents: int) -> None:
        """Count what became of this many documents among texts that may be blank."""
        unreadable = len(encoded.unreadable)
        self.tokens += encoded.tokens
        self.removed.update(encoded.removed)
        self.unseen_tokens += encoded.unseen_tokens
        self.short += documents - unreadable - int(np.count_nonzero(encoded.batch.usable))
        # What the analyzer failed on is a reject.
        self.documents -= unreadable
        self.rejects.update({UNREADABLE: unreadable} if unreadable else {})

    def add_damage(self, damage: Iterable[Damage]) -> None:
        """Count files that broke off, or hold no record."""
        for file in damage:
            self.damaged[file.reason] += 1
            self.lost_bytes += file.lost_bytes or 0
            self._name(file.name, file.reason)

    def _name(self, name: str, reason: str) -> None:
        # What broke off is named first.
        if len(self.named) >= MOST_NAMED and reason != EMPTY and EMPTY in self.named.values():
            self.named.pop(next(n for n, why in self.named.items() if why == EMPTY))
        if len(self.named) < MOST_NAMED:
            self.named[name] = reason

    @property
    def has_document(self) -> bool:
        """Whether a record was a document; yes if what became of some is not known."""
        return self.documents > self.short or self.skipped > 0

    @property
    def unseen_fraction(self) -> float:
        """Fraction of the tokens outside the vocabulary, 0 without tokens."""
        return self.unseen_tokens / max(1, self.tokens)

    def outcomes(self, waiting: int) -> dict[str, int]:
        """Return records by what became of them, without those of documents that wait."""
        rejected = self.rejects.total()
        return {
            "learned": self.documents - self.short - waiting,
            "short": self.short,
            "rejected": rejected,
            "blank": self.records - self.documents - rejected - self.skipped,
            "skipped": self.skipped,
        }

    def update(self, other: RecordCounts) -> None:
        """Add what another part of the stream has met."""
        names = ["records", "documents", "short", "undated", "ahead", "tokens"]
        names += ["unseen_tokens", "skipped", "lost_bytes"]
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rejects.update(other.rejects)
        self.removed.update(other.removed)
        self.damaged.update(other.damaged)
        self.fields = self.fields or other.fields
        for name, reason in other.named.items():
            self._name(name, reason)


def fields_found(fields: Sequence[str]) -> str:
    """Return what to say of the fields of a record without that of the text."""
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
