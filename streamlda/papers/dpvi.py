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
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import psi

from streamlda.documents import DocumentBatch
from streamlda.errors import MissingExtraError, above, at_least, between, require
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.kernels import (
    F64_1D,
    F64_2D,
    I32_1D,
    I64_1D,
    OUT_F32_2D,
    OUT_F64_1D,
    kernel,
    parallel_kernel,
)
from streamlda.kernels.refinement import add_responsibilities
from streamlda.papers.rounding import MechanismOfDoubles
from streamlda.refinement.stepwise_em import entries_by_word

Array = NDArray[np.float64]

#: Convergence of the E-step, as in the authors' code: updates, and mean change of gamma.
MOST_UPDATES, TOLERANCE = 100, 1e-3

#: Learning rate (offset + step)^-exponent: the authors' exponent; their offset of 1024 is for
#: thousands of steps, and these runs have far fewer.
RATE_OFFSET, RATE_EXPONENT = 1.0, 0.7

#: Most entries times topics that are worked on at a time: 32 MiB of responsibilities.
_MOST_SHARES = 2**23

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
        responsibilities = np.empty((len(part.counts), len(alpha)), dtype=np.float32)
        norms = np.empty(part.n_documents)
        layout = (part.counts, part.word_ids, part.row_pointers)
        variational_responsibilities(
            *layout, words, alpha, MOST_UPDATES, TOLERANCE, responsibilities, norms
        )
        # Rounded down, so that no norm ends above the bound: 8 roundings are more than there are.
        factors = np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300) * (1 - 2.0**-50))
        weights = part.counts * np.repeat(factors, np.diff(part.row_pointers))
        by_word = entries_by_word(part.word_ids, weights, part.n_features)
        add_responsibilities(*by_word, responsibilities, total)
    return total


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


@kernel
def digamma(x: float) -> float:
    """Return the digamma function of x > 0, to 1e-12 of max(1, its absolute value).

    Recurrence up to 6, then the asymptotic series.
    """
    shift = 0.0
    while x < 6.0:
        shift -= 1.0 / x
        x += 1.0
    r = 1.0 / (x * x)
    tail = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r / 47.3)))))
    return shift + math.log(x) - 0.5 / x - tail


@parallel_kernel(lambda *inputs: (len(inputs[2]) - 1, 10 * inputs[-2].size))
def variational_responsibilities(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    words: F64_2D,
    alpha: F64_1D,
    max_iterations: int,
    tolerance: float,
    responsibilities: OUT_F32_2D,
    norms: OUT_F64_1D,
) -> None:
    """Find the variational responsibilities of topics for every entry, topics held fixed.

    Equivalent to ``tests.oracle_refinement.variational_responsibilities``: repeat
    ``theta = exp(digamma(gamma)); phi = theta * words[ids]; phi /= phi.sum(1);
    gamma = alpha + counts @ phi`` from ``gamma = alpha + tokens / K`` until
    ``mean(abs(change)) < tolerance``, at most `max_iterations` times. `words`, of shape (V, K), is
    exp(E log beta); `norms` become the Euclidean norm of ``counts[:, None] * responsibilities``
    over the entries of each document. Time O(nnz * K * iterations); memory O(K) a thread. Each row
    depends on its document only.
    """
    n_topics = len(alpha)
    for n in range(first, last):
        begin, end = row_pointers[n], row_pointers[n + 1]
        gamma, theta, update = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
        tokens = 0.0
        for e in range(begin, end):
            tokens += counts[e]
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
        for iteration in range(max_iterations + 1):
            for k in range(n_topics):
                theta[k] = math.exp(digamma(gamma[k]))
                update[k] = 0.0
            squares = 0.0
            for e in range(begin, end):
                beta = words[word_ids[e]]
                total = 0.0
                for k in range(n_topics):
                    total += theta[k] * beta[k]
                for k in range(n_topics):
                    own = theta[k] * beta[k] / total if total >= SMALLEST else 1.0 / n_topics
                    responsibilities[e, k] = own
                    update[k] += counts[e] * own
                    squares += (counts[e] * responsibilities[e, k]) ** 2
            norms[n] = math.sqrt(squares)
            change = 0.0
            for k in range(n_topics):
                change += abs(alpha[k] + update[k] - gamma[k])
                gamma[k] = alpha[k] + update[k]
            if change < tolerance * n_topics or iteration == max_iterations:
                break
