"""Descriptions of releases by their noise, without the protection or the cost.

As JSON, in ledgers and beside models, a kind never changes its meaning, a new meaning gets a new
kind, and whatever is not known is refused, never skipped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from streamlda.errors import StreamLDAError, between, failure, one_of, require
from streamlda.guarantee.selection import WordSelection

#: Where a clip bound came from: public numbers, earlier documents, all documents there can be.
CLIP_SOURCES = ("fixed", "private-quantile", "worst-case")

_WRITER = "read it with the version of streamlda that wrote it"


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """One release of a vector with Gaussian noise of one standard deviation in each coordinate.

    It is exactly mu-GDP with mu = 1 / noise_multiplier, whatever the dimension, and also when
    the query was chosen after seeing earlier releases. A matrix mechanism over a whole horizon is
    *one* such release (see `streamlda.guarantee.matrix_mechanism`).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        # No square and no sum of costs overflows, or vanishes to zero unnoticed.
        between(1e-3, 1e150, noise_multiplier=self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class LaplaceRelease:
    """One release of a vector with Laplace noise: pure epsilon, delta 0."""

    epsilon: float

    def __post_init__(self) -> None:
        between(1e-150, 1e3, epsilon=self.epsilon)
        object.__setattr__(self, "epsilon", float(self.epsilon))


Single: TypeAlias = GaussianRelease | LaplaceRelease


@dataclass(frozen=True, slots=True)
class Approximate:
    """One release whose noise was drawn by a sampler, and which may fail.

    Its law is (1 - delta) A + delta R, whatever R is, with A within `tv_distance` in total
    variation of the law of `event`; as far as neighbours can tell, and given all releases before.
    """

    event: Single
    tv_distance: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.event, Single):
            raise unknown(self.event)
        # Times 1 + e^epsilon, a distance that is not 0 stays above 0.
        for name, least in (("tv_distance", 2.0**-100), ("delta", 0.0)):
            value = getattr(self, name)
            if value != 0:
                between(least, 1.0, **{name: value})
            object.__setattr__(self, name, float(value))


@dataclass(frozen=True, slots=True, init=False)
class Composed:
    """Several releases of the same documents: mu^2 of Gaussian, epsilon of pure ones add up.

    Each query may depend on the answers before it; the noise multipliers may too as long as a
    cap on the sum of mu^2 is checked before each release. The order means nothing; without events
    nothing was released.
    """

    events: "tuple[Event, ...]"

    def __init__(self, events: "Iterable[Event]") -> None:
        members = tuple(events)
        for member in members:
            if not isinstance(member, Single | Approximate | Composed):
                raise unknown(member)
        object.__setattr__(self, "events", members)


Event: TypeAlias = Single | Approximate | Composed


def unknown(event: object) -> StreamLDAError:
    """Return the error for an object that is no event."""
    rule = "a privacy event is no GaussianRelease, LaplaceRelease, Approximate of one, or Composed"
    return failure(rule, type=type(event).__name__, remedy="describe the release by these")


def event_of_selection(selection: WordSelection) -> Approximate:
    """Return the event of a release of chosen words, for a document."""
    gaussian = GaussianRelease(selection.noise_multiplier)
    return Approximate(gaussian, selection.tv_distance_bound, selection.delta)


def to_json(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON values; `from_json` gives an equal event again."""
    match event:
        case GaussianRelease(noise_multiplier):
            return {"kind": "gaussian", "noise_multiplier": noise_multiplier}
        case LaplaceRelease(epsilon):
            return {"kind": "laplace", "epsilon": epsilon}
        case Approximate(inner, tv_distance, delta):
            values = {"event": to_json(inner), "tv_distance": tv_distance, "delta": delta}
            return {"kind": "approximate", **values}
        case Composed(events):
            return {"kind": "composed", "events": [to_json(inner) for inner in events]}
    raise unknown(event)


def from_json(value: Any) -> Event:
    """Return the event that `to_json` made these plain JSON values from."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    kinds = ("gaussian", "laplace", "approximate", "composed")
    one_of(kinds, kind=kind, remedy=_WRITER)
    match kind:
        case "gaussian":
            return GaussianRelease(*_members(value, "noise_multiplier"))
        case "laplace":
            return LaplaceRelease(*_members(value, "epsilon"))
        case "approximate":
            inner, tv_distance, delta = _members(value, "event", "tv_distance", "delta")
            return Approximate(cast(Single, from_json(inner)), tv_distance, delta)
    (inner,) = _members(value, "events")
    require(isinstance(inner, list | tuple), "events must be a list", kind=kind, remedy=_WRITER)
    return Composed(map(from_json, inner))


def _members(value: Mapping[str, Any], *names: str) -> list[Any]:
    rule = f"a stored privacy event of this kind holds other values than {', '.join(names)}"
    require(set(value) == {"kind", *names}, rule, kind=value["kind"], remedy=_WRITER)
    return [value[name] for name in names]
