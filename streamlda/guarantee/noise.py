"""Integer Gaussian noise from the operating system's randomness, exact to 2^-60 a value.

Three things break noise in practice: doubles, whose last bits tell the sum under it; generators
that can be predicted or whose state is copied, stored or shared by a fork; and samplers that are
only nearly Gaussian. So noise is an integer, its bits come from ChaCha20 under a key of 256 bits of
the operating system that nothing in here hands out, and the distance of the sampler from the
discrete Gaussian is bounded by proof. Not covered: timing.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.checks import at_least, require

if TYPE_CHECKING:
    from randomgen import ChaCha

#: Bound on the total variation distance between one value and the discrete Gaussian.
TV_DISTANCE_BOUND = 2.0**-60

#: Range of sigma, in steps of the grid.
MIN_SIGMA, MAX_SIGMA = 0.25, 2.0**40

#: Attempts of one call of `propose`.
_ATTEMPTS = 2**17

#: Marks of attempts that gave no sample; samples are above both.
REJECTED = -(2**63)
UNDECIDED = REJECTED + 1

#: How near to ``2^63 p`` a word must be for doubles not to decide.
MARGIN = 2.0**20

#: Bits of the first word: 51 for the place in the block, 12 for the block, 1 for the sign.
PLACE_BITS, MAX_BLOCKS = 51, 12

#: Zeros below the lowest one of 12 bits; 12 without a one.
_TRAILING_ZEROS = np.array([12, *((v & -v).bit_length() - 1 for v in range(1, 2**12))])

#: More digits than doubles and words together hold.
_DIGITS = Context(prec=60)


class Noise:
    """Discrete Gaussian noise from a stream of random bits; see `SecureNoise`, `SeededNoise`.

    *Proof of the bound.* One attempt (`propose`) proposes each pair
    (sign, y = k t + u) with probability exactly ``2^-(k+2) / t`` times a constant near 1 (words
    left over are thrown away), for k < 12, and accepts it with probability ``ceil(2^126 p)/2^126``
    in place of p, where p = ``2^(k-1) exp(1/2 - y^2 / (2 sigma^2))``. So the exact attempt would
    yield y with mass ``q(y) = c exp(-y^2 / (2 sigma^2))``, c = e^(1/2) / (8 t). Two things differ:

    - p is rounded, to 126 bits: together at most 2^-126 in mass, as proposals have at most 1.
    - nothing beyond 12 t is proposed: relative to all mass less than
      ``2 t sum_{k>=12} exp(-k^2/2) / max(1, sigma sqrt(2 pi)) < 4 e^-72 * 1.01 < 2^-101``.

    With Z = sum of q, the distance between normalised masses is at most the sum of the absolute
    differences over Z. As t < 1 + sigma, and t = 1 for sigma <= 1,
    ``Z >= e^(1/2)/8 * max(1, sigma sqrt(2 pi)) / t >= 0.206``, which gives
    ``2^-126 / 0.206 + 2^-101 < 2^-100``, far below `TV_DISTANCE_BOUND`.

    The bits are those of ChaCha20, taken as uniform: the usual computational assumption.

    Objects cannot be copied or pickled; one may be shared by threads.
    """

    __slots__ = ("__bits",)

    #: Whether what is released with this noise may be called private.
    secure: ClassVar[bool] = False
    #: Bound on the total variation distance between one drawn value and N_Z(0, sigma^2).
    tv_distance_bound: ClassVar[float] = TV_DISTANCE_BOUND

    def __init__(self, bits: ChaCha) -> None:
        self.__bits = bits

    def discrete_gaussian(
        self, sigma: float, shape: int | tuple[int, ...] = ()
    ) -> NDArray[np.int64]:
        """Draw from N_Z(0, sigma^2): integers y with mass proportional to exp(-y^2/(2 sigma^2)).

        Independent int64 values, all within 12 (sigma + 1) of zero. `sigma` counts steps of the
        grid, 1/4 to 2^40. Time O(n), about 0.1 us a value; memory 8 bytes a value and 16 MiB.
        """
        sigma = float(sigma)
        rule = f"sigma must lie in [{MIN_SIGMA}, 2^40] steps of the grid"
        fits = MIN_SIGMA <= sigma <= MAX_SIGMA
        require(fits, rule, sigma=sigma, remedy="choose another grid step")
        out = np.empty(shape, dtype=np.int64)
        flat = out.reshape(-1)
        block = math.ceil(sigma)
        yielded = math.exp(0.5) / 8 / block * max(1.0, sigma * math.sqrt(2 * math.pi))
        filled = 0
        while filled < len(flat):
            attempts = min(_ATTEMPTS, int(1.05 * (len(flat) - filled) / yielded) + 16)
            words, more = self._words(2 * attempts), lambda: int(self._words(1)[0])
            samples = _samples(words, sigma, block, MARGIN, more)
            samples = samples[: len(flat) - filled]
            flat[filled : filled + len(samples)] = samples
            filled += len(samples)
        return out

    def _words(self, n: int) -> NDArray[np.int64]:
        # The generator holds its own lock meanwhile.
        words: NDArray[np.int64] = self.__bits.random_raw(n).view(np.int64)
        return words

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secure={self.secure})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        rule = "noise cannot be copied or pickled: equal noise shows how two releases differ"
        raise TypeError(f"{rule}; make a new object where it is needed")


class SecureNoise(Noise):
    """Noise for private releases: ChaCha20, keyed by the operating system.

    Every draw takes a new key of 256 bits from `secrets`, so that neither parent and child nor
    copies of a halted machine draw the same noise. There is no way to set, read or store it.
    """

    __slots__ = ()

    secure: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(_bits(secrets.randbits(256)))

    def discrete_gaussian(
        self, sigma: float, shape: int | tuple[int, ...] = ()
    ) -> NDArray[np.int64]:
        """Draw as `Noise.discrete_gaussian` does, under a new key."""
        # A new generator has a new lock: the old one may have been held when a fork came.
        SecureNoise.__init__(self)
        return super().discrete_gaussian(sigma, shape)


class SeededNoise(Noise):
    """Noise that can be drawn again, for tests only: whoever knows the seed can subtract it."""

    __slots__ = ()

    def __init__(self, seed: int) -> None:
        at_least(0, seed=seed, remedy="for a private release use SecureNoise()")
        words = np.random.SeedSequence(int(seed)).generate_state(4, np.uint64)
        super().__init__(_bits(int.from_bytes(words.tobytes(), "little")))


def _bits(key: int) -> ChaCha:
    # It has some thirty generators, 5 MB, of no use to a fit without noise.
    from randomgen import ChaCha

    return ChaCha(key=key, rounds=20)


def propose(words: NDArray[np.int64], sigma: float, block: int, margin: float) -> NDArray[np.int64]:
    """Turn two random words an attempt into a sample, `REJECTED` or `UNDECIDED`.

    By Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy",
    Algorithms 2 and 3: an integer is cut into a number k of blocks of t = ceil(sigma) integers and
    a place u in the block, and a sign is drawn apart; zero with a minus sign is thrown away. Here k
    is geometric with ratio 1/2 instead of 1/e, so that it and u are read from one random word
    without rounding, and all Bernoulli decisions are one, of probability ::

        p = 2^(k-1) exp(1/2 - y^2 / (2 sigma^2)) <= 2^(k-1) exp((1 - k^2) / 2) <= 1,   y = k t + u

    That decision compares 63 random bits with ``2^63 p``. A word nearer than the margin is left to
    the caller: ``x = y^2 / (2 sigma^2)`` and ``1/2 - x`` take fewer than five roundings of 2^-53.
    For x <= 64 this moves exp by a factor within 1 +- 320 * 2^-53, the exponential function by some
    2^-50 more, so that ``2^63 p`` is off by less than 2^19; the word itself is rounded by at most
    2^9. For x > 64, p < 2^-80 and any word above the margin is rejected.
    """
    first, second = words[::2], words[1::2]
    blocks = _TRAILING_ZEROS[(first >> PLACE_BITS) & (2**MAX_BLOCKS - 1)]
    # Each place owns the same number of words; what is left over at the end is thrown away.
    place = (first & (2**PLACE_BITS - 1)) // (2**PLACE_BITS // block)
    y = blocks * block + place
    proposed = (blocks < MAX_BLOCKS) & (place < block) & ((first >= 0) | (y > 0))
    threshold = np.ldexp(np.exp(0.5 - 0.5 * (y / sigma) ** 2), blocks + 62)
    excess = (second & (2**63 - 1)).astype(np.float64) - threshold
    values = np.where(excess < -margin, np.where(first < 0, -y, y), UNDECIDED)
    values[~proposed | (excess > margin)] = REJECTED
    return values


def _samples(
    words: NDArray[np.int64],
    sigma: float,
    block: int,
    margin: float,
    more: Callable[[], int],  # Draws one more word.
) -> NDArray[np.int64]:
    """Return the samples that pairs of words yield, in order."""
    values = propose(words, sigma, block, margin)
    for attempt in np.flatnonzero(values == UNDECIDED):
        first, second = words[2 * attempt : 2 * attempt + 2].tolist()
        values[attempt] = _decide(first, second, sigma, block, more)
    return values[values > UNDECIDED]


def _decide(first: int, second: int, sigma: float, block: int, more: Callable[[], int]) -> int:
    """Finish one attempt of `propose` with 60 digits: the sample, or `UNDECIDED` if rejected."""
    blocks = next(k for k in range(MAX_BLOCKS) if first >> (PLACE_BITS + k) & 1)
    y: int = blocks * block + first % 2**PLACE_BITS // (2**PLACE_BITS // block)
    ratio = _DIGITS.divide(Decimal(y), Decimal(sigma))
    exponent = _DIGITS.subtract(
        Decimal("0.5"), _DIGITS.multiply(Decimal("0.5"), _DIGITS.multiply(ratio, ratio))
    )
    threshold = _DIGITS.multiply(_DIGITS.exp(exponent), Decimal(2 ** (blocks + 62)))
    bits, whole = second % 2**63, int(threshold)
    # Where these are the first 63 bits of p, 63 further ones decide.
    rest = _DIGITS.multiply(_DIGITS.subtract(threshold, whole), 2**63)
    if bits > whole or (bits == whole and more() % 2**63 >= rest):
        return UNDECIDED
    return -y if first < 0 else y
