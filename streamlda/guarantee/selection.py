"""Words chosen privately: those that enough documents of one stage use.

A list of words is data: a word that a single document has tells that the document is there. Here
each document votes for its words in two rounds, noise is added to the votes of each word seen, and
words above a threshold are kept, which a word of one document passes with probability at most delta
(Gopi et al., *Differentially private set union*, ICML 2020, section 5, here on an exact grid). The
first round is never shown: it tells the second where votes are needed (Chen et al., *Scalable
private partition selection via adaptive weighting*, ICML 2025).

Contributions
-------------
The unit is one document of a stage: a range of record slots, disjoint from those of every other
release. A document keeps t = min(distinct words, D0) of its words. Sums are counted in whole steps
of a grid, a power of two, so they are exact, in whatever order they are taken.

*First round.* Each word kept gets ``1 / sqrt(t)``, rounded down. Noise N_Z(0, sigma_1^2) makes of
the sum of word i a hint h_i, whether the word is ever released or not.

*Second round.* With r = h_i / sigma_1, the need of word i is the integer

    y_i = 2^20 F / max(r, F) to the nearest  if r > `PROMISING`,  else 1,  where F = `FAINT`,

and a document gives each of its words ``min(1/2, y_i / ||y||)``, rounded down, ``||y||`` over the
words that it keeps: of all votes that bring words of f_i documents to one height, those as 1 / f_i
have the smallest norm. Noise N_Z(0, sigma_2^2) makes of the sum v_i. A word is kept if
``v_i + h_i / 4 > rho``.

Which words of a longer document are kept is a function of its set of distinct words alone, by
hashes under a key that is itself the hash of the whole set: no word is ahead in all of them.

Privacy
-------
*Sensitivity.* Let D and D' be neighbours and V the words that both have. On V the sums of a round
differ by x - x', the contributions of the one document in which D and D' differ, each of norm at
most 1: in the first round ``sqrt(t) w_t <= 1``, in the second ``||y / ||y|| || = 1`` before words
are cut to 1/2, with 2^-30 taken off for the roundings (``||y||^2`` is an exact integer). What the
*other* documents give is the same in D and D' once the hints of V are known: y_i depends on h_i
alone and they have no word outside V. That is why a need must not depend on any other hint, nor on
how many words there are. ``zero-out``: x or x' is zero, so the norm is at most 1.
``replace-one``: no entry is negative, so ``||x - x'||^2 <= ||x||^2 + ||x'||^2 <= 2``, and the norm
is at most sqrt(2). Both are attained, by documents of four words that other documents use too.

*Words that both have.* Let A(D) be the two rounds on the words of V only, at least 2^32 steps in
sigma_1 and sigma_2. With z the noise multiplier, s the l2_sensitivity and a = `FIRST_SHARE`,
``sigma_1 = z s / sqrt(a)`` and ``sigma_2 = z s / sqrt(1 - a)``: each round is a Gaussian mechanism,
the second chosen after seeing the first, so A is 1 / z-GDP, by the argument of
`streamlda.guarantee.mechanism` and up to the distance given under *Sampler*. The hints of words
outside V say how the differing document shares out its norm, and nothing else: they are made of
noise that is independent of that of V, so an adversary may know them in both worlds.

*Words that only one has.* A word of D outside V is used by the differing document alone, and there
are at most D0 such words. Its score is at most ``1/2 + 1/4 + Z_2 + Z_1 / 4``, whatever the hints
were. Rounded Gaussians, which are within 2^-67 of discrete ones here, are at most half a step above
Gaussians, and ``G_2 + G_1 / 4`` has deviation ``tau = sqrt(sigma_2^2 + sigma_1^2 / 16)``. Let E be
the event that none of these words has ``Z_2 + Z_1 / 4 > rho - 3/4``. With

    rho >= 3/4 + tau Phi^-1((1 - delta)^(1/D0)) and three steps

its probability is at least 1 - delta, for their noise is independent, and in E none is kept.

*Together.* E speaks of noise outside V alone. Given E that noise has another law, still independent
of the noise of V, and A, of which it was no assumption, is 1 / z-GDP as before. So the release of D
is a mixture ``(1 - p) A(D) + p Q`` with p <= delta, hence also ``(1 - delta) A(D) + delta R``, with
``R = ((delta - p) A(D) + p Q) / delta``; and likewise for D'. If A is (epsilon, delta_G)-private
then for each set S

    P(D) <= (1 - delta) (e^epsilon P_A(D') + delta_G) + delta <= e^epsilon P(D') + delta_G + delta.

So all of delta goes into the threshold, once under either relation and in both directions. The same
holds with A followed by any later releases of the documents, with all of their Gaussian costs in
delta_G.

*Sampler.* Noise on a word whose sum is the same in D and D' has the same law in both, whatever the
sampler. Only the words of the differing document count, at most D0 (zero-out) or 2 D0
(replace-one), with a draw in each round: `WordSelection.tv_distance_bound`.

Public: all settings, hence grid, noise and threshold; both numbers of a word that is kept.
"""

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.guarantee import accounting
from streamlda.guarantee.checks import at_least, between, require
from streamlda.guarantee.mechanism import check_relation
from streamlda.guarantee.noise import Noise

#: Most distinct words of a document that vote, by default (`bench/private-choices.md`, as below).
MAX_WORDS_PER_DOCUMENT = 200

#: Part of mu^2 that the first round takes.
FIRST_SHARE = 0.3125

#: A word gets votes in the second round if its hint is above this many standard deviations, and
#: as many votes as one of `FAINT`, at most.
PROMISING, FAINT = 1.75, 2.5

#: A hint counts 1 / `HINTS` in the score.
HINTS = 4

#: Most that a document gives a word in the second round.
LARGEST_VOTE = 0.5

#: Greatest need of a word, in whole numbers: squares of 2^20 of them fit into 64 bits.
_NEED = 2**20

#: Taken off a vote of the second round for roundings of less than 2^-50 each.
_MARGIN = 2.0**-30

#: Votes that are weighed at once.
_BLOCK = 2**18

#: Range of the noise multiplier and of D0: every weight is then at least 2^11 steps of the grid.
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER, LARGEST_D0 = 1e-3, 1e3, 2**20

#: Above it a lone word would be kept more often than not.
MAX_DELTA = 0.5

#: Fewest steps in a standard deviation: discrete and rounded Gaussian are then within 2^-67.
_MIN_SIGMA = 2.0**32


class ChosenWord(NamedTuple):
    """A word above the threshold, with its noisy weights in the first and the second round."""

    word: str
    weight: float
    votes: float


class WordSelection:
    """Votes of the documents of one stage for their words, to be released once with noise.

    One document changes what is released by 1 / noise_multiplier-GDP and an additive `delta`, which
    bounds the probability that any word that only one document has is kept. Memory: about 150 bytes
    for each word seen and 4 for each vote, of which one document adds at most
    `max_words_per_document`. What it holds before the release is not private.
    """

    def __init__(
        self,
        noise_multiplier: float,
        delta: float,
        *,
        max_words_per_document: int = MAX_WORDS_PER_DOCUMENT,
        neighboring_relation: str = "zero-out",
    ) -> None:
        between(MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER, noise_multiplier=noise_multiplier)
        between(accounting.MIN_DELTA, MAX_DELTA, delta=delta)
        at_least(1, max_words_per_document=max_words_per_document)
        between(1, LARGEST_D0, max_words_per_document=max_words_per_document)
        neighboring_relation = check_relation(neighboring_relation)
        self.noise_multiplier, self.delta = float(noise_multiplier), float(delta)
        self.max_words_per_document = int(max_words_per_document)
        self.neighboring_relation = neighboring_relation
        replaced = neighboring_relation == "replace-one"
        #: In units of weight, as is all that follows.
        self.l2_sensitivity = math.nextafter(math.sqrt(2), 2) if replaced else 1.0
        stddev = self.noise_multiplier * self.l2_sensitivity * (1 + 2.0**-50)
        #: Of the noise in the first and the second round.
        self.stddevs = stddev / math.sqrt(FIRST_SHARE), stddev / math.sqrt(1 - FIRST_SHARE)
        self.step = math.ldexp(0.5, math.frexp(min(self.stddevs) / _MIN_SIGMA)[1])
        self._threshold_steps = self._smallest_threshold()
        #: rho: a word is kept if ``votes + weight / HINTS`` is greater.
        self.threshold = self._threshold_steps * self.step / HINTS
        differing = self.max_words_per_document * (2 if replaced else 1)
        #: Between a release and one with exact noise, as far as neighbours can tell: see *Sampler*.
        self.tv_distance_bound = 2 * 2 * Noise.tv_distance_bound * differing
        self._steps_of_1 = round(1 / self.step)
        self._numbers: dict[str, int] = {}
        #: Numbers of the words of each document, one document after the other, and their ends.
        self._kept, self._ends = array("i"), array("q", [0])
        self._released = False

    def add(self, tokens: Iterable[str]) -> None:
        """Let one document vote for its words: its tokens, in any order; "" is no word.

        Time O(tokens), and about 1 us a distinct word more if there are more than D0.
        """
        self._check_open()
        words = choose_voters(set(tokens) - {""}, self.max_words_per_document)
        if not words:
            return
        # Scores of all documents, in steps, must fit into 64 bits, with room for the noise.
        between(1, 2**60 // (HINTS * self._steps_of_1), documents=len(self._ends))
        numbers = self._numbers
        self._kept.extend(numbers.setdefault(word, len(numbers)) for word in words)
        self._ends.append(len(self._kept))

    @property
    def has_document(self) -> bool:
        """True if a document has voted."""
        return len(self._ends) > 1

    def release(self, noise: Noise) -> list[ChosenWord]:
        """Return the words above the threshold and forget all others; to be called once.

        Largest weight first, equal ones by word. Private if `noise` is (see `Noise.secure`); the
        list may be cut freely. Time about 2 us a word seen, 50 ns a vote, and for sorting.
        """
        self._check_open()
        self._released = True
        # Sorted: which word gets which noise must not depend on the order of documents.
        words = sorted(self._numbers)
        order = np.array([self._numbers[word] for word in words], dtype=np.int64)
        first, second = (stddev / self.step for stddev in self.stddevs)
        hints = self.weights()
        hints[order] += noise.discrete_gaussian(first, len(words))
        votes = self.votes(hints)
        votes[order] += noise.discrete_gaussian(second, len(words))
        self._numbers, self._kept, self._ends = {}, array("i"), array("q", [0])
        scores = HINTS * votes + hints
        kept = [
            ChosenWord(words[i], int(hints[order[i]]) * self.step, int(votes[order[i]]) * self.step)
            for i in np.flatnonzero(scores[order] > self._threshold_steps).tolist()
        ]
        return sorted(kept, key=lambda found: (-found.weight, found.word))

    def weights(self) -> NDArray[np.int64]:
        """Return the exact sums of the first round in steps, a word each, by order of arrival."""
        found = np.zeros(len(self._numbers), dtype=np.int64)
        for words, _, lengths in self._blocks():
            weights = np.array([self._weight(int(t)) for t in lengths], dtype=np.int64)
            np.add.at(found, words, np.repeat(weights, lengths))
        return found

    def votes(self, hints: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the exact sums of the second round, given the noisy ones of the first."""
        ratios = hints * (self.step / self.stddevs[0])
        needs = np.rint(_NEED * (FAINT / np.maximum(ratios, FAINT))).astype(np.int64)
        needs = np.where(ratios > PROMISING, np.maximum(needs, 1), 1)
        found = np.zeros(len(hints), dtype=np.int64)
        for words, starts, lengths in self._blocks():
            wanted = needs[words]
            norms = np.sqrt(np.add.reduceat(wanted * wanted, starts).astype(np.float64))
            shares = np.minimum(wanted / np.repeat(norms, lengths), LARGEST_VOTE)
            # Not negative: a conversion to integers rounds down.
            steps = (shares * (self._steps_of_1 * (1 - _MARGIN))).astype(np.int64)
            np.add.at(found, words, steps)
        return found

    def _weight(self, most: int) -> int:
        """Return 1 / sqrt(kept) in steps of the grid, rounded down, exactly."""
        return math.isqrt(self._steps_of_1**2 // most)

    def _blocks(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield words of documents, with where each document begins and how many it keeps."""
        kept, ends = np.array(self._kept, dtype=np.int32), np.array(self._ends)
        last = 0
        while last < len(ends) - 1:
            # At least one document.
            first, last = last, int(np.searchsorted(ends, ends[last] + _BLOCK, side="right")) - 1
            last = max(last, first + 1)
            bounds = ends[first : last + 1]
            yield kept[bounds[0] : bounds[-1]], bounds[:-1] - bounds[0], np.diff(bounds)

    def _smallest_threshold(self) -> int:
        """Return rho in steps of a score, `HINTS` to one of the grid, rounded up."""
        # Phi^-1((1 - delta)^(1/t)) = -Phi^-1(1 - (1 - delta)^(1/t)), without cancellation.
        most = self.max_words_per_document
        quantile = -scipy.special.ndtri(-math.expm1(math.log1p(-self.delta) / most))
        first, second = self.stddevs
        exact = HINTS * LARGEST_VOTE + 1 + math.hypot(HINTS * second, first) * float(quantile)
        # Less than 2^42 steps, known to some 1e-14 of it, and what rounds Gaussians: (HINTS + 1)/2.
        return math.ceil(exact / self.step) + HINTS

    def _check_open(self) -> None:
        rule = "the selection was released before"
        remedy = "choose again, from documents of a new stage"
        require(not self._released, rule, released=True, remedy=remedy)


def choose_voters(words: set[str], most: int) -> set[str]:
    """Return at most `most` of a document's words, by hashes under a key made of all of them."""
    if len(words) <= most:
        return words
    encoded = {word: word.encode("utf-8", "surrogatepass") for word in sorted(words)}
    key = blake2b(b"\0".join(encoded.values()), digest_size=32).digest()
    ranks = {w: blake2b(code, digest_size=16, key=key).digest() for w, code in encoded.items()}
    return set(heapq.nsmallest(most, encoded, key=ranks.__getitem__))
