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

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.spectral.joint_power import Eigenpairs, apply_pairs, exact, joint_power, word_starts
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import SHOW_NONE, Spectrum
from streamlda.spectral.whitening import second_moment_within, whitening_root
from streamlda.utils.arrays import Array

#: Range in which alpha_0 is looked for.
ALPHA_0_RANGE = (0.01, 100.0)

#: Fewest topics whose moments depend on alpha_0. With two, a document is a point between them: one
#: number, of which three moments cannot tell its range and its distribution.
LEAST_TOPICS = 3

#: The member of a model's diagnostics that says what an estimate of alpha_0 is worth.
ESTIMATE = "alpha_0_estimate"

#: Least share of alpha_0 that a topic keeps.
ALPHA_FLOOR = 1e-6

#: Two topics are the same when their word distributions have this affinity (0 to 1).
SAME_TOPIC_AFFINITY = 0.85

#: A topic is supported when noise turns its eigenvector by less than this (radians, first order).
SUPPORT_ANGLE = 0.5


@dataclass(frozen=True, slots=True)
class RoundMoments:
    """The moments of a round as read once, before alpha_0 is applied.

    `first` is M1, `pairs` G over the t columns of W that the triple moment was taken through
    (`whitening`), `triples` T, and `triple_noise` one draw of its sampling noise. `triple_first`
    and `triple_pairs` are ``W'M1`` and ``W'G`` of the documents of T: T is centred by its own, so
    that a stream may drift in between.
    """

    documents: int
    first: Array
    pairs: Array
    whitening: Array
    triples: Array
    triple_noise: Array
    triple_first: Array
    triple_pairs: Array

    @classmethod
    def of(cls, moments: Moments) -> Self:
        """Read the moments of a round."""
        # First what takes most memory while it is found.
        triples, (_, noise) = moments.triple_moment(), moments.half_differences()
        leading = slice(None, moments.triple_columns)
        first, W = moments.first_moment(), moments.whitening[:, leading]
        pairs = moments.pair_moment(moments.triple_columns)
        return cls(moments.documents, first, pairs, W, triples, noise, W.T @ first, W.T @ pairs)


@dataclass(frozen=True, slots=True)
class SpectralTopics:
    """Topics with what is known about their reliability, most prevalent first."""

    #: mu_i, shape (K, d), rows summing to 1; sampling noise leaves some entries slightly negative
    #: (`normalize` clips them). A topic beyond the rank of the data repeats M1.
    topics: Array
    #: Dirichlet parameters, shape (K,), scaled to sum to `alpha_0`.
    alpha: Array
    alpha_0: float
    #: lambda_i of the whitened triple moment, shape (K,); 0 beyond the rank.
    eigenvalues: Array
    #: Norm of the sampling noise E(I, v_i, v_i), shape (K,): to first order the eigenvector is
    #: turned by ``eigenvalue_noise / eigenvalues`` radians.
    eigenvalue_noise: Array
    #: Eigenvalues of C, shape (t,), largest first.
    pair_eigenvalues: Array
    #: Spectral norm of the noise of C outside the first 0, 1, ..., K-1 eigenvectors; 0 if unknown.
    pair_noise: Array
    documents: int

    @property
    def is_supported(self) -> NDArray[np.bool_]:
        """Mask of the topics above the sampling noise, shape (K,)."""
        return self.eigenvalue_noise < SUPPORT_ANGLE * self.eigenvalues

    def find_supported(self, directions: int) -> NDArray[np.bool_]:
        """Return which of the topics stand out where this many directions are real, shape (K,).

        No more topics than directions are real: those that noise turns least, each once. One
        direction is the word frequencies, and tells no topic from another. Time O(K^2 d).
        """
        if directions >= len(self.alpha):
            return self.is_supported
        turned = self.eigenvalue_noise / np.maximum(self.eigenvalues, 1e-300)
        roots, chosen = self.normalize(), np.zeros(len(turned), dtype=np.bool_)
        np.sqrt(roots, out=roots)
        for k in np.argsort(turned, kind="stable"):
            same = bool(np.any((roots @ roots[k])[chosen] > SAME_TOPIC_AFFINITY))
            chosen[k] = directions > max(1, int(chosen.sum())) and not same
        return chosen & self.is_supported

    def normalize(self) -> Array:
        """Return the topics as distributions: negative entries at 0, rows summing to 1."""
        rows: Array = np.maximum(self.topics, 0.0)
        rows /= rows.sum(axis=1, keepdims=True)
        return rows


def recover_topics(moments: RoundMoments, n_components: int, alpha_0: float) -> SpectralTopics:
    """Decompose the moments of a round into topics; O(d t^2 + t^3 K + K^4)."""
    root, found = _eigenpairs(moments, n_components, alpha_0)
    noise = apply_pairs(contract(moments.triple_noise, root), found.eigenvectors)
    return topics_along(
        *(moments.first, moments.pairs, moments.whitening),
        *(found.eigenvalues, root @ found.eigenvectors, np.linalg.norm(noise, axis=0)),
        *(n_components, alpha_0, moments.documents),
    )


def topics_along(
    first: Array,
    pairs: Array,
    whitening: Array,
    eigenvalues: Array,
    vectors: Array,
    noise: Array,
    n_components: int,
    alpha_0: float,
    documents: int,
) -> SpectralTopics:
    """Return the topics that vectors in the coordinates of W stand for, mu_i ~ G_c v_i.

    With M1, G = E P2 W, W of shape (d, m), vectors of shape (m, K'), and the
    `SpectralTopics.eigenvalue_noise` of each, infinite for a topic that is not to be relied on.
    One without direction, and those beyond K', repeat M1.
    """
    spectrum = np.linalg.eigvalsh(second_moment_within(first, pairs, whitening, alpha_0))[::-1]
    found = vectors.T @ pairs.T
    for row, towards in zip(found, first @ whitening @ vectors, strict=True):
        row -= alpha_0 / (alpha_0 + 1.0) * towards * first
    missing = (0, n_components - len(found))
    mass = np.pad(found.sum(axis=1), missing)
    definite = np.abs(mass) > 1e-9 * np.pad([np.abs(row).sum() for row in found], missing)
    eigenvalues = np.where(definite, np.pad(eigenvalues, missing), 0.0)
    noise = np.where(definite, np.pad(noise, missing), np.inf)
    alpha = _alpha(eigenvalues, alpha_0)
    # Every topic keeps a little prior weight: inference divides by it.
    alpha = np.maximum(alpha, ALPHA_FLOOR * alpha.sum()) if alpha.any() else np.ones(len(mass))
    order = np.argsort(-alpha, kind="stable")
    topics = np.empty((len(mass), len(first)))
    for row, k in zip(topics, order, strict=True):
        row[:] = found[k] / mass[k] if definite[k] else first / first.sum()
    return SpectralTopics(
        topics=topics,
        alpha=alpha[order] * (alpha_0 / alpha.sum()),
        alpha_0=alpha_0,
        eigenvalues=eigenvalues[order],
        eigenvalue_noise=noise[order],
        pair_eigenvalues=np.asarray(spectrum, dtype=np.float64),
        pair_noise=np.zeros(len(mass)),
        documents=documents,
    )


def alpha_0_estimate(alpha_0: float, n_topics: int) -> dict[str, Any]:
    """Return what `solve_alpha_0` is worth with this many topics, as plain JSON values."""
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


def diagnostics(
    topics: SpectralTopics, spectrum: Spectrum, mask: NDArray[np.bool_], documents: int | None
) -> dict[str, Any]:
    """Return the reliability of topics as plain JSON values, with ``warnings`` in words.

    `spectrum` is that of the word pairs, which `documents` were tested on, if any were.
    """
    K, directions = len(topics.alpha), spectrum.above
    weak, warnings = np.flatnonzero(~mask), []
    if directions is not None and directions < K:
        warnings.append(few_directions(directions, K, documents or topics.documents))
    if len(weak) and (directions is None or directions >= min(2, K)):
        listed = ", ".join(str(i) for i in weak[:20]) + ", ..." * (len(weak) > 20)
        warnings.append(
            f"topics that do not stand above sampling noise, {len(weak)} of {K}: {listed}; do not "
            "rely on them"
        )
    return {
        "documents_behind_topics": topics.documents,
        "documents_behind_directions": documents,
        "directions_supported": directions,
        "eigenvalues": topics.eigenvalues.tolist(),
        "eigenvalue_noise": [x if np.isfinite(x) else None for x in topics.eigenvalue_noise],
        "topic_supported": mask.tolist(),
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


def _eigenpairs(
    moments: RoundMoments, n_components: int, alpha_0: float
) -> tuple[Array, Eigenpairs]:
    """Return R of at most K columns, and the eigenpairs of T_c(R, R, R)."""
    W, a = moments.whitening, alpha_0
    root = whitening_root(second_moment_within(moments.first, moments.pairs, W, a), n_components)
    u = root.T @ moments.triple_first
    E = np.multiply.outer(root.T @ moments.triple_pairs @ root, u)
    tensor = (
        contract(moments.triples, root)
        - a / (a + 2) * (E + E.transpose(0, 2, 1) + E.transpose(2, 0, 1))
        + 2 * a**2 / ((a + 1) * (a + 2)) * np.multiply.outer(np.multiply.outer(u, u), u)
    )
    return root, joint_power(exact(partial(apply_pairs, tensor)), word_starts(W @ root))


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


def solve_alpha_0(moments: RoundMoments, n_topics: int) -> float:
    """Solve sum_i alpha_i(alpha_0) = alpha_0; the nearer end of the range if it has no root.

    It holds at the truth when documents follow the model, and have `n_topics` topics. With
    fewer than `LEAST_TOPICS` it holds for every alpha_0; then it is 1. O(t^3 K + K^4) for each
    alpha_0 tried.
    """
    if n_topics < LEAST_TOPICS:
        return 1.0

    def excess(log_alpha_0: float) -> float:
        a = float(np.exp(log_alpha_0))
        values = _eigenpairs(moments, n_topics, a)[1].eigenvalues
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


def contract(tensor: Array, R: Array) -> Array:
    """Return T(R, R, R)."""
    for _ in range(3):
        tensor = np.tensordot(tensor, R, axes=(0, 0))
    return tensor
