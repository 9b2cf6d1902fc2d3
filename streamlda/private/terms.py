"""What a private run agrees on before it reads a document: words, delta, ledger, first price."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from streamlda.errors import InvalidSettingError, LedgerError
from streamlda.privacy.events import Composed
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger, LedgerTerms
from streamlda.privacy.selection import WordSelection, calibrate_selection
from streamlda.private.releaser import ledger_terms
from streamlda.private.settings import PrivateSettings

#: Part of delta that a choice of words may use with its Gaussian noise. The rest is at least what
#: `PrivateSettings.delta_left` takes off, so that terms made for the topics cover the words too.
SHARE_OF_WORDS = 0.9

#: How a privacy statement calls the kinds of `Vocabulary`.
STATEMENTS = {"given": "public", "hashed": "hashed", "selected": "private selection"}


class WordsAndDelta(NamedTuple):
    """A private choice of words, and what it leaves of delta."""

    selection: WordSelection
    delta: float


def words_and_delta(epsilon: float, delta: float, relation: str) -> WordsAndDelta:
    """Return a choice of words at the whole epsilon, since its documents are in nothing else.

    Raises
    ------
    InvalidSettingError
        If delta is too small beside what the exactness of the noise leaves open.
    """
    selection = calibrate_selection(epsilon, SHARE_OF_WORDS * delta, neighboring_relation=relation)
    # The rest of delta covers what the exactness of the sampler leaves open for the words.
    left_open = selection.tv_distance_bound * (1 + math.exp(min(epsilon, 700.0)))
    if left_open > (1 - SHARE_OF_WORDS) * delta:
        raise InvalidSettingError(
            "delta must be at least ten times what the exactness of the noise leaves open, "
            f"got delta={delta} open={left_open:.2g}; take a larger delta or a smaller epsilon"
        )
    return WordsAndDelta(selection, delta - selection.delta)


def run_terms(settings: PrivateSettings, *, words: bool) -> LedgerTerms:
    """Return the terms of the ledger of a run, with a release of words or without."""
    terms = ledger_terms(settings)
    if words and terms.horizon is not None:
        terms = replace(terms, horizon=terms.horizon + 1)
    return terms


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
    ledger: Ledger, stream: str, settings: PrivateSettings, n_words: int, words_event: Any
) -> None:
    """Refuse what the ledger will not allow, before any document is read.

    Parameters
    ----------
    ledger : Ledger
    stream : str
    settings : PrivateSettings
    n_words : int
        Places that the words are chosen from; 0 if they are not.
    words_event : event or None
        The price of that.

    Raises
    ------
    BudgetExceededError, LedgerError
    """
    event: Any = settings.event
    if settings.privacy_unit == "user":
        # Users pay for every stage of a window.
        event = Composed([settings.event] * settings.n_stages)
    ledger.check(event)
    # The first release, and the first window if that is another one.
    last = n_words or settings.stage_places()[0][2]
    place = DocumentRange(stream, 0, last)
    cohort = Cohort(f"{stream}:0-{last}", (place,), ledger.generation)
    try:
        ledger.check(words_event or event, cohort)
    except LedgerError as error:
        raise LedgerError(
            "documents must not be in two releases, got first places that were in one before of "
            f"stream={stream!r} ledger={str(ledger.path)!r}; take documents that were in none, and "
            "if these are others than before, name their stream (--stream NAME, source.stream)"
        ) from error
