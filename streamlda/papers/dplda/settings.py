"""Settings of DP-LDA, and what it publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of
from streamlda.papers.dplda.calibration import LowerBounds
from streamlda.papers.dplda.flow import configuration
from streamlda.papers.dplda.sensitivity import CLAIMED, CONSTANT_ONE
from streamlda.papers.dplda.spectral import ITERATIONS, RESTARTS
from streamlda.privacy.events import Composed

Array = NDArray[np.float64]

NOT_PROVEN = "not proven private"


@dataclass(frozen=True, slots=True, kw_only=True)
class DPLDASettings:
    """Settings of DP-LDA; all of them are public.

    Parameters
    ----------
    n_components : int
        k.
    epsilon, delta : float
        For everything that is released of the documents.
    configuration : {"1", "2", "3", "4"}, default "1"
        The only one that is proven private is 1.
    alpha_0 : float, default 1.0
    mechanism : {"gaussian", "laplace"}, default "gaussian"
        Laplace, for configuration 1 only, is for pure epsilon: delta may then be 0, up to
        `DPLDATopics.sampler_delta`.
    accounting : {"exact", "paper"}, default "exact"
        See `streamlda.papers.dplda.calibration`.
    constants : str, default "constant one"
        Of the claimed sensitivities of configurations 2 to 4: a key of `sensitivity.CLAIMED`.
    parts : mapping from str to float, optional
        Of epsilon, for each release: see `make_plan`.
    n_iterations, n_restarts, seed : int
        Of the power method. The seed seeds no noise.
    """

    n_components: int
    epsilon: float
    delta: float
    configuration: str = "1"
    alpha_0: float = 1.0
    mechanism: str = "gaussian"
    accounting: str = "exact"
    constants: str = CONSTANT_ONE.name
    parts: Mapping[str, float] | None = None
    n_iterations: int = ITERATIONS
    n_restarts: int = RESTARTS
    seed: int = 0

    def __post_init__(self) -> None:
        configuration(self.configuration)
        one_of(CLAIMED, constants=self.constants)


@dataclass(frozen=True, slots=True)
class DPLDATopics:
    """What DP-LDA publishes.

    Attributes
    ----------
    components : ndarray of shape (k', d)
        Distributions; k' = 0 where the noise would have been infinite, else k.
    alpha : ndarray of shape (k',)
    settings : DPLDASettings
    n_documents : int
        N, public.
    event : Composed
        What it cost, if the claims of the configuration hold.
    sampler_delta : float
        Part of delta, or beyond pure epsilon, for the samplers' distance from exact noise.
    bounds : LowerBounds
        What Procedure 1 released.
    scales : dict of str to float
        By edge: standard deviation of the Gaussian noise, or scale of the Laplace noise, in an
        entry that occurs once. Infinite where nothing was published.
    secure : bool
        Whether the noise came from `SecureNoise`.
    unmet : tuple of str
        Preconditions of the configuration's theorems (Table 3 of version 1) that these documents do
        not have; of configurations 2 to 4. Read without noise: not private, as they are.
    """

    components: Array
    alpha: Array
    settings: DPLDASettings
    n_documents: int
    event: Composed
    sampler_delta: float
    bounds: LowerBounds
    scales: dict[str, float] = field(default_factory=dict)
    secure: bool = False
    unmet: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether the configuration is proven private."""
        return configuration(self.settings.configuration).proven

    @property
    def private(self) -> bool:
        """Whether this may be called differentially private: proven, and by secure noise."""
        return self.proven and self.secure

    @property
    def statement(self) -> str:
        """One paragraph to publish beside the topics."""
        settings = self.settings
        who = f"DP-LDA (DeCarolis et al. 2020), configuration {settings.configuration}"
        if not self.proven:
            claims = "; ".join(configuration(settings.configuration).open_claims)
            outside = f" Not met: {'; '.join(self.unmet)}." if self.unmet else ""
            return f"{NOT_PROVEN}: {who}. Open: {claims}.{outside}"
        if not self.secure:
            return f"not private: the noise was seeded. {who}."
        delta = self.sampler_delta if settings.mechanism == "laplace" else settings.delta
        return (
            f"private: epsilon {settings.epsilon:g}, delta {delta:.3g}; document, replace-one "
            f"among {self.n_documents:,} slots, their number public; {settings.mechanism} noise. "
            f"{who}."
        )
