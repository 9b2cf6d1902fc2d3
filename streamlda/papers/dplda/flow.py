"""The flow graph of [DP-LDA], Figure 1, and its configurations: data, and questions about them.

Edges have the numbers of the ICML version. Versions 1 and 2 on arXiv number them otherwise: their
(e3, e4, e8), (e6, e8), (e7, e8) and (e9) are (e2, e3, e5), (e5, e6), (e5, e7) and (e9) here.

Nodes: the documents' counts c_n (N x d), ``pairs`` M2, ``triples`` M3, ``whitening``
W = U Sigma^(-1/2) (d x k), ``unwhitening`` W^+ = Sigma^(1/2) U', ``whitened`` T = M3(W, W, W),
``factors`` mu_bar_i (k x k), ``topics`` mu_i (k x d), and the output, mu_i on the simplex.

Noise on an edge is noise on the value of its source, as this edge carries it on: M2 has two edges
that are noised, so it is released twice. If no path from the documents to the output is without
noise, the edges are a cut, and what is released is all that the output depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streamlda.checks import one_of, require
from streamlda.papers.dplda import sensitivity
from streamlda.papers.dplda.sensitivity import ClaimedBounds, Facts

DOCUMENTS, OUTPUT = "documents", "output"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far a document moves the value that an edge carries.

    `bound` is the l2 (Frobenius) sensitivity, `l1_bound` the same in l1, where it is global and
    pure epsilon possible: local ones hold for documents with these sigma_k and gamma_s only.
    `reason`: why it is not proven; empty if it is.
    """

    bound: Callable[[Facts, ClaimedBounds], float]
    l1_bound: Callable[[Facts], float] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A step of the algorithm; no `sensitivity` where no configuration puts noise."""

    name: str
    source: str
    target: str
    sensitivity: Sensitivity | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A set of edges that noise is put on.

    `bounds`: which lower bounds Procedure 1 releases first, ``"sigma_k"`` and ``"gamma_s"``.
    `reasons`: what keeps it from being proven private, beside the sensitivities of its edges.
    """

    name: str
    edges: tuple[str, ...]
    bounds: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def open_claims(self) -> tuple[str, ...]:
        """Everything that is not proven, in order; empty for a configuration that is private."""
        found = [*self.reasons]
        for name in self.edges:
            carried = EDGES[name].sensitivity
            if carried is not None and carried.reason:
                found.insert(0, carried.reason)
        return tuple(found)

    @property
    def proven(self) -> bool:
        """Whether privacy is proven."""
        return not self.open_claims


FIRST_ORDER = (
    "Theorem 5 leaves out the terms of first and second order in the change of the whitening"
)
CONVERGENCE = (
    "Theorem 6 takes an upper bound on the error of the power method for one on its sensitivity, "
    "and rests on Theorem 5"
)
SCALE = "Theorem 7 reads the largest singular value of M2, which Procedure 1 does not protect"
GAP = "Lemma 9 gives the gap of eigenvalues the sensitivity of M2, without proof"
ONE_FOR_ALL = "k vectors are released with the noise of one"

PAIRS = Sensitivity(lambda facts, _: sensitivity.pairs_l2(facts), sensitivity.pairs_l1)
TRIPLES = Sensitivity(lambda facts, _: sensitivity.triples_l2(facts), sensitivity.triples_l1)
WHITENED = Sensitivity(lambda facts, claimed: claimed.whitened(facts), reason=FIRST_ORDER)
FACTORS = Sensitivity(lambda facts, claimed: claimed.factors(facts), reason=CONVERGENCE)
TOPICS = Sensitivity(lambda facts, claimed: claimed.topics(facts), reason=SCALE)

EDGES = {
    edge.name: edge
    for edge in (
        # Unbiased estimates.
        Edge("e0", DOCUMENTS, "pairs"),
        Edge("e1", DOCUMENTS, "triples"),
        # The k leading eigenpairs of M2; M3 is multiplied by W three times.
        Edge("e2", "pairs", "whitening", PAIRS),
        Edge("e3", "triples", "whitened", TRIPLES),
        Edge("e4", "whitening", "whitened"),
        Edge("e5", "pairs", "unwhitening", PAIRS),
        # The simultaneous power method, un-whitening, and the projection onto the simplex.
        Edge("e6", "whitened", "factors", WHITENED),
        Edge("e7", "factors", "topics", FACTORS),
        Edge("e8", "unwhitening", "topics"),
        Edge("e9", "topics", OUTPUT, TOPICS),
    )
}

CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration("1", ("e2", "e3", "e5"), ()),
        Configuration("2", ("e5", "e6"), ("sigma_k",)),
        Configuration("3", ("e5", "e7"), ("sigma_k", "gamma_s"), (GAP, ONE_FOR_ALL)),
        Configuration("4", ("e9",), ("sigma_k", "gamma_s"), (GAP, ONE_FOR_ALL)),
    )
}


def is_cut(edges: Iterable[str]) -> bool:
    """Return whether every path from the documents to the output goes over one of the edges."""
    noised = set(edges)
    unknown = sorted(noised - set(EDGES))
    require(not unknown, f"edges must be among {', '.join(EDGES)}", unknown=unknown)
    reached, waiting = set(), [DOCUMENTS]
    while waiting:
        node = waiting.pop()
        reached.add(node)
        waiting += [
            edge.target
            for edge in EDGES.values()
            if edge.source == node and edge.name not in noised and edge.target not in reached
        ]
    return OUTPUT not in reached


def configuration(name: str | int) -> Configuration:
    """Return a configuration by its number.

    Parameters
    ----------
    name : {1, 2, 3, 4}
        As number or text; 1 is the only one that is proven private.

    Returns
    -------
    Configuration
        The edges of the flow that get noise.

    Raises
    ------
    InvalidSettingError
        If there is no such configuration.
    """
    remedy = "take 1, the only one that is proven private"
    one_of(CONFIGURATIONS, configuration=str(name), remedy=remedy)
    return CONFIGURATIONS[str(name)]
