"""The rejection step of the discrete Gaussian sampler: random words in, samples out.

The target is N_Z(0, sigma^2), with probabilities proportional to ``exp(-y^2 / (2 sigma^2))`` over
the integers, by Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential
privacy", NeurIPS, Algorithms 2 and 3: an integer is cut into a number k of blocks of t =
ceil(sigma) integers and a place u inside the block, and a sign is drawn apart; zero with a minus
sign is thrown away. Here k is geometric with ratio 1/2 instead of 1/e, so that it and u are read
from one random word without rounding, and all Bernoulli decisions are one, of probability

    p = 2^(k-1) exp(1/2 - y^2 / (2 sigma^2)) <= 2^(k-1) exp((1 - k^2) / 2) <= 1,   y = k t + u

That decision compares 63 random bits with ``2^63 p``, which doubles know to 2^19 only (see
`propose`). A word nearer than `MARGIN`, about one in 2^42, is left to the caller.
"""

from __future__ import annotations

import math

from streamlda.kernels import I64_1D, OUT_I64_1D, kernel

#: Marks of attempts that gave no sample; samples are above both.
REJECTED = -(2**63)
UNDECIDED = REJECTED + 1

#: How near to ``2^63 p`` a word must be for doubles not to decide.
MARGIN = 2.0**20

#: Bits of the first word: 51 for the place in the block, 12 for the block, 1 for the sign.
PLACE_BITS = 51
MAX_BLOCKS = 12

_PLACE_MASK = 2**PLACE_BITS - 1
_WORD_MASK = 2**63 - 1


@kernel
def propose(words: I64_1D, sigma: float, block: int, margin: float, values: OUT_I64_1D) -> None:
    """Turn two random words an attempt into a sample, `REJECTED` or `UNDECIDED`.

    The words are independent uniform bits, sigma (in steps) is 1/4 to 2^40, the block ceil(sigma),
    and the margin `MARGIN`; a larger one leaves more attempts to the caller. Time O(attempts),
    serial; no memory. At least a fifth of the attempts gives a sample, half for a large sigma.

    Why doubles are near enough: ``x = y^2 / (2 sigma^2)`` and ``1/2 - x`` take fewer than five
    roundings of relative size 2^-53. For x <= 64 this moves exp by a factor within
    1 +- 64 * 5 * 2^-53, the exponential function of the mathematics library by some 2^-50 more, so
    that ``2^63 p`` is off by less than 2^19; the word itself is rounded by at most 2^9. For x > 64,
    p < 2^-80 and any word above the margin is rejected.
    """
    span = (_PLACE_MASK + 1) // block
    for attempt in range(len(values)):
        values[attempt] = REJECTED
        first = words[2 * attempt]
        blocks = 0
        while blocks < MAX_BLOCKS and (first >> (PLACE_BITS + blocks)) & 1 == 0:
            blocks += 1
        # Each place owns the same number of words; what is left over at the end is thrown away.
        place = (first & _PLACE_MASK) // span
        if blocks == MAX_BLOCKS or place >= block:
            continue
        y = blocks * block + place
        if first < 0 and y == 0:
            continue
        ratio = y / sigma
        threshold = math.ldexp(math.exp(0.5 - 0.5 * ratio * ratio), blocks + 62)
        excess = float(words[2 * attempt + 1] & _WORD_MASK) - threshold
        if excess < -margin:
            values[attempt] = -y if first < 0 else y
        elif excess <= margin:
            values[attempt] = UNDECIDED
