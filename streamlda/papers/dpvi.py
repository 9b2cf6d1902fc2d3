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

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import psi

from streamlda.documents import DocumentBatch
from streamlda.errors import MissingExtraError, above, at_least, between
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.papers.faults import check
from streamlda.papers.rounding import MechanismOfDoubles
from streamlda.utils.arrays import Array

#: Convergence of the E-step, as in the authors' code: updates, and mean change of gamma.
MOST_UPDATES, TOLERANCE = 100, 1e-3

#: Learning rate (offset + step)^-exponent: the authors' exponent; their offset of 1024 is for
#: thousands of steps, and these runs have far fewer.
RATE_OFFSET, RATE_EXPONENT = 1.0, 0.7

#: Most entries times topics that are worked on at a time: 2 MiB of responsibilities.
_MOST_SHARES = 2**18

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
        whole = (self.epsilon is None) == (self.delta is None)
        check(whole, "budget", epsilon=self.epsilon, delta=self.delta)
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
    n_rows = documents.n_documents
    check(n_rows <= n_max, "rows", n_max=n_max, documents=n_rows)
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
        tokens = find_responsibilities(part, words, alpha) * part.counts[:, None]
        owners = _owners(part)
        norms = np.sqrt(np.bincount(owners, np.sum(tokens**2, axis=1), len(part)))
        # Rounded down, so that no norm ends above the bound: 8 roundings are more than there are.
        factors = np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300) * (1 - 2.0**-50))
        by_word = (factors[owners], (part.word_ids, np.arange(len(tokens))))
        total += scipy.sparse.csr_array(by_word, (len(words), len(tokens))) @ tokens
    return total


def find_responsibilities(
    documents: DocumentBatch,
    words: Array,
    alpha: Array,
    most_updates: int = MOST_UPDATES,
    tolerance: float = TOLERANCE,
) -> Array:
    """Return the variational responsibilities of topics for every entry, (nnz, K), topics fixed.

    Repeat ``theta = exp(psi(gamma)); phi = theta * words[ids]; phi /= phi.sum(1);
    gamma = alpha + counts @ phi`` from ``gamma = alpha + tokens / K`` on, until the mean change of
    the gamma of a document is below the tolerance. `words`, of shape (V, K), is exp(E log beta).
    Time O(nnz K updates), memory O(nnz K).
    """
    K, numbers = len(alpha), np.arange(len(documents))
    gamma = alpha + documents.lengths[:, None] / K
    theta = np.empty_like(gamma)
    for _ in range(most_updates + 1):
        rows, own = documents.take(numbers), np.exp(psi(gamma[numbers]))
        theta[numbers] = own
        owners = _owners(rows)
        total = np.einsum("ek,ek->e", own[owners], words[rows.word_ids])
        known = total >= SMALLEST
        # Tokens of a word that no topic has are divided evenly.
        even = np.bincount(owners, rows.counts * ~known, len(rows))[:, None] / K
        weights = np.divide(rows.counts, total, out=np.zeros_like(total), where=known)
        by_word = scipy.sparse.csr_array(
            (weights, rows.word_ids, rows.row_pointers), (len(rows), len(words))
        )
        after = alpha + even + own * (by_word @ words)
        change = np.abs(after - gamma[numbers]).mean(axis=1)
        gamma[numbers] = after
        numbers = numbers[change >= tolerance]
        if not len(numbers):
            break
    found = theta[_owners(documents)] * words[documents.word_ids]
    total = found.sum(axis=1, keepdims=True)
    known = total >= SMALLEST
    return np.where(known, found / np.where(known, total, 1.0), 1 / K)


def _owners(documents: DocumentBatch) -> NDArray[np.int64]:
    """Return the document of each entry."""
    return np.repeat(np.arange(len(documents)), np.diff(documents.row_pointers))


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
    check(0 < delta < 1, "nothing left", delta=delta)
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
