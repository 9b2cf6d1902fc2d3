"""Checks of values. Every message says the rule, then name=value, then what to do.

Values are passed by keyword, under the name that the user knows them by::

    at_least(1, n_components=K)
    require(low <= high, "limits must be in order", low=low, high=high, remedy="swap them")

All return None or raise `InvalidSettingError`; ``error=`` chooses another class.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping
from typing import Any

from streamlda.errors import InvalidSettingError, StreamLDAError

Error = type[StreamLDAError]


def failure(
    rule: str, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> StreamLDAError:
    """Return the error whose message is ``rule, got name=value ...; remedy``."""
    got = " ".join(f"{name}={_shown(value)}" for name, value in values.items())
    return error(rule + (f", got {got}" if got else "") + (f"; {remedy}" if remedy else ""))


def require(
    holds: object, rule: str, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Raise `failure` unless the rule holds."""
    if not holds:
        raise failure(rule, remedy=remedy, error=error, **values)


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


def at_least(
    least: int, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Values must be whole numbers >= `least`."""
    for name, value in values.items():
        holds = _is_whole(value) and operator.index(value) >= least
        rule = f"{name} must be a whole number >= {least}"
        require(holds, rule, remedy=remedy, error=error, **{name: value})


def above(
    low: float, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Values must be finite numbers > `low`."""
    for name, value in values.items():
        holds = _is_finite(value) and value > low
        rule = f"{name} must be > {low:g} and finite"
        require(holds, rule, remedy=remedy, error=error, **{name: value})


def between(
    low: float,
    high: float,
    *,
    ends: bool = True,
    remedy: str = "",
    error: Error = InvalidSettingError,
    **values: Any,
) -> None:
    """Values must be numbers from `low` to `high`, the ends included or not."""
    for name, value in values.items():
        holds = _is_finite(value) and (low <= value <= high if ends else low < value < high)
        rule = f"{name} must lie in {low:g}..{high:g}" + ("" if ends else ", ends excluded")
        require(holds, rule, remedy=remedy, error=error, **{name: value})


def one_of(
    choices: Collection[Any], *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Values must be among the choices."""
    for name, value in values.items():
        rule = f"{name} must be one of {', '.join(map(str, choices))}"
        require(value in choices, rule, remedy=remedy, error=error, **{name: value})


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def require_state(holds: object, **found: Any) -> None:
    """Refuse arrays that `state` cannot have returned."""
    require(
        holds,
        "a saved state must hold what state() returned, whole and within its ranges",
        **found,
        remedy="restore the checkpoint whole, with the settings it was made with",
    )


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, bool | str) and math.isfinite(value)
    except (TypeError, OverflowError):
        return False
