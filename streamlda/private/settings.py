"""What a private run is asked to do, and what follows from it before any document is read.

All of it is public: the stages and their places, the noise multiplier, the columns of the map.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from streamlda.errors import InvalidSettingError
from streamlda.privacy.accounting import noise_multiplier
from streamlda.privacy.clipping import N_BINS, ClipBounds
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.noise import Noise

#: Without a map, the pair statistic has d^2 cells: up to this many words.
DENSE_FEATURES = 1024

#: Columns of the random map for larger vocabularies: as many as K + oversampling, or this many
#: times K. A narrow sketch wastes what the noise leaves (planted topics, d = 1000, epsilon = 1:
#: error 0.105 with 3 K columns, 0.082 with 12 K, 0.067 without a map), a wide one costs time.
COLUMNS_PER_TOPIC = 6

#: Stages of a window, and their shares of its places where the norms need the usual `NORMS_SHARE`.
STAGES = {"norms": 0.015, "pairs": 0.85, "triple norms": 0.015, "triples": 0.12}

#: A stage of norms has so many documents for each that the noise in a bin stands for, so that the
#: quantile is found, at most `MOST_NORMS` of a window; and no less than `NORMS_SHARE` of it, or
#: `ENOUGH_NORMS` documents where that is less. Planted topics (50 words, K = 5, epsilon 0.1 to 0.6,
#: 3,000 and 10,000 documents), mean error with 6, 10, 15 and 25 documents: 1.02, 0.64, 0.29 and
#: 0.30. What is not found is replaced by the largest norm there can be, and the noise is several
#: times too large.
NORMS_PER_NOISE, NORMS_SHARE, ENOUGH_NORMS, MOST_NORMS = 18.0, 0.015, 1000, 0.1

#: How topics are found in the last part of a window.
WHITENED_TENSOR, NOISY_POWER, SIMULTANEOUS = "whitened-tensor", "noisy-power", "simultaneous"
SOLVERS = (WHITENED_TENSOR, NOISY_POWER, SIMULTANEOUS)

#: Share of a window's places for the rounds of a power method, in place of "triples" and from the
#: pairs; and how many iterations, if that is not asked for. Planted topics (50 and 1,000 words,
#: 100,000 documents, epsilon 1 and 10): errors of "simultaneous" are 1.1 to 3 times as large with a
#: share of 0.15, and 1.8 to 5 times with 4 iterations. The many rounds of "noisy-power" need more
#: places: with a share of 0.3, errors are 1.2 to 2 times as large.
ROUNDS_SHARE = {NOISY_POWER: 0.50, SIMULTANEOUS: 0.30}
ITERATIONS = {NOISY_POWER: 4, SIMULTANEOUS: 8}

#: Range of alpha_0: far beyond it, topics that a round starts from leave single precision.
LEAST_ALPHA_0, MOST_ALPHA_0 = 1e-6, 1e6

#: Fewest places of a round.
LEAST_ROUND = 10

#: Asked for again with every look at the stages.
_noise_multiplier = lru_cache(maxsize=64)(noise_multiplier)

#: Rounds of refinement, where nothing else is asked for and they help; and the share of a window's
#: places that they have together (`release.refinement`).
REFINEMENTS = 3
REFINEMENT_SHARE = 0.45

#: Most noise of a direction, sqrt(d) z / N, up to which rounds are made by default. Above it the
#: moments need all documents to find topics at all. Abstracts, 8,000 words, NPMI without rounds and
#: with them: 0.11 and 0.14 at 1.9e-3, 0.09 and 0.12 at 2.8e-3, 0.09 and 0.08 at 3.8e-3.
REFINEMENT_NOISE = 2.5e-3

#: The quantile of norms to clip at falls from the first to the second as the noise of a direction,
#: sqrt(d) / (mu n), grows between these: clipping bends the moments, noise hides it.
QUANTILES = (0.95, 0.5)
QUANTILE_NOISE = (7e-4, 2e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSettings:
    """What a private engine is asked to do; fixed for its life. All of it is public.

    Parameters
    ----------
    n_components : int
        K, most topics of a snapshot; fewer where noise would hide them.
    n_features : int
        d, words of the vocabulary, which must be public or chosen privately.
    epsilon, delta : float
        What the releases of this engine may cost one privacy unit in all.
    documents_per_snapshot : int
        N, places of a window (and of a round in ``prefix`` mode); at least 100.
    alpha_0 : float or None, default 1.0
        Sum of the Dirichlet parameters, `LEAST_ALPHA_0` to `MOST_ALPHA_0`; None chooses it from the
        released statistics.
    neighboring_relation : {"add-remove", "replace-one"}
    privacy_unit : {"document", "user"}
    documents_per_user : int or None
        For users: most documents of one user that count in a stage.
    snapshots : int or None
        Most snapshots. None (no limit) for documents in window mode only: users spend on each,
        and a horizon needs a number.
    mode : {"window", "prefix"}
    clipping : {"quantile", "worst-case"} or ClipBounds, default "quantile"
        Bounds from a private quantile of earlier documents, the largest norms there can be, or
        public numbers.
    clip_quantile : float or None
        For "quantile"; None chooses it by how large the noise is (`clip_quantile_for`).
    oversampling : int, default 50
        Columns of the map beyond K, at least (`COLUMNS_PER_TOPIC`).
    seed : int, default 0
        Of the public random map and the restarts. It seeds no noise.
    noise_in_state : bool, default False
        Begin each sum with a share of noise of its own, so that one copy of the state shows no
        more than a release: noise is sqrt(2) times as large then.
    solver : {"whitened-tensor", "noisy-power", "simultaneous"}
        By one release of the whole tensor, or by rounds that answer a power method, one release of
        fresh documents each (`streamlda.private.power`): one component after the other, or all at
        once. The latter two are for window mode only and take an unknown alpha_0 as 1: it is needed
        while documents are read.
    n_restarts : int, default 3
        L, random starts of each component (``noisy-power``).
    n_iterations : int, optional
        R, power iterations, `ITERATIONS` by default: a window has K (R + 1) rounds
        (``noisy-power``) or R.
    refinement_rounds : int, optional
        Rounds in which the topics of the moments are refined by fresh documents
        (`streamlda.private.refinement`); 0 for none. By default `REFINEMENTS` where that helps: in
        window mode, with the whole tensor, more than `DENSE_FEATURES` words, and noise of at most
        `REFINEMENT_NOISE`. Prefix sums have none: a round speaks of the topics of its window alone.
    """

    n_components: int
    n_features: int
    epsilon: float
    delta: float
    documents_per_snapshot: int
    alpha_0: float | None = 1.0
    neighboring_relation: str = "add-remove"
    privacy_unit: str = "document"
    documents_per_user: int | None = None
    snapshots: int | None = None
    mode: str = "window"
    clipping: str | ClipBounds = "quantile"
    clip_quantile: float | None = None
    oversampling: int = 50
    seed: int = 0
    noise_in_state: bool = False
    solver: str = WHITENED_TENSOR
    n_restarts: int = 3
    n_iterations: int | None = None
    refinement_rounds: int | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("n_components", 1),
            ("n_features", 1),
            ("documents_per_snapshot", 100),
            ("oversampling", 0),
            ("n_restarts", 1),
            *([] if self.n_iterations is None else [("n_iterations", 1)]),
            *([] if self.refinement_rounds is None else [("refinement_rounds", 0)]),
        ):
            if operator.index(getattr(self, name)) < least:
                raise InvalidSettingError(
                    f"{name} must be >= {least}, got {name}={getattr(self, name)}"
                )
        if self.alpha_0 is not None and not LEAST_ALPHA_0 <= self.alpha_0 <= MOST_ALPHA_0:
            raise InvalidSettingError(
                f"alpha_0 must be > 0 and finite, {LEAST_ALPHA_0:g} to {MOST_ALPHA_0:g}, got "
                f"alpha_0={self.alpha_0}; "
                "1.0 suits most text, None estimates it"
            )
        if self.privacy_unit not in ("document", "user") or self.mode not in ("window", "prefix"):
            raise InvalidSettingError(
                "privacy_unit must be document or user and mode window or prefix, got "
                f"privacy_unit={self.privacy_unit!r} mode={self.mode!r}"
            )
        by_user = self.privacy_unit == "user"
        per_user = self.documents_per_user
        if by_user != (per_user is not None) or not (per_user is None or per_user >= 1):
            raise InvalidSettingError(
                "documents_per_user must be at least 1 for users, and None for documents, got "
                f"privacy_unit={self.privacy_unit} documents_per_user={self.documents_per_user}"
            )
        if (by_user or self.mode == "prefix") and not (self.snapshots or 0) >= 1:
            raise InvalidSettingError(
                "snapshots must be a number for users (who pay for each) and in prefix mode (whose "
                f"noise is made for it), got snapshots={self.snapshots}; say how many there will be"
            )
        if self.snapshots is not None and self.snapshots < 1:
            raise InvalidSettingError(
                f"snapshots must be at least 1 or None, got snapshots={self.snapshots}"
            )
        if by_user and self.noise_in_state:
            raise InvalidSettingError(
                "noise in the state cannot hide users, whose table is part of the state, got "
                "privacy_unit=user noise_in_state=True; guard the state instead"
            )
        if self.mode == "prefix" and (by_user or self.noise_in_state):
            raise InvalidSettingError(
                "prefix mode must have the unit document and no noise in the state, got "
                f"privacy_unit={self.privacy_unit} noise_in_state={self.noise_in_state}; use "
                "window mode"
            )
        if not isinstance(self.clipping, ClipBounds) and self.clipping not in (
            "quantile",
            "worst-case",
        ):
            raise InvalidSettingError(
                "clipping must be quantile, worst-case or ClipBounds, got "
                f"clipping={self.clipping!r}"
            )
        if self.clip_quantile is not None and not 0 < self.clip_quantile < 1:
            raise InvalidSettingError(
                f"clip_quantile must lie between 0 and 1, got clip_quantile={self.clip_quantile}"
            )
        self._check_solver()
        _ = self.noise_multiplier  # raises if epsilon, delta or the relation is out of range

    def _check_solver(self) -> None:
        if self.solver not in SOLVERS:
            raise InvalidSettingError(
                f"the solver must be one of {', '.join(SOLVERS)}, got solver={self.solver!r}"
            )
        if self.mode == "prefix" and self.n_refinement_rounds:
            raise InvalidSettingError(
                "refinement must have rounds of its own in every window, got "
                f"refinement_rounds={self.refinement_rounds} mode='prefix'; use window mode, or 0"
            )
        if self.solver != WHITENED_TENSOR and self.mode == "prefix":
            raise InvalidSettingError(
                "a power method must have rounds of its own in every window, got "
                f"solver={self.solver!r} mode='prefix'; use window mode, or {WHITENED_TENSOR!r}"
            )
        numbered = [share for name, share in self.stages.items() if name[-1].isdigit()]
        places = int(min(numbered, default=1.0) * self.documents_per_snapshot * (1 + 1e-9))
        if places < LEAST_ROUND:
            raise InvalidSettingError(
                f"a round must have at least {LEAST_ROUND} places, got places={places} "
                f"rounds={len(numbered)} documents_per_snapshot={self.documents_per_snapshot}; "
                "take larger windows, or fewer components, iterations or refinements"
            )

    @property
    def iterations(self) -> int:
        """R of a power method, 0 for the whole tensor."""
        return ITERATIONS.get(self.solver, 0) if self.n_iterations is None else self.n_iterations

    @property
    def n_rounds(self) -> int:
        """Rounds of a power method in a window; 0 for the whole tensor."""
        if self.solver == WHITENED_TENSOR:
            return 0
        if self.solver == SIMULTANEOUS:
            return self.iterations
        return min(self.n_components, self.n_features) * (self.iterations + 1)

    @property
    def n_refinement_rounds(self) -> int:
        """Rounds of refinement in a window."""
        if self.refinement_rounds is not None:
            return self.refinement_rounds
        fits = self.mode == "window" and self.solver == WHITENED_TENSOR
        if not fits or self.n_columns is None:
            return 0
        # Before the stages are known, and what the sampler takes off delta: to see how large it is.
        releases = 1
        if self.privacy_unit == "user":
            releases = (len(self._cut(NORMS_SHARE)) + REFINEMENTS) * (self.snapshots or 1)
        z = self.noise_in_documents(_noise_multiplier(self.epsilon, self.delta, releases))
        noise = math.sqrt(self.n_features) * z / self.documents_per_snapshot
        return REFINEMENTS if noise <= REFINEMENT_NOISE else 0

    def noise_in_documents(self, multiplier: float) -> float:
        """Return the standard deviation of noise, in contributions of largest norm of a document.

        Of sums whose entries are not negative.
        """
        noise = multiplier * (self.documents_per_user or 1)
        for doubled in (self.neighboring_relation == "replace-one", self.noise_in_state):
            noise *= math.sqrt(2.0) if doubled else 1.0
        return noise

    @property
    def stages(self) -> dict[str, float]:
        """Stages of a window and their shares of its places; public numbers decide these.

        Rounds are numbered: ``power 1``, ``power 2`` and so on, ``refine 1`` and so on.
        """
        rounds = self.n_refinement_rounds
        moments = self._cut(self._norms_share)
        if not rounds:
            return moments
        shares = {name: (1 - REFINEMENT_SHARE) * share for name, share in moments.items()}
        return shares | {f"refine {i}": REFINEMENT_SHARE / rounds for i in range(1, rounds + 1)}

    @property
    def n_stages(self) -> int:
        """Stages of a window: how often a user may be in one."""
        return len(self._cut(NORMS_SHARE)) + self.n_refinement_rounds

    @property
    def _norms_share(self) -> float:
        """Share of each stage of norms in the places that are not for refinement."""
        N = self.documents_per_snapshot
        wanted = NORMS_PER_NOISE * self.noise_in_documents(self.noise_multiplier) / N
        return min(max(wanted, min(NORMS_SHARE, ENOUGH_NORMS / N)), MOST_NORMS)

    def _cut(self, norms: float) -> dict[str, float]:
        """Return all stages but those of refinement, as shares of their places."""
        last = STAGES["triples"]
        shares = {"pairs": 1 - last, "triples": last}
        if self.clipping == "quantile":
            shares = {**STAGES, "norms": norms, "triple norms": norms}
            shares["pairs"] = 1 - last - 2 * norms
        if self.solver == WHITENED_TENSOR:
            return shares
        rounds, part = self.n_rounds, ROUNDS_SHARE[self.solver]
        shares["pairs"] += last - part
        del shares["triples"]
        return shares | {f"power {i}": part / rounds for i in range(1, rounds + 1)}

    @property
    def n_columns(self) -> int | None:
        """Columns m of the random map; None for no map."""
        d, K = self.n_features, self.n_components
        if d <= DENSE_FEATURES:
            return None
        return min(d, max(K + self.oversampling, COLUMNS_PER_TOPIC * K))

    @property
    def delta_left(self) -> float:
        """The part of delta left to Gaussian noise, after the distance of the sampler to it."""
        d, t = self.n_features, self.n_components
        pair = d * (d + 1) // 2 if self.n_columns is None else d * self.n_columns
        last = t * (t + 1) * (t + 2) // 6 + t * (t + 1) // 2 + t
        if self.solver != WHITENED_TENSOR:
            last = t * max(t, self.n_restarts)
        # A document is in one stage: norms, or at most all else. Twice with noise in the state.
        refined = d * self.n_components if self.n_refinement_rounds else 0
        cells = max(2 * N_BINS + 8, pair + d + last + 8, refined) * (
            2 if self.noise_in_state else 1
        )
        # Users are in every stage of every window, a document of prefix mode in all later rows.
        releases = 1
        if self.privacy_unit == "user":
            releases = self.n_stages * (self.snapshots or 1)
        elif self.mode == "prefix":
            releases = self.snapshots or 1
        loss = (
            2
            * Noise.tv_distance_bound
            * cells
            * releases
            * (1 + math.exp(min(self.epsilon, 700.0)))
        )
        if not loss <= self.delta / 10:
            raise InvalidSettingError(
                "delta must be at least ten times what the exactness of the noise leaves open, got "
                f"delta={self.delta} open={loss:.2g}; take a larger delta or a smaller epsilon"
            )
        return float(self.delta - loss)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity of every release, from the exact accounting."""
        releases = 1
        if self.privacy_unit == "user":
            assert self.snapshots is not None
            releases = self.n_stages * self.snapshots
        return _noise_multiplier(self.epsilon, self.delta_left, releases)

    @property
    def event(self) -> GaussianRelease:
        """What one stage costs each of its units."""
        return GaussianRelease(self.noise_multiplier)

    def stage_places(self) -> list[tuple[str, int, int]]:
        """Return name, first and last place + 1 of each stage of a window."""
        stages, first = [], 0
        N, passed = self.documents_per_snapshot, 0.0
        for name, share in self.stages.items():
            passed += share
            last = max(first + 1, round(passed * N))
            stages.append((name, first, last))
            first = last
        return stages


def clip_quantile_for(n_features: int, documents: int, noise_multiplier: float) -> float:
    """Return the quantile of norms to clip at, from public numbers only.

    Clipping at a low quantile bends the moments, at a high one needs more noise. Measured on
    planted topics (50 and 1,000 words) and 200,000 abstracts (8,000 words): 0.95 is best while
    the noise in a direction, sqrt(d) z / n, is below 7e-4, the median above 2e-3.
    """
    noise = np.sqrt(n_features) * noise_multiplier / documents
    low, high = np.log(QUANTILE_NOISE)
    part = np.clip((np.log(noise) - low) / (high - low), 0.0, 1.0)
    return float(QUANTILES[0] + part * (QUANTILES[1] - QUANTILES[0]))
