"""Named arrays: how the parts of a saved state share one set of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

#: What is needed to go on, of anything: arrays, and plain JSON values.
State = tuple[Arrays, dict[str, Any]]


def named(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}
