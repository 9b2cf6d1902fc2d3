"""Private tensor power methods: noise on every answer.

Wang & Anandkumar (2016), Algorithm 3: a power method asks for T(I, u, u) at a vector u that is
public by then, and is answered with noise in proportion to how far a neighbouring tensor could move
the answer, ``||u||_inf^2``; an eigenvalue T(u, u, u) with noise in proportion to ``||u||_inf^3``.
For flat (incoherent) u that is less than input perturbation (`perturb_tensor`, section 4) needs,
whose noise of d^3 entries outgrows a component of d entries.
*Erratum*: each of the L restarts has its own u, and so its own noise. The paper asks T - D in lines
6 and 10; D is public, so that T is asked here and D taken off the answer.

Sensitivities and their proofs are in `streamlda.papers.wang_anandkumar.neighbours`; the noise is
discrete and comes from `streamlda.guarantee.mechanism`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from streamlda.errors import BudgetExceededError, between, one_of
from streamlda.guarantee import accounting
from streamlda.guarantee.mechanism import Block, JointGaussian
from streamlda.guarantee.noise import Noise
from streamlda.papers.faults import check
from streamlda.papers.rounding import mechanism_of_ratio
from streamlda.papers.symmetric import find_free, unpack
from streamlda.papers.wang_anandkumar import compositions
from streamlda.papers.wang_anandkumar.neighbours import Neighbours
from streamlda.papers.wang_anandkumar.tensors import SymmetricTensor, check_array
from streamlda.privacy import costs
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Composed, GaussianRelease
from streamlda.spectral.power import Components, DeflatedPower, SimultaneousPower
from streamlda.utils.arrays import Array

#: How the noise of a query follows from epsilon, delta and the number of queries.
CALIBRATIONS = ("exact", "paper")

#: How far from 1 the length of a probe may be.
UNIT_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Schedule:
    """Budget of all queries together, and the noise that each has for it.

    Parameters
    ----------
    epsilon : float or None
        Asked for all queries together, in nats; None with `noise_multipliers`, to be told by
        `NoisyPower.epsilon`.
    delta : float
        Of all queries together.
    neighbours : Neighbours
    calibration : {"exact", "paper"}, default "exact"
        ``"exact"``: K Gaussian queries with noise multiplier z are sqrt(K)/z-GDP, so
        z = sqrt(K) sigma*(epsilon, delta). ``"paper"``: the paper's formula (line 2),
        `streamlda.papers.wang_anandkumar.compositions.wang_anandkumar`; only for comparison.
    noise_multipliers : sequence of float, optional
        Standard deviation / l2_sensitivity of the queries of each round, in place of those of a
        calibration: a schedule of one's own.
    """

    epsilon: float | None
    delta: float
    neighbours: Neighbours
    calibration: str = "exact"
    noise_multipliers: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            between(1e-6, accounting.MAX_EPSILON, epsilon=self.epsilon)
        for noise_multiplier in self.noise_multipliers or ():
            between(1e-6, 1e12, noise_multiplier=noise_multiplier)
        between(1e-290, 0.5, delta=self.delta)
        remedy = "take 'exact', which needs the least noise"
        one_of(CALIBRATIONS, calibration=self.calibration, remedy=remedy)

    def noise_multiplier(self, queries: int) -> float:
        """Return standard deviation / l2_sensitivity of each of K queries of the same tensor."""
        assert self.epsilon is not None
        return _noise_multiplier(self.epsilon, self.delta, queries, self.calibration)


class NoisyPower:
    """A power method whose every answer is a private release.

    Unit and relation: what `schedule.neighbours` says; an entry of the tensor, or a document added
    or removed. Sensitivity of each query: `Neighbours.sensitivities`, with derivation.
    The L queries of a round are one joint release: with noise multiplier z each, they are
    sqrt(L)/z-GDP together. Images at u are noisy already, so where a method wants ``T(u, u, u)``
    beside them, it gets u' times the noisy image, which costs nothing; only an eigenvalue round
    asks for values alone. So a `DeflatedPower` asks K = k L (R + 1) queries (k L R without the
    eigenvalue round), a `SimultaneousPower` K = k R. All that follows (deflation, normalising, the
    choice of the best restart) works on noisy answers.

    Public, not protected by the noise: d, k, L, R, seeds of the starts, epsilon, delta, neighbours
    with the map, n and the magnitude, every noisy answer, and hence every u and standard deviation.

    Whether answers are private, and at which epsilon, follows from the noise of all rounds by exact
    accounting, whatever a schedule says of itself: `private`, `epsilon`, `statement`; see
    `tv_distance_bound` for what drawing adds to delta. For documents, that holds for
    the tensor of E[P3] alone (alpha_0 = 0).

    Parameters
    ----------
    method : DeflatedPower or SimultaneousPower
        Of order 3.
    tensor : SymmetricTensor
    schedule : Schedule
    noise : Noise
    """

    def __init__(
        self,
        method: DeflatedPower | SimultaneousPower,
        tensor: SymmetricTensor,
        schedule: Schedule,
        noise: Noise,
    ) -> None:
        check(method.order == 3, "order", order=method.order)
        self.method, self.schedule = method, schedule
        self._tensor, self._noise = tensor, noise
        self._done: list[GaussianRelease] = []
        self.rounds, self.queries_per_round = plan_rounds(method)

    @property
    def queries(self) -> int:
        """K, of all rounds."""
        return self.rounds * self.queries_per_round

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity of each query of the next round."""
        return self._multiplier(len(self._done))

    def _multiplier(self, number: int) -> float:
        given = self.schedule.noise_multipliers
        return self.schedule.noise_multiplier(self.queries) if given is None else given[number]

    @property
    def epsilon(self) -> float:
        """Cost of all rounds, at the delta of the schedule, by exact accounting."""
        return costs.epsilon_spent(self.event, self.schedule.delta)

    @property
    def private(self) -> bool:
        """Tell whether noise is secure and costs no more than the epsilon that was asked."""
        asked = self.schedule.epsilon
        return self._noise.secure and (asked is None or self.epsilon <= asked)

    @property
    def statement(self) -> str:
        """One paragraph to publish beside the components."""
        asked, delta = self.schedule.epsilon, self.schedule.delta
        if not self._noise.secure:
            return "not private: the noise was seeded."
        cost = f"epsilon {self.epsilon:.4g}, delta {delta:g} by exact accounting of all rounds"
        if not self.private:
            return f"not private at epsilon {asked:g}: the noise costs {cost}."
        unit = {"entry": "entry of the tensor", "add-remove": "document (add-remove)"}
        return f"private: {cost}, for each {unit[self.schedule.neighbours.notion]}."

    @property
    def tv_distance_bound(self) -> float:
        """Bound on the distance of all drawn noise from exact noise.

        It costs ``(1 + e^epsilon)`` times as much more delta, about 1e-11 for a million values.
        """
        return 2 * Noise.tv_distance_bound * self.queries * len(self.method.probes)

    @property
    def round_event(self) -> GaussianRelease:
        """Cost of the next round."""
        return GaussianRelease(self.noise_multiplier / math.sqrt(self.method.probes.shape[1]))

    @property
    def event(self) -> Composed:
        """Cost of all rounds together."""
        root = math.sqrt(self.queries_per_round)
        return Composed([GaussianRelease(self._multiplier(i) / root) for i in range(self.rounds)])

    @property
    def total_cost(self) -> Composed:
        """Cost of the rounds until now."""
        return Composed(self._done)

    def step(self) -> None:
        """Ask the next round, add noise, and let the method continue.

        Rounds after the last raise BudgetExceededError. An answer that is not finite, or larger
        than the magnitude allows, raises InvalidDocumentsError, and no noise is drawn.
        """
        if len(self._done) >= self.rounds:
            spent, wanted = (cost(x).mu_squared for x in (self.total_cost, self._done[-1]))
            raise BudgetExceededError(
                f"queries exceed the privacy budget of the tensor, got spent={spent!r} "
                "remaining=0.0; ask fewer queries, or take other documents",
                **{"spent": spent, "remaining": 0.0, "requested": wanted},
            )
        probes = self.method.probes
        _check_unit(probes)
        values_only = self.method.wants_values_only
        mechanism, event = self._mechanism(probes, values=values_only), self.round_event
        # Lines 6 and 7, or line 10 without the method's choice: exact answers, then noise.
        images, values = self._tensor.apply(probes)
        answers = values if values_only else np.asarray(images).T
        released = mechanism.release({str(j): a for j, a in enumerate(answers)}, self._noise)
        self._done.append(event)
        noisy = np.stack([released[str(j)] for j in range(probes.shape[1])], axis=-1)
        # Lines 8 and 11: D of the paper is taken off what is released.
        if values_only:
            self.method.advance(None, noisy)
        else:
            self.method.advance(noisy, np.einsum("dn,dn->n", probes, noisy))

    def run(self) -> Components:
        """Ask all remaining rounds, and return the result."""
        while not self.method.finished:
            self.step()
        return self.method.components()

    def _mechanism(self, probes: Array, *, values: bool) -> JointGaussian:
        """Return the release of a round; the sensitivity of a query is its clip norm."""
        neighbours = self.schedule.neighbours
        d, n = probes.shape
        moves = neighbours.sensitivities(probes, values=values)
        shape = () if values else (d,)
        blocks = [Block(str(j), shape, float(moves[j])) for j in range(n)]
        ratio = float((neighbours.magnitudes(probes, values=values) / moves).max())
        roundings = neighbours.roundings_of(d)
        return mechanism_of_ratio(blocks, self.round_event.noise_multiplier, ratio, roundings)


def plan_rounds(method: DeflatedPower | SimultaneousPower) -> tuple[int, int]:
    """Return how many rounds a method takes until it has finished, and queries in each."""
    if isinstance(method, SimultaneousPower):
        return method.n_iterations, method.probes.shape[1]
    each = method.n_iterations + int(method.eigenvalue_round)
    return len(method.state()["values"]) * each, method.n_restarts


@lru_cache(maxsize=64)
def _noise_multiplier(epsilon: float, delta: float, queries: int, calibration: str) -> float:
    if calibration == "exact":
        return accounting.noise_multiplier(epsilon, delta, queries)
    return compositions.wang_anandkumar(epsilon, delta, queries)[1]


def _check_unit(probes: Array) -> None:
    lengths = np.linalg.norm(probes, axis=0)
    worst = float(lengths[np.argmax(np.abs(lengths - 1))])
    check(abs(worst - 1) <= UNIT_TOLERANCE, "probe", length=worst)


class PerturbedTensor(NamedTuple):
    """A symmetric tensor with noise, free to be used in any way, and its cost."""

    tensor: Array
    event: GaussianRelease
    private: bool
    tv_distance_bound: float


def perturb_tensor(
    tensor: Array, epsilon: float, delta: float, neighbours: Neighbours, noise: Noise
) -> PerturbedTensor:
    """Add symmetric Gaussian noise to every entry, once: input perturbation.

    Unit and relation are those of neighbours that differ in an entry (`Neighbours("entry")`);
    public are d, epsilon, delta and the magnitude. Let t_ijk, i <= j <= k, be the free entries and
    m the number of orders of (i, j, k): 6, 3 or 1. Neighbours differ in a single free entry, by
    6 / m (6 where i = j = k, 2 where two are equal, else 1). So one vector of ``(m / 6) t_ijk``,
    released by one Gaussian mechanism, has sensitivity 1 exactly, attained by every entry.

    Parameters
    ----------
    tensor : ndarray of shape (d, d, d)
        Symmetric.
    epsilon, delta : float
        epsilon in nats.
    neighbours : Neighbours
    noise : Noise
    """
    checked = check_array(tensor, 3)
    one_of(("entry",), notion=neighbours.notion, remedy="documents have sums to add noise to")
    assert neighbours.magnitude is not None
    index, orders = find_free(len(checked), 3)
    weights = orders / 6
    multiplier = Schedule(epsilon, delta, neighbours).noise_multiplier(1)
    blocks, roundings = [Block("entries", orders.shape, 1.0)], neighbours.roundings_of(len(checked))
    mechanism = mechanism_of_ratio(blocks, multiplier, neighbours.magnitude, roundings)
    noisy = mechanism.release({"entries": checked[index] * weights}, noise)["entries"] / weights
    full, event = unpack(noisy, len(checked), 3, 0.0), GaussianRelease(multiplier)
    return PerturbedTensor(full, event, noise.secure, mechanism.tv_distance_bound)
