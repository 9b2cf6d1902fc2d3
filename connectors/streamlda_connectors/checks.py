"""Faults of sources and positions: rule, remedy and class of each are data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from streamlda.checks import Faults, failure, require
from streamlda.errors import (
    InvalidSettingError,
    SourceAwayError,
    SourceError,
    SourceRefusedError,
    StreamLDAError,
)
from streamlda.stream.listing import HOW_TO_EXTRACT
from streamlda.stream.source import Position

_FAULTS = Faults(
    {
        InvalidSettingError: {
            "compressed": "compressed files cannot be followed; read them from files",
            "delimiter": "a delimiter must be one ASCII character, and no quote, blank or line "
            "end; leave it out to find it by the header",
            "encoding": "encoding must be a text codec that extends ASCII; convert the data to "
            "UTF-8",
            "mail": f"mail and HTML are not read; extract their text first ({HOW_TO_EXTRACT})",
            "timeout": "a poll must be given 0 seconds or more",
            "url": "only local files can be followed; read others from files",
        },
        SourceError: {
            "closed": "the source is not open; make a new one",
            "column": "a file must have the text column, and it must hold strings; set text_field "
            "(--text-field) to one that holds text",
            "descriptor": "a stream must be open and have a file descriptor; redirect a file or "
            "pipe to it",
            "gap": "a file was removed, compressed or cut before it was read to its end; put it "
            "back, or start with allow_gaps to do without the rest",
            "name": "the name of a file must be UTF-8; rename it",
            "package": "a package must be installed, as a folder of Python files, to be read; "
            "install it, or leave it out of packages",
            "replay": "a stream must be replayed from its start; send the same input again, or "
            "start from the beginning",
            "shorter": "a file ends before what was read of it; restore it, or start from the "
            "beginning",
            "stream": "a stream must be readable; redirect a file or pipe to it",
        },
        SourceAwayError: {
            "directory": "the directory of a file that is not read to its end is missing; bring "
            "it back, or start from the beginning",
        },
        SourceRefusedError: {
            "paths": "the position was made with other paths; name the same paths, and perhaps "
            "more, or start from the beginning",
            "position": "a position must be one that position() of this connector returned; start "
            "from the beginning",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check


def check_has_fields(
    format: str, user_field: str | None, time_field: str | None, id_field: str | None
) -> None:
    """Raise `InvalidSettingError` if more than text is to be read from a format without fields."""
    for kind, name in (("user", user_field), ("time", time_field), ("id", id_field)):
        rule = f"{kind}s can only be read from a format with fields"
        remedy = f"name another format, or leave {kind}_field out"
        values: dict[str, Any] = {"format": format, f"{kind}_field": name}
        require(format not in ("text", "file") or name is None, rule, remedy=remedy, **values)


def check_open(closed: bool) -> None:
    """Raise `SourceError` if a source is closed."""
    check(not closed, "closed", closed=closed)


def count_at(position: Position, key: str) -> int:
    """Return the count >= 0 that stands under `key`, or raise `SourceError`."""
    value = position.get(key)
    if type(value) is not int or value < 0:
        raise not_a_position(key)
    return value


def not_a_position(key: str) -> StreamLDAError:
    """Return the error for a mapping that `position` of a connector never returned."""
    return fault("position", bad_key=key)


def hash_listing(listed: Sequence[object]) -> str:
    """Return the digest that stands in a position for the files that it was made with."""
    return hashlib.blake2b(repr(listed).encode(), digest_size=8).hexdigest()


def check_same(what: str, remedy: str, position: Position, **here: object) -> None:
    """Raise `SourceRefusedError` for a position made with other files, paths or topics."""
    rule = f"the position was made with another {what}"
    remedy += ", or start from the beginning"
    for key, value in here.items():
        values: dict[str, Any] = {key: value, f"{key}_of_position": position.get(key)}
        same = position.get(key) == value
        require(same, rule, **values, remedy=remedy, error=SourceRefusedError)


def unreadable(name: str, error: OSError) -> StreamLDAError:
    """Return the error for a file or directory that the system does not let us read."""
    why = error.strerror or type(error).__name__
    remedy = f"check that it exists and its permissions ({why})"
    rule = "files and directories must be readable"
    return failure(rule, name=name, remedy=remedy, error=SourceAwayError)
