"""The budget of a private run, fixed before it reads a document: words, delta, ledger, price."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from streamlda.errors import LedgerError
from streamlda.privacy.events import Composed, Event
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, LedgerTerms
from streamlda.privacy.selection import WordSelection, calibrate_selection
from streamlda.private.settings import PrivateSettings, check_sampler_loss, sampler_factor

#: Fraction of delta that a choice of words may use with its Gaussian noise. The rest is at least
#: what `PrivateSettings.delta_left` takes off, so that terms made for the topics cover the words.
WORDS_FRACTION = 0.9

#: How a privacy statement calls the kinds of `Vocabulary`.
STATEMENTS = {"given": "public", "hashed": "hashed", "selected": "private selection"}


class WordsAndDelta(NamedTuple):
    """A private choice of words, and what it leaves of delta."""

    selection: WordSelection
    delta: float


def words_and_delta(epsilon: float, delta: float, relation: str) -> WordsAndDelta:
    """Return a choice of words at the whole epsilon, since its documents are in nothing else."""
    selection = calibrate_selection(epsilon, WORDS_FRACTION * delta, neighboring_relation=relation)
    # The rest of delta covers what the exactness of the sampler leaves open for the words.
    loss = selection.tv_distance_bound * sampler_factor(epsilon)
    check_sampler_loss(delta, loss, (1 - WORDS_FRACTION) * delta)
    return WordsAndDelta(selection, delta - selection.delta)


def ledger_terms(settings: PrivateSettings, *, words: bool = False) -> LedgerTerms:
    """Return what all releases of a run, with one of words or without, may cost one unit."""
    horizon = None
    if settings.mode == "prefix":
        assert settings.snapshots is not None
        horizon = settings.n_stages + settings.snapshots - 1 + words
    return LedgerTerms(
        epsilon=settings.epsilon,
        delta=settings.delta_left,
        privacy_unit=settings.privacy_unit,
        neighboring_relation=settings.neighboring_relation,
        mode=settings.mode,
        horizon=horizon,
    )


def for_fewer_words(settings: PrivateSettings, n_features: int) -> PrivateSettings:
    """Return the settings for fewer words, with no less noise than the ledger's terms ask for.

    Fewer words leave more of delta to the noise: what they leave more is not used.
    """
    made = replace(settings, n_features=n_features)
    delta = made.delta - max(0.0, made.delta_left - settings.delta_left)
    made = replace(made, delta=delta)
    while (
        made.delta_left > settings.delta_left or made.noise_multiplier < settings.noise_multiplier
    ):
        delta = math.nextafter(delta * (1 - 2**-40), 0.0)
        made = replace(made, delta=delta)
    return made


def check_first_price(
    ledger: Ledger,
    settings: PrivateSettings,
    words_event: Event | None = None,
    word_slots: int = 0,
    stream: str | None = None,
) -> None:
    """Refuse what the ledger will not allow, before any document is read.

    Words are chosen from the first `word_slots` slots, for the price `words_event`. Slots are known
    by the name of their `stream`, or, without one, by what will be read.
    """
    event: Event = settings.event
    if settings.privacy_unit == "user":
        # Users pay for every stage of a window.
        event = Composed([settings.event] * settings.n_stages)
    ledger.check(event)
    # The first release, and the first window if that is another one.
    event = words_event or event
    if stream is None:
        ledger.check(event)
        return
    last = word_slots or settings.stage_slots()[0][2]
    slots = DocumentRange(stream, 0, last)
    cohort = Cohort(f"{stream}:0-{last}", (slots,), ledger.generation)
    try:
        ledger.check(event, cohort)
    except LedgerError as error:
        raise LedgerError(
            "documents must not be in two releases, got first slots that were in one before of "
            f"stream={stream!r} ledger={str(ledger.path)!r}; take documents that were in none, "
            "from files, which are known by what they hold"
        ) from error
