"""Rounds that answer a power method with noise: the online and private tensor power methods.

Wang & Anandkumar (2016) read fresh documents for each power iteration (Algorithm 2), or add noise
to the answers of one tensor (Algorithm 3). Here it is both: the last part of a window is cut into
rounds at fixed slots; each is a stage that sums W'P3(I, Wu, Wu) over its documents at the current
probes u, released by one Gaussian mechanism; deflation or QR, alpha_0 and the next probes are
post-processing. Every slot is in one round, so that a round costs its documents what any other
stage costs (privacy/README.md, Stages and windows), and probes, which follow from earlier releases,
are public when a round begins.

Rounds are planned for K components. Where noise hid some directions of the pairs, fewer are sought,
and the rounds that are left refine those found (`DeflatedPower`).

Sensitivity
-----------
With T = P3(W, W, W) of a document, scaled to ||T||_F <= C, and U the probes as columns, the answers
are ``T_(1) (U . U)``: T unfolded to t x t^2, times the matrix with columns u_j x u_j. As
``||AB||_F <= ||A||_F ||B||_2``, their joint norm is at most C times the spectral norm of that
matrix, and its Gram matrix has entries (u_i'u_j)^2. Values T(u_j, u_j, u_j) are products with the
columns u_j x u_j x u_j likewise. So one document adds at most::

    images   C sqrt(largest eigenvalue of (U'U)^(o2))
    values   C sqrt(largest eigenvalue of (U'U)^(o3))

with entrywise powers. For orthonormal probes both are C: all components for the price of one. For
L unit probes it is at most sqrt(L) C, attained by equal ones: restarts that agree cost most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.mechanism import Block
from streamlda.kernels import association
from streamlda.privacy.clipping import clip_factors
from streamlda.private.contributions import TripleNorms, View
from streamlda.private.settings import SIMULTANEOUS, PrivateSettings
from streamlda.private.topics import (
    PairView,
    PrivateTopics,
    check_documents,
    pairs_through,
    topics_of_eigenpairs,
)
from streamlda.spectral.power import Components, DeflatedPower, SimultaneousPower

Array = NDArray[np.float64]

#: Fraction of a round's privacy budget that goes to the number of documents used for it. Rounds are
#: short, so it needs more than in other stages: a wrong number spoils the corrections for alpha_0.
KEPT_FRACTION = 0.05

#: Absolute terms of P3(I, v, v) over the cube of the longest row of W, for one unit probe:
#: l (l + 1) (l + 2) over l (l - 1) (l - 2), at l = 3.
ANSWER_TERMS = 10.0

#: Roundings behind a term, over those that the mechanism counts: s^2 has twice those of a sum over
#: words, and v = W u as many as columns, each time it occurs.
ROUNDINGS = 4.0


class PowerStatistic:
    """Answers of one round: sums of f W'P3(I, Wu, Wu), or of f P3(Wu, Wu, Wu), and of f.

    Blocks ``images``, shape (t, L), or ``values``, shape (L,); and ``triple_kept``.
    Unit: a document. Relation, groups and users: `streamlda.private.stage`. Sensitivity: see the
    module. Public: W, the unit vectors u as columns of `probes`, the bound C of ||P3(W, W, W)||_F,
    L. Nothing here is private until it is released.

    Time O(nnz (L + t)) a document and O(d t L) a call of `take`; memory O(d L) and that of a block
    of documents.
    """

    def __init__(
        self, whitening: Array, probes: Array, bound: float, *, values_only: bool = False
    ) -> None:
        self._norms = TripleNorms(whitening)
        self._bound, self._values_only = bound, values_only
        self._spread = answer_norm(probes, 3 if values_only else 2)
        self._shape = (probes.shape[1],) if values_only else probes.shape
        self._directions = np.ascontiguousarray(self._norms.whitening @ probes)
        n_probes = probes.shape[1]
        self._images = np.zeros((0 if values_only else len(whitening), n_probes))
        self._values = np.zeros((2, n_probes))
        self._kept = 0.0

    def blocks(self) -> list[Block]:
        """What is added to a sum is at most the product of row norms, whatever cancels before."""
        ratio = self._norms.largest_norm / self._bound
        probes = np.sqrt(self._shape[-1]) / self._spread
        answer = Block(
            "values" if self._values_only else "images",
            self._shape,
            self._bound * self._spread,
            1.0 - KEPT_FRACTION,
            magnitude=max(1.0, ROUNDINGS * ANSWER_TERMS * probes * ratio),
            sum_magnitude=max(1.0, ratio) * 1.01,
        )
        kept = Block("triple_kept", (), 1.0, KEPT_FRACTION, nonnegative=True, magnitude=1.01)
        return [answer, kept]

    def add(self, view: View) -> None:
        """Add the active documents."""
        batch = view.batch
        factors = clip_factors(self._norms.norms(view), self._bound) * view.active
        weights = view.weights[:, 2] * factors
        powers = np.empty((3, batch.n_documents, self._directions.shape[1]))
        rows = batch.counts, batch.word_ids, batch.row_pointers
        association.project_powers(*rows, self._directions, powers)
        if self._values_only:
            association.associate_values(powers, weights, self._values)
        else:
            association.associate_triples(
                *view.by_word, self._directions, powers[0], powers[1], weights, self._images
            )
        self._kept += float(factors.sum())

    def take(self) -> dict[str, Array]:
        """Return the sums."""
        if self._values_only:
            sums = {"values": self._values[0].copy()}
        else:
            sums = {"images": self._norms.whitening.T @ self._images}
        sums["triple_kept"] = np.array(self._kept)
        self._images[:], self._values[:], self._kept = 0.0, 0.0, 0.0
        return sums


class PowerRounds:
    """A power method in whitened coordinates (W'M2 W = I) that uses released answers alone."""

    def __init__(self, settings: PrivateSettings, view: PairView, whitening: Array) -> None:
        t = whitening.shape[1]
        options: dict[str, Any] = {"n_iterations": settings.iterations, "seed": settings.seed}
        self.method: DeflatedPower | SimultaneousPower
        if settings.solver == SIMULTANEOUS:
            self.method = SimultaneousPower(t, t, **options)
        else:
            self.method = DeflatedPower(t, t, n_restarts=settings.n_restarts, **options)
        self.image_stddev = 0.0  # Of the noise in an entry of the last images.
        self._alpha_0 = settings.working_alpha_0
        self._view, self._whitening = view, whitening
        pairs = whitening.T @ pairs_through(view, whitening)
        self._first, self._pairs = whitening.T @ view.first, (pairs + pairs.T) / 2

    def statistic(self, bound: float) -> PowerStatistic:
        """Return what the next round sums."""
        return PowerStatistic(
            self._whitening, self.method.probes, bound, values_only=self.method.wants_values_only
        )

    def answer(self, released: Mapping[str, Array], stddevs: Mapping[str, float]) -> None:
        """Give the method the released sums of a round."""
        kept = float(released["triple_kept"])
        check_documents(kept, "take larger windows, a larger epsilon, or fewer iterations")
        probes = self.method.probes
        if self.method.wants_values_only:
            images, values = None, released["values"] / kept
        else:
            images = released["images"] / kept
            values = np.einsum("tl,tl->l", probes, images)
            self.image_stddev = stddevs["images"] / kept
        self.method.advance(
            *centred_answers(images, values, probes, self._first, self._pairs, self._alpha_0)
        )

    def topics(self, documents: int, rng: np.random.Generator) -> PrivateTopics:
        """Return the topics that the components stand for; see `topics_of_eigenpairs`."""
        found: Components = self.method.components()
        args = self.image_stddev, self._whitening, self._alpha_0, documents, rng
        return topics_of_eigenpairs(self._view, found, *args)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what `from_state` needs beside the constructor's arguments: noisy values only."""
        return {**self.method.state(), "image_stddev": np.array(self.image_stddev)}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, NDArray[Any]],
        settings: PrivateSettings,
        view: PairView,
        whitening: Array,
    ) -> Self:
        """Go on where `state` was taken."""
        rounds = cls(settings, view, whitening)
        rounds.method = type(rounds.method).from_state(state)
        rounds.image_stddev = float(state["image_stddev"])
        return rounds


def answer_norm(probes: Array, power: int) -> float:
    """Return the spectral norm of the matrix whose columns are u_j^(x power), rounded up.

    The square root of the largest eigenvalue of the entrywise power of U'U. Time O(L^2 (t + L)).
    """
    gram = (probes.T @ probes) ** power
    return float(np.sqrt(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-9))


def centred_answers(
    images: Array | None, values: Array, probes: Array, first: Array, pairs: Array, alpha_0: float
) -> tuple[Array | None, Array]:
    """Turn means of P3(W, v, v) and P3(v, v, v), v = W u, into those of M3.

    With q = W'M1 (`first`), N = W' E P2 W (`pairs`), a = alpha_0 (`DocumentAssociation`)::

        M3(W, v, v) = P3(W, v, v) - a/(a+2) (2 (q'u) N u + (u'N u) q) + 2a^2/((a+1)(a+2)) (q'u)^2 q
    """
    a = alpha_0
    mixed, cube = a / (a + 2), 2 * a**2 / ((a + 1) * (a + 2))
    across, paired = first @ probes, pairs @ probes
    square = np.sum(probes * paired, axis=0)
    values = values - 3 * mixed * across * square + cube * across**3
    if images is not None:
        images = images - mixed * (2 * across * paired + np.outer(first, square))
        images += cube * np.outer(first, across**2)
    return images, values
