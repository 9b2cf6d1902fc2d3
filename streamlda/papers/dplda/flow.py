"""The flow graph of [DP-LDA], Figure 1, and its configurations: where noise is added.

Edges have the numbers of the ICML version. Versions 1 and 2 on arXiv number them otherwise: their
(e3, e4, e8), (e6, e8), (e7, e8) and (e9) are (e2, e3, e5), (e5, e6), (e5, e7) and (e9) here.

Nodes: the documents' counts c_n (N x d), ``pairs`` M2, ``triples`` M3, ``whitening``
W = U Sigma^(-1/2) (d x k), ``unwhitening`` W^+ = Sigma^(1/2) U', ``whitened`` T = M3(W, W, W),
``factors`` mu_bar_i (k x k), ``topics`` mu_i (k x d), and the output, mu_i on the simplex.

Noise on an edge is noise on the value of its source, as this edge carries it on: M2 has two edges
that are noised, so it is released twice. If no path from the documents to the output is without
noise, the edges are a cut, and what is released is all that the output depends on.
"""

from dataclasses import dataclass

from streamlda.errors import one_of

DOCUMENTS, OUTPUT = "documents", "output"

#: Source and target of every edge.
EDGES = {
    # Unbiased estimates.
    "e0": (DOCUMENTS, "pairs"),
    "e1": (DOCUMENTS, "triples"),
    # The k leading eigenpairs of M2; M3 is multiplied by W three times.
    "e2": ("pairs", "whitening"),
    "e3": ("triples", "whitened"),
    "e4": ("whitening", "whitened"),
    "e5": ("pairs", "unwhitening"),
    # The simultaneous power method, un-whitening, and the projection onto the simplex.
    "e6": ("whitened", "factors"),
    "e7": ("factors", "topics"),
    "e8": ("unwhitening", "topics"),
    "e9": ("topics", OUTPUT),
}

#: Why the sensitivity of an edge is not proven.
OPEN = {
    "e6": "Theorem 5 leaves out the terms of first and second order in the change of the whitening",
    "e7": "Theorem 6 takes an upper bound on the error of the power method for one on its "
    "sensitivity, and rests on Theorem 5",
    "e9": "Theorem 7 reads the largest singular value of M2, which Procedure 1 does not protect",
}
GAP = "Lemma 9 gives the gap of eigenvalues the sensitivity of M2, without proof"
ONE_FOR_ALL = "k vectors are released with the noise of one"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A set of edges that noise is put on.

    `bounds`: the lower bounds that Procedure 1 releases first, ``"sigma_k"`` and ``"gamma_s"``.
    `reasons`: claims beside the sensitivities of its edges that are not proven.
    """

    name: str
    edges: tuple[str, ...]
    bounds: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def open_claims(self) -> tuple[str, ...]:
        """Everything that is not proven, in order; empty for a configuration that is private."""
        return (*(OPEN[name] for name in self.edges if name in OPEN), *self.reasons)

    @property
    def proven(self) -> bool:
        """True if privacy is proven."""
        return not self.open_claims


#: Table 1.
CONFIGURATIONS = {
    found.name: found
    for found in (
        Configuration("1", ("e2", "e3", "e5"), ()),
        Configuration("2", ("e5", "e6"), ("sigma_k",)),
        Configuration("3", ("e5", "e7"), ("sigma_k", "gamma_s"), (GAP, ONE_FOR_ALL)),
        Configuration("4", ("e9",), ("sigma_k", "gamma_s"), (GAP, ONE_FOR_ALL)),
    )
}


def configuration(name: str | int) -> Configuration:
    """Return a configuration by its number.

    Parameters
    ----------
    name : {1, 2, 3, 4}
        As number or text; 1 is the only one that is proven private.
    """
    remedy = "take 1, the only one that is proven private"
    one_of(CONFIGURATIONS, configuration=str(name), remedy=remedy)
    return CONFIGURATIONS[str(name)]
