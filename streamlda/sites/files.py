"""Files of the protocol: JSON of a named kind, and the wording of errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from streamlda.container import check_version, to_json
from streamlda.errors import ModelFileError, StreamLDAError, failure

T = TypeVar("T")


def read_json(
    data: bytes,
    kind: str,
    version: int,
    make: Callable[[dict[str, Any]], T],
    path: str | os.PathLike[str],
    rule: str,
    remedy: str,
    *,
    secret: bool = False,
) -> T:
    """Return what `make` makes of the values of a JSON file, less its kind and version."""

    def open_values() -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = json.loads(data)
        found, made = values.pop("format"), values.pop("format_version")
        if found != kind or type(made) is not int:
            raise ValueError("it is a file of another kind")
        return values, made

    values, found = parse_content(open_values, path, rule, remedy, secret=secret)
    check_version(found, version, kind, path)
    return parse_content(lambda: make(values), path, rule, remedy, secret=secret)


def check_members(values: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Refuse values that differ from those that what was made of them would write."""
    if to_json(dict(values)) != to_json(dict(made)):
        odd = sorted(set(values) ^ set(made))
        raise ValueError(f"it has other members than it must have: {str(odd)[:80]}")


def parse_content(
    make: Callable[[], T],
    path: str | os.PathLike[str],
    rule: str,
    remedy: str,
    *,
    secret: bool = False,
) -> T:
    """Return what `make` makes of a file; errors in its content become one `ModelFileError`.

    The content of a secret is in no message and no cause.
    """
    try:
        return make()
    except (StreamLDAError, AttributeError, LookupError, TypeError, ValueError) as error:
        cause = None if secret else error
        reason = type(error).__name__ if secret else str(error)[:300]
    raise failure(
        rule, path=str(path), reason=reason, remedy=remedy, error=ModelFileError
    ) from cause
