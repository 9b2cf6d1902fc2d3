"""Files of the protocol: JSON of a named kind, and the wording of errors."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from streamlda.container import check_version, to_json
from streamlda.errors import ModelFileError, StreamLDAError, failure

T = TypeVar("T")


@dataclass(frozen=True)
class JsonKind:
    """A kind of JSON file, and what its errors say: a rule, and what to do."""

    name: str
    version: int
    rule: str
    remedy: str

    def name_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values with the kind and the version that a file names."""
        return {"format": self.name, "format_version": self.version, **values}

    def write(self, values: Mapping[str, Any]) -> str:
        """Return values as the text of a file."""
        return json.dumps(self.name_values(values), indent=1, sort_keys=True) + "\n"

    def read(
        self,
        path: str | os.PathLike[str],
        make: Callable[[dict[str, Any]], T],
        *,
        secret: bool = False,
    ) -> T:
        """Return what `make` makes of the values of a file."""
        data = Path(path).read_bytes()

        def open_values() -> tuple[dict[str, Any], int]:
            values: dict[str, Any] = json.loads(data)
            found, version = values.pop("format"), values.pop("format_version")
            if found != self.name or type(version) is not int:
                raise ValueError("it is a file of another kind")
            return values, version

        words = path, self.rule, self.remedy
        values, version = parse_content(open_values, *words, secret=secret)
        check_version(version, self.version, self.name, path)
        return parse_content(lambda: make(values), *words, secret=secret)


def check_members(values: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Refuse values that differ from those that what was made of them would write."""
    if to_json(dict(values)) != to_json(dict(made)):
        odd = sorted(set(values) ^ set(made))
        raise ValueError(f"it has other members than such a file: {str(odd)[:80]}")


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
