"""Rounds that answer a power method with noise: the online and private tensor power methods.

Wang & Anandkumar (2016) read fresh documents for each power iteration (Algorithm 2), or add noise
to the answers of one tensor (Algorithm 3). Here it is both: each round is a stage that sums
W'P3(I, Wu, Wu) over its documents at the current probes u; deflation or QR, alpha_0 and the next
probes are post-processing. Rounds are planned for K components. Where noise hid some directions of
the pairs, fewer are sought, and the rounds that are left refine those found (`DeflatedPower`).

With T = P3(W, W, W) of a document, ||T||_F <= C, and U the probes as columns, the answers are
``T_(1) (U . U)``: T unfolded to t x t^2, times the matrix with columns u_j x u_j. So their joint
norm is at most C times the spectral norm of that matrix, whose Gram matrix has entries (u_i'u_j)^2;
of values T(u_j, u_j, u_j) likewise, with cubes. That is what answers are clipped at: C for
orthonormal probes, all components for the price of one; sqrt(L) C for L equal ones.
"""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import Contribution
from streamlda.kernels import association
from streamlda.private.contributions import Contributions, View, check_projection, make_kept_block
from streamlda.private.settings import SIMULTANEOUS, PrivateSettings
from streamlda.private.topics import (
    PairView,
    PrivateTopics,
    check_documents,
    pairs_through,
    topics_of_eigenpairs,
)
from streamlda.spectral.associations import centre_images
from streamlda.spectral.power import Components, DeflatedPower, SimultaneousPower
from streamlda.utils.arrays import Array

#: Fraction of a round's privacy budget that goes to the number of documents used for it. Rounds are
#: short, so it needs more than in other stages: a wrong number spoils the corrections for alpha_0.
KEPT_FRACTION = 0.05

#: Least eigenvalue of W'M2 W by newer pairs: the pairs that W is from said 1.
LEAST_TURN = 0.1


class PowerStatistic:
    """Answers of one round: W'P3(I, Wu, Wu), or P3(Wu, Wu, Wu), and documents.

    Blocks ``images``, shape (t, L), or ``values``, shape (L,); and ``triple_kept``. Public: W, the
    unit vectors u as columns of `probes`, the bound, L. Time and memory O(nnz t L) a document.
    """

    def __init__(
        self,
        whitening: Array,
        probes: Array,
        bound: float,
        *,
        values_only: bool = False,
        weight: float = 1.0,
    ) -> None:
        self._weight = weight
        self._whitening, self._values_only = check_projection(whitening), values_only
        self._bound = bound * answer_norm(probes, 3 if values_only else 2)
        self._name = "values" if values_only else "images"
        self._shape = (probes.shape[1],) if values_only else probes.shape
        self._directions = np.ascontiguousarray(self._whitening @ probes)

    def blocks(self) -> list[Block]:
        """Answers may be of either sign."""
        weight = self._weight * (1.0 - KEPT_FRACTION)
        answer = Block(self._name, self._shape, self._bound, weight, scaled_with="triple")
        return [answer, make_kept_block("triple", self._weight, KEPT_FRACTION)]

    def contributions(self, view: View) -> Contributions:
        """Return the answers of each document."""
        n, weights = view.batch.n_documents, np.ascontiguousarray(view.weights[:, 2])
        powers = np.empty((3, n, self._directions.shape[1]))
        for power, projections in enumerate(powers, start=1):
            association.project(*view.rows, self._directions**power, projections)
        if self._values_only:
            s, s2, s3 = powers
            answers = weights[:, None] * (s * (s * s - 3.0 * s2) + 2.0 * s3)
        else:
            t, L = self._shape
            answers, how = np.empty((n, t * L)), (self._whitening, self._directions)
            association.images_through(*view.rows, *how, powers, weights, answers)
        return {self._name: Contribution(answers), "triple_kept": view.kept_part}

    def doubles(self, distinct: float) -> float:
        """Return the cells of the answers."""
        return float(np.prod(self._shape))


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
        # Radians by which these turned each probe, and what components were found from.
        self._turned = self._turns = np.zeros(t)
        self._alpha_0, self._settings = settings.working_alpha_0, settings
        self._view, self._whitening = view, whitening
        pairs = whitening.T @ pairs_through(view, whitening)
        self._first, self._pairs = whitening.T @ view.first, (pairs + pairs.T) / 2

    def statistic(self, bound: float, weight: float = 1.0) -> PowerStatistic:
        """Return the statistic of the next round."""
        values_only = self.method.wants_values_only
        how = (self._whitening, self.method.probes, bound)
        return PowerStatistic(*how, values_only=values_only, weight=weight)

    def answer(self, sums: Mapping[str, Array], stddevs: Mapping[str, float]) -> None:
        """Give the method the released sums of a round."""
        kept = float(sums["triple_kept"])
        check_documents(kept, "take larger windows, a larger epsilon, or fewer iterations")
        probes = self.method.probes
        if self.method.wants_values_only:
            images, values = None, sums["values"] / kept
        else:
            images = sums["images"] / kept
            values = np.einsum("tl,tl->l", probes, images)
            self.image_stddev = stddevs["images"] / kept
        self.method.advance(
            *centre_answers(images, values, probes, self._first, self._pairs, self._alpha_0)
        )
        if images is None:
            vectors = self.method.components().eigenvectors
            best = np.argmax(np.abs(vectors[:, -1] @ probes))
            self._turns[vectors.shape[1] - 1] = self._turned[best]
            return
        # The turn away from a random start tells nothing.
        most = 0.0 if self.method._iteration == 1 else 1.0
        cosines = np.abs(probes.T @ self.method.probes).max(axis=0)
        self._turned = np.arccos(np.minimum(cosines, most))
        if self.method.finished:
            self._turns = self._turned

    def turn(self, sums: Mapping[str, Array], stddevs: Mapping[str, float], view: PairView) -> Self:
        """Return rounds one step on, by sums over more documents at the same probes, and pairs.

        The pairs whiten W again: with R = (W'M2 W)^(-1/2), T(R, R, R) at the unit vector along R^-1
        u is R T(I, u, u) / |R^-1 u|^2. A step squares the error of components that are nearly
        right.
        """
        look = view.directions.T @ self._whitening
        values, vectors = np.linalg.eigh(look.T @ (view.eigenvalues[:, None] * look))
        roots = np.sqrt(np.maximum(values, LEAST_TURN))
        along = (vectors * roots) @ vectors.T @ self.method.probes
        lengths, root = np.linalg.norm(along, axis=0), (vectors / roots) @ vectors.T
        found = type(self)(self._settings, view, self._whitening @ root)
        found.method, found._turns = copy.deepcopy(self.method), self._turns.copy()
        found.method.begin_at(along / lengths)
        images = root @ sums["images"] / lengths**2
        found.answer({**sums, "images": images}, stddevs)
        return found

    def topics(self, documents: int, rng: np.random.Generator) -> PrivateTopics:
        """Return the topics that the components stand for; see `topics_of_eigenpairs`."""
        found: Components = self.method.components()
        # A component that the last round still turned has not converged.
        turned = found.eigenvalues * self._turns[: len(found.eigenvalues)]
        noise = np.maximum(turned, self.image_stddev * np.sqrt(len(self._pairs)))
        args = noise, self._whitening, self._alpha_0, documents, rng
        return topics_of_eigenpairs(self._view, found, *args)


def answer_norm(probes: Array, power: int) -> float:
    """Return the spectral norm of the matrix whose columns are u_j^(x power), rounded up.

    The square root of the largest eigenvalue of the entrywise power of U'U. Time O(L^2 (t + L)).
    """
    gram = (probes.T @ probes) ** power
    return float(np.sqrt(np.linalg.eigvalsh(gram)[-1]) * (1 + 1e-9))


def centre_answers(
    images: Array | None, values: Array, probes: Array, first: Array, pairs: Array, alpha_0: float
) -> tuple[Array | None, Array]:
    """Turn means of P3(W, v, v) and P3(v, v, v) into those of M3, as `centre_images`."""
    nothing = np.zeros_like(probes) if images is None else images
    centred = centre_images(nothing, probes, first, pairs, alpha_0)
    corrections = np.sum(probes * (centred - nothing), axis=0)
    return None if images is None else centred, values + corrections
