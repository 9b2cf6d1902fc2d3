"""Checks of values. Every message says the rule, then name=value, then what to do.

Values are passed by keyword, under the name that the user knows them by::

    at_least(1, n_components=K)
    require(low <= high, "limits must be in order", low=low, high=high, remedy="swap them")

All return None or raise `InvalidSettingError`; ``error=`` chooses another class.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from streamlda.guarantee.checks import (
    Error,
    InvalidSettingError,
    StreamLDAError,
    at_least,
    between,
    failure,
    is_finite,
    require,
)

__all__ = [
    "Error",
    "Faults",
    "above",
    "at_least",
    "between",
    "failure",
    "one_of",
    "require",
    "require_state",
]


class Faults:
    """Rules of a package as data: by class of error and by name, ``"rule; remedy"``."""

    def __init__(self, rules: Mapping[Error, Mapping[str, str]]) -> None:
        self._rules = {
            name: (rule.partition("; "), error)
            for error, named in rules.items()
            for name, rule in named.items()
        }

    def make(self, name: str, /, **values: Any) -> StreamLDAError:
        """Return the error of a rule that does not hold."""
        (rule, _, remedy), error = self._rules[name]
        return failure(rule, remedy=remedy, error=error, **values)

    def check(self, holds: object, name: str, /, **values: Any) -> None:
        """Raise the error of a rule unless it holds."""
        if not holds:
            raise self.make(name, **values)


def above(
    low: float, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Values must be finite numbers > `low`."""
    for name, value in values.items():
        holds = is_finite(value) and value > low
        rule = f"{name} must be > {low:g} and finite"
        require(holds, rule, remedy=remedy, error=error, **{name: value})


def one_of(
    choices: Collection[Any], *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Values must be among the choices."""
    for name, value in values.items():
        rule = f"{name} must be one of {', '.join(map(str, choices))}"
        require(value in choices, rule, remedy=remedy, error=error, **{name: value})


def require_state(holds: object, **found: Any) -> None:
    """Refuse arrays that `state` cannot have returned."""
    require(
        holds,
        "a saved state must hold what state() returned, whole and within its ranges",
        **found,
        remedy="restore the checkpoint whole, with the settings it was made with",
    )
