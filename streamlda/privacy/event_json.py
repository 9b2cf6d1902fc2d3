"""Events as plain JSON values, in ledgers and beside models.

A kind never changes its meaning, a new meaning gets a new kind, and whatever is not known is
refused, never skipped (`streamlda.privacy.events`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from streamlda.errors import one_of, require
from streamlda.privacy.events import (
    Approximate,
    Composed,
    Event,
    GaussianRelease,
    LaplaceRelease,
    Single,
    check_depth,
    unknown,
)

_WRITER = "read it with the version of streamlda that wrote it"


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
    return _from_json(value, 1)


def _from_json(value: Any, depth: int) -> Event:
    check_depth(depth)
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
            return Approximate(cast(Single, _from_json(inner, depth + 1)), tv_distance, delta)
    (inner,) = _members(value, "events")
    require(isinstance(inner, list | tuple), "events must be a list", kind=kind, remedy=_WRITER)
    return Composed(_from_json(item, depth + 1) for item in inner)


def _members(value: Mapping[str, Any], *names: str) -> list[Any]:
    rule = f"a stored privacy event of this kind must hold {', '.join(names)} and nothing else"
    require(set(value) == {"kind", *names}, rule, kind=value["kind"], remedy=_WRITER)
    return [value[name] for name in names]
