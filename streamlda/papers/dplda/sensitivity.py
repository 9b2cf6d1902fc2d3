"""Sensitivity of the nodes of the flow graph: proven for moments, claimed for the rest.

**Unit** document, **relation** replace-one: one of N slots holds another document, or a blank (a
document of fewer than three tokens). N, d, k and alpha_0 are public. With the weights
s = a/(a+1), b = -a/(a+2) and c = 2a^2/((a+1)(a+2)) of `moments.Coefficients`:

======= =============== ======================================================= ========
node    norm            sensitivity times N                                     [DP-LDA]
======= =============== ======================================================= ========
M2      l1              2 + 4 s                                                 the same
M2      l2 (Frobenius)  sqrt(2 + 4 s^2)                                         by l1
M3      l1              2 + 12 |b| + 6 c                                        2 + 4 |b| + 6 c
M3      l2 (Frobenius)  sqrt of the largest of 2 + 12 b^2 + 12 b c + 6 c^2,     by l1
                        2 + 6 b^2 + 3 c^2 and 2 (1 + 3 b)^2 + 6 c^2
======= =============== ======================================================= ========

**Derivation.** Let a document change from D to D', with differences u1, u2, u3 of p1, P2, P3, and
let m, n run over pairs of different *other* documents. Then N times the difference of M3 is the
mean over such pairs of

    u3 + b sym3(u2 x (p_m + p_n)/2) + sym3(u1 x (b (P_m + P_n)/2 + c sym(p_m x p_n))),

p and P being p1 and P2 of other documents: sums over different documents hold each pair (triple)
with the changed one N - 1 (half of (N-1)(N-2)) times. A norm of a mean is at most the largest norm,
so three other things than N matter: D, D', m and n. In each of the four the expression is affine,
and (p1, P2, P3) of a document is a mean over its triples of tokens, so the norm, which is convex,
is largest where each document is one triple of tokens or a blank (a pair of tokens for m and n,
which enter by p1 and P2 alone). Which words are equal is all that matters then: ten tokens,
finitely many patterns. A test goes through them; these are largest, w being words:

- l1: D = w1 w1 w1, D' = w2 w2 w2, m = w3 w3 w3, n = w4 w4 w4. No two terms share an entry, so
  the triangle inequality is attained: 2 + 3 |b| 2 + 3 |b| 2 + 3 c 2.
- l2: the same D and D' with m and n both of w3, or of w3 and w4, or of w1 and w2.

For N = 3 the mean has one pair: the bounds are attained. M2 likewise, from
u2 - s (u1 x p_m + p_m x u1) with m of w3. In [DP-LDA] the mixed term of M3 is counted once, though
it stands in three places.

sigma_k of M2 moves by at most the spectral norm of the difference of M2 (Weyl), so by its l2.

**Claims that are not proven.** Theorems 5, 6 and 7, with their leading terms and constant one: the
noise that section 6 of version 2 prints, and the least that the O() of the theorems can be read as;
the proofs end in more. They are infinite where a lower bound is 0. With W of one dataset and
W' of its neighbour, M3(W, W, W) - M3'(W', W', W') contains M3(W - W', W, W), first order in W - W';
Theorem 5 has the third power of W - W' alone. So the whitened tensor may move by more than is
claimed, and so may all that is made of it.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from streamlda.errors import at_least
from streamlda.papers.dplda.moments import coefficients

#: Bounds on the absolute terms that the moments are added up from, for rounding. Of a document, the
#: terms of P2 have sum at most 2 and those of P3 10 (three equal tokens); sums over different
#: documents are made from all, at most 2 and 10 times as much (N = 3).
PAIR_TERMS, TRIPLE_TERMS = 4.0, 42.0


@dataclass(frozen=True, slots=True)
class Facts:
    """Arguments of sensitivities; N, k and alpha_0 are public.

    Parameters
    ----------
    n_documents : int
        N, at least 3.
    n_components : int
        k.
    alpha_0 : float
        Sum of the Dirichlet parameters, above 0.
    sigma_k, gamma_s : float, default 0
        Lower bounds on the k-th singular value of M2, and on a quarter of the least gap between
        eigenvalues of the whitened tensor; 0 is none.
    sigma_1 : float, default 0
        Largest singular value of M2; [DP-LDA] reads it without noise.
    sigma_next, lambda_k : float, default 0
        Singular value of M2 after the k-th, and k-th eigenvalue of the whitened tensor, which
        preconditions are about.
    """

    n_documents: int
    n_components: int
    alpha_0: float
    sigma_k: float = 0.0
    gamma_s: float = 0.0
    sigma_1: float = 0.0
    sigma_next: float = 0.0
    lambda_k: float = 0.0

    def __post_init__(self) -> None:
        at_least(3, n_documents=self.n_documents)
        at_least(1, n_components=self.n_components)
        coefficients(self.alpha_0)


def pairs_l1(facts: Facts) -> float:
    """Return the l1 sensitivity of M2; attained."""
    return (2 + 4 * coefficients(facts.alpha_0).squared) / facts.n_documents


def pairs_l2(facts: Facts) -> float:
    """Return the Frobenius sensitivity of M2; attained. Also bounds sigma_k and sigma_1."""
    return math.sqrt(2 + 4 * coefficients(facts.alpha_0).squared ** 2) / facts.n_documents


def triples_l1(facts: Facts) -> float:
    """Return the l1 sensitivity of M3; attained for N = 3."""
    _, b, c = coefficients(facts.alpha_0)
    return (2 + 12 * abs(b) + 6 * c) / facts.n_documents


def triples_l2(facts: Facts) -> float:
    """Return the Frobenius sensitivity of M3; attained for N = 3."""
    _, b, c = coefficients(facts.alpha_0)
    one_word = 2 + 12 * b * b + 12 * b * c + 6 * c * c
    two_words = 2 + 6 * b * b + 3 * c * c
    same_words = 2 * (1 + 3 * b) ** 2 + 6 * c * c
    return math.sqrt(max(one_word, two_words, same_words)) / facts.n_documents


def unmet(bounds: Collection[str], facts: Facts) -> tuple[str, ...]:
    """Return which preconditions of Theorems 4.2 to 4.4 of version 1 do not hold.

    `bounds` are those that Procedure 1 releases for the configuration: with sigma_k goes the
    precondition of Table 3 there, with gamma_s those of the footnote of Theorem 4.3. Delta_2 is
    taken in l2, which bounds the spectral norm that the proofs use.
    """
    found = []
    if "sigma_k" in bounds and pairs_l2(facts) > (facts.sigma_k - facts.sigma_next) / 2:
        found.append("Delta_2 <= (sigma_k - sigma_(k+1)) / 2")
    if "gamma_s" in bounds:
        moved, gap, k = claimed_whitened(facts), facts.gamma_s, facts.n_components
        limits = {
            "gamma_s lambda_k / (4 sqrt(k))": gap * facts.lambda_k / (4 * math.sqrt(k)),
            "gamma_s / (3 k)": gap / (3 * k),
            "alpha_0 gamma_s^2 / k": facts.alpha_0 * gap**2 / k,
        }
        found += [f"Delta_T <= {name}" for name, limit in limits.items() if moved > limit]
    return tuple(found)


def claimed_whitened(facts: Facts) -> float:
    """Return Theorem 5 for the whitened tensor (Frobenius): k^(3/2) / (N sigma_k^(3/2))."""
    return _ratio(facts.n_components**1.5, facts.n_documents * facts.sigma_k**1.5)


def claimed_factors(facts: Facts) -> float:
    """Return Theorem 6 for one eigenvector (l2): k^2 / (gamma_s N sigma_k^(3/2))."""
    return _ratio(math.sqrt(facts.n_components) * claimed_whitened(facts), facts.gamma_s)


def claimed_topics(facts: Facts) -> float:
    """Return Theorem 7 for one topic (l2): k^2 sqrt(sigma_1) / (gamma_s N sigma_k^(3/2))."""
    return math.sqrt(facts.sigma_1) * claimed_factors(facts)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else math.inf


#: Sensitivity of the value that an edge carries, in l2; and in l1 where it is global, so that pure
#: epsilon is possible: local ones hold for documents with these sigma_k and gamma_s only.
BY_L2: dict[str, Callable[[Facts], float]] = {
    **{"e2": pairs_l2, "e3": triples_l2, "e5": pairs_l2},
    **{"e6": claimed_whitened, "e7": claimed_factors, "e9": claimed_topics},
}
BY_L1 = BY_L2 | {"e2": pairs_l1, "e3": triples_l1, "e5": pairs_l1}
