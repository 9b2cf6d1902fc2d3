"""Private variational Bayes for LDA: online variational Bayes whose statistics carry noise.

Park, Foulds, Chaudhuri, Welling (2016), "Private topic modeling", and (2020), "Variational Bayes in
private settings (VIPS)", JAIR 68: the baseline that DP-LDA compares itself with. A step of Hoffman,
Blei, Bach (2010) draws documents at random, finds the responsibility of every topic for their
words, sums them by word and topic, adds Gaussian noise to the sum, takes what is negative as 0, and
moves the topics' Dirichlet parameters towards it.

Differences from the papers, each in their favour:

- A document's statistic has Euclidean norm at most its number of tokens, and the papers' noise is
  scaled to the longest document. Here every statistic is clipped to a norm `clip_norm`, a public
  number; statistics of real documents are far below the worst case.
- The moments accountant is replaced by composition of privacy loss distributions (dp-accounting,
  extra ``accounting``): less noise for the same promise.
- Documents are drawn by Poisson sampling, each with probability `sampling_rate` in each step, as
  that accounting asks; the papers draw a fixed number and account as if by Poisson.

The E-step runs to the convergence of the authors' code (mean change of gamma below 0.001, at most
100 updates).

*Unit* document; *relation* add-remove, rows keep their slots: each row is drawn by a coin of its
own. *Sensitivity* of a step's sum: one clipped statistic, l2 norm `clip_norm`, attained by a
document of one word that one topic takes. The topics that the E-step works with are the released
ones of the step before, so each step is a subsampled Gaussian mechanism, and steps compose
adaptively. *Public*: all settings, the vocabulary, the bound `n_max` on rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import psi

from streamlda.documents import DocumentBatch
from streamlda.errors import MissingExtraError, above, at_least, between, require
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.papers.rounding import MechanismOfDoubles

Array = NDArray[np.float64]

#: Convergence of the E-step, as in the authors' code: updates, and mean change of gamma.
MOST_UPDATES, TOLERANCE = 100, 1e-3

#: Learning rate (offset + step)^-exponent: the authors' exponent; their offset of 1024 is for
#: thousands of steps, and these runs have far fewer.
RATE_OFFSET, RATE_EXPONENT = 1.0, 0.7

#: Most entries times topics that are worked on at a time: 16 MiB of responsibilities.
_MOST_SHARES = 2**21

#: A word less probable than this under every topic is divided evenly: a quotient could overflow.
SMALLEST = 1e-280

#: Bits of the coin that decides whether a document is drawn.
_COIN_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DPVISettings:
    """Settings of private variational Bayes; all of them are public.

    Parameters
    ----------
    n_components : int
        K.
    epsilon, delta : float or None
        For all steps together; both None is the method without noise and clipping.
    clip_norm : float
        Largest Euclidean norm of a document's statistic, in tokens.
    sampling_rate : float, default 0.1
        Probability q that a step draws a document.
    steps : int, default 50
    alpha_0 : float, default 1.0
        Sum of the prior of the proportions, which is symmetric; that of words is 1/K.
    seed : int, default 0
        Of the topics to start from. It seeds no noise and draws no documents.
    """

    n_components: int
    epsilon: float | None
    delta: float | None
    clip_norm: float
    sampling_rate: float = 0.1
    steps: int = 50
    alpha_0: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, n_components=self.n_components, steps=self.steps)
        above(0, clip_norm=self.clip_norm, alpha_0=self.alpha_0)
        above(0, sampling_rate=self.sampling_rate)
        between(0, 1, sampling_rate=self.sampling_rate, remedy="1 draws all documents")
        require(
            (self.epsilon is None) == (self.delta is None),
            "epsilon and delta go together",
            epsilon=self.epsilon,
            delta=self.delta,
            remedy="give both, or neither for no privacy",
        )
        if self.epsilon is not None:
            above(0, epsilon=self.epsilon)
            remedy = "take well below one over the number of documents"
            between(0, 1, ends=False, delta=self.delta, remedy=remedy)


@dataclass(frozen=True, slots=True)
class DPVITopics:
    """Topics that private variational Bayes publishes.

    `components`, of shape (K, V), are the means of the topics' Dirichlet distributions.
    `noise_multiplier`: z of each step; 0 without privacy. `secure`: whether noise and coins came
    from `SecureNoise`.
    """

    components: Array
    alpha: Array
    settings: DPVISettings
    noise_multiplier: float
    secure: bool

    @property
    def private(self) -> bool:
        """True if this may be called differentially private."""
        return self.settings.epsilon is not None and self.secure


def fit_dp_vi(
    documents: DocumentBatch,
    settings: DPVISettings,
    *,
    n_max: int | None = None,
    noise: Noise | None = None,
) -> DPVITopics:
    """Learn topics of all documents.

    Parameters
    ----------
    documents : DocumentBatch
        A row that is blank is drawn like others and adds nothing.
    settings : DPVISettings
    n_max : int, optional
        Public bound on the number of rows; by default their number, which is public then.
    noise : Noise, optional
        `SecureNoise` by default, of which the coins are made too.
    """
    noise = SecureNoise() if noise is None else noise
    n_max = max(1, documents.n_documents) if n_max is None else n_max
    require(
        documents.n_documents <= n_max,
        "n_max must bound the number of rows",
        n_max=n_max,
        documents=documents.n_documents,
        remedy="raise it",
    )
    K, V = settings.n_components, documents.n_features
    multiplier, mechanism = 0.0, None
    if settings.epsilon is not None and settings.delta is not None:
        # What the sampler's distance from exact noise may cost, bounded before z is known: each
        # step draws the noise of V K cells, and a coin for each row.
        draws = V * K + (n_max if settings.sampling_rate < 1 else 0)
        distance = 2 * Noise.tv_distance_bound * draws * settings.steps
        left = settings.delta - (1 + math.exp(settings.epsilon)) * distance
        multiplier = subsampled_multiplier(
            settings.epsilon, left, settings.sampling_rate, settings.steps
        )
        mechanism = MechanismOfDoubles(
            [Block("statistic", (V, K), settings.clip_norm)], multiplier, n_max=n_max
        )
    alpha = np.full(K, settings.alpha_0 / K)
    # Hoffman's start. Of the public scale that a step's statistic has, so that it is forgotten.
    dirichlet = np.random.default_rng(settings.seed).gamma(100.0, 0.01, size=(V, K))
    for step in range(1, settings.steps + 1):
        drawn = documents.where(coins(documents.n_documents, settings.sampling_rate, noise))
        clip = math.inf if mechanism is None else settings.clip_norm
        total = statistic(drawn, dirichlet, alpha, clip)
        if mechanism is not None:
            total = np.maximum(mechanism.release({"statistic": total}, noise)["statistic"], 0.0)
        rho = (RATE_OFFSET + step) ** -RATE_EXPONENT
        dirichlet *= 1 - rho
        dirichlet += rho * (1 / K + total / settings.sampling_rate)
    topics = np.ascontiguousarray((dirichlet / dirichlet.sum(axis=0)).T)
    return DPVITopics(topics, alpha, settings, multiplier, noise.secure)


def statistic(documents: DocumentBatch, dirichlet: Array, alpha: Array, clip_norm: float) -> Array:
    """Return the sum over documents of their clipped expected tokens, shape (V, K).

    A document's part is ``counts[w] * responsibility[w, k]``, of Euclidean norm at most its tokens,
    scaled to norm `clip_norm` if that is less. `dirichlet`, of shape (V, K): parameters of the
    topics' Dirichlet distributions.
    """
    words = np.exp(psi(dirichlet) - psi(dirichlet.sum(axis=0)))
    total = np.zeros(dirichlet.shape)
    for part in documents.blocks(max(1, _MOST_SHARES // len(alpha))):
        shares = responsibilities(part, words, alpha)
        norms = np.sqrt(_sum_rows(part, (part.counts[:, None] * shares) ** 2).sum(axis=1))
        # Rounded down, so that no norm ends above the bound: 8 roundings are more than there are.
        factors = np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300) * (1 - 2.0**-50))
        weights = part.counts * np.repeat(factors, np.diff(part.row_pointers))
        columns = weights, part.word_ids, np.arange(part.n_entries + 1)
        total += scipy.sparse.csc_array(columns, shape=(len(total), part.n_entries)) @ shares
    return total


def responsibilities(documents: DocumentBatch, words: Array, alpha: Array) -> Array:
    """Return the variational responsibilities of topics for every entry, topics held fixed.

    Equivalent to ``tests.oracle_variational.variational_responsibilities``: repeat
    ``theta = exp(digamma(gamma)); phi = theta * words[ids]; phi /= phi.sum(1);
    gamma = alpha + counts @ phi`` from ``gamma = alpha + tokens / K`` until
    ``mean(abs(change)) < TOLERANCE``, at most `MOST_UPDATES` times. `words`, of shape (V, K), is
    exp(E log beta). Time O(nnz K iterations), memory O(nnz K). Each row depends on its document
    only.
    """

    def find(part: DocumentBatch, gamma: Array) -> Array:
        theta = np.repeat(np.exp(psi(gamma)), np.diff(part.row_pointers), axis=0)
        found = theta * words[part.word_ids]
        mass = found.sum(axis=1, keepdims=True)
        even = np.full_like(found, 1 / len(alpha))
        shares: Array = np.divide(found, mass, out=even, where=mass >= SMALLEST)
        return shares

    gamma = alpha + documents.lengths[:, None] / len(alpha)
    part, left = documents, np.arange(documents.n_documents)
    for _ in range(MOST_UPDATES):
        after = alpha + _sum_rows(part, part.counts[:, None] * find(part, gamma[left]))
        moves = np.abs(after - gamma[left]).mean(axis=1) >= TOLERANCE
        part, left = part.where(moves), left[moves]
        gamma[left] = after[moves]
        if not len(left):
            break
    return find(documents, gamma)


def _sum_rows(documents: DocumentBatch, entries: Array) -> Array:
    """Return the sums of numbers of entries over each document."""
    n, places = documents.n_entries, np.arange(documents.n_entries)
    rows = np.ones(n), places, documents.row_pointers
    return np.asarray(scipy.sparse.csr_array(rows, shape=(documents.n_documents, n)) @ entries)


def coins(n: int, probability: float, noise: Noise) -> NDArray[np.bool_]:
    """Return which of n rows are drawn, each by a secret coin of its own.

    Heads have probability ``floor(2^32 q) / 2^32``, which is amplified at least as well as q. The
    bits are the low ones of a wide discrete Gaussian, as in `streamlda.papers.laplace`.
    """
    if probability >= 1:
        return np.ones(n, dtype=np.bool_)
    bits = noise.discrete_gaussian(2.0**40, n) & (2**_COIN_BITS - 1)
    heads: NDArray[np.bool_] = bits < math.floor(probability * 2**_COIN_BITS)
    return heads


@lru_cache(maxsize=256)
def subsampled_multiplier(epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """Return the least z at which this many subsampled Gaussian releases are (epsilon, delta)-DP.

    By dp-accounting's privacy loss distributions, rounded pessimistically, to 0.1 % of z, from
    above. Add-remove.
    """
    remedy = "raise delta"
    require(0 < delta < 1, "delta must leave something for the noise", delta=delta, remedy=remedy)
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise MissingExtraError(
            "dp-accounting", "accounting", "private variational Bayes"
        ) from error

    def spends(z: float) -> float:
        sampled = dp_accounting.GaussianDpEvent(z)
        if sampling_rate < 1:
            sampled = dp_accounting.PoissonSampledDpEvent(sampling_rate, sampled)
        # Coarser for small epsilon than the default, which is the better the finer.
        interval = min(1e-4, epsilon / 2000)
        accountant = PLDAccountant(value_discretization_interval=interval)
        accountant.compose(sampled, steps)
        return float(accountant.get_epsilon(delta))

    low, high = 0.1, 1.0
    while spends(high) > epsilon:
        low, high = high, 2 * high
    # What is spent falls about as 1/z, so that few evaluations find it.
    z = float(brentq(lambda z: math.log(spends(z) / epsilon), low, high, rtol=5e-4))
    while spends(z) > epsilon:
        z *= 1.0005
    return z
