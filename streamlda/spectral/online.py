"""The online tensor power method: answers come from the next n documents of a stream.

Algorithm 2 of Wang & Anandkumar [1]_: a round associates n fresh documents with the current probe
vectors u and answers with the means of T(I, u, ..., u) and T(u, ..., u); no tensor is formed. The
iteration itself is a `streamlda.spectral.power.PowerMethod`, so that the simultaneous method
is online in the same way. A stream of any length is one pass: after all components were found,
rounds continue to refine them and follow a stream that drifts.

`VectorAssociation` answers from real vectors x with the moment E x^(xp), as printed;
`DocumentAssociation` from documents of an LDA model, in whitened coordinates.

References
----------
.. [1] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS,
   section 3.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidDocumentsError, above, at_least, failure, require
from streamlda.spectral.associations import Association, Batch
from streamlda.spectral.power import Array, Components, PowerMethod
from streamlda.utils.arrays import Arrays, named, with_prefix

#: Constants of Theorem 3.1, which hides them, and logarithms, in its Omega~, as measured by the
#: benchmark ``wa16-theorem-3-1``.
START_CONSTANT = 0.25
ERROR_CONSTANT = 0.25


def suggested_documents(sigma: float, dimension: int, lambda_min: float, error: float) -> int:
    """Return how many documents a round needs, by Theorem 3.1 with measured constants.

    ``max(ERROR_CONSTANT sigma^2 d / error^2, START_CONSTANT sigma^2 d^2 / lambda_min^2)``: the
    first term is for the error, the second lets random starts find their component at all.

    *Erratum*: the theorem prints the smaller of the two, but its proof needs both of the
    conditions (4), hence the larger.

    Parameters
    ----------
    sigma : float
        Standard deviation of (x'u)^p of one document at unit u; the theorem's is a bound on it for
        all u.
    dimension : int
        d.
    lambda_min : float
        The smallest eigenvalue, above 0.
    error : float
        By which eigenvalues may err, above 0; eigenvectors then err by ``error / lambda_i``.

    Returns
    -------
    int
        n, at least 1.
    """
    above(0, dimension=dimension, lambda_min=lambda_min)
    require(0 < error < math.inf, f"error must be > 0 and finite, got error={error}")
    require(math.isfinite(sigma) and sigma >= 0, "sigma must be finite and >= 0", sigma=sigma)
    for_error = ERROR_CONSTANT * dimension * (sigma / error) ** 2
    for_start = START_CONSTANT * (dimension * sigma / lambda_min) ** 2
    return max(1, math.ceil(max(for_error, for_start)))


class OnlinePower(Generic[Batch]):
    """A power method that lives on a stream: a pure state machine, one pass, bounded memory.

    ``DeflatedPower(..., eigenvalue_round=False)`` on `VectorAssociation` is Algorithm 2 as printed.
    The association, which says how documents answer, is owned from now on. `rounds` counts the
    answers taken: ``k R`` find all components (k more with an eigenvalue round).

    A component that is found from too few documents for Theorem 3.1 is reported by a warning that
    suggests n, see `suggested_documents`; sigma and the eigenvalue are those seen in its last
    round.

    Privacy: nothing read from here is private.

    Parameters
    ----------
    method : PowerMethod
        `DeflatedPower` or `SimultaneousPower`, of the association's order.
    association : Association
        How documents answer; `VectorAssociation` for vectors.
    documents_per_round : int
        n, see `suggested_documents`.

    Raises
    ------
    InvalidSettingError
        If the orders differ or a round has no document.
    """

    def __init__(
        self,
        method: PowerMethod,
        association: Association[Batch],
        documents_per_round: int,
    ) -> None:
        at_least(1, documents_per_round=documents_per_round, remedy="see suggested_documents")
        require(
            method.order == association.order,
            "method and association must be of one order",
            method=method.order,
            association=association.order,
            remedy="make both for one tensor",
        )
        self.method, self.association = method, association
        self.documents_per_round = int(documents_per_round)
        self.rounds = 0
        self._in_work = np.full(method.probes.shape[1], np.nan)
        self._begin()

    @property
    def remaining(self) -> int:
        """Documents until the end of the round."""
        return self.documents_per_round - self.association.documents

    @property
    def finished(self) -> bool:
        """Whether all components have been found; adding continues to refine them."""
        return self.method.finished

    def add(self, batch: Batch) -> None:
        """Add documents, over as many rounds as they fill; a last part waits for the next batch.

        Nothing is added of a batch that does not fit. If a round's sums are not finite, it begins
        again and the rest of the batch has not been added. Warns of components that were found from
        too few documents.
        """
        self.association.check(batch)
        weak: list[str] = []
        start, end = 0, len(batch)
        while start < end:
            start = self.association.add(batch, start, self.remaining)
            if self.remaining == 0:
                weak += self._end_round()
        for message in weak:
            warnings.warn(message, UserWarning, stacklevel=2)

    def components(self) -> Components:
        """Return the components found, and at the end the one in work, marked as unfinished.

        The latter is the iterate whose last round gave the largest value, with that value; it is
        left out before the end of its first round. Documents of a round that has not ended do not
        enter.
        """
        found = self.method.components()
        started = not np.isnan(self._in_work).any()
        if self.method.finished or not found.finished.all() or not started:
            return found
        best = int(np.argmax(self._in_work))
        return Components(
            np.append(found.eigenvalues, self._in_work[best]),
            np.column_stack([found.eigenvectors, self.method.probes[:, best]]),
            np.append(found.finished, False),
        )

    def _begin(self) -> None:
        self.association.begin(self.method.probes, values_only=self.method.wants_values_only)

    def _end_round(self) -> list[str]:
        """Take the answer; return warnings about components that it completed."""
        probes, found = self.method.probes, self.method.components()
        with np.errstate(over="ignore", invalid="ignore"):
            images, values = self.association.answer()
            spread = self.association.spread()
        if not all(np.isfinite(x).all() for x in (images, values, spread) if x is not None):
            self._begin()
            raise failure(
                "the sums of a round must be finite, got overflow in "
                f"round={self.rounds}, which begins again",
                remedy="scale the vectors down",
                error=InvalidDocumentsError,
            )
        self.method.advance(images, values)
        self.rounds += 1
        self._begin()
        done = found.finished
        across = found.eigenvectors[:, done].T @ probes
        deflated = values - found.eigenvalues[done] @ across**self.method.order
        new = int(np.sum(self.method.components().finished)) - int(done.sum())
        if self.method.finished or new:
            self._in_work = np.full(self.method.probes.shape[1], np.nan)
        else:
            self._in_work = deflated
        chosen = np.argsort(-deflated, kind="stable")[:new]
        return self._weak(deflated[chosen], spread[chosen], int(done.sum()))

    def _weak(self, eigenvalues: Array, spread: Array, first: int) -> list[str]:
        n, d = self.documents_per_round, self.association.dimension
        messages = []
        for i, (value, sigma) in enumerate(zip(eigenvalues.tolist(), spread.tolist(), strict=True)):
            # No eigenvalue is known to be smaller than its own sampling error.
            least = max(value, sigma / math.sqrt(n), np.finfo(np.float64).tiny)
            needed = suggested_documents(sigma, d, least, least)
            if n < needed:
                messages.append(
                    "a component should come from enough documents to stand above sampling "
                    f"noise (Theorem 3.1), got component={first + i} documents_per_round={n} "
                    f"eigenvalue={value:.3g} sigma={sigma:.3g} dimension={d}; "
                    f"take documents_per_round={needed} or more"
                )
        return messages

    def state(self) -> Arrays:
        """Return all that `from_state` needs but the association's settings, as copies."""
        return {
            "settings": np.array([self.documents_per_round, self.rounds], dtype=np.int64),
            "in_work": self._in_work.copy(),
            **with_prefix(self.method.state(), "method."),
            **with_prefix(self.association.state(), "association."),
        }

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, NDArray[Any]],
        method: Callable[[Mapping[str, NDArray[Any]]], PowerMethod],
        association: Association[Batch],
    ) -> Self:
        """Continue where `state` was taken, bit for bit.

        `method` restores the power method (its ``from_state``); the association is a new one with
        the settings of the old.
        """
        n, rounds = (int(x) for x in state["settings"].tolist())
        restored = cls(method(named(state, "method.")), association, n)
        restored.rounds, restored._in_work = rounds, state["in_work"].copy()
        association.restore(named(state, "association."))
        return restored
