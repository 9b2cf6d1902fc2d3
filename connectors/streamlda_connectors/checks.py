"""Checks that all connectors share, and the errors of what cannot be read any more."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from streamlda.checks import failure, require
from streamlda.errors import SourceAwayError, SourceError, SourceRefusedError, StreamLDAError
from streamlda.stream.source import Position


def check_has_fields(
    format: str, user_field: str | None, time_field: str | None, id_field: str | None
) -> None:
    """Raise `InvalidSettingError` if more than text is to be read from a format without fields."""
    for what, name in (("user", user_field), ("time", time_field), ("id", id_field)):
        values: dict[str, Any] = {"format": format, f"{what}_field": name}
        rule = f"{what}s can only be read from a format with fields"
        remedy = f"name another format, or leave {what}_field out"
        require(format not in ("text", "file") or name is None, rule, remedy=remedy, **values)


def check_open(closed: bool) -> None:
    """Raise `SourceError` if a source is closed."""
    require(
        not closed,
        "a source must be open to be polled",
        closed=closed,
        remedy="make a new one",
        error=SourceError,
    )


def count_at(position: Position, key: str) -> int:
    """Return the count >= 0 that stands under `key`, or raise `SourceError`."""
    value = position.get(key)
    if type(value) is not int or value < 0:
        raise not_a_position(key)
    return value


def not_a_position(key: str) -> StreamLDAError:
    """Return the error for what `position` of a connector never returned."""
    return failure(
        "a position must be one that position() of this connector returned",
        bad_key=key,
        remedy="start from the beginning",
        error=SourceRefusedError,
    )


def digest_of(listed: Sequence[object]) -> str:
    """Return what stands in a position for the files that it was made with."""
    return hashlib.blake2b(repr(listed).encode(), digest_size=8).hexdigest()


def check_same(what: str, remedy: str, position: Position, **here: object) -> None:
    """Raise `SourceRefusedError` for a position made with other files, paths or topics."""
    for key, value in here.items():
        require(
            position.get(key) == value,
            f"a position holds only for the {what} it was made with",
            **{key: value, f"{key}_of_position": position.get(key)},
            remedy=f"{remedy}, or start from the beginning",
            error=SourceRefusedError,
        )


def shortened(name: str, **missing: int) -> StreamLDAError:
    """Return the error for a file that ends before what was read of it."""
    return failure(
        "a file must still hold what was read of it",
        name=name,
        **missing,
        remedy="restore it, or start from the beginning",
        error=SourceError,
    )


def unreadable(name: str, error: OSError) -> StreamLDAError:
    """Return the error for a file or directory that the system does not let us read."""
    why = error.strerror or type(error).__name__
    return failure(
        "files and directories must be readable",
        name=name,
        remedy=f"check that it exists and its permissions ({why})",
        error=SourceAwayError,
    )
