"""Named arrays: how the parts of a saved state share one set of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
S = TypeVar("S", bound=np.generic)
#: Real numbers, and arrays by name.
Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

#: What is needed to continue, of anything: arrays, and plain JSON values.
State = tuple[Arrays, dict[str, Any]]


#: Rows of a large matrix that are worked on at a time.
BLOCK_ROWS = 2**13


def row_blocks(n_rows: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Yield the blocks of a matrix with so many rows, for work that is done in place."""
    return (slice(start, start + size) for start in range(0, n_rows, size))


def frozen(array: NDArray[S]) -> NDArray[S]:
    """Return an array that nobody writes to any more, so that a model shares it."""
    array.flags.writeable = False
    return array


def named(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}


def to_arrays(value: Any, prefix: str, *, but: tuple[str, ...] = ()) -> Arrays:
    """Return the fields of a dataclass of arrays and numbers but those in `but` and those None."""
    return {
        prefix + field.name: np.asarray(getattr(value, field.name))
        for field in fields(value)
        if field.name not in but and getattr(value, field.name) is not None
    }


def from_arrays(kind: type[T], arrays: Mapping[str, NDArray[Any]], prefix: str, **others: Any) -> T:
    """Make the dataclass again; `others` holds the fields that were left out.

    A field with a default may be missing: it was None, or not known yet when the state was saved.
    """
    stored = {
        field.name: arrays[prefix + field.name]
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in others and (field.default is MISSING or prefix + field.name in arrays)
    }
    return kind(**{k: v if v.ndim else v.item() for k, v in stored.items()}, **others)
