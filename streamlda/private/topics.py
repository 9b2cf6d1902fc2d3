"""Topics from noisy sums: post-processing that uses how large the noise is known to be.

1. `PairView.of`: M1 as the mean of positive numbers; M2 = E P2 - a/(a+1) M1 M1' as far as it was
   seen, symmetrised; its leading eigenvectors that stand above the noise floor; W = U e^(-1/2).
2. `private_topics`: the tensor in these coordinates gives topics (`streamlda.spectral.topics`), and
   so do the eigenpairs of a power method (`topics_of_eigenpairs`). They are the start of one
   constrained fit: with the right-hand factor fixed, the topics that explain the pair statistic
   best among nonnegative ones, none with more of a word than its frequency in the corpus allows.
3. In that fit every word is drawn towards its frequency in the corpus, as far as the known noise
   hides what the pairs say about it: rare words are mixed with the background, frequent ones left
   to the data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.errors import InsufficientDataError, require
from streamlda.model.inference import SMOOTHING, smooth
from streamlda.private.responsibilities import INNER_ITERATIONS, proportions_of
from streamlda.spectral.power import Components
from streamlda.spectral.topics import (
    RoundMoments,
    SpectralTopics,
    recover_topics,
    solve_alpha_0,
    topics_along,
)
from streamlda.utils.arrays import Array, Arrays, from_arrays, to_arrays

#: A direction through a projection counts as real when its eigenvalue exceeds this part of the
#: spectral norm of the noise: what noise hides is drawn to the background, which was best on text.
FLOOR = 0.7

#: Iterations of coordinate descent in the constrained fit, times alpha_0^2 where that is above 1,
#: and the most: the larger alpha_0, the more alike are columns of the mixing, and the slower it is.
FIT_ITERATIONS, MOST_FIT_ITERATIONS = 3, 300


@dataclass(frozen=True, slots=True)
class PairView:
    """First and pair moments of a release."""

    first: Array  # M1, a distribution; (d,).
    pairs: Array  # E P2 W, or E P2 without a projection; (d, m).
    probes: Array | None  # W; (d, m).
    stddev: float  # Of the noise in an entry of `pairs`.
    eigenvalues: Array  # Of M2, those above the noise floor, largest first; (K',), at least one.
    directions: Array  # Orthonormal; (d, K').
    spectrum: Array  # All K leading eigenvalues.
    floor: float  # Spectral norm to be expected of the noise.
    centre: float  # a/(a+1), by which M1 M1' was taken off.

    @classmethod
    def of(
        cls,
        first_sum: Array,
        first_stddev: float,
        pair_sum: Array,
        kept: float,
        stddev: float,
        probes: Array | None,
        n_components: int,
        alpha_0: float,
    ) -> Self:
        """Read noisy sums; alpha_0 is for the centring that directions are sought with.

        `pair_sum` is (d, m), or (d, d) symmetric without a projection: `stddev` is then that of
        the noise off the diagonal. `kept` is the noisy sum of the clip factors of the pairs.
        """
        check_documents(min(kept, float(first_sum.sum())))
        first = positive_mean(first_sum, first_stddev)
        pairs, stddev = pair_sum / kept, stddev / kept
        centre = alpha_0 / (alpha_0 + 1)
        d, m = pairs.shape
        if probes is None:
            values, vectors = np.linalg.eigh(pairs - centre * np.outer(first, first))
            leading = slice(None, -n_components - 1, -1)
            values, vectors = values[leading], vectors[:, leading]
            floor = 2 * stddev * np.sqrt(d)
        else:
            sketch = pairs - centre * np.outer(first, first @ probes)
            values, vectors = _sketch_eigenpairs(sketch, probes, n_components)
            floor = stddev * (np.sqrt(d) + np.sqrt(m))
        least = floor if probes is None else FLOOR * floor
        # Signs are the same on all machines that compute with the same sums.
        vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
        above = np.cumprod(values > least).sum()
        known = max(1, int(above))
        return cls(
            first=first,
            pairs=pairs,
            probes=probes,
            stddev=float(stddev),
            # Above the floor all but the first, which noise may have made negative.
            eigenvalues=np.abs(values[:known]),
            directions=np.ascontiguousarray(vectors[:, :known]),
            spectrum=values,
            floor=float(floor),
            centre=centre,
        )

    @property
    def whitening(self) -> Array:
        """W = U e^(-1/2), shape (d, K')."""
        return np.ascontiguousarray(self.directions / np.sqrt(self.eigenvalues))


@dataclass(frozen=True, slots=True)
class PrivateTopics:
    """Topics after all post-processing.

    K' may be below what was wanted: topics that the noise would hide are left out.
    """

    components: Array  # Distributions, most prevalent first; (K', d).
    alpha: Array
    background: Array
    spectral: SpectralTopics  # What the decomposition gave, for diagnostics.
    #: Fraction of each topic that the corpus frequencies decided, because noise hid the pairs.
    mixed: Array
    #: Share of tokens; None for topics that rounds continue with.
    prevalence: Array | None = None
    #: After refinement: whether these topics are refined ones (1) or the word frequencies (0); how
    #: many documents preferred the former, less how many did not, with noise; and the noise. NaN
    #: where none were asked.
    refinement: Array | None = None
    #: With a public model: what documents said of it together, with noise; and the noise.
    fits: Array | None = None
    #: Where documents compared them with word frequencies: logarithm of the expected perplexity
    #: over that of the true frequencies; and the noise (`Refinement.topics`).
    ratio: Array | None = None

    @property
    def is_useless(self) -> bool:
        """True if topics should predict documents no better than word frequencies."""
        return self.ratio is not None and bool(self.ratio[0] >= 0)

    @property
    def of_public(self) -> bool:
        """True if the topics began as public ones, and not as those of moments."""
        return self.fits is not None and bool(self.fits[0] > 0)

    def rows(self, numbers: NDArray[np.intp]) -> Self:
        """Return these topics, in this order; one may be chosen several times."""
        names = ("topics", "alpha", "eigenvalues", "eigenvalue_noise")
        by_topic: dict[str, Any] = {name: getattr(self.spectral, name)[numbers] for name in names}
        return replace(
            self,
            components=self.components[numbers],
            alpha=self.alpha[numbers],
            spectral=replace(self.spectral, **by_topic),
            mixed=self.mixed[numbers],
            prevalence=None if self.prevalence is None else self.prevalence[numbers],
        )

    def arrays(self, prefix: str) -> Arrays:
        """Return what `of_arrays` needs."""
        own = to_arrays(self, prefix, but=("spectral",))
        return own | to_arrays(self.spectral, f"{prefix}spectral/")

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> Self:
        """Return what `arrays` was called on."""
        spectral = from_arrays(SpectralTopics, arrays, f"{prefix}spectral/")
        return from_arrays(cls, arrays, prefix, spectral=spectral)

    def measure(self, tokens: Array, stddev: float) -> Self:
        """Return the topics, most prevalent first, by released tokens with noise of known size."""
        prevalence = positive_mean(tokens, stddev)
        order = np.argsort(-prevalence, kind="stable")
        return replace(self, prevalence=prevalence).rows(order)


def check_documents(noisy: float, remedy: str = "take larger windows, or a larger epsilon") -> None:
    """Refuse sums that hold nothing but noise, by their noisy number of documents or tokens."""
    rule, found = "a private release holds no more documents than its noise hides", round(noisy)
    require(noisy > 0, rule, noisy_number=found, remedy=remedy, error=InsufficientDataError)


def private_topics(
    view: PairView,
    triples: Array,
    triple_stddev: float,
    whitening: Array,
    triple_first: Array,
    triple_pairs: Array,
    alpha_0: float | None,
    documents: int,
    rng: np.random.Generator,
) -> PrivateTopics:
    """Decompose noisy moments into topics; time O(d m K' + K'^4).

    `triples`, (t, t, t), is the noisy mean of P3(W, W, W), `triple_stddev` the noise in an entry
    with three different indices; `whitening` is W, `PairView.whitening` of this view or an earlier
    one; `triple_first` and `triple_pairs` are noisy means of W'p1 and W'P2 W over the same
    documents. alpha_0 None chooses it from the eigenvalues. `rng` draws noise that directions are
    compared with.
    """
    t = whitening.shape[1]
    pairs = pairs_through(view, whitening)
    draw = rng.standard_normal((t, t, t)) * triple_stddev
    shuffled = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    triple_noise = np.sum([draw.transpose(order) for order in shuffled], axis=0) / np.sqrt(6)
    pair_noise = _pair_norms(view, whitening, rng)
    seen = RoundMoments(
        *(documents, view.first, pairs, whitening, triples, triple_noise),
        *(triple_first, triple_pairs),
    )
    K = min(t, len(view.eigenvalues))
    if alpha_0 is None:
        alpha_0 = solve_alpha_0(seen, K)
    found = recover_topics(seen, K, alpha_0)
    return _begin_fit(view, replace(found, pair_noise=pair_noise))


def topics_of_eigenpairs(
    view: PairView,
    components: Components,
    eigenvector_noise: Array,
    whitening: Array,
    alpha_0: float,
    documents: int,
    rng: np.random.Generator,
) -> PrivateTopics:
    """Turn eigenpairs in the coordinates of W into topics, as `private_topics`; time O(d m K')."""
    spectral = topics_along(
        *(view.first, pairs_through(view, whitening), whitening),
        *(components.eigenvalues, components.eigenvectors, eigenvector_noise),
        *(len(components.eigenvalues), alpha_0, documents),
    )
    return _begin_fit(view, replace(spectral, pair_noise=_pair_norms(view, whitening, rng)))


def pairs_through(view: PairView, whitening: Array) -> Array:
    """Return E P2 W as far as the directions show it, M2 W + a/(a+1) M1 M1'W, shape (d, t)."""
    look = view.directions.T @ whitening
    centred = view.directions @ (view.eigenvalues[:, None] * look)
    pairs: Array = centred + view.centre * np.outer(view.first, view.first @ whitening)
    return pairs


def _pair_norms(view: PairView, whitening: Array, rng: np.random.Generator) -> Array:
    """Return spectral norms of noise as it is in W' E P2 W, outside the first 0, 1, ... columns."""
    draw = rng.standard_normal((whitening.shape[1],) * 2)
    scale = np.sqrt(np.sum(whitening**2, axis=0)) * view.stddev
    noise: Array = (draw + draw.T) / 2 * np.sqrt(np.outer(scale, scale))
    return np.array([np.linalg.norm(noise[i:, i:], 2) for i in range(len(noise))])


def _begin_fit(view: PairView, spectral: SpectralTopics) -> PrivateTopics:
    """Begin the constrained fit with spectral topics, and order its topics by prevalence."""
    start = np.apply_along_axis(project_simplex, 1, spectral.topics)
    components, mixed = _fit_constrained(view, start, spectral.alpha_0)
    prevalence = _prevalence(components, view.first)
    alpha = prevalence * spectral.alpha_0
    shares = mixture_shares(components, view.first)
    spectral = replace(spectral, alpha=alpha)
    found = PrivateTopics(components, alpha, view.first, spectral, mixed, shares)
    return found.rows(np.argsort(-shares, kind="stable"))


def mixture_shares(topics: Array, first: Array) -> Array:
    """Return the shares at which topics explain word frequencies above 0, by EM from equal shares.

    Topics that share words are hard to tell apart by M1: more steps make some of them too rare.
    """
    words = smooth(topics, first, SMOOTHING)
    shares = np.full(len(words), 1 / len(words))
    for _ in range(INNER_ITERATIONS):
        shares = shares * (words @ (first / (shares @ words)))
        shares /= shares.sum()
    return shares


def positive_mean(noisy: Array, stddev: float) -> Array:
    """Return the mean of a positive number given the number plus Gaussian noise, normalised.

    With a flat prior on the positive numbers: ``x + s phi(x / s) / Phi(x / s)``. No entry is 0, so
    that no word is impossible because noise took it away.
    """
    z = noisy / stddev
    log_density = -(z**2) / 2 - np.log(2 * np.pi) / 2
    mean = noisy + stddev * np.exp(log_density - scipy.special.log_ndtr(z))
    # Far below 0 the difference is lost to rounding; there it is near s / |z|.
    mean = np.maximum(mean, stddev / (2 * (1.0 + np.abs(z))))
    distribution: Array = mean / mean.sum()
    return distribution


def project_simplex(v: Array) -> Array:
    """Return the nearest distribution: max(v - tau, 0), tau so that it sums to 1; O(d log d)."""
    falling = -np.sort(-v)
    excess = np.cumsum(falling) - 1.0
    last = np.flatnonzero(falling - excess / np.arange(1, len(v) + 1) > 0)[-1]
    projected = np.maximum(v - excess[last] / (last + 1), 0.0)
    distribution: Array = projected / projected.sum()
    return distribution


def _sketch_eigenpairs(sketch: Array, probes: Array, n: int) -> tuple[Array, Array]:
    """Return the n leading eigenpairs of M2 from M2 W: range by the sketch, values by W."""
    left = np.linalg.svd(sketch, full_matrices=False)[0][:, :n]
    action = left.T @ sketch @ np.linalg.pinv(left.T @ probes)
    values, vectors = np.linalg.eigh((action + action.T) / 2)
    return values[::-1], left @ vectors[:, ::-1]


def _prevalence(topics: Array, first: Array) -> Array:
    """Return the mixture of the topics that is nearest to M1, every topic with a little."""
    found = scipy.optimize.nnls(topics.T, first)[0]
    return proportions_of(found if found.any() else np.ones(len(topics)))


def _fit_constrained(view: PairView, topics: Array, alpha_0: float) -> tuple[Array, Array]:
    """Fit nonnegative topics to the pairs, E P2 W ~ topics' A (topics W), A from the prevalence.

    Returns the topics, and the fraction of each that the prior decided.
    """
    prevalence = _prevalence(topics, view.first)
    mixing = (np.diag(prevalence) + alpha_0 * np.outer(prevalence, prevalence)) / (alpha_0 + 1)
    right = mixing @ (topics if view.probes is None else topics @ view.probes)
    gram, target = right @ right.T, view.pairs @ right.T
    fitted = topics.T.copy()
    most = view.first[:, None] / prevalence
    # Prior of a word's probability in a topic: around M1, with the largest variance that there can
    # be for a topic of its prevalence, (1/prevalence - 1) M1^2; it counts where noise hides pairs.
    spread = np.maximum(1 / prevalence - 1, 1e-3) * view.first[:, None] ** 2
    pull = view.stddev**2 / spread
    iterations = min(FIT_ITERATIONS * max(1.0, alpha_0) ** 2, MOST_FIT_ITERATIONS)
    for _ in range(math.ceil(iterations)):
        for j in range(len(gram)):
            step = target[:, j] - fitted @ gram[:, j] + pull[:, j] * (view.first - fitted[:, j])
            step /= gram[j, j] + pull[:, j]
            fitted[:, j] = np.clip(fitted[:, j] + step, 0.0, most[:, j])
    mass = fitted.sum(axis=0)
    kept = mass > 1e-9
    fitted[:, ~kept] = topics.T[:, ~kept]
    mass = np.where(kept, mass, 1.0)
    decided = pull / (np.diag(gram) + pull)
    topics = np.ascontiguousarray((fitted / mass).T)
    return topics, np.sum(topics.T * decided, axis=0)
