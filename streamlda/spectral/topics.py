"""Topics from the moments of a round: whiten, decompose, un-whiten, and mark what is noise.

With W any fixed projection, M1, G = E P2 W and T = E P3(W, W, W) [1]_, and a = alpha_0::

    G_c = G - a/(a+1) M1 (W'M1)'                          M2 seen through W
    C   = W' G_c = Q L Q'          R = Q_k L_k^(-1/2)     whitening, k leading directions
    T_c = T - a/(a+2) sym3(W'G x W'M1) + 2a^2/((a+1)(a+2)) (W'M1)^(x3)
    T_c(R, R, R) = sum_i lambda_i v_i x v_i x v_i         orthogonal
    mu_i ~ G_c R v_i         alpha_i = 4 a (a+1) / ((a+2)^2 lambda_i^2)

Everything here is a function of the sums alone (post-processing).

References
----------
.. [1] Anandkumar et al. (2014), JMLR 15, section 3.2 and Theorem 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.errors import InsufficientDataError, require
from streamlda.spectral.joint_power import MANY_COMPONENTS, joint_power, word_starts
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import SHOW_NONE, Spectrum, trailing_norms
from streamlda.spectral.tensor_power import Eigenpairs, apply_pairs, refine_eigenpairs, tensor_power
from streamlda.spectral.whitening import centred_pairs

Array = NDArray[np.float64]

#: Range in which alpha_0 is looked for.
ALPHA_0_RANGE = (0.01, 100.0)

#: Fewest topics whose moments depend on alpha_0. With two, a document is a point between them: one
#: number, of which three moments cannot tell its range and its distribution.
LEAST_TOPICS = 3

#: The member of a model's diagnostics that says what an estimate of alpha_0 is worth.
ESTIMATE = "alpha_0_estimate"

#: Directions of the pair moment below this share of the largest are not there.
RANK_TOLERANCE = 1e-10

#: Condition number of whitening above which a warning is given.
LARGE_CONDITION_NUMBER = 1000.0

#: Least share of alpha_0 that a topic keeps.
ALPHA_FLOOR = 1e-6

#: Topics of two rounds are the same when their word distributions have this affinity (0 to 1).
SAME_TOPIC_AFFINITY = 0.85

#: A topic is supported when noise turns its eigenvector by less than this (radians, first order).
SUPPORT_ANGLE = 0.5


@dataclass(frozen=True, slots=True)
class RoundMoments:
    """The moments of a round as read once, before alpha_0 is applied.

    `first` is M1, `pairs` G over the t columns of W that the triple moment was taken through
    (`whitening`), `triples` T. The noises are one draw of the sampling noise of ``W'G`` and T
    (`Moments.half_differences`). `triple_first` and `triple_pairs` are ``W'M1`` and ``W'G`` of the
    documents of T, where these are not those of M1 and G: T is centred by its own, so that
    a stream may drift in between.
    """

    documents: int
    first: Array
    pairs: Array
    triples: Array
    whitening: Array
    pair_noise: Array
    triple_noise: Array
    triple_first: Array | None = None
    triple_pairs: Array | None = None

    @classmethod
    def of(cls, moments: Moments) -> RoundMoments:
        """Read the moments of a round."""
        leading = slice(None, moments.triple_columns)
        # First what takes most memory while it is found.
        triples, (pair_noise, triple_noise) = moments.triple_moment(), moments.half_differences()
        return cls(
            moments.documents,
            moments.first_moment(),
            moments.pair_moment()[:, leading],
            triples,
            moments.whitening[:, leading],
            pair_noise,
            triple_noise,
        )


@dataclass(frozen=True, slots=True)
class SpectralTopics:
    """Topics with what is known about their reliability, most prevalent first."""

    #: mu_i, shape (K, d), rows summing to 1; sampling noise leaves some entries slightly negative
    #: (`normalized` clips them). A topic beyond the rank of the data repeats M1.
    topics: Array
    #: Dirichlet parameters, shape (K,), scaled to sum to `alpha_0`.
    alpha: Array
    alpha_0: float
    #: Sum of alpha as the eigenvalues alone give it, over `alpha_0`: 1 when the documents follow
    #: the model with this alpha_0.
    alpha_fit: float
    #: lambda_i of the whitened triple moment, shape (K,); 0 beyond the rank.
    eigenvalues: Array
    #: Norm of the sampling noise E(I, v_i, v_i), shape (K,): to first order the eigenvector is
    #: turned by ``eigenvalue_noise / eigenvalues`` radians.
    eigenvalue_noise: Array
    #: Eigenvalues of C, shape (t,), largest first.
    pair_eigenvalues: Array
    #: Spectral norm of the sampling noise of C outside the first 0, 1, ..., K-1 eigenvectors.
    pair_noise: Array
    documents: int

    @property
    def condition_number(self) -> float | None:
        """Largest over K-th pair eigenvalue; None when the K-th is missing or not positive."""
        K = len(self.alpha)
        if len(self.pair_eigenvalues) < K or self.pair_eigenvalues[K - 1] <= 0:
            return None
        return float(self.pair_eigenvalues[0] / self.pair_eigenvalues[K - 1])

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Which topics stand above the sampling noise, shape (K,)."""
        return self.eigenvalue_noise < SUPPORT_ANGLE * self.eigenvalues

    def supported_among(self, directions: int) -> NDArray[np.bool_]:
        """Return which of the topics stand out where this many directions are real, shape (K,).

        No more topics than directions are real: those that noise turns least, each once. One
        direction is the word frequencies, and tells no topic from another. Time O(K^2 d).
        """
        K = len(self.alpha)
        if directions >= K:
            return self.supported
        turned = self.eigenvalue_noise / np.maximum(self.eigenvalues, 1e-300)
        roots, chosen = np.sqrt(self.normalized()), np.zeros(K, dtype=np.bool_)
        for k in np.argsort(turned, kind="stable"):
            same = bool(np.any(roots[chosen] @ roots[k] > SAME_TOPIC_AFFINITY))
            chosen[k] = directions > max(1, int(chosen.sum())) and not same
        return chosen & self.supported

    def normalized(self) -> Array:
        """Return the topics as distributions: negative entries at 0, rows summing to 1."""
        clipped = np.maximum(self.topics, 0.0)
        rows: Array = clipped / clipped.sum(axis=1, keepdims=True)
        return rows


def recover_topics(
    moments: RoundMoments,
    n_components: int,
    alpha_0: float,
    rng: np.random.Generator,
    near: Array | None = None,
) -> SpectralTopics:
    """Decompose the moments of a round into topics; O(d t^2 + t^3 K + K^4).

    Power iterations start at random, or (faster) from the topics `near`, shape (K, d).
    """
    whitened = _WhitenedMoments(moments, n_components, alpha_0)
    values, vectors = whitened.decompose(rng, near)
    noise = np.linalg.norm(apply_pairs(whitened.noise, vectors), axis=0)
    # Beyond the rank there is nothing.
    beyond = (0, n_components - whitened.rank)
    return _sorted_topics(
        moments.first,
        np.pad((whitened.centred @ whitened.root @ vectors).T, (beyond, (0, 0))),
        np.pad(values, beyond),
        np.pad(noise, beyond),
        alpha_0,
        pair_eigenvalues=whitened.pair_eigenvalues,
        pair_noise=whitened.pair_noise,
        documents=moments.documents,
    )


def whitened_projection(moments: Moments, n_components: int, alpha_0: float) -> Array:
    """Return V = W R with V' M2 V = I on the leading K directions, shape (d, K' <= K)."""
    return np.ascontiguousarray(moments.whitening @ whitening_root(moments, n_components, alpha_0))


def whitening_root(moments: Moments, n_components: int, alpha_0: float) -> Array:
    """Return R of `whitened_projection`, shape (m, K')."""
    W = moments.whitening
    inner = W.T @ centred_pairs(moments.first_moment(), moments.pair_moment(), W, alpha_0)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    usable = values > RANK_TOLERANCE * np.abs(values).max(initial=0.0)
    leading = np.flatnonzero(usable)[::-1][:n_components]
    require(
        len(leading),
        "whitening needs documents whose words vary, got a pair moment without a positive "
        f"eigenvalue in documents={moments.documents}",
        remedy="read more documents",
        error=InsufficientDataError,
    )
    root: Array = vectors[:, leading] / np.sqrt(values[leading])
    return root


def topics_along(
    first: Array,
    pairs: Array,
    whitening: Array,
    eigenvalues: Array,
    vectors: Array,
    noise: Array,
    alpha_0: float,
    documents: int,
) -> SpectralTopics:
    """Return the topics that vectors in whitened coordinates stand for, mu_i ~ G_c v_i.

    With M1, G = E P2 V, V of shape (d, m), vectors of shape (m, K), and the
    `SpectralTopics.eigenvalue_noise` of each, infinite for a topic that is not to be relied on.
    """
    centred = centred_pairs(first, pairs, whitening, alpha_0)
    inner = whitening.T @ centred
    spectrum = np.asarray(np.linalg.eigvalsh((inner + inner.T) / 2)[::-1], dtype=np.float64)
    return _sorted_topics(
        first,
        (centred @ vectors).T,
        eigenvalues,
        noise,
        alpha_0,
        pair_eigenvalues=spectrum,
        pair_noise=np.zeros(len(eigenvalues)),
        documents=documents,
    )


def _sorted_topics(
    first: Array, found: Array, eigenvalues: Array, noise: Array, alpha_0: float, **others: Any
) -> SpectralTopics:
    """Return the topics along the rows of `found`; one without direction repeats M1."""
    mass = found.sum(axis=1)
    definite = np.abs(mass) > 1e-9 * np.abs(found).sum(axis=1)
    eigenvalues, noise = np.where(definite, eigenvalues, 0.0), np.where(definite, noise, np.inf)
    alpha = _alpha(eigenvalues, alpha_0)
    total = float(alpha.sum())
    # Every topic keeps a little prior weight: inference divides by it.
    alpha = np.maximum(alpha, ALPHA_FLOOR * total) if total > 0 else np.ones(len(found))
    order = np.argsort(-alpha, kind="stable")
    topics = np.tile(first / first.sum(), (len(found), 1))
    for row, k in enumerate(order):
        if definite[k]:
            np.divide(found[k], mass[k], out=topics[row])
    return SpectralTopics(
        topics=topics,
        alpha=alpha[order] * (alpha_0 / alpha.sum()),
        alpha_0=alpha_0,
        alpha_fit=total / alpha_0,
        eigenvalues=eigenvalues[order],
        eigenvalue_noise=noise[order],
        **others,
    )


def alpha_0_estimate(alpha_0: float, n_topics: int) -> dict[str, Any]:
    """Return what `estimated_alpha_0` is worth with this many topics, as plain JSON values."""
    low, high = ALPHA_0_RANGE
    reason = None
    if n_topics < LEAST_TOPICS:
        reason = (
            f"alpha_0 shows in the moments of {LEAST_TOPICS} topics or more, and word pairs tell "
            f"{n_topics} apart; it is set to {alpha_0:g}"
        )
    elif not low < alpha_0 < high:
        reason = f"the estimate of alpha_0 ended at the end of its range, {low:g} to {high:g}"
    return {"value": alpha_0, "identified": reason is None, "reason": reason}


def average_rounds(main: SpectralTopics, other: SpectralTopics) -> SpectralTopics:
    """Average the topics on which two rounds over different documents agree.

    A topic of `main` is averaged with its match in `other`, weighted by documents, when both give
    nearly the same distribution; a topic without such a match stays as it is.
    """
    affinity = np.sqrt(main.normalized()) @ np.sqrt(other.normalized()).T
    mine, theirs = scipy.optimize.linear_sum_assignment(-affinity)
    same = affinity[mine, theirs] > SAME_TOPIC_AFFINITY
    mine, theirs = mine[same], theirs[same]
    share = other.documents / (main.documents + other.documents)
    topics = main.topics.copy()
    topics[mine] = (1 - share) * main.topics[mine] + share * other.topics[theirs]
    return replace(main, topics=topics, documents=main.documents + other.documents)


def diagnostics(
    found: SpectralTopics, spectrum: Spectrum, supported: NDArray[np.bool_], documents: int | None
) -> dict[str, Any]:
    """Return the reliability of topics as plain JSON values, with ``warnings`` in words.

    `spectrum` is that of the word pairs, which `documents` were tested on, if any were.
    """
    K, directions = len(found.alpha), spectrum.above
    weak = np.flatnonzero(~supported)
    condition = found.condition_number
    warnings = []
    apart = directions is None or directions >= min(2, K)
    if directions is not None and directions < K:
        warnings.append(few_directions(directions, K, documents or found.documents))
    if apart and len(weak):
        listed = ", ".join(str(i) for i in weak[:20]) + (", ..." if len(weak) > 20 else "")
        warnings.append(
            f"{len(weak)} of {K} topics do not stand above sampling noise: topics {listed}; "
            "do not rely on them"
            if len(weak) > 1
            else f"1 of {K} topics does not stand above sampling noise: topic {listed}; "
            "do not rely on it"
        )
    if apart and condition is not None and condition > LARGE_CONDITION_NUMBER:
        warnings.append(
            f"whitening is ill-conditioned (condition_number={condition:.0f}); rare topics are "
            "uncertain, ask for fewer topics"
        )
    return {
        "documents_behind_topics": found.documents,
        "documents_behind_directions": documents,
        "condition_number": condition,
        "directions_supported": directions,
        "alpha_fit": found.alpha_fit,
        "eigenvalues": found.eigenvalues.tolist(),
        "eigenvalue_noise": [x if np.isfinite(x) else None for x in found.eigenvalue_noise],
        "topic_supported": supported.tolist(),
        "pair_eigenvalues": spectrum.eigenvalues.tolist(),
        "pair_noise": None if spectrum.floor is None else spectrum.floor.tolist(),
        "warnings": warnings,
    }


def few_directions(directions: int, n_components: int, documents: int) -> str:
    """Return what to warn of where word pairs tell fewer topics apart; one tells none."""
    if directions <= 1:
        of = f"(documents={documents})"
        return f"{SHOW_NONE} {of}; read more documents, and do not rely on these topics"
    return (
        f"word pairs tell {directions} of {n_components} topics apart above sampling noise "
        f"(documents={documents}); read more documents or ask for fewer topics"
    )


class _WhitenedMoments:
    """The moments of a round in at most K whitened dimensions, for one alpha_0."""

    def __init__(self, moments: RoundMoments, n_components: int, alpha_0: float) -> None:
        W, a = moments.whitening, alpha_0
        q = W.T @ moments.first
        pairs = W.T @ moments.pairs
        pairs = (pairs + pairs.T) / 2
        self.centred = centred_pairs(moments.first, moments.pairs, W, a)
        values, vectors = np.linalg.eigh(pairs - a / (a + 1) * np.outer(q, q))
        self.pair_eigenvalues, vectors = values[::-1], vectors[:, ::-1]
        noise = vectors.T @ moments.pair_noise @ vectors
        self.pair_noise = trailing_norms(noise, min(n_components, len(W.T)))
        usable = values > RANK_TOLERANCE * np.abs(values).max(initial=0.0)
        self.rank = min(n_components, int(usable.sum()))
        self.root = vectors[:, : self.rank] / np.sqrt(self.pair_eigenvalues[: self.rank])
        own_q = q if moments.triple_first is None else moments.triple_first
        own_pairs = pairs if moments.triple_pairs is None else moments.triple_pairs
        u = self.root.T @ own_q
        inner = self.root.T @ own_pairs @ self.root
        cube = np.multiply.outer(np.multiply.outer(u, u), u)
        E = np.multiply.outer(inner, u)
        self.tensor = (
            _contract(moments.triples, self.root)
            - a / (a + 2) * (E + E.transpose(0, 2, 1) + E.transpose(2, 0, 1))
            + 2 * a**2 / ((a + 1) * (a + 2)) * cube
        )
        self.noise = _contract(moments.triple_noise, self.root)
        self._projection = W

    def decompose(self, rng: np.random.Generator, near: Array | None = None) -> Eigenpairs:
        """Find the eigenpairs of the whitened tensor, from given topics or from random starts."""
        if self.rank == 0:
            return Eigenpairs(np.zeros(0), np.zeros((0, 0)))
        start = None
        if near is not None and len(near) == self.rank:
            # Projected and whitened, a topic points along its eigenvector.
            start = (self._projection @ self.root).T @ near.T
        if self.rank >= MANY_COMPONENTS:
            start = word_starts(self._projection @ self.root) if start is None else start
            return joint_power(partial(apply_pairs, self.tensor), start)
        if start is not None:
            return refine_eigenpairs(self.tensor, start, n_iterations=10)
        return tensor_power(self.tensor, self.rank, rng=rng)


def _alpha(eigenvalues: Array, alpha_0: float) -> Array:
    """Return alpha_i = 4 a (a+1) / ((a+2)^2 lambda_i^2), 0 where the eigenvalue is not positive."""
    alpha = np.zeros_like(eigenvalues)
    np.divide(
        4 * alpha_0 * (alpha_0 + 1) / (alpha_0 + 2) ** 2,
        eigenvalues**2,
        out=alpha,
        where=eigenvalues > 0,
    )
    return alpha


def estimated_alpha_0(moments: RoundMoments, n_topics: int, rng: np.random.Generator) -> float:
    """Solve sum_i alpha_i(alpha_0) = alpha_0; the nearer end of the range if it has no root.

    It holds at the truth when documents follow the model, and have `n_topics` topics. With
    fewer than `LEAST_TOPICS` it holds for every alpha_0; then it is 1. O(t^3 K + K^4) for each
    alpha_0 tried.
    """
    if n_topics < LEAST_TOPICS:
        return 1.0
    seed = int(rng.integers(2**32))

    def excess(log_alpha_0: float) -> float:
        a = float(np.exp(log_alpha_0))
        whitened = _WhitenedMoments(moments, n_topics, a)
        values = whitened.decompose(np.random.default_rng(seed)).eigenvalues
        return float(_alpha(values, a).sum()) / a - 1.0

    # The excess falls with alpha_0. Far above the truth the tensor is no longer orthogonal and its
    # eigenvalues mean nothing, so the first crossing from below is the one.
    grid = np.linspace(np.log(ALPHA_0_RANGE[0]), np.log(ALPHA_0_RANGE[1]), num=13)
    if excess(grid[0]) <= 0:
        return ALPHA_0_RANGE[0]
    for low, high in pairwise(grid):
        if excess(high) <= 0:
            return float(np.exp(scipy.optimize.brentq(excess, low, high, xtol=0.01, rtol=1e-3)))
    return ALPHA_0_RANGE[1]


def _contract(tensor: Array, R: Array) -> Array:
    """Return T(R, R, R), symmetric to the last bit."""
    for _ in range(3):
        tensor = np.tensordot(tensor, R, axes=(0, 0))
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    symmetric: Array = np.mean([tensor.transpose(order) for order in orders], axis=0)
    return symmetric
