"""Slow dense twins of the statistics, from their definitions; no code shared with the package.

A document is a list of word ids, one a token. Its pair statistic is the distribution of the words
of 2 distinct tokens drawn from it in order, its triple statistic that of 3. `drawn` draws every
tuple. `counted` counts them instead, in exact integers, for documents with too many tuples.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np

MASK = 2**64 - 1


def rows(documents):
    """Return counts, word ids and row pointers of documents given as lists of tokens."""
    counts, word_ids, row_pointers = [], [], [0]
    for tokens in documents:
        for word, count in sorted(Counter(tokens).items()):
            word_ids.append(word)
            counts.append(count)
        row_pointers.append(len(counts))
    return counts, word_ids, row_pointers


def drawn(tokens, d, order):
    """Return the distribution of `order` distinct tokens, by drawing every ordered tuple."""
    total = np.zeros((d,) * order)
    for words in itertools.permutations(tokens, order):
        total[words] += 1
    return total / math.perm(len(tokens), order)


def counted(tokens, d, order):
    """Return the same, each entry correctly rounded: a word taken once is there once less."""
    counts, ways = Counter(tokens), math.perm(len(tokens), order)
    total = np.zeros((d,) * order)
    for words in itertools.product(sorted(counts), repeat=order):
        product = 1
        for place, word in enumerate(words):
            product *= counts[word] - words[:place].count(word)
        total[words] = float(Fraction(product, ways))
    return total


def statistic(tokens, d, order):
    """Return p1, P2 or P3 of one document, shape (d,) * order."""
    return (drawn if len(tokens) <= 12 else counted)(tokens, d, order)


def through(dense, W):
    """Return P1, P2 W or P3(W, W, W) of a dense statistic."""
    if dense.ndim == 1:
        return dense
    if dense.ndim == 2:
        return dense @ W
    return np.einsum("abc,ai,bj,ck->ijk", dense, W, W, W)


def mean_through(documents, W, order):
    """Return the mean of a statistic seen through W, over documents of 3 tokens or more."""
    usable = [tokens for tokens in documents if len(tokens) >= 3]
    return sum(through(statistic(t, len(W), order), W) for t in usable) / len(usable)


def projections(documents, W):
    """Return the sum of the rows of W over the tokens of each document."""
    m = W.shape[1]
    return np.array(
        [[math.fsum(W[w, j] for w in tokens) for j in range(m)] for tokens in documents]
    ).reshape(len(documents), m)


def word_sums(documents, d, weights):
    """Return, for each word, the weight of a document once for each of its tokens that is it."""
    total = np.zeros((d, weights.shape[1]))
    for tokens, weight in zip(documents, weights, strict=True):
        for word in tokens:
            total[word] += weight
    return total


def random_sign(seed, word, column):
    """Return +1 or -1: SplitMix64 in Python integers, with a counter from word and column."""
    z = (seed + (65536 * word + column + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return 1 if (z ^ (z >> 31)) & 1 else -1


def expected_moments(components, alpha):
    """Return E p1, E P2 and E P3 of a document of an LDA model.

    From M2 = E P2 - a/(a+1) M1 M1' = sum_i alpha_i/(a(a+1)) mu_i mu_i' and
    M3 = E P3 - a/(a+2) sym3(E P2 x M1) + 2a^2/((a+1)(a+2)) M1 x M1 x M1
    = sum_i 2 alpha_i/(a(a+1)(a+2)) mu_i x mu_i x mu_i, a = sum of alpha.
    """
    a, mu = alpha.sum(), components
    first = alpha @ mu / a
    second = np.einsum("i,ia,ib->ab", alpha, mu, mu) / (a * (a + 1))
    pairs = second + a / (a + 1) * np.multiply.outer(first, first)
    third = 2 * np.einsum("i,ia,ib,ic->abc", alpha, mu, mu, mu) / (a * (a + 1) * (a + 2))
    return first, pairs, third + triples_without(first, pairs, a)


def triples_without(first, pairs, a):
    """Return what E P3 holds besides M3."""
    mixed = sum(
        np.einsum(f"{x},{y}->abc", pairs, first) for x, y in (("ab", "c"), ("ac", "b"), ("bc", "a"))
    )
    cube = np.einsum("a,b,c->abc", first, first, first)
    return a / (a + 2) * mixed - 2 * a**2 / ((a + 1) * (a + 2)) * cube


def pack_pairs(matrix):
    """The upper triangle row by row, times sqrt(2) off the diagonal."""
    return np.array(
        [x * (1 if i == j else np.sqrt(2)) for (i, j), x in np.ndenumerate(matrix) if i <= j]
    )


def pack_triples(tensor):
    """The entries i <= j <= k of a symmetric tensor, times the root of how often each occurs."""
    times = {1: 1, 2: 3, 3: 6}
    return np.array(
        [
            x * np.sqrt(times[len({*at})])
            for at, x in np.ndenumerate(tensor)
            if at == tuple(sorted(at))
        ]
    )
