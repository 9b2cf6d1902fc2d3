"""Values of settings, from text and TOML to Python: one parser for each kind."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from streamlda.settings.setting import Secret, Setting

#: Units of sizes and of times, as in ``memory.limit = "2 GiB"`` and ``interval = "5 min"``.
SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
TIMES = {"": 1.0, "MS": 1e-3, "S": 1.0, "MIN": 60.0, "H": 3600.0, "D": 86400.0}
TOPIC = re.compile("[A-Za-z0-9._-]{1,249}")
AMOUNT = re.compile(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*")


def parsed(setting: Setting, raw: Any, *, from_file: bool = False) -> Any:
    """Return the value of a setting; the message of a `ValueError` is the rule.

    A secret comes from its variable, or with `from_file` from the file that is named.
    """
    if setting.kind == "secret":
        return Secret(_text(raw) if from_file else None, setting.variable)
    if isinstance(raw, str) and raw in setting.words:
        return raw
    try:
        value = PARSERS[setting.kind](raw)
    except ValueError as error:
        raise ValueError(" or ".join((str(error), *setting.words))) from None
    if setting.choices and value not in setting.choices:
        raise ValueError(f"must be one of {', '.join(setting.choices)}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_bounds(setting, value)
    return value


def shown(setting: Setting, value: Any) -> str:
    """Return a value as help and pages show it."""
    if value is None or value == ():
        return "none"
    if setting.kind == "bytes":
        return f"{value // 2**20} MiB"
    if setting.kind == "bool":
        return "true" if value else "false"
    if setting.kind == "ngrams":
        return "..".join(map(str, sorted(set(value))))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_bounds(setting: Setting, value: float) -> None:
    low, high, is_open = setting.least, setting.most, setting.open
    if not (low < value < high if is_open else low <= value <= high):
        upper = "" if high == math.inf else f" and <= {high:g}"
        raise ValueError(f"must be {'>' if is_open else '>='} {low:g}{upper}")


def _text(raw: Any) -> str:
    if not isinstance(raw, str | os.PathLike) or not str(raw):
        raise ValueError("must be text that is not empty")
    return os.fspath(raw)


def _topic(raw: Any) -> str:
    name = _text(raw)
    if not TOPIC.fullmatch(name) or name in (".", ".."):
        raise ValueError("must be a name of Kafka: at most 249 letters, digits, dots, _ and -")
    return name


def _int(raw: Any) -> int:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,20}", raw):
        raw = int(raw)
    if isinstance(raw, bool) or not hasattr(raw, "__index__"):
        raise ValueError("must be an integer")
    return int(raw)


def _number(raw: Any) -> float:
    try:
        value = math.nan if isinstance(raw, bool | bytes) else float(raw)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _bool(raw: Any) -> bool:
    if isinstance(raw, str):
        raw = {"true": True, "1": True, "false": False, "0": False}.get(raw.lower())
    if type(raw) is not bool:
        raise ValueError("must be true or false")
    return raw


def _list(raw: Any) -> tuple[str, ...]:
    # In a variable, names are separated as in PATH.
    parts = raw.split(os.pathsep) if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(p, str) and p for p in parts):
        raise ValueError("must be a list of text")
    return tuple(parts)


def _seeds(raw: Any) -> tuple[str, ...]:
    """Return lines, which are separated in a variable by semicolons; names and words are joined."""
    if isinstance(raw, Mapping):
        if not all(isinstance(words, list | tuple) for words in raw.values()):
            raise ValueError("must have a list of words for each name")
        raw = [f"{name}: {' '.join(map(str, words))}" for name, words in raw.items()]
    elif isinstance(raw, str):
        raw = raw.split(";")
    elif isinstance(raw, os.PathLike):
        raw = [os.fspath(raw)]
    return _list(raw)


def _amount(raw: Any, units: Mapping[str, float], rule: str) -> float:
    try:
        if isinstance(raw, str) and (found := AMOUNT.fullmatch(raw)):
            raw = float(found[1]) * units[found[2].upper()]
        # Python's own integers may be too large for a float.
        fits = not isinstance(raw, str | bool) and math.isfinite(raw) and float(raw) < 2.0**63
    except (KeyError, TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(rule)
    amount: float = raw
    return amount


def _bytes(raw: Any) -> int:
    return int(_amount(raw, SIZES, "must be a size such as 512 MiB"))


def _seconds(raw: Any) -> float:
    return float(_amount(raw, TIMES, "must be a time such as 30 s or 5 min"))


def _whole(raw: Any) -> Any:
    """Return text of digits as an int, and other values as they are."""
    return int(raw) if isinstance(raw, str) and re.fullmatch("[0-9]{1,18}", raw) else raw


def _keep(raw: Any) -> int | float:
    """Return an int for a number of snapshots, ``100``, and a float for an age, ``30 d``."""
    raw = _whole(raw)
    kept = raw if isinstance(raw, int) and not isinstance(raw, bool) else _seconds(raw)
    if kept < 1:
        raise ValueError("must be a number of snapshots >= 1, or an age such as 30 d")
    return kept


def _frequency(raw: Any) -> float:
    """Return an int for a number of documents, ``5``, and a float for a fraction, ``0.5``."""
    raw = _whole(raw)
    value = raw if isinstance(raw, int) and not isinstance(raw, bool) else _number(raw)
    if value < 0 or (isinstance(value, float) and value > 1):
        raise ValueError("must be a number of documents, or a fraction from 0.0 to 1.0")
    return value


def _ngrams(raw: Any) -> tuple[int, int]:
    found = re.fullmatch(r"(?:([0-9]{1,2})\.\.)?([0-9]{1,2})", str(raw))
    low, high = (int(found[1] or 1), int(found[2])) if found else (0, 0)
    if isinstance(raw, bool) or not 1 <= low <= high:
        raise ValueError("must be a number n >= 1 or a range m..n")
    return low, high


PARSERS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "topic": _topic,
    "int": _int,
    "number": _number,
    "bool": _bool,
    "list": _list,
    "seeds": _seeds,
    "bytes": _bytes,
    "seconds": _seconds,
    "frequency": _frequency,
    "keep": _keep,
    "ngrams": _ngrams,
}
