"""Words chosen privately: those that enough documents of one stage use.

A list of words is data: a word that a single document has tells that the document is there. Here
each document votes for its words, noise is added to the votes of each word seen, and words above
a threshold are kept, which a word of one document passes with probability at most delta (the
Gaussian mechanism of Gopi et al. [1]_, here on an exact grid).

Contributions
-------------
The unit is one document of a stage: a range of record slots, disjoint from those of every other
release. A document keeps t = min(distinct words, D0) of its words and adds to each the weight w_t,
``1 / sqrt(t)`` rounded down to a grid whose step is a power of two, so its contribution has norm
``sqrt(t) w_t <= 1``, counted in whole steps: sums are exact, in whatever order they are taken.

Which words of a longer document are kept is a function of its set of distinct words alone: those
with the smallest BLAKE2b hash under a key that is itself the hash of the whole set. Neither order,
frequency nor spelling of a word matters, and as every document has a key of its own, no word is
ahead in all of them. It is public how the choice is made; no other document has a part in it.

Privacy
-------
*Sensitivity.* Let D and D' be neighbours and V the words that both have. On V the sums differ by
y - y', the contributions of the one document in which D and D' differ. ``add-remove``: one of them
is zero, so the norm is at most 1. ``replace-one``: no entry is negative, so
``||y - y'||^2 <= ||y||^2 + ||y'||^2 <= 2`` and the norm is at most sqrt(2). Both are attained, by
documents of one word that other documents use too.

*Words that both have.* Let A(D) be the mechanism on the words of V only: noise N_Z(0, sigma^2) on
each, sigma = noise_multiplier * l2_sensitivity, at least 2^32 steps, and what follows reads
nothing else. So A is 1 / noise_multiplier-GDP, by the argument of `streamlda.privacy.mechanism`
and up to the distance given under *Sampler*.

*Words that only one has.* A word of D outside V is used by the differing document alone: its sum
is exactly w_t, and there are at most t such words. With integers ``Z ~ N_Z(0, s^2)``, s in steps,

    P(Z > m) <= integral from m to infinity of e^(-x^2 / (2 s^2)) dx / (s sqrt(2 pi)) = Phi(-m/s)

for m >= 0, since the integrand falls from m on, and the sum of ``e^(-x^2 / (2 s^2))`` over all
integers is ``s sqrt(2 pi) sum_k e^(-2 (pi s k)^2) >= s sqrt(2 pi)`` (Poisson). A word is kept if
its noisy sum is *greater* than rho. The noise of words is independent, so none of them is kept with
probability at least ``(1 - Phi(-(rho - w_t) / sigma))^t``, which is at least 1 - delta if

    rho >= max over t = 1..D0 of  1 / sqrt(t) + sigma Phi^-1((1 - delta)^(1/t)).

The maximum is needed: one word of weight 1 decides when sigma is small, D0 words when it is large.

*Together.* Let p <= delta be the probability that some word outside V is kept. Independent of
A(D), it makes the release of D a mixture ``(1 - p) A(D) + p Q``, hence also
``(1 - delta) A(D) + delta R``, with ``R = ((delta - p) A(D) + p Q) / delta``; and likewise for D'.
If A is (epsilon, delta_G)-private then for each set S

    P(D) <= (1 - delta) (e^epsilon P_A(D') + delta_G) + delta <= e^epsilon P(D') + delta_G + delta.

So all of delta goes into the threshold, once under either relation and in both directions: it is
not halved, nor multiplied by e^epsilon. (The paper's delta/2 is the half of a total delta that it
leaves to the threshold.) The same holds with A followed by any later releases of the documents,
with all of their Gaussian costs in delta_G. `WordSelection.event` says both; a ledger sets the
additive delta aside (`streamlda.privacy.ledger.terms`).

*Sampler.* Noise on a word whose sum is the same in D and D' has the same law in both, whatever the
sampler. Only the words of the differing document count, at most D0 (add-remove) or 2 D0
(replace-one): `WordSelection.tv_distance_bound` bounds the distance of a release from one with
exact noise, without knowing how many words there are; it costs (1 + e^epsilon) times that in delta.

Public, and not protected by the noise: all settings, hence grid, noise and threshold. Cutting the
list, sorting it and whatever else is done to the words released costs nothing.

References
----------
.. [1] Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin, *Differentially private set union*,
   ICML 2020, arXiv 2002.09745, section 5.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy

from streamlda.checks import at_least, between, failure, require
from streamlda.errors import InvalidDocumentsError
from streamlda.privacy import accounting
from streamlda.privacy.events import Approximate, GaussianRelease, check_relation
from streamlda.privacy.noise import Noise

#: Most distinct words of a document that vote, by default.
MAX_WORDS_PER_DOCUMENT = 100

#: Range of the noise multiplier and of D0: every weight is then at least 2^11 steps of the grid.
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER, LARGEST_D0 = 1e-3, 1e3, 2**20

#: Above it a lone word would be kept more often than not.
MAX_DELTA = 0.5

#: Fewest steps in a standard deviation: discrete and rounded Gaussian are then within 2^-67.
_MIN_SIGMA = 2.0**32

#: Fractions of delta that calibration tries to give to the threshold, in sixteenths.
_SIXTEENTHS = range(1, 16)


class WordSelection:
    """Votes of the documents of one stage for their words, to be released once with noise.

    One document changes what is released by 1 / noise_multiplier-GDP (`event`) and an additive
    `delta`; see the module's documentation for the derivation. Memory: about 150 bytes for each
    word seen, of which one document adds at most `max_words_per_document`. Not for use by several
    threads at once. What it holds before the release is not private.

    `delta` bounds the probability that any word that only one document has is kept. D0,
    `max_words_per_document`, is the most distinct words of a document that get a vote. Fewer make
    each vote weigh more, and lose those of longer documents: about their typical number is best.
    """

    def __init__(
        self,
        noise_multiplier: float,
        delta: float,
        *,
        max_words_per_document: int = MAX_WORDS_PER_DOCUMENT,
        neighboring_relation: str = "add-remove",
    ) -> None:
        between(MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER, noise_multiplier=noise_multiplier)
        between(accounting.MIN_DELTA, MAX_DELTA, delta=delta)
        at_least(1, max_words_per_document=max_words_per_document)
        between(1, LARGEST_D0, max_words_per_document=max_words_per_document)
        check_relation(neighboring_relation)
        self.noise_multiplier, self.delta = float(noise_multiplier), float(delta)
        self.max_words_per_document = int(max_words_per_document)
        self.neighboring_relation = neighboring_relation
        replaced = neighboring_relation == "replace-one"
        #: In units of weight, as is all that follows.
        self.l2_sensitivity = math.nextafter(math.sqrt(2), 2) if replaced else 1.0
        self.stddev = self.noise_multiplier * self.l2_sensitivity * (1 + 2.0**-50)
        # frexp: the largest power of two that is not above.
        self.step = math.ldexp(0.5, math.frexp(self.stddev / _MIN_SIGMA)[1])
        self._threshold_steps = self._smallest_threshold()
        #: rho: a word is kept if its noisy weight is greater. A word needs about
        #: ``threshold * sqrt(D0)`` documents that keep D0 words each.
        self.threshold = self._threshold_steps * self.step
        differing = self.max_words_per_document * (2 if replaced else 1)
        #: Between a release and one with exact noise, as far as neighbours can tell: see *Sampler*.
        self.tv_distance_bound = 2 * Noise.tv_distance_bound * differing
        self._steps_of_1_squared = round(1 / self.step) ** 2
        self._votes: dict[str, int] = {}
        self._released = False

    @property
    def event(self) -> Approximate:
        """What the release costs a document."""
        gaussian = GaussianRelease(self.noise_multiplier)
        return Approximate(gaussian, self.tv_distance_bound, self.delta)

    def add(self, tokens: Iterable[str]) -> None:
        """Let one document vote for its words: its tokens, in any order; "" is no word.

        Time O(tokens), and about 1 us a distinct word more if there are more than D0.
        """
        self._check_open()
        words = _distinct(tokens)
        if len(words) > self.max_words_per_document:
            words = _choose(words, self.max_words_per_document)
        if not words:
            return
        weight = self._weight(len(words))
        votes = self._votes
        for word in words:
            votes[word] = votes.get(word, 0) + weight

    def release(self, noise: Noise) -> list[tuple[str, float]]:
        """Return the words above the threshold and forget all others; to be called once.

        Words with their noisy weight, largest weight first, equal ones by word: the same noise
        gives the same list in whatever order the documents came. Private if `noise` is (see
        `Noise.secure`); the list may be cut freely. Time about 1 us a word seen, and for sorting.
        """
        self._check_open()
        self._released = True
        # Sorted: which word gets which noise must not depend on the order of documents.
        seen, self._votes = sorted(self._votes.items()), {}
        drawn = noise.discrete_gaussian(self.stddev / self.step, len(seen)).tolist()
        kept = []
        for (word, votes), error in zip(seen, drawn, strict=True):
            if votes + error > self._threshold_steps:
                kept.append((word, (votes + error) * self.step))
        return sorted(kept, key=lambda item: (-item[1], item[0]))

    def metadata(self) -> dict[str, Any]:
        """Return how the words are chosen as plain JSON values: public facts, no words."""
        return {
            "mechanism": "gaussian-threshold",
            "noise_multiplier": self.noise_multiplier,
            "delta": self.delta,
            "max_words_per_document": self.max_words_per_document,
            "neighboring_relation": self.neighboring_relation,
            "l2_sensitivity": self.l2_sensitivity,
            "stddev": self.stddev,
            "threshold": self.threshold,
        }

    def __repr__(self) -> str:
        return (
            f"WordSelection(noise_multiplier={self.noise_multiplier!r}, delta={self.delta!r}, "
            f"max_words_per_document={self.max_words_per_document}, "
            f"neighboring_relation={self.neighboring_relation!r})"
        )

    def _weight(self, kept: int) -> int:
        """Return 1 / sqrt(kept) in steps of the grid, rounded down, exactly."""
        return math.isqrt(self._steps_of_1_squared // kept)

    def _smallest_threshold(self) -> int:
        """Return rho in steps, rounded up."""
        kept = np.arange(1, self.max_words_per_document + 1)
        # Phi^-1((1 - delta)^(1/t)) = -Phi^-1(1 - (1 - delta)^(1/t)), without cancellation.
        quantiles = -scipy.special.ndtri(-np.expm1(math.log1p(-self.delta) / kept))
        exact = float(np.max(1 / np.sqrt(kept) + self.stddev * quantiles)) / self.step
        # Less than 2^40 steps, known to some 1e-14 of it: a step more covers what rounding did.
        return math.ceil(exact) + 1

    def _check_open(self) -> None:
        require(
            not self._released,
            "a selection must be released once",
            released=True,
            remedy="choose again from documents of a new stage, with a new WordSelection and a "
            "spend of its own",
        )


def calibrate_selection(
    epsilon: float,
    delta: float,
    *,
    max_words_per_document: int = MAX_WORDS_PER_DOCUMENT,
    neighboring_relation: str = "add-remove",
) -> WordSelection:
    """Return the selection with the lowest threshold that costs a document (epsilon, delta).

    Delta is split: some sixteenths go to the threshold, the rest to the Gaussian part, whose noise
    multiplier is exact for (epsilon, rest). By the composition in the module's documentation the
    two add up to delta, and in floating point they do so without rounding: a ledger of a delta that
    is larger by what the sampler takes covers ``selection.event``. Time about 0.1 s.
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

    return min(map(selection, _SIXTEENTHS), key=lambda made: made.threshold)


def _distinct(tokens: Iterable[str]) -> set[str]:
    require(
        not isinstance(tokens, str | bytes),
        "a document must be its tokens",
        type=type(tokens).__name__,
        remedy="split it first",
        error=InvalidDocumentsError,
    )
    words = set()
    for position, token in enumerate(tokens):
        if not isinstance(token, str):
            raise failure(
                "each token must be a str",
                type=type(token).__name__,
                position=position,
                remedy="decode the document first",
                error=InvalidDocumentsError,
            )
        words.add(token)
    words.discard("")
    return words


def _choose(words: set[str], most: int) -> set[str]:
    """Return `most` of the words, by hashes under a key made of all of them."""
    encoded = {word: word.encode("utf-8", "surrogatepass") for word in words}
    ordered = sorted(words)
    key = blake2b(b"\0".join(encoded[word] for word in ordered), digest_size=32).digest()

    def rank(word: str) -> bytes:
        return blake2b(encoded[word], digest_size=16, key=key).digest()

    return set(heapq.nsmallest(most, ordered, key=rank))
