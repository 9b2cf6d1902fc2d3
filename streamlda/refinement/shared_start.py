"""One start for several refinements, and all of them as one.

Members begin from equal topics and statistics S_0, after s steps, and learn documents of their own
by `streamlda.refinement.stepwise_em`. After T steps more one of them holds, as a mean of
minibatches,

    M = rho_(s+T) S = c_T M_0 + sum_t w_t x_t     c_T = (1 - rho_(s+1)) ... (1 - rho_(s+T))
                                                  w_t = rho_(s+t) c_T / c_t, sum_t w_t = 1 - c_T

with x_t what its minibatch t of b_t documents added. What its N documents added is
``A = (M - c_T M_0) N / sum_t w_t b_t``. A and N of members add up; the same formula solved for M,
with the c_T and w_t of ceil(N / B) steps, is the merged one. So a document counts alike whoever
learned it, and merging does not depend on order or grouping, but for rounding.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from streamlda.model.topic_model import TopicModel
from streamlda.refinement.refine import start_of
from streamlda.refinement.schedule import stream_settings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.utils.arrays import Array, Tree, split_state


@dataclass(frozen=True, eq=False)
class SharedStart:
    """Topics and statistics that several refinements begin from; none of them changes it.

    `known` are the diagnostics of the model that it was made of. A later start of the same members
    has the digest of their first one as `first`, and what `Follower.lineage` returns.
    """

    stepwise: StepwiseEM
    known: Mapping[str, Any]
    #: Turns of the stream that members have followed together.
    turn: int = 0
    first: str = ""
    lineage: Tree = field(default_factory=dict)

    @classmethod
    def of_model(cls, model: TopicModel, warmup_documents: int) -> Self:
        """Return the start of a refined model, as after the steps of a stream of its documents."""
        settings = stream_settings(warmup_documents)
        steps = max(1, model.documents_seen // settings.batch_documents)
        stepwise = StepwiseEM.of_model(model, settings, steps)
        # Those of the members alone are counted.
        stepwise.documents = 0
        return cls(stepwise, start_of(model))

    @property
    def digest(self) -> str:
        """16 hex digits that tell starts apart by content. Time O(V K)."""
        arrays, values = split_state(self.stepwise.state())
        digest = blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8)
        for name in ("totals", "alpha"):
            digest.update(np.ascontiguousarray(arrays[name], dtype="<f8").view(np.uint8).data)
        return digest.hexdigest()

    @property
    def origin(self) -> str:
        """Digest of the first start of the members, which tells groups apart."""
        return self.first or self.digest

    def follows(self, other: Self) -> bool:
        """Return whether members of the other are to continue from here."""
        mine, theirs = (self.turn, self.digest), (other.turn, other.digest)
        return self.origin == other.origin and mine > theirs

    def merge_with(self, members: Sequence[StepwiseEM]) -> StepwiseEM:
        """Return one refinement with the documents of all, those that wait included; O(V K)."""
        members = [member.copy_flushed() for member in members]
        documents = sum(member.documents for member in members)
        tokens = np.sum([self._get_tokens(member) for member in members], axis=0)
        steps = -(-documents // self.stepwise.settings.batch_documents)
        left, weight = self._weights(steps, documents)
        mean = left * self.stepwise.mean + weight / max(documents, 1) * tokens
        own, after = self.stepwise, self.stepwise.steps + steps
        return StepwiseEM(
            np.ascontiguousarray(mean / own.rho(after)),
            *(own.alpha, own.background, own.settings),
            steps=after,
            documents=documents,
        )

    def _get_tokens(self, member: StepwiseEM) -> Array:
        """Return A of a member, (V, K): expected tokens of its documents."""
        left, weight = self._weights(member.steps - self.stepwise.steps, member.documents)
        # What no document of it has is c M_0 on both sides, to rounding.
        own: Array = np.maximum(member.mean - left * self.stepwise.mean, 0.0)
        own *= member.documents / weight if weight > 0 else 0.0
        return own

    def _weights(self, steps: int, documents: int) -> tuple[float, float]:
        """Return c and n after some steps, of which the last has what is left of the documents."""
        first, size = self.stepwise.steps + 1, self.stepwise.settings.batch_documents
        left = math.prod(1 - self.stepwise.rho(step) for step in range(first, first + steps))
        missing = max(0, size * steps - documents) * self.stepwise.rho(first + steps - 1)
        return left, (1 - left) * size - missing

    def state(self) -> Tree:
        """Return all of it."""
        own = {"stepwise": self.stepwise.state(), "known": dict(self.known)}
        return own | {"turn": self.turn, "first": self.first, "lineage": self.lineage}

    @classmethod
    def from_state(cls, own: Tree) -> Self:
        """Return what `state` was called on."""
        return cls(**{**own, "stepwise": StepwiseEM.from_state(own["stepwise"])})
