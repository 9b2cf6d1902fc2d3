"""capeAGN for single-topic models: documents of several sites, each about one topic (section V).

A document has topic i with probability w_i and l >= 3 words drawn from mu_i. With p1, P2 and P3 of
`streamlda.spectral.moments`, ``E P2 = sum w_i mu_i mu_i'`` and ``E P3 = sum w_i mu_i x mu_i x
mu_i``: an LDA model as alpha_0 goes to 0, so that `streamlda.private.topics` does the rest. Two
routes:

`whitened` (ours)
    1. P1 and P2 are aggregated, packed as the entries i <= j of a symmetric matrix, times sqrt(2)
       off the diagonal.
    2. From them each site gets the same projection W (`maps`), and sums ``P3(W, W, W)``:
       noise continues k (k + 1) (k + 2) / 6 numbers, not d^3.
    3. Decomposition and a constrained fit, with the known noise (`private_topics`).
`paper` (Algorithm 3)
    1. Every entry i <= j of the pair matrix gets noise of one size.
    2. Every entry i <= j <= k of the d x d x d tensor does; then it is seen through W = U D^(-1/2).
    3. Power method; negative probabilities become 0.

Both routes release the mean over all orders of different words in place of the paper's ``t1 t2'``
and ``t1 x t2 x t3`` (errata, entry 5): the same expectation and no larger norm.

Privacy
-------
Unit: a document, at one site. Relation: replace-one; sizes are public. Documents of fewer than 3
words count as blank; many of them would bend the word frequencies towards equal ones.

- *Pairs.* p1 and P2 are convex combinations of unit vectors e_i and of e_i e_j': norm at most 1,
  packing keeps it. No entry is negative, so two contributions differ by sqrt(2) at most:
  ``||x - y||^2 <= ||x||^2 + ||y||^2``. Attained by documents of one word each, ``w w w`` and
  ``v v v``. In the paper's coordinates, without sqrt(2) off the diagonal, the norm is no larger,
  and the same documents attain the same bound.
- *Triples.* W is public then: post-processing of the pairs. P3(W, W, W) is a convex combination of
  sym(a x b x c), a, b, c rows of W; with R the longest row its norm is at most R^3. The distance of
  two points of a convex hull is largest between extreme ones, and
  ``<sym(a b c), sym(d e f)>`` is a mean of products of three inner products, each in
  [-rho R^2, R^2], so at least -rho R^6: two contributions differ by ``R^3 sqrt(2 (1 + rho))`` at
  most, rho = max(0, -min W_i'W_j / R^2). Attained for rho = 0 by orthogonal, for rho = 1 by
  opposite longest rows. (A blank document is zero, at R^3 from the others at most.)
- *Triples, paper.* Nonnegative, norm at most 1: sqrt(2), as Appendix C has it.

References
----------
Imtiaz and Sarwate (2018), IEEE JSTSP 12(6), Algorithm 3 and Appendices B, C.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import between
from streamlda.guarantee.mechanism import Block
from streamlda.papers.faults import check
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import paper_components, weights_of
from streamlda.papers.imtiaz_sarwate.simulated import Aggregate, SimulatedSites
from streamlda.papers.rounding import SummedBlock
from streamlda.papers.symmetric import pack, unpack
from streamlda.private.contributions import FirstStatistic, PairStatistic, View
from streamlda.private.topics import PairView, private_topics
from streamlda.spectral.moments import Moments
from streamlda.spectral.topics import contract
from streamlda.utils.arrays import Array

Route = Literal["whitened", "paper"]

#: Parts of the budget: word frequencies, pairs, triples.
FIRST_PART, PAIR_PART, TRIPLE_PART = 0.05, 0.45, 0.5

#: A single-topic model is LDA with alpha_0 = 0; of this size it changes topics by as little.
NO_MIXING = 1e-6

#: Absolute terms of P3(W, W, W) over the cube of the longest row, at most: 6 of at most (l A)^3,
#: over l (l - 1) (l - 2), which is 27 A^3 at l = 3.
TRIPLE_TERMS = 27.0

#: Words of documents whose pairs are held at a time.
BLOCK_ENTRIES = 2**14

#: Words up to which a site keeps its raw P3 whole, instead of reading its documents again.
DENSE_WORDS = 64

#: What is tried: scales of words and how fast they change, and powers of eigenvalues.
_LEVEL_STEPS, _LEVEL_RATE = 30, 0.2
_POWERS = (0.0, 0.25, 0.5)

#: Noise that stands for none where a standard deviation has to be positive, in documents.
NO_NOISE = 1e-6


class SingleTopicSite:
    """The documents of one site, and the raw sums that it makes of them.

    Parameters
    ----------
    batch : DocumentBatch
        Those with fewer than 3 words count as blank.
    """

    def __init__(self, batch: DocumentBatch) -> None:
        #: N_s, blank ones included.
        self.batch, self.documents = batch, batch.n_documents

    def pairs(self) -> dict[str, Array]:
        """Return the sums of p1 (``first``) and of packed P2 (``pair``); raw, not private."""
        return self._pairs

    @cached_property
    def _pairs(self) -> dict[str, Array]:
        d = self.batch.n_features
        sums = {b.name: np.zeros(b.shape) for b in pair_blocks(d)}
        for part in self.batch.blocks(BLOCK_ENTRIES):
            for statistic in _pair_parts(d):
                found = statistic.contributions(View(part))[statistic.name]
                assert found.rows is not None
                total = sums[statistic.name]
                total += np.bincount(found.rows, found.values[:, 0], minlength=len(total))
        return sums

    def triples(self, whitening: Array) -> dict[str, Array]:
        """Return the packed sum of P3(W, W, W) (``triple``); raw, not private."""
        if self.batch.n_features <= DENSE_WORDS:
            return {"triple": pack(contract(self.dense_triples, whitening), 0.5)}
        moments = Moments(np.ascontiguousarray(whitening))
        moments.add(self.batch)
        return {"triple": pack(moments.triple_sum(), 0.5)}

    def plain_pairs(self) -> dict[str, Array]:
        """Return P2 in the coordinates of the paper's noise (``pair``); raw, not private."""
        return {"pair": pack(unpack(self.pairs()["pair"], self.batch.n_features, 2, 0.5), 0.0)}

    def plain_triples(self) -> dict[str, Array]:
        """Return P3 in the coordinates of the paper's noise (``triple``); raw, not private."""
        return {"triple": pack(self.dense_triples, 0.0)}

    @cached_property
    def dense_triples(self) -> Array:
        """Sum of P3, shape (d, d, d); raw, not private. Time O(d^3) a document."""
        moments = Moments(np.eye(self.batch.n_features))
        moments.add(self.batch)
        return moments.triple_sum()


Sites = Sequence[SingleTopicSite]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class TopicEstimate:
    """Distributions, most prevalent first, and their shares of the documents.

    `found` topics stand above the noise; those beyond repeat the word frequencies, at weight 0.
    """

    components: Array
    weights: Array
    found: int


def learn_topics(
    sites: Sequence[SingleTopicSite],
    n_components: int,
    network: SimulatedSites,
    *,
    route: Route = "whitened",
    rng: np.random.Generator,
) -> TopicEstimate:
    """Learn a single-topic model from the documents of several sites.

    Memory O(S d^2), on the paper's route O(S d^3).

    Parameters
    ----------
    sites : sequence of SingleTopicSite
        One for each of the network, of the same words.
    n_components : int
        K, at most the number of words.
    network : SimulatedSites
        Sizes, promises and scheme. What the scheme `pooled` gives is not private.
    route : {"whitened", "paper"}
    rng : numpy.random.Generator
        Starts of power iterations and draws that directions are compared with; it hides nothing.
    """
    words = {site.batch.n_features for site in sites}
    sizes = tuple(site.documents for site in sites)
    about = {"words": sorted(words), "sizes": sizes, "network": network.sizes}
    check(len(words) == 1 and sizes == network.sizes, "words", **about)
    d = words.pop()
    between(1, d, n_components=n_components, remedy="ask for no more topics than words")
    learn = _learn_whitened if route == "whitened" else _paper
    return learn(sites, n_components, network, d, rng)


def _learn_whitened(
    sites: Sites, n_components: int, network: SimulatedSites, d: int, rng: Rng
) -> TopicEstimate:
    pairs = network.release(
        sites,
        SingleTopicSite.pairs,
        pair_blocks(d),
        part=FIRST_PART + PAIR_PART,
        ratio=math.sqrt(2),
    )
    view = _view(pairs, n_components, d)
    moment = (view.directions * view.eigenvalues) @ view.directions.T
    k, N = len(view.eigenvalues), pairs.documents
    noise = network.noise_multiplier(TRIPLE_PART) * math.sqrt(2) / N
    W = choose_projection(moment, k, view.first, 1 / math.sqrt(N), noise)
    triples = network.release(
        sites,
        lambda site: site.triples(W),
        [triple_block(W)],
        part=TRIPLE_PART,
        ratio=triple_ratio(W),
    )
    spread = max(triples.stddevs["triple"], NO_NOISE) / (N * math.sqrt(6))
    seen = unpack(triples.sums["triple"] / N, k, 3, 0.5)
    look = W.T @ view.first, W.T @ moment @ W
    found = private_topics(view, seen, spread, W, *look, NO_MIXING, N, rng)
    missing = n_components - len(found.components)
    return TopicEstimate(
        components=np.vstack([found.components, np.tile(view.first, (missing, 1))]),
        weights=np.append(found.alpha / found.alpha.sum(), np.zeros(missing)),
        found=len(found.components),
    )


def _view(pairs: Aggregate, n_components: int, d: int) -> PairView:
    N, packed = pairs.documents, pairs.sums["pair"]
    # Off the diagonal, where an entry is its packed value over sqrt(2).
    stddev = max(pairs.stddevs["pair"] / math.sqrt(2), NO_NOISE)
    first_stddev = max(pairs.stddevs["first"], NO_NOISE)
    # Every document adds 1 in all, and their number is public.
    first = pairs.sums["first"] + (N - pairs.sums["first"].sum()) / d
    moment = unpack(packed, d, 2, 0.5)
    how = None, n_components, NO_MIXING
    return PairView.of(first, first_stddev, moment, float(N), stddev, *how)


def _paper(
    sites: Sites, n_components: int, network: SimulatedSites, d: int, rng: Rng
) -> TopicEstimate:
    pairs = network.release(
        sites,
        SingleTopicSite.plain_pairs,
        [SummedBlock("pair", (d * (d + 1) // 2,), 1.0, nonnegative=True, magnitude=1.01)],
        part=0.5,
        ratio=math.sqrt(2),
    )
    triples = network.release(
        sites,
        SingleTopicSite.plain_triples,
        [SummedBlock("triple", (d * (d + 1) * (d + 2) // 6,), 1.0, magnitude=TRIPLE_TERMS)],
        part=0.5,
        ratio=math.sqrt(2),
    )
    N = pairs.documents
    vectors, values = paper_components(
        unpack(pairs.sums["pair"] / N, d, 2, 0.0),
        unpack(triples.sums["triple"] / N, d, 3, 0.0),
        n_components,
        rng,
    )
    positive = np.maximum(vectors, 0.0)
    mass = positive.sum(axis=1, keepdims=True)
    flat = np.full_like(positive, 1 / d)
    components = np.divide(positive, mass, out=flat, where=mass > 0)
    weights = weights_of(values)
    order = np.argsort(-weights, kind="stable")
    return TopicEstimate(components[order], weights[order], n_components)


def pair_blocks(n_features: int) -> list[Block]:
    """Return the blocks of `SingleTopicSite.pairs`."""
    blocks = [block for part in _pair_parts(n_features) for block in part.blocks()]
    return [block for block in blocks if block.name in ("first", "pair")]


def triple_block(whitening: Array) -> Block:
    """Return the block of `SingleTopicSite.triples`: the longest row, cubed, bounds the norm."""
    k = whitening.shape[1]
    longest = float(np.linalg.norm(whitening, axis=1).max()) * (1 + 1e-9)
    return SummedBlock("triple", (k * (k + 1) * (k + 2) // 6,), longest**3, magnitude=TRIPLE_TERMS)


def triple_ratio(whitening: Array) -> float:
    """Return sqrt(2 (1 + rho)), the most that two documents' triples differ by, over R^3."""
    gram = whitening @ whitening.T
    rho = min(max(-float(gram.min()) / float(gram.diagonal().max()), 0.0), 1.0)
    return min(math.sqrt(2 * (1 + rho)) * (1 + 1e-9), 2.0)


def _pair_parts(n_features: int) -> tuple[FirstStatistic, PairStatistic]:
    return (
        FirstStatistic(n_features, 1.0, FIRST_PART),
        PairStatistic(n_features, None, 1.0, PAIR_PART),
    )


def choose_projection(
    moment: Array, n_columns: int, frequencies: Array, sampling: float, noise: float
) -> Array:
    """Return the projection W through which noisy triples show the topics best.

    Tried are ``W = s U L^(-p)``, with U and L the leading eigenvectors and values of s M s: p = 1/2
    whitens before the noise, p = 0 leaves that to later, and the scale s of a word falls where its
    row is long. Any such projection will do; they differ by what noise does. With r_j the direction
    of eigenvector j of M in the space of W after whitening, R the longest row of W and V the
    whitened projection, the squared relative error of a topic along j is, to first order, about ::

        noise^2 R^6 ||r_j||^4 sum_i L_i ||r_i||^2 / tr M  +  sampling^2 (sum_w M1_w ||V_w||^2)^3

    for noise of one size on all triples of orthonormal directions. The projection with the least
    sum of its root over j, the first term counted as 1 at most, is taken. Time O(d^3) for each of
    `_LEVEL_STEPS` scales.

    M and the frequencies M1 are public, from an earlier release; k is at most the rank of M.
    `sampling` and `noise`, at least 0, are those of the mean of P3(W, W, W): 1 / sqrt(N), and the
    standard deviation of the noise in a packed entry where R = 1.
    """
    leading = slice(None, -n_columns - 1, -1)
    values, vectors = np.linalg.eigh(moment)
    axes, sizes = vectors[:, leading], np.maximum(values[leading], 0.0)
    scale = np.ones(len(moment))
    best, least = axes, math.inf
    for _ in range(_LEVEL_STEPS):
        values, vectors = np.linalg.eigh(scale[:, None] * moment * scale)
        values, vectors = values[leading], vectors[:, leading]
        if values[-1] <= 0:
            break
        V = scale[:, None] * vectors / np.sqrt(values)
        rows = np.linalg.norm(V, axis=1)
        sampled = sampling**2 * float(frequencies @ rows**2) ** 3
        # Columns: the eigenvectors of M in whitened coordinates.
        rotated = V.T @ (axes * np.sqrt(sizes))
        for power in _POWERS:
            W = V * values ** (0.5 - power)
            longest = float(np.linalg.norm(W, axis=1).max())
            squares = np.sum((values[:, None] ** (power - 0.5) * rotated) ** 2, axis=0)
            noisy = (noise * longest**3 * squares) ** 2 * float(sizes @ squares) / sizes.sum()
            error = float(np.sqrt(np.minimum(noisy, 1.0) + sampled).sum())
            if error < least:
                best, least = W, error
        scale = scale * np.maximum(rows / rows.max(), 1e-6) ** -_LEVEL_RATE
        scale /= scale.max()
    return np.ascontiguousarray(best)
