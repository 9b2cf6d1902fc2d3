"""What was released, in words that an accountant can read years later.

An event says how much noise covered a release, not what it protects nor what it costs; cost is
worked out by `streamlda.privacy.accounting`. Events are stored in ledgers and published beside
models, so the rules are strict: a kind never changes its meaning, no kind is ever removed, a new
meaning gets a new kind, and whatever is not known is refused, never skipped.

=================== ========================== =====================================
class               JSON                       meaning
=================== ========================== =====================================
`GaussianRelease`   kind, noise_multiplier     Gaussian noise, stddev / l2_sensitivity
`LaplaceRelease`    kind, epsilon              Laplace noise, l1_sensitivity / scale
`Composed`          kind, events               all of them, of the same documents
`Parallel`          kind, events               each of its own documents
=================== ========================== =====================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamlda.errors import InvalidSettingError

#: How datasets that must be indistinguishable differ: by a document more or less, or by another
#: document in place of one. Under the first, the number of documents is private too.
NEIGHBORING_RELATIONS = ("add-remove", "replace-one")

#: Within these bounds no square and no sum of a cost overflows, or vanishes to zero unnoticed.
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 1e-3, 1e150
MIN_PURE_EPSILON, MAX_PURE_EPSILON = 1e-150, 1e3

#: Events inside events inside events: more than any release needs, less than Python's stack.
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """One release of a vector with Gaussian noise of one standard deviation in each coordinate.

    It is exactly mu-GDP with mu = 1 / noise_multiplier, whatever the dimension, and also when
    the query was chosen after seeing earlier releases.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation / l2_sensitivity, without unit, from 0.001 to 1e150. A matrix mechanism
        over a whole horizon is *one* such release (see `streamlda.privacy.matrix_mechanism`).

    Raises
    ------
    InvalidSettingError
        If it is out of range.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        value = self.noise_multiplier
        low, high = MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER
        object.__setattr__(self, "noise_multiplier", number("noise_multiplier", value, low, high))


@dataclass(frozen=True, slots=True)
class LaplaceRelease:
    """One release of a vector with Laplace noise: pure epsilon, delta 0.

    Parameters
    ----------
    epsilon : float
        l1_sensitivity / scale of the noise, in nats, from 1e-150 to 1000.

    Raises
    ------
    InvalidSettingError
        If it is out of range.
    """

    epsilon: float

    def __post_init__(self) -> None:
        epsilon = number("epsilon", self.epsilon, MIN_PURE_EPSILON, MAX_PURE_EPSILON)
        object.__setattr__(self, "epsilon", epsilon)


@dataclass(frozen=True, slots=True)
class Composed:
    """Several releases of the same documents: mu^2 of Gaussian, epsilon of pure ones add up.

    Each query may depend on the answers before it; the noise multipliers may too as long as a
    cap on the sum of mu^2 is checked before each release.

    Parameters
    ----------
    events : iterable of events
        In any order. None at all means that nothing was released.

    Raises
    ------
    InvalidSettingError
        If a member is no event, or events are nested more than `MAX_DEPTH` deep.
    """

    events: tuple[Event, ...]

    def __init__(self, events: Iterable[Event]) -> None:
        object.__setattr__(self, "events", _events(events))


@dataclass(frozen=True, slots=True)
class Parallel:
    """Releases of disjoint cohorts of documents: the largest counts, they do not add up.

    That holds only if adding, removing or replacing one document changes what is in *one*
    cohort. So a document's cohort must be fixed by itself (its hour of arrival, its site). Cohorts
    of "the next n documents" are disjoint, yet removing a document moves the first of every later
    cohort into the one before. They compose in parallel when one document is replaced, or when
    its place stays there, empty; not under plain add-or-remove.

    Parameters
    ----------
    events : iterable of events
        One for each cohort, in any order.

    Raises
    ------
    InvalidSettingError
        If a member is no event, or events are nested more than `MAX_DEPTH` deep.
    """

    events: tuple[Event, ...]

    def __init__(self, events: Iterable[Event]) -> None:
        object.__setattr__(self, "events", _events(events))


Event: TypeAlias = GaussianRelease | LaplaceRelease | Composed | Parallel


def to_json(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON values; `from_json` gives an equal event again.

    Time and memory O(number of events inside).
    """
    match event:
        case GaussianRelease(noise_multiplier):
            return {"kind": "gaussian", "noise_multiplier": noise_multiplier}
        case LaplaceRelease(epsilon):
            return {"kind": "laplace", "epsilon": epsilon}
        case Composed(events):
            return {"kind": "composed", "events": [to_json(inner) for inner in events]}
        case Parallel(events):
            return {"kind": "parallel", "events": [to_json(inner) for inner in events]}
    raise unknown(event)


def from_json(value: Any) -> Event:
    """Return the event that `to_json` made these plain JSON values of.

    Parameters
    ----------
    value : mapping
        The JSON object, parsed.

    Raises
    ------
    InvalidSettingError
        If the kind is unknown, a member is missing, unknown or out of range.
    """
    return _from_json(value, 1)


def number(name: str, value: Any, low: float, high: float) -> float:
    """Return `value` as a float if it is a number from `low` to `high`.

    Raises
    ------
    InvalidSettingError
        Naming the rule and the value; NaN lies in no range.
    """
    try:
        real = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        real = math.nan
    if not low <= real <= high:
        raise InvalidSettingError(
            f"{name} must be a number from {low:g} to {high:g}, got {name}={value!r}; "
            "choose a value in that range"
        )
    return real


def _events(events: Iterable[Event]) -> tuple[Event, ...]:
    members = tuple(events)
    for member in members:
        if not isinstance(member, GaussianRelease | LaplaceRelease | Composed | Parallel):
            raise unknown(member)
    if _depth(members) > MAX_DEPTH:
        raise _too_deep()
    return members


def _depth(events: tuple[Event, ...]) -> int:
    nested = (event.events for event in events if isinstance(event, Composed | Parallel))
    return 1 + max(map(_depth, nested), default=0)


def _from_json(value: Any, depth: int) -> Event:
    if depth > MAX_DEPTH:
        raise _too_deep()
    kind = value.get("kind") if isinstance(value, Mapping) else None
    match kind:
        case "gaussian":
            return GaussianRelease(_only_member(value, "noise_multiplier"))
        case "laplace":
            return LaplaceRelease(_only_member(value, "epsilon"))
        case "composed" | "parallel":
            inner = _only_member(value, "events")
            if not isinstance(inner, list | tuple):
                raise _malformed(kind, "events")
            events = [_from_json(item, depth + 1) for item in inner]
            return Composed(events) if kind == "composed" else Parallel(events)
    raise InvalidSettingError(
        "a stored privacy event must be of a known kind (gaussian, laplace, composed, parallel), "
        f"got kind={kind!r}; read it with the version of streamlda that wrote it"
    )


def _only_member(value: Mapping[str, Any], name: str) -> Any:
    if set(value) != {"kind", name}:
        raise _malformed(value["kind"], name)
    return value[name]


def _malformed(kind: str, name: str) -> InvalidSettingError:
    wanted = "a list of events" if name == "events" else "a number"
    return InvalidSettingError(
        f"a stored privacy event of this kind must hold {name} ({wanted}) and nothing else, got "
        f"kind={kind!r}; read it with the version of streamlda that wrote it"
    )


def _too_deep() -> InvalidSettingError:
    return InvalidSettingError(
        f"privacy events must be nested at most {MAX_DEPTH} deep, got depth={MAX_DEPTH + 1} or "
        "more; compose releases of the same documents in one Composed"
    )


def unknown(event: object) -> InvalidSettingError:
    """Return the error for what is no event."""
    return InvalidSettingError(
        "a privacy event must be a GaussianRelease, LaplaceRelease, Composed or Parallel, got "
        f"type={type(event).__name__}; describe the release by these"
    )
