"""Descriptions of releases that an accountant can read years later.

An event says how much noise covered a release, not what it protects nor what it costs; cost is
worked out by `streamlda.guarantee.accounting`. Events are stored in ledgers and published beside
models, so the rules are strict: a kind never changes its meaning, no kind is ever removed, a new
meaning gets a new kind, and whatever is not known is refused, never skipped.

=================== ========================== =====================================
class               JSON                       meaning
=================== ========================== =====================================
`GaussianRelease`   kind, noise_multiplier     Gaussian noise, stddev / l2_sensitivity
`LaplaceRelease`    kind, epsilon (nats)       Laplace noise, l1_sensitivity / scale
`Approximate`       kind, event, tv_distance,  one of the two, but for what is said
                    delta                      in the class
`Composed`          kind, events               all of them, of the same documents
`Parallel`          kind, events               each of its own documents
=================== ========================== =====================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from streamlda.guarantee.checks import StreamLDAError, between, failure, one_of, require

#: How datasets that must be indistinguishable differ: by a document or a blank in one slot [1]_, or
#: by another document in its slot. Both publish the number of slots; the first hides how many of
#: them hold documents.
#:
#: .. [1] Kairouz et al.: "Practical and private (deep) learning without sampling or shuffling",
#:    arXiv 2103.00039 (2021), definition 1.1.
NEIGHBORING_RELATIONS = ZERO_OUT, REPLACE_ONE = ("zero-out", "replace-one")

#: Former names, which are read as the present ones.
_FORMER_NAMES = {"add-remove": ZERO_OUT}

#: Where a clip bound came from: public numbers, earlier documents, all documents there can be.
CLIP_SOURCES = ("fixed", "private-quantile", "worst-case")

#: Within these bounds no square and no sum of a cost overflows, or vanishes to zero unnoticed.
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 1e-3, 1e150
MIN_PURE_EPSILON, MAX_PURE_EPSILON = 1e-150, 1e3

#: The least total variation distance that is not 0: times 1 + e^epsilon it stays above 0.
MIN_TV_DISTANCE = 2.0**-100

#: Events inside events inside events: more than any release needs, less than Python's stack.
MAX_DEPTH = 32

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
        z = self.noise_multiplier
        between(MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER, noise_multiplier=z)
        object.__setattr__(self, "noise_multiplier", float(z))


@dataclass(frozen=True, slots=True)
class LaplaceRelease:
    """One release of a vector with Laplace noise: pure epsilon, delta 0."""

    epsilon: float

    def __post_init__(self) -> None:
        between(MIN_PURE_EPSILON, MAX_PURE_EPSILON, epsilon=self.epsilon)
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
        for name, least in (("tv_distance", MIN_TV_DISTANCE), ("delta", 0.0)):
            value = getattr(self, name)
            if value != 0:
                between(least, 1.0, **{name: value})
            object.__setattr__(self, name, float(value))


@dataclass(frozen=True, slots=True, init=False)
class _Several:
    """Events in any order; none at all means that nothing was released."""

    events: tuple[Event, ...]

    def __init__(self, events: Iterable[Event]) -> None:
        members = tuple(events)
        for member in members:
            if not isinstance(member, Single | Approximate | _Several):
                raise unknown(member)
        _check_depth(_depth(members))
        object.__setattr__(self, "events", members)


@dataclass(frozen=True, slots=True, init=False)
class Composed(_Several):
    """Several releases of the same documents: mu^2 of Gaussian, epsilon of pure ones add up.

    Each query may depend on the answers before it; the noise multipliers may too as long as a
    cap on the sum of mu^2 is checked before each release.
    """


@dataclass(frozen=True, slots=True, init=False)
class Parallel(_Several):
    """Releases of disjoint cohorts of documents: the largest counts, they do not add up.

    That holds only if adding, removing or replacing one document changes what is in *one*
    cohort. So a document's cohort must be fixed by itself (its hour of arrival, its site). Cohorts
    of "the next n documents" are disjoint, yet removing a document moves the first of every later
    cohort into the one before. They compose in parallel when one document is replaced, or when
    its slot stays there, empty; not under plain add-or-remove.
    """


Event: TypeAlias = Single | Approximate | Composed | Parallel


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
        case Parallel(events):
            return {"kind": "parallel", "events": [to_json(inner) for inner in events]}
    raise unknown(event)


def from_json(value: Any) -> Event:
    """Return the event that `to_json` made these plain JSON values from."""
    return _from_json(value, 1)


def _depth(events: tuple[Event, ...]) -> int:
    nested = (event.events for event in events if isinstance(event, _Several))
    return 1 + max(map(_depth, nested), default=0)


def _from_json(value: Any, depth: int) -> Event:
    _check_depth(depth)
    kind = value.get("kind") if isinstance(value, Mapping) else None
    kinds = ("gaussian", "laplace", "approximate", "composed", "parallel")
    one_of(kinds, kind=kind, remedy=_WRITER)
    match kind:
        case "gaussian":
            return GaussianRelease(*_members(value, "noise_multiplier"))
        case "laplace":
            return LaplaceRelease(*_members(value, "epsilon"))
        case "approximate":
            inner, tv_distance, delta = _members(value, "event", "tv_distance", "delta")
            return Approximate(cast(Single, _from_json(inner, depth + 1)), tv_distance, delta)
    (inner,) = _members(value, "events")
    require(isinstance(inner, list | tuple), "events must be a list", kind=kind, remedy=_WRITER)
    events = [_from_json(item, depth + 1) for item in inner]
    return Composed(events) if kind == "composed" else Parallel(events)


def _members(value: Mapping[str, Any], *names: str) -> list[Any]:
    rule = f"a stored privacy event of this kind must hold {', '.join(names)} and nothing else"
    require(set(value) == {"kind", *names}, rule, kind=value["kind"], remedy=_WRITER)
    return [value[name] for name in names]


def _check_depth(depth: int) -> None:
    rule = f"privacy events must be nested at most {MAX_DEPTH} deep"
    remedy = "compose releases of the same documents in one Composed"
    require(depth <= MAX_DEPTH, rule, depth=f"{depth} or more", remedy=remedy)


def check_relation(neighboring_relation: str) -> str:
    """Return the present name of a relation, or refuse what is none of them."""
    name = _FORMER_NAMES.get(str(neighboring_relation), neighboring_relation)
    remedy = "take zero-out unless the number of documents is public"
    one_of(NEIGHBORING_RELATIONS, neighboring_relation=name, remedy=remedy)
    return name


def unknown(event: object) -> StreamLDAError:
    """Return the error for what is no event."""
    rule = (
        "a privacy event must be a GaussianRelease, LaplaceRelease, Approximate (of one of these), "
        "Composed or Parallel"
    )
    return failure(rule, type=type(event).__name__, remedy="describe the release by these")
