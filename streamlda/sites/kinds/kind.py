"""What the protocol of sites must know of a kind of model, and of nothing else of it.

A kind is learned in windows of *stages*, one round each: a stage is sums of clipped contributions
of fresh records, in named blocks, each with a shape and a clip norm
(`streamlda.privacy.mechanism.Block`). Masks, noise, signatures, ledgers, attempts and what an
adversary has are the same for all kinds (`streamlda.sites.site`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.stage import Stage
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.sites.estimate import Estimate

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """What a finished window gave, for its model and the statement of it."""

    stages: tuple[ReleasedStage, ...]
    clip_bounds: Mapping[str, tuple[float, str]]
    learned: Any


class Engine(Protocol):
    """A window at the beginning of a stage, and what follows from its release."""

    @property
    def stage(self) -> Stage | None:
        """The running stage; None after the last one."""

    @property
    def snapshot(self) -> Any:
        """The last finished window; None before."""

    def add(self, batch: Any) -> int:
        """Take records up to the end of the stage, and return how many."""

    def skip(self, n: int) -> int:
        """Leave slots of the stage empty, and return how many."""

    def accept(self, released: Any) -> None:
        """Take the noisy sums of the stage and go on to the next one, or the next window.

        `InsufficientDataError` if they hold nothing but noise: the next window is begun.
        """


class Kind(Protocol):
    """A kind of model; `name` is that of ``streamlda site config --kind``."""

    name: str
    #: Whether records are rows of numbers; else they are documents.
    of_rows: bool

    def settings(self, values: Mapping[str, Any]) -> Any:
        """Return the settings that these values are of."""

    def check(self, settings: Any, vocabulary: Vocabulary | None) -> None:
        """Refuse settings and words that sites cannot agree on."""

    def begin(self, settings: Any) -> Engine:
        """Return the first window at its first stage."""

    def resume(
        self, settings: Any, stage: str, window: int, bounds: ClipBounds | None, arrays: Arrays
    ) -> Engine:
        """Return a window at a stage; refuse what cannot be there at its beginning.

        A round comes from an aggregator that nobody has to trust. Errors are of any kind;
        `Round.open` words them. Time O(values).
        """

    def public(self, engine: Any) -> tuple[bool, ClipBounds | None, Arrays]:
        """Return whether a window begins, bounds to clip by, and arrays that its stage needs."""

    def found(self, settings: Any, snapshot: Any) -> Found:
        """Return what a finished window gave."""

    def model(
        self,
        settings: Any,
        found: Found,
        privacy: dict[str, Any],
        vocabulary: Vocabulary | None,
        further: Mapping[str, Any],
    ) -> TopicModel | Estimate:
        """Return what is published; `further` settings are recorded."""

    def described(self, settings: Any, vocabulary: Vocabulary | None) -> str:
        """Return what is learned of what, for those who sign."""


def check_fixed(settings: Any, fixed: Mapping[str, Any], remedy: str) -> None:
    """Refuse settings that are others than sites of a kind must have."""
    found = {name: getattr(settings, name) for name in fixed}
    wanted = " ".join(f"{name}={value}" for name, value in fixed.items())
    rule = f"sites must learn with {wanted}"
    require(found == dict(fixed), rule, **found, remedy=remedy)
