"""Power methods as state machines: they need T(I, u, ..., u) at some vectors, and continue with it.

Wang & Anandkumar's three algorithms [1]_ are one iteration with three ways to answer: from a tensor
(Algorithm 1), from the next n documents of a stream (Algorithm 2), or with noise added to either
(Algorithm 3). Here is the iteration; whoever reads `probes` and answers by `advance` decides
which algorithm it is. Answers are for the tensor as it is: deflation happens here, since
T - sum_j l_j v_j^(xp) applied to u needs only l_j, v_j and v_j'u.

`DeflatedPower` finds one component after the other from L random starts. `SimultaneousPower` turns
all of them at once and keeps them orthogonal (Wang & Lu [2]_). Both may continue for ever: after
the last component `DeflatedPower` refines each against all others, so it follows a stream that
drifts.

References
----------
.. [1] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS.
.. [2] Wang, Lu (2017), "Tensor decomposition via simultaneous power iteration", ICML.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidDocumentsError, at_least, require
from streamlda.utils.arrays import Array, Arrays


@dataclass(frozen=True, slots=True)
class Components:
    """Components that a power method has found so far, in their order.

    Eigenvectors are unit columns, shape (d, i), signed so that eigenvalues are positive where the
    order p is odd.
    """

    eigenvalues: Array
    eigenvectors: Array


#: Settings of `DeflatedPower` in the order of its state.
_SETTINGS = ("n_restarts", "n_iterations", "order", "eigenvalue_round", "seed")


class DeflatedPower:
    """One component after the other: L random starts, R iterations, the best is kept and deflated.

    The eigenvalue round asks once more for the eigenvalues of the last iterates, as Algorithms 1
    and 3 do. Without it they are those of the iterates before, as Algorithm 2 is printed.

    Memory O(d (k + L)), time O(d k L) an answer. ``k R`` answers with images, and k more of values
    alone with the eigenvalue round.

    Parameters
    ----------
    dimension, n_components : int
        d and k, k at most d.
    n_restarts, n_iterations : int
        L and R, of each component.
    order : int, default 3
        p, of the tensor.
    eigenvalue_round : bool, default True
    seed : int, default 0
        Of the random starts.

    Raises
    ------
    InvalidSettingError
        If one of these is out of range.
    """

    def __init__(
        self,
        dimension: int,
        n_components: int,
        *,
        n_restarts: int,
        n_iterations: int,
        order: int = 3,
        eigenvalue_round: bool = True,
        seed: int = 0,
    ) -> None:
        at_least(1, dimension=dimension, n_components=n_components)
        at_least(1, n_restarts=n_restarts, n_iterations=n_iterations)
        at_least(3, order=order)
        at_least(0, seed=seed)
        require(seed < 2**64, "seed must be a number of 64 bits", seed=seed)
        sizes: dict[str, Any] = {"n_components": n_components, "dimension": dimension}
        rule, remedy = "there are more components than dimensions", "ask for fewer components"
        require(n_components <= dimension, rule, **sizes, remedy=remedy)
        self.n_restarts, self.n_iterations, self.order = n_restarts, n_iterations, order
        self.eigenvalue_round, self.seed = eigenvalue_round, seed
        self._values = np.zeros(n_components)
        self._vectors = np.zeros((dimension, n_components))
        #: Components found, and answers taken about the next one.
        self.n_found = self._iteration = 0
        #: Unit vectors u as columns: the L iterates, or all components while refining.
        self.probes = self._random_starts()

    @property
    def n_components(self) -> int:
        """K."""
        return len(self._values)

    @property
    def wants_values_only(self) -> bool:
        """True if the next answer is the eigenvalue round, which needs no images."""
        return not self.finished and self._iteration == self.n_iterations

    @property
    def finished(self) -> bool:
        """True once all components have been found."""
        return self.n_found == self.n_components

    def advance(self, images: Array | None, values: Array) -> None:
        """Take the answer at `probes`: images (None if only values are wanted) and values.

        If it is refused, the state is as before.
        """
        probes = self.probes
        values = _check_answer(images, values, probes, values_only=self.wants_values_only)
        if self.finished:
            assert images is not None
            self._refine(images, values)
            return
        across = self._vectors.T @ probes
        weighted = self._values[:, None] * across ** (self.order - 1)
        values = values - np.sum(weighted * across, axis=0)
        if images is not None and not self.wants_values_only:
            self.probes = unit_columns(images - self._vectors @ weighted, probes)
            self._iteration += 1
            if self._iteration < self.n_iterations or self.eigenvalue_round:
                return
        best = int(np.argmax(values))
        self._values[self.n_found] = values[best]
        self._vectors[:, self.n_found] = self.probes[:, best]
        self.n_found += 1
        self._iteration = 0
        self.probes = self._vectors.copy() if self.finished else self._random_starts()

    def begin_at(self, probes: Array) -> None:
        """Refine these unit vectors next, in place of the components, all of which are found."""
        self.probes, self._vectors = probes.copy(), probes.copy()

    def _refine(self, images: Array, values: Array) -> None:
        """Turn every component by the tensor less all others."""
        vectors = self._vectors
        across = vectors.T @ vectors
        np.fill_diagonal(across, 0.0)
        weighted = self._values[:, None] * across ** (self.order - 1)
        values = values - np.sum(weighted * across, axis=0)
        # Where p is odd, a step from u with a negative value leads to -u, whose value is positive.
        self._values = np.abs(values) if self.order % 2 else values
        self._vectors = unit_columns(images - vectors @ weighted, vectors)
        self.probes = self._vectors.copy()

    def components(self) -> Components:
        """Return the components found; not the one in work."""
        n = self.n_found
        return Components(self._values[:n].copy(), self._vectors[:, :n].copy())

    def _random_starts(self) -> Array:
        rng = np.random.default_rng([self.seed, self.n_found])
        starts = rng.standard_normal((len(self._vectors), self.n_restarts))
        return unit_columns(starts, starts)

    def state(self) -> Arrays:
        """Return all that `from_state` needs, as copies."""
        settings = [int(getattr(self, name)) for name in _SETTINGS]
        return {
            "settings": np.array([*settings, self.n_found, self._iteration], dtype=np.uint64),
            "values": self._values.copy(),
            "vectors": self._vectors.copy(),
            "probes": self.probes.copy(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Continue where `state` was taken, bit for bit."""
        *settings, found, iteration = (int(x) for x in state["settings"].tolist())
        options: dict[str, Any] = dict(zip(_SETTINGS, settings, strict=True))
        restored = cls(*state["vectors"].shape, **options)
        restored._values, restored._vectors = state["values"].copy(), state["vectors"].copy()
        restored.probes, restored.n_found = state["probes"].copy(), found
        restored._iteration = iteration
        return restored


class SimultaneousPower:
    """All k vectors at once: each is turned by the tensor, then all are made orthogonal by QR.

    R answers in all, in place of k R: every document serves every component; further answers
    refine. From random starts it finds the span of the components; which vector becomes which is
    decided by the order of QR, so more starts than components are of no use.

    Parameters
    ----------
    dimension, n_components : int
        d and k, k at most d.
    n_iterations : int
        R.
    order : int, default 3
        p, of the tensor.
    seed : int, default 0
        Of the random starts.

    Raises
    ------
    InvalidSettingError
        If one of these is out of range.
    """

    #: Never: every answer turns the vectors.
    wants_values_only = False

    def __init__(
        self, dimension: int, n_components: int, *, n_iterations: int, order: int = 3, seed: int = 0
    ) -> None:
        checked = DeflatedPower(
            dimension,
            n_components,
            n_restarts=n_components,
            n_iterations=n_iterations,
            order=order,
            seed=seed,
        )
        self.n_iterations, self.order, self.seed = n_iterations, order, seed
        self._iteration = 0
        self._values = np.zeros(n_components)
        #: Orthonormal vectors as columns, shape (d, k).
        self.probes: Array = np.linalg.qr(checked.probes)[0]

    @property
    def finished(self) -> bool:
        """True once R answers have been taken."""
        return self._iteration >= self.n_iterations

    def advance(self, images: Array | None, values: Array) -> None:
        """Take the answer at `probes`; as `DeflatedPower.advance`."""
        values = _check_answer(images, values, self.probes, values_only=False)
        assert images is not None
        self._values = values
        # The strongest first: QR keeps the first direction and bends the last.
        order = np.argsort(-values, kind="stable")
        turned, corner = np.linalg.qr(images[:, order])
        signs = np.where(np.diag(corner) < 0, -1.0, 1.0)
        self._values = values[order]
        self.probes = np.ascontiguousarray(turned * signs)
        self._iteration += 1

    def begin_at(self, probes: Array) -> None:
        """Turn these unit vectors next."""
        self.probes = probes.copy()

    def components(self) -> Components:
        """Return all components as they are, whether or not R answers have been taken."""
        return Components(self._values.copy(), self.probes.copy())


def _check_answer(
    images: Array | None, values: Array, probes: Array, *, values_only: bool
) -> Array:
    """Return the values of an answer that fits the probes and is finite."""
    values = np.asarray(values, dtype=np.float64)
    shape = None if images is None else images.shape
    fits = values.shape == probes.shape[1:] and (values_only or shape == probes.shape)
    shapes: dict[str, Any] = {"images": shape, "values": values.shape, "probes": probes.shape}
    require(fits, "an answer does not fit the probes", **shapes)
    require(
        np.isfinite(values).all() and (images is None or np.isfinite(images).all()),
        "power iterations are answered with NaN or infinity",
        remedy="check the tensor or the documents",
        error=InvalidDocumentsError,
    )
    return values


def unit_columns(columns: Array, otherwise: Array) -> Array:
    """Return the columns at length 1; one without length is replaced by that of `otherwise`."""
    # By a power of 2, which rounds nothing: squares of very small or large numbers are not lost.
    _, exponents = np.frexp(np.abs(columns).max(axis=0, initial=0.0))
    columns = np.ldexp(columns, -exponents)
    norms = np.linalg.norm(columns, axis=0)
    usable = norms > 0
    return np.where(usable, columns, otherwise) / np.where(usable, norms, 1.0)
