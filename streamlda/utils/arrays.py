"""Named arrays: how the parts of a saved state share one set of names."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import MISSING, fields
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
S = TypeVar("S", bound=np.generic)
#: Real numbers, and arrays by name.
Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

#: All that is needed to continue: states of parts by name, arrays, and plain JSON values. In files
#: arrays and values are apart.
Tree = dict[str, Any]
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


def take_named(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}


def split_state(tree: Mapping[str, Any]) -> State:
    """Return the arrays of a state by their paths, ``part.name``, and all else of it."""
    arrays: Arrays = {}
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, dict):
            own, values[name] = split_state(value)
            arrays |= with_prefix(own, f"{name}.")
        else:
            values[name] = value
    return arrays, values


def join_state(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Tree:
    """Return the state that `split_state` took apart; `values` stay as they are."""
    tree = deepcopy(dict(values))
    for path, array in arrays.items():
        *parts, name = path.split(".")
        reduce(lambda part, each: part[each], parts, tree)[name] = array
    return tree


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
