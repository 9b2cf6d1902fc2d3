"""Numbers that are sent: the communication costs of sections IV and V, and those with masks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from streamlda.checks import at_least, between, one_of

Algorithm = Literal["capePCA", "DPdisPCA", "capeAGN"]
ALGORITHMS = ("capePCA", "DPdisPCA", "capeAGN")


class Sent(NamedTuple):
    """Numbers that each party sends, to or from all sites together."""

    generator: int
    aggregator: int
    sites: int


def communication_cost(
    algorithm: Algorithm,
    n_sites: int,
    n_features: int,
    n_components: int,
    n_intermediate: int | None = None,
    *,
    masks: bool = False,
) -> Sent:
    """Return how many numbers an algorithm sends.

    Parameters
    ----------
    algorithm : {"capePCA", "DPdisPCA", "capeAGN"}
    n_sites, n_features, n_components : int
        S, D and K.
    n_intermediate : int, optional
        R of DPdisPCA; 2 K by default, or D if that is less.
    masks : bool, default False
        Whether as printed, or as here: symmetric arrays are sent once an entry, the noise that
        cancels is made from keys of pairs of sites, so that no generator and no aggregator sends
        any, and capeAGN (single topics) sees word frequencies and whitened triples only.

    Returns
    -------
    Sent
        In all 3 S D^2, S D R and 3 S D^2 + 2 S D^3 + S D K + S K^3 as printed.
    """
    one_of(ALGORITHMS, algorithm=algorithm)
    at_least(2, n_sites=n_sites)
    S, D, K = n_sites, n_features, n_components
    between(1, D, n_components=K)
    if algorithm == "DPdisPCA":
        rank = min(2 * K, D) if n_intermediate is None else n_intermediate
        between(K, D, n_intermediate=rank)
        return Sent(0, 0, S * D * rank)
    pairs = D * (D + 1) // 2
    if masks:
        if algorithm == "capePCA":
            return Sent(0, 0, S * pairs)
        return Sent(0, S * D * K, S * (D + pairs + K * (K + 1) * (K + 2) // 6))
    if algorithm == "capePCA":
        return Sent(S * D**2, S * D**2, S * D**2)
    return Sent(S * (D**2 + D**3), S * (D**2 + D * K + D**3), S * (D**2 + K**3))
