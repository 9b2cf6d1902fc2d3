"""Contenders that learn topics privately, on the same axes: functions of counts and a budget.

Noise is always `SecureNoise`. What a contender does not publish is filled in by what its reader
knows: the word frequencies if it publishes them, else all words alike. So every contender returns k
topics.

They do not promise the same. `Contender.relation` is what neighbours are, and `Contender.claim`
whether the promise is proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from streamlda.documents import DocumentBatch
    from streamlda.guarantee.noise import Noise
    from streamlda.papers.dplda.spectral import SpectralSteps
    from streamlda.private.settings import PrivateSettings
    from streamlda.private.topics import PairView

#: (counts, k, alpha_0, epsilon, delta, seed) -> topics (k, V) with rows that sum to 1, alpha (k,).
#: The seed is that of starts and maps; it seeds no noise.
Fit = Callable[["DocumentBatch", int, float, float, float, int], tuple[Any, Any]]

PRIVATE, NOT_PROVEN, NONE = "private", "not proven private", "not private"

#: Of the total mu^2, for the pairs when the queries of Algorithm 3 are asked of all documents.
PAIRS_SHARE = 0.5


@dataclass(frozen=True)
class Contender:
    """A way to learn topics.

    Parameters
    ----------
    fit : callable
    relation : str
    claim : {"private", "not proven private", "not private"}
    """

    fit: Fit
    relation: str
    claim: str = PRIVATE


def filled(components: Any, alpha: Any, background: Any, k: int, alpha_0: float) -> tuple[Any, Any]:
    """Return k topics: those given, and the background for the others."""
    missing = k - len(components)
    topics = np.vstack([components, np.tile(background, (missing, 1))])
    return topics, np.concatenate([alpha, np.full(missing, alpha_0 / k)])


# The engine


def engine_settings(
    counts: DocumentBatch,
    k: int,
    alpha_0: float,
    epsilon: float,
    delta: float,
    seed: int,
    **changes: Any,
) -> PrivateSettings:
    from streamlda.private.settings import PrivateSettings

    return PrivateSettings(
        n_components=k,
        n_features=counts.n_features,
        epsilon=epsilon,
        delta=delta,
        documents_per_snapshot=len(counts),
        alpha_0=alpha_0,
        seed=seed,
        **changes,
    )


def engine(**changes: Any) -> Fit:
    """The private learner, one window, all else at its defaults but for `changes`."""

    def fit(
        counts: DocumentBatch, k: int, alpha_0: float, epsilon: float, delta: float, seed: int
    ) -> tuple[Any, Any]:
        from streamlda.learner import feed
        from streamlda.private.learner import PrivateLearner
        from streamlda.private.release_manager import ReleaseManager

        given = counts, k, alpha_0, epsilon, delta, seed
        settings = engine_settings(*given, **changes)
        learner = PrivateLearner(settings, ReleaseManager(), vocabulary="public")
        feed(learner, counts)
        snapshot = learner.last
        if snapshot is None:  # The noise hid all.
            flat = np.full(counts.n_features, 1 / counts.n_features)
            return filled(np.empty((0, counts.n_features)), np.empty(0), flat, k, alpha_0)
        topics = snapshot.topics
        return filled(topics.components, topics.alpha, topics.background, k, alpha_0)

    return fit


# Wang & Anandkumar (2016)


def pairs_of(
    documents: DocumentBatch, settings: PrivateSettings, noise: Noise
) -> tuple[PairView, Any]:
    """Return the released pairs of the first stages of a window, and their map."""
    from streamlda.private.learner import PrivateLearner

    learner, start = PrivateLearner(settings), 0
    while learner.window.view is None:
        start += learner.add(documents.rows(start, len(documents)))
        if learner.due_stage is not None:
            learner.accept(learner.due_stage.release(noise))
    return learner.window.view, learner.window.whitening


def halved(epsilon: float, delta: float) -> tuple[float, float]:
    """Return epsilon of the pairs and of all queries, which at this delta cost epsilon together."""
    from streamlda.guarantee.accounting import epsilon_of, mu_of

    squared = mu_of(epsilon, delta) ** 2
    pairs, queries = PAIRS_SHARE * squared, (1 - PAIRS_SHARE) * squared
    return epsilon_of(math.sqrt(pairs), delta), epsilon_of(math.sqrt(queries), delta)


def wang_anandkumar(
    counts: DocumentBatch, k: int, alpha_0: float, epsilon: float, delta: float, seed: int
) -> tuple[Any, Any]:
    """Return the topics of Algorithm 3 on the tensor of all documents, in released coordinates.

    Half of mu^2 goes to the pairs (as the engine releases them), half to all queries.
    """
    from streamlda.errors import InsufficientDataError
    from streamlda.guarantee.noise import SecureNoise
    from streamlda.papers.wang_anandkumar.neighbours import DocumentTensor, Neighbours
    from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule
    from streamlda.private.power import centre_answers
    from streamlda.private.settings import NOISY_POWER
    from streamlda.private.topics import pairs_through, topics_of_eigenpairs
    from streamlda.spectral.power import DeflatedPower

    pairs_epsilon, queries_epsilon = halved(epsilon, delta)
    given = counts, k, alpha_0, pairs_epsilon, delta, seed
    settings, noise = engine_settings(*given, refinement_rounds=0), SecureNoise()
    flat = np.full(counts.n_features, 1 / counts.n_features)
    try:
        view, W = pairs_of(counts, settings, noise)
    except InsufficientDataError:  # The noise hid all.
        return filled(np.empty((0, counts.n_features)), np.empty(0), flat, k, alpha_0)
    first, pairs, t = W.T @ view.first, W.T @ pairs_through(view, W), W.shape[1]

    class Centred(DeflatedPower):
        """Takes noisy answers of E P3; the corrections for alpha_0 are post-processing."""

        def advance(self, images: Any, values: Any) -> None:
            corrected = centre_answers(images, values, self.probes, first, pairs, alpha_0)
            super().advance(*corrected)

    planned = engine_settings(counts, k, alpha_0, queries_epsilon, delta, seed, solver=NOISY_POWER)
    restarts, iterations = planned.n_restarts, planned.iterations
    method = Centred(t, t, n_restarts=restarts, n_iterations=iterations, seed=seed)
    n = len(counts)
    neighbours = Neighbours("add-remove", n_documents=n, whitening=W)
    schedule = Schedule(queries_epsilon, delta, neighbours)
    power = NoisyPower(method, DocumentTensor(counts, n, W), schedule, noise)
    components = power.run()
    moves = neighbours.sensitivities(components.eigenvectors, values=False)
    noise_of_each = power.noise_multiplier * moves.max() * np.sqrt(t)
    turns = np.full(len(components.eigenvalues), noise_of_each)
    rng = np.random.default_rng(seed)
    try:
        topics = topics_of_eigenpairs(view, components, turns, W, alpha_0, n, rng)
    except InsufficientDataError:
        return filled(np.empty((0, counts.n_features)), np.empty(0), view.first, k, alpha_0)
    return filled(topics.components, topics.alpha, topics.background, k, alpha_0)


# DP-LDA


@lru_cache(maxsize=1)
def spectral_steps(counts: DocumentBatch, k: int, alpha_0: float, seed: int) -> SpectralSteps:
    """Return the steps without noise, kept for the next budget on the same documents."""
    from streamlda.papers.dplda.moments import LDAMoments
    from streamlda.papers.dplda.spectral import SpectralSteps

    return SpectralSteps(LDAMoments(counts, alpha_0), k, seed=seed)


def dplda(configuration: str, **changes: Any) -> Fit:
    """A configuration of DP-LDA."""

    def fit(
        counts: DocumentBatch, k: int, alpha_0: float, epsilon: float, delta: float, seed: int
    ) -> tuple[Any, Any]:
        from streamlda.papers.dplda.configurations import DPLDASettings, release

        settings = DPLDASettings(
            n_components=k,
            epsilon=epsilon,
            delta=delta,
            alpha_0=alpha_0,
            configuration=configuration,
            seed=seed,
            **changes,
        )
        found = release(spectral_steps(counts, k, alpha_0, seed), settings)
        flat = np.full(counts.n_features, 1 / counts.n_features)
        return filled(found.components, found.alpha, flat, k, alpha_0)

    return fit


def unnoised(
    counts: DocumentBatch, k: int, alpha_0: float, epsilon: float, delta: float, seed: int
) -> tuple[Any, Any]:
    """Return the topics of the same spectral steps without any noise; epsilon is not used."""
    from streamlda.private.topics import project_simplex

    steps = spectral_steps(counts, k, alpha_0, seed)
    inverse = np.maximum(steps.factors.values, 1e-9) ** -2.0
    return np.apply_along_axis(project_simplex, 1, steps.topics), alpha_0 * inverse / inverse.sum()


# Variational Bayes

#: Quantile of the norms of documents' counts that statistics are clipped to. It is taken from the
#: documents themselves, which the promise does not count: in favour of the method.
VI_QUANTILE = 0.95


def variational(private: bool) -> Fit:
    """Variational Bayes of Park et al., or the same without noise and clipping."""

    def fit(
        counts: DocumentBatch, k: int, alpha_0: float, epsilon: float, delta: float, seed: int
    ) -> tuple[Any, Any]:
        from streamlda.papers.dpvi import DPVISettings
        from streamlda.papers.dpvi import fit_dp_vi as learn

        squares = np.add.reduceat(counts.counts**2, counts.row_pointers[:-1])
        settings = DPVISettings(
            n_components=k,
            epsilon=epsilon if private else None,
            delta=delta if private else None,
            clip_norm=float(np.sqrt(np.quantile(squares, VI_QUANTILE))),
            alpha_0=alpha_0,
            seed=seed,
        )
        found = learn(counts, settings)
        return found.components, found.alpha

    return fit


ADD_REMOVE, REPLACE_ONE = "add-remove", "replace-one"

ENGINE, ENGINE_REPLACE_ONE = "streamlda", "streamlda, replace-one"
WA16, UNNOISED = "wang-anandkumar", "DP-LDA without noise"
DPVI, VI_UNNOISED = "variational Bayes", "variational Bayes without noise"
PAPER_ACCOUNTING, PURE = "DP-LDA 1, the paper's accounting", "DP-LDA 1, Laplace"
CONTENDERS = {
    ENGINE: Contender(engine(), ADD_REMOVE),
    ENGINE_REPLACE_ONE: Contender(engine(neighboring_relation=REPLACE_ONE), REPLACE_ONE),
    WA16: Contender(wang_anandkumar, ADD_REMOVE),
    "DP-LDA 1": Contender(dplda("1"), REPLACE_ONE),
    PAPER_ACCOUNTING: Contender(dplda("1", accounting="paper"), REPLACE_ONE),
    PURE: Contender(dplda("1", mechanism="laplace"), REPLACE_ONE),
    **{
        f"DP-LDA {number}": Contender(dplda(number), REPLACE_ONE, NOT_PROVEN)
        for number in ("2", "3", "4")
    },
    UNNOISED: Contender(unnoised, "-", NONE),
    DPVI: Contender(variational(private=True), ADD_REMOVE),
    VI_UNNOISED: Contender(variational(private=False), "-", NONE),
}
