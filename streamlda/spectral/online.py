"""The online tensor power method: answers come from the next n documents of a stream.

Algorithm 2 of Wang & Anandkumar [1]_: a round associates n fresh documents with the current probe
vectors u and answers with the means of T(I, u, ..., u); no tensor is formed. The iteration itself
is `streamlda.spectral.power.DeflatedPower`. A stream of any length is one pass: after all
components were found, rounds continue to refine them and follow a stream that drifts.

`VectorAssociation` answers from real vectors x with the moment E x^(xp), as printed;
`DocumentAssociation` from documents of an LDA model, in whitened coordinates.

References
----------
.. [1] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS,
   section 3.
"""

import math
from collections.abc import Mapping
from typing import Any, Generic, Self

import numpy as np

from streamlda.errors import above, at_least, require
from streamlda.spectral.associations import Association, Batch
from streamlda.spectral.power import Components, DeflatedPower

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
    require(error > 0, f"error must be > 0, got error={error}")
    for_error = ERROR_CONSTANT * dimension * (sigma / error) ** 2
    for_start = START_CONSTANT * (dimension * sigma / lambda_min) ** 2
    return max(1, math.ceil(max(for_error, for_start)))


class OnlinePower(Generic[Batch]):
    """A power method that lives on a stream: a pure state machine, one pass, bounded memory.

    ``DeflatedPower(..., eigenvalue_round=False)`` on `VectorAssociation` is Algorithm 2 as printed.
    The association, which says how documents answer, is owned from now on. `rounds` counts the
    answers taken: ``k R`` find all components (k more with an eigenvalue round).

    Privacy: nothing read from here is private.

    Parameters
    ----------
    method : DeflatedPower
        Of the association's order.
    association : Association
        How documents answer; `VectorAssociation` for vectors.
    documents_per_round : int
        n, see `suggested_documents`.

    Attributes
    ----------
    residuals : ndarray of shape (k,)
        ``|T(I, u, ..., u) - T(u, ..., u) u|`` at the last answer about each component; infinite
        before there was one. Where it is not small beside the eigenvalue, the iteration has not
        come to a component, or documents were too few (Theorem 3.1).

    Raises
    ------
    InvalidSettingError
        If the orders differ or a round has no document.
    """

    def __init__(
        self, method: DeflatedPower, association: Association[Batch], documents_per_round: int
    ) -> None:
        at_least(1, documents_per_round=documents_per_round, remedy="see suggested_documents")
        orders: dict[str, Any] = {"method": method.order, "association": association.order}
        rule, remedy = "method and association are of different orders", "make both for one tensor"
        require(method.order == association.order, rule, **orders, remedy=remedy)
        self.method, self.association = method, association
        self.documents_per_round = int(documents_per_round)
        self.rounds = 0
        self.residuals = np.full(method.n_components, np.inf)
        association.begin(method.probes)

    @property
    def remaining(self) -> int:
        """Documents until the end of the round."""
        return self.documents_per_round - self.association.documents

    @property
    def finished(self) -> bool:
        """True if all components have been found; adding documents still refines them."""
        return self.method.finished

    def components(self) -> Components:
        """Return the components found. Documents of a round that has not ended do not enter."""
        return self.method.components()

    def add(self, batch: Batch) -> None:
        """Add documents, over as many rounds as they fill; a last part waits for the next batch."""
        start, end = 0, len(batch)
        while start < end:
            start = self.association.add(batch, start, self.remaining)
            if self.remaining == 0:
                self._end_round()

    def _end_round(self) -> None:
        method, probes, images = self.method, self.method.probes, self.association.answer()
        with np.errstate(invalid="ignore"):
            values = np.sum(probes * images, axis=0)
        refining, n = method.finished, method.n_found
        method.advance(images, values)
        residuals = np.linalg.norm(images - values * probes, axis=0)
        if refining:
            self.residuals = residuals
        elif method.n_found > n:
            found = method.components().eigenvectors[:, n]
            self.residuals[n] = residuals[np.argmax(np.abs(found @ probes))]
        self.rounds += 1
        self.association.begin(method.probes)

    def state(self) -> dict[str, Any]:
        """Return all that `from_state` needs but the association's settings, as copies."""
        return {
            "settings": np.array([self.documents_per_round, self.rounds], dtype=np.int64),
            "residuals": self.residuals.copy(),
            "method": self.method.state(),
            "association": self.association.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], association: Association[Batch]) -> Self:
        """Continue where `state` was taken, bit for bit, with a new association like the old."""
        n, rounds = (int(x) for x in state["settings"].tolist())
        restored = cls(DeflatedPower.from_state(state["method"]), association, n)
        restored.rounds, restored.residuals = rounds, state["residuals"].copy()
        association.restore(state["association"])
        return restored
