"""Checks of values, and the errors that they raise; `streamlda.errors` has more of them."""

import math
import operator
from typing import Any


class StreamLDAError(Exception):
    """Base of all errors raised by streamlda."""


class InvalidDocumentsError(StreamLDAError, ValueError):
    """Counts or text that no statistic can be made of."""


class InvalidSettingError(StreamLDAError, ValueError):
    """A parameter out of range, or two parameters that exclude each other."""


Error = type[StreamLDAError]


def failure(
    rule: str, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> StreamLDAError:
    """Return the error whose message is ``rule, got name=value ...; remedy``."""
    got = " ".join(f"{name}={_show(value)}" for name, value in values.items())
    return error(rule + (f", got {got}" if got else "") + (f"; {remedy}" if remedy else ""))


def require(
    holds: object, rule: str, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Raise `failure` unless the rule holds."""
    if not holds:
        raise failure(rule, remedy=remedy, error=error, **values)


def at_least(
    least: int, *, remedy: str = "", error: Error = InvalidSettingError, **values: Any
) -> None:
    """Values must be whole numbers >= `least`."""
    for name, value in values.items():
        holds = _is_whole(value) and operator.index(value) >= least
        rule = f"{name} must be a whole number >= {least}"
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
        holds = is_finite(value) and (low <= value <= high if ends else low < value < high)
        rule = f"{name} must lie in {low:g}..{high:g}" + ("" if ends else ", ends excluded")
        require(holds, rule, remedy=remedy, error=error, **{name: value})


def is_finite(value: Any) -> bool:
    """Tell whether a value is a finite number, and no boolean or text."""
    try:
        return not isinstance(value, bool | str) and math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
