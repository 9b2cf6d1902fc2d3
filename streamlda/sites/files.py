"""Files of the protocol: JSON of a named kind, and one wording for a file that is not whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from streamlda.checks import failure
from streamlda.errors import ModelFileError, StreamLDAError

T = TypeVar("T")


def read_json(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """Return the values of a JSON file of a kind, less its kind and version."""
    values: dict[str, Any] = json.loads(Path(path).read_bytes())
    found = values.pop("format"), values.pop("format_version")
    if found != (kind, version):
        raise ValueError(f"the format is {found}")
    return values


def parsed(
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
