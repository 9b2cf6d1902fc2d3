"""What a private engine saves beside its raw sums, as named arrays and plain JSON values.

Everything here was made of noisy sums, so it is private itself. It is kept as it is rather than
made again from the sums: a map that another machine computes may differ in its last digits, or in
a sign, from the one that half of a stage was summed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.privacy.clipping import ClipBounds
from streamlda.private.settings import PrivateSettings

T = TypeVar("T")
Arrays = dict[str, NDArray[Any]]


def named(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}


def to_arrays(value: Any, prefix: str, *, but: tuple[str, ...] = ()) -> Arrays:
    """Return the fields of a dataclass of arrays and numbers, leaving out those named in `but`."""
    return {
        prefix + field.name: np.asarray(getattr(value, field.name))
        for field in fields(value)
        if field.name not in but
    }


def from_arrays(kind: type[T], arrays: Mapping[str, NDArray[Any]], prefix: str, **others: Any) -> T:
    """Make the dataclass again; `others` holds the fields that were left out."""
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    stored = {name: arrays[prefix + name] for name in names}
    return kind(**{k: v if v.ndim else v.item() for k, v in stored.items()}, **others)


def settings_from(values: Mapping[str, Any]) -> PrivateSettings:
    """Make the settings again from what `dataclasses.asdict` gave."""
    clipping = values["clipping"]
    if isinstance(clipping, Mapping):
        clipping = ClipBounds(**clipping)
    return PrivateSettings(**{**values, "clipping": clipping})


def differing(wanted: PrivateSettings, values: Mapping[str, Any]) -> list[str]:
    """Return the settings, as ``name=value (saved: value)``, in which a saved state differs."""
    asked = asdict(wanted)
    return [
        f"{name}={asked.get(name)!r} (saved: {values.get(name)!r})"
        for name in sorted({*asked, *values})
        if name not in asked or name not in values or asked[name] != values[name]
    ]
