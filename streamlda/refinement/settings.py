"""Settings of the two refinements: stepwise EM and Gibbs sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseEMSettings:
    """Settings of `streamlda.refinement.stepwise_em.StepwiseEM`; fixed for its life."""

    #: Documents of one step. A corpus that is not a stream needs about 100 steps a pass.
    batch_documents: int = 1000
    #: Of an E-step: how often the topics of a document's words are found in turn. It is cut short:
    #: responsibilities that are not sharp make topics more coherent, at a percent of perplexity.
    inner_iterations: int = 3
    #: Step t has the weight ``(step_offset + t) ** -step_exponent``. The exponent lies in (0.5, 1]:
    #: sums of such weights are infinite, sums of their squares are not.
    step_offset: float = 10.0
    step_exponent: float = 0.7
    #: Added to every word of every topic, as a share of the mean over all words and topics.
    smoothing: float = 0.01
    #: Share of the background in the topics that the refinement starts from.
    start_flatness: float = 0.9
    #: Share of the background in the topics of the first step; it falls linearly to 0.
    annealing: float = 0.7
    annealing_steps: int = 100
    #: Tokens that one document counts for at most: the l1 norm of its contribution.
    max_tokens: float = math.inf
    #: Columns that a prior puts tokens of the first topics on (`streamlda.spectral.seeds`).
    seeds: tuple[tuple[int, ...], ...] = ()

    def state(self) -> dict[str, Any]:
        """Return them as in files: JSON has no form for infinity, and no setting is None."""
        values = {k: None if v == math.inf else v for k, v in asdict(self).items()}
        return values | {"sweeps": values.pop("inner_iterations")}

    @classmethod
    def from_state(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings that `state` was called on."""
        settings: dict[str, Any] = {k: math.inf if v is None else v for k, v in values.items()}
        seeds = tuple(map(tuple, settings.pop("seeds")))
        return cls(inner_iterations=settings.pop("sweeps"), seeds=seeds, **settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsSettings:
    """Settings of Gibbs sampling, and of collapsed sweeps; fixed for their life."""

    #: Tokens added to every word of every topic.
    smoothing: float = 0.1
    #: Whether the sum of alpha is fitted to the documents, and not its proportions alone.
    fits_alpha_0: bool = True
    #: Columns that a prior puts tokens of the first topics on (`streamlda.spectral.seeds`).
    seeds: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
