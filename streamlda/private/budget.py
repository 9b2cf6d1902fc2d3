"""The budget of a private run, fixed before it reads a document: words, delta, ledger, price."""

from typing import NamedTuple

from streamlda.errors import LedgerError, between, require
from streamlda.guarantee import accounting
from streamlda.guarantee.accounting import sampler_factor
from streamlda.guarantee.selection import MAX_DELTA, MAX_WORDS_PER_DOCUMENT, WordSelection
from streamlda.privacy.events import Composed, Event
from streamlda.privacy.ledger import Ledger, LedgerTerms
from streamlda.private.settings import MOST_SET_ASIDE, PrivateSettings, check_sampler_loss

#: How a privacy statement calls the kinds of `Vocabulary`.
STATEMENTS = {"given": "public", "hashed": "hashed", "selected": "private selection"}


class WordsAndDelta(NamedTuple):
    """A private choice of words, and the delta that it leaves."""

    selection: WordSelection
    delta: float


def words_and_delta(epsilon: float, delta: float, relation: str) -> WordsAndDelta:
    """Return a choice of words at the whole epsilon, since its documents are in nothing else."""
    aside = MOST_SET_ASIDE * delta
    selection = calibrate_selection(epsilon, delta - aside, neighboring_relation=relation)
    # It covers what the exactness of the sampler leaves open for the words.
    check_sampler_loss(delta, selection.tv_distance_bound * sampler_factor(epsilon), aside)
    return WordsAndDelta(selection, delta - selection.delta)


def calibrate_selection(
    epsilon: float,
    delta: float,
    *,
    max_words_per_document: int = MAX_WORDS_PER_DOCUMENT,
    neighboring_relation: str = "zero-out",
) -> WordSelection:
    """Return the selection with the lowest threshold that costs a document (epsilon, delta).

    Delta is split: some sixteenths go to the threshold, the rest to the Gaussian part, whose noise
    multiplier is exact for (epsilon, rest). By the composition of `streamlda.guarantee.selection`
    the two add up to delta, and in floating point they do so without rounding: a ledger of a delta
    that is larger by what the sampler takes covers ``selection.event``. Time about 0.1 s.
    """
    between(100 * accounting.MIN_DELTA, MAX_DELTA, delta=delta)
    delta = float(delta)

    def selection(sixteenths: int) -> WordSelection:
        gaussian = delta - delta * (sixteenths / 16)
        # Taken twice, by Sterbenz' lemma, the difference is exact: no rounding is spent unseen.
        threshold = delta - gaussian
        return WordSelection(
            accounting.noise_multiplier(epsilon, delta - threshold),
            threshold,
            max_words_per_document=max_words_per_document,
            neighboring_relation=neighboring_relation,
        )

    return min(map(selection, range(1, 16)), key=lambda made: made.threshold)


def ledger_terms(settings: PrivateSettings, words: WordsAndDelta | None = None) -> LedgerTerms:
    """Return the most that all releases of a run may cost one unit, with the release of words."""
    return LedgerTerms(
        epsilon=settings.epsilon,
        # With the words' part the sum is exact (`calibrate_selection`).
        delta=settings.delta + (words.selection.delta if words else 0.0),
        privacy_unit=settings.privacy_unit,
        neighboring_relation=settings.neighboring_relation,
        mode=settings.mode,
    )


def check_first_price(
    ledger: Ledger,
    settings: PrivateSettings,
    words_event: Event | None = None,
    stream: str | None = None,
) -> None:
    """Refuse a run that the ledger does not allow, before any document is read.

    Slots are known by the name of their `stream` or, without one, by what will be read.
    """
    event: Event = settings.event
    if settings.privacy_unit == "user":
        # Users pay for every stage of a window.
        event = Composed([settings.event] * settings.n_stages)
    ledger.check(event)
    if words_event is not None:
        ledger.check(words_event)
    require(
        stream is None or not ledger.records.reach(stream),
        "documents would be in two releases: the first slots of this stream were in one",
        stream=stream,
        ledger=str(ledger.path),
        remedy="take documents that were in none, from files, which are known by what they hold",
        error=LedgerError,
    )
