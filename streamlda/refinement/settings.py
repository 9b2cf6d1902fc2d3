"""Settings of the two refinements: stepwise EM and Gibbs sampling."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseEMSettings:
    """Settings of `streamlda.refinement.stepwise_em.StepwiseEM`; fixed for its life."""

    #: Documents of one step. A corpus that is not a stream needs about 100 steps a pass.
    batch_documents: int = 1000
    #: Step t has the weight ``(step_offset + t) ** -step_exponent``. The exponent lies in (0.5, 1]:
    #: sums of such weights are infinite, sums of their squares are not.
    step_offset: float = 0.0
    step_exponent: float = 0.7
    #: Added to every word of every topic, as a share of the mean over all words and topics.
    smoothing: float = 0.01
    #: Share of the background in the topics at first; it falls linearly to 0.
    annealing: float = 0.0
    annealing_steps: int = 0
    #: Columns that a prior puts tokens of the first topics on (`streamlda.spectral.seeds`).
    seeds: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsSettings:
    """Settings of Gibbs sampling, and of collapsed sweeps; fixed for their life."""

    #: Tokens added to every word of every topic.
    smoothing: float = 0.1
    #: Columns that a prior puts tokens of the first topics on (`streamlda.spectral.seeds`).
    seeds: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
