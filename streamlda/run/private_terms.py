"""Terms of a private run, and checks of them before anything is paid for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import NamedTuple

from streamlda.checks import require
from streamlda.errors import InsufficientDataError, LedgerError
from streamlda.privacy.ledger import Ledger
from streamlda.private.budget import WordsAndDelta, check_first_price, words_and_delta
from streamlda.private.public_start import PublicTopics
from streamlda.private.settings import PrivateSettings
from streamlda.run.census import UNSPENT, Census
from streamlda.run.parts import name_published_stream, name_stream
from streamlda.settings.build import (
    make_analyzer,
    private_settings,
    public_topics,
    public_words,
    text_settings,
    word_documents,
    words_besides,
)
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.seeds import SeedWords, read_seeds, seed_by_words
from streamlda.text.vocabulary import Vocabulary


class PrivateTerms(NamedTuple):
    """Settings of a private run for the most words there can be, and the choice of words, if any.

    Further, the public topics and seeds that the run begins with, and public words that are added
    to the choice.
    """

    settings: PrivateSettings
    words: Vocabulary | None
    choice: WordsAndDelta | None
    public: PublicTopics | None = None
    seeds: Sequence[SeedWords] = ()
    besides: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: RunSettings) -> PrivateTerms:
        """Return the terms of the settings."""
        words, privacy = public_words(settings), settings.privacy
        seeds = read_seeds(settings.topics.seeds, settings.topics.count)
        if words is not None:
            public = public_topics(settings, words.n_features, words.words)
            asked = private_settings(settings, words.n_features, public=public)
            seed_by_words(asked, seeds, words)  # Raises before anything is paid for.
            return cls(asked, words, None, public, seeds)
        assert privacy.epsilon is not None
        assert privacy.delta is not None
        choice = words_and_delta(privacy.epsilon, privacy.delta, privacy.relation)
        asked = private_settings(settings, settings.vocabulary.size, choice.delta)
        return cls(asked, None, choice, seeds=seeds, besides=words_besides(settings, seeds))

    def is_document(self, settings: RunSettings) -> Callable[[str], bool]:
        """Return a test that tells documents from other texts, before a choice of words too."""
        return make_document_test(
            self.words or Vocabulary.hashed(1, make_analyzer(settings.vocabulary))
        )

    def digest(self, settings: RunSettings) -> str:
        """Return a digest of all settings but the place of documents; it is public."""
        values = {
            "settings": asdict(self.settings),
            "text": text_settings(settings),
            "analyzer": make_analyzer(settings.vocabulary).metadata(),
            "words": None if self.words is None else self.words.fingerprint,
            "words_besides": self.besides,
            "seeds": self.seeds,
            "stream": name_published_stream(settings),
        }
        return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def make_document_test(words: Vocabulary) -> Callable[[str], bool]:
    """Return a test that tells documents over some words from other texts."""
    return lambda text: bool(words.encode([text]).batch.usable[0])


def check_price(settings: RunSettings, ledger: Ledger, terms: PrivateTerms) -> None:
    """Refuse to begin a run that its ledger does not allow, before any document is read.

    Raises `LedgerError` or `BudgetExceededError`.
    """
    stream, words_event, words = name_stream(settings), None, 0
    require(
        stream not in ledger.known.unmarked,
        "documents must not be in two releases, and a release from this source kept nothing that "
        "its documents are known by",
        stream=stream,
        ledger=str(ledger.path),
        remedy=UNSPENT,
        error=LedgerError,
    )
    if terms.choice is not None:
        words_event, words = terms.choice.selection.event, word_documents(settings)
    # Of other sources, names are all that is known before they are read.
    named = get_source_kind(settings) in ("stdin", "follow")
    check_first_price(ledger, terms.settings, words_event, words, stream if named else None)


def check_slots(
    settings: RunSettings, terms: PrivateTerms, census: Census, warn: Callable[[str], None]
) -> None:
    """Refuse to begin a run whose files cannot end in a model; nothing is spent.

    Warns where the noise is for more snapshots than the files give. Raises `InsufficientDataError`,
    or `LedgerError` if that is since documents were released.
    """
    if settings.snapshots.seconds is not None:
        # Where a clock ends windows, the records that they have are known when they have passed.
        words = window = least = 0
    else:
        words = 0 if terms.choice is None else word_documents(settings)
        window, least = terms.settings.documents_per_snapshot, terms.settings.least_slots
        # How many words there will be decides how a window is cut: a whole one always suffices.
        least = window if words else least
    values = {"vocabulary_documents": words} if words else {}
    enough = census.slots >= max(1, words + least)
    require(
        enough or not census.spent,
        "documents must not be in two releases, and too few of these were in none",
        released=census.spent,
        slots=census.slots,
        documents_per_snapshot=window or None,
        **values,
        remedy=f"{UNSPENT}; a run that was cut short has what it released: streamlda budget "
        f"{settings.privacy.ledger}",
        error=LedgerError,
    )
    require(
        enough,
        "a private snapshot needs a whole window of record slots, after those of the vocabulary",
        slots=census.slots,
        documents_per_snapshot=window,
        **values,
        remedy=f"set snapshots.every (--snapshot-every) to at most {max(0, census.slots - words)}, "
        "take fewer records for the vocabulary, or read more; nothing was spent",
        error=InsufficientDataError,
    )
    census.check_has_document()
    most, here = settings.snapshots.most, (census.slots - words) // max(1, window)
    shared = settings.privacy.unit == "user" or settings.privacy.mode == "prefix"
    if window and shared and most is not None and here < most:
        warn(
            f"the noise of each snapshot is for snapshots={most}, and the files have record slots "
            f"for {max(1, here)}; with fewer (snapshots.most) there is less noise"
        )
