"""What a refinement is asked to do."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

from streamlda.errors import InvalidSettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseEMSettings:
    """Settings of `streamlda.refinement.stepwise_em.StepwiseEM`; fixed for its life.

    Parameters
    ----------
    batch_documents : int, default 1000
        Documents of one step. A corpus that is not a stream needs about 100 steps a pass.
    sweeps : int, default 5
        How often the topics of a document's words are found in turn.
    step_offset, step_exponent : float, default 10.0 and 0.7
        Step t has the weight ``(step_offset + t) ** -step_exponent``. The exponent lies in
        (0.5, 1]: sums of such weights are infinite, sums of their squares are not.
    smoothing : float, default 0.01
        What is added to every word of every topic, above 0, as a share of the mean over all words
        and topics.
    start_flatness : float, default 0.9
        Share of the background in the topics that the refinement starts from, in 0..1.
    annealing : float, default 0.7
        Share of the background in the topics of the first step, in 0..1. It falls linearly.
    annealing_steps : int, default 100
        Steps after which it is 0.
    max_tokens : float, default inf
        Tokens that one document counts for at most: the l1 norm of its contribution.
    """

    batch_documents: int = 1000
    sweeps: int = 5
    step_offset: float = 10.0
    step_exponent: float = 0.7
    smoothing: float = 0.01
    start_flatness: float = 0.9
    annealing: float = 0.7
    annealing_steps: int = 100
    max_tokens: float = math.inf

    def __post_init__(self) -> None:
        at_least("batch_documents", self.batch_documents, 1)
        at_least("sweeps", self.sweeps, 1)
        at_least("annealing_steps", self.annealing_steps, 0)
        share("start_flatness", self.start_flatness)
        share("annealing", self.annealing)
        above_0("smoothing", self.smoothing)
        if not 0 <= self.step_offset < math.inf:
            raise InvalidSettingError(
                f"step_offset must be finite and >= 0, got step_offset={self.step_offset}; "
                "10 suits most text"
            )
        if not 0.5 < self.step_exponent <= 1:
            raise InvalidSettingError(
                "step_exponent must lie in (0.5, 1] for the steps to settle, got "
                f"step_exponent={self.step_exponent}; 0.7 suits most text"
            )
        if not self.max_tokens > 0:
            raise InvalidSettingError(
                f"max_tokens must be > 0, got max_tokens={self.max_tokens}; "
                "1 weighs all documents alike, inf weighs them by their tokens"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsSettings:
    """Settings of `streamlda.refinement.gibbs.GibbsSampler`; fixed for its life.

    Parameters
    ----------
    batch_documents : int, default 4000
        Documents whose topics are drawn side by side, given those of all others; never more than
        a twentieth of the documents.
    smoothing : float, default 0.1
        Tokens added to every word of every topic, above 0.
    start_sweeps : int, default 5
        Sweeps of the mean-field answer that the first topics of tokens are drawn from.
    seed : int, default 0
        0 <= seed < 2^63.
    """

    batch_documents: int = 4000
    smoothing: float = 0.1
    start_sweeps: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("batch_documents", self.batch_documents, 1)
        at_least("start_sweeps", self.start_sweeps, 1)
        above_0("smoothing", self.smoothing)
        if not 0 <= operator.index(self.seed) < 2**63:
            raise InvalidSettingError(f"a seed must lie in 0..2^63-1, got seed={self.seed}")


def at_least(name: str, value: int, least: int) -> None:
    """Raise InvalidSettingError unless `value` is a whole number and large enough."""
    if operator.index(value) < least:
        raise InvalidSettingError(f"{name} must be >= {least}, got {name}={value}")


def share(name: str, value: float) -> None:
    """Raise InvalidSettingError unless `value` lies in 0..1."""
    if not 0 <= value <= 1:
        raise InvalidSettingError(f"{name} must lie in 0..1, got {name}={value}")


def above_0(name: str, value: float) -> None:
    """Raise InvalidSettingError unless `value` is finite and above 0."""
    if not 0 < value < math.inf:
        raise InvalidSettingError(f"{name} must be finite and > 0, got {name}={value}")
