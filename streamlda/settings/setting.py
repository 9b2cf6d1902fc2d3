"""Setting: an entry of the table, the names that follow from it, and the values it takes."""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamlda.stream.credentials import read_secret

Value = TypeVar("Value")

PREFIX = "STREAMLDA_"

#: Commands that read settings.
FIT, RUN, INFER = "fit", "run", "infer"

#: Commands in which sites agree on settings, and in which a private run is planned; readers of
#: settings that read no documents.
AGREEMENT, PLAN = "site config", "plan"
WITHOUT_DOCUMENTS = ("", AGREEMENT, PLAN)

#: Sections of the daemon alone, and those whose flags begin with their name.
DAEMON = ("memory", "dead_letters", "breaker", "http", "log")
PREFIXED = ("kafka", "registry", "checkpoint", "infer", *DAEMON)


@dataclass(frozen=True, slots=True)
class Secret:
    """Place of a secret: a file, or else a variable. It is read when it is needed."""

    file: str | None
    variable: str

    def reveal(self) -> str:
        """Return the secret, or raise `InvalidSettingError`."""
        return read_secret(self.file, self.variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One entry of the table."""

    section: str
    key: str
    #: Key of `PARSERS`.
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf
    #: Whether the bounds themselves are excluded.
    open: bool = False
    #: Words that are values too.
    words: tuple[str, ...] = ()
    flag: str = ""
    short: str = ""
    #: Name as a parameter of `StreamLDA`, if it is one.
    parameter: str = ""
    commands: tuple[str, ...] = (FIT, RUN)

    @property
    def name(self) -> str:
        """Name in files and messages: ``section.key``."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """Environment variable."""
        return f"{PREFIX}{self.section}_{self.key}".upper()


def entry(kind: str, default: Any, help: str, **more: Any) -> Any:
    """Return the field of a section that declares a setting; `more` as in `Setting`."""
    return field(default=default, metadata={"kind": kind, "help": help, **more})


def make_setting(section: str, field: Any) -> Setting:
    """Return the setting that a field of a section declares."""
    key, more = field.name, dict(field.metadata)
    if not more.get("flag"):
        words = f"{section}_{key}" if section in PREFIXED else key
        end = "-file" * (more["kind"] == "secret")
        more["flag"] = f"--{words.replace('_', '-')}{end}"
    if section in DAEMON:
        more["commands"] = (RUN,)
    return Setting(section=section, key=key, default=field.default, **more)


#: Units of sizes and of times, as in ``memory.queue = "64 MiB"`` and ``interval = "5 min"``.
SIZES = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
TIMES = {"": 1.0, "MS": 1e-3, "S": 1.0, "MIN": 60.0, "H": 3600.0, "D": 86400.0}
TOPIC = re.compile("[A-Za-z0-9._-]{1,249}")
AMOUNT = re.compile(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*")


def parse_value(setting: Setting, raw: Any, *, from_file: bool = False) -> Any:
    """Return the value of a setting; the message of a `ValueError` is the rule.

    A secret comes from its variable, or with `from_file` from the file that is named.
    """
    if setting.kind == "secret":
        return Secret(_text(raw) if from_file else None, setting.variable)
    if isinstance(raw, str) and raw in setting.words:
        return raw
    parse, rule = PARSERS[setting.kind]
    try:
        value = parse(raw)
    except (TypeError, ValueError, OverflowError, KeyError):
        raise ValueError(f"must be {' or '.join((rule, *setting.words))}") from None
    if setting.choices and value not in setting.choices:
        raise ValueError(f"must be one of {', '.join(setting.choices)}")
    low, high = setting.least, setting.most
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not (low < value < high if setting.open else low <= value <= high):
        upper = "" if high == math.inf else f" and <= {high:g}"
        raise ValueError(f"must be {'>' if setting.open else '>='} {low:g}{upper}")
    return value


def show_value(setting: Setting, value: Any) -> str:
    """Return a value as help and pages show it."""
    if value is None or value == ():
        return "none"
    if setting.kind == "bytes":
        return f"{value // 2**20} MiB"
    if setting.kind == "seconds":
        return f"{value:g} s"
    if setting.kind == "bool":
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check(value: Value, holds: object) -> Value:
    """Return a value that keeps the rule of its kind."""
    if not holds:
        raise ValueError
    return value


def _text(raw: Any) -> str:
    return _check(str(raw), isinstance(raw, str | os.PathLike) and str(raw))


def _topic(raw: Any) -> str:
    return _check(_text(raw), TOPIC.fullmatch(raw) and raw not in (".", ".."))


def _int(raw: Any) -> int:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,20}", raw):
        raw = int(raw)
    return int(_check(raw, hasattr(raw, "__index__") and not isinstance(raw, bool)))


def _number(raw: Any) -> float:
    value = float(_check(raw, not isinstance(raw, bool | bytes)))
    return _check(value, math.isfinite(value))


def _bool(raw: Any) -> bool:
    _check(raw, isinstance(raw, bool | str))
    return {"true": True, "1": True, "false": False, "0": False}[str(raw).lower()]


def _list(raw: Any) -> tuple[str, ...]:
    # In a variable, names are separated as in PATH.
    parts = raw.split(os.pathsep) if isinstance(raw, str) else raw
    _check(parts, isinstance(parts, list | tuple) and all(isinstance(p, str) and p for p in parts))
    return tuple(parts)


def _seeds(raw: Any) -> tuple[str, ...]:
    """Return lines, which are separated in a variable by semicolons; names and words are joined."""
    if isinstance(raw, Mapping):
        _check(raw, all(isinstance(words, list | tuple) for words in raw.values()))
        raw = [f"{name}: {' '.join(map(str, words))}" for name, words in raw.items()]
    elif isinstance(raw, str):
        raw = raw.split(";")
    return _list(raw)


def _amount(raw: Any, units: Mapping[str, float]) -> float:
    if isinstance(raw, str) and (found := AMOUNT.fullmatch(raw)):
        raw = float(found[1]) * units[found[2].upper()]
    # Python's own integers may be too large for a float.
    amount: float = _check(
        raw, not isinstance(raw, str | bool) and math.isfinite(raw) and raw < 2.0**63
    )
    return amount


def _count(raw: Any) -> int | None:
    """Return a number without a point, given as an integer or as text; None for other values."""
    is_count = isinstance(raw, int) and not isinstance(raw, bool)
    return int(raw) if is_count or re.fullmatch("[0-9]{1,18}", str(raw)) else None


def _keep(raw: Any) -> int | float:
    """Return an int for a number of snapshots, ``100``, and a float for an age, ``30 d``."""
    count = _count(raw)
    kept = float(_amount(raw, TIMES)) if count is None else count
    return _check(kept, kept >= 1)


def _frequency(raw: Any) -> int | float:
    """Return an int for a number of documents, ``5``, and a float for a fraction, ``0.5``."""
    count = _count(raw)
    value = _number(raw) if count is None else count
    return _check(value, value >= 0 and (count is not None or value <= 1))


#: Parser of each kind, and its values in words.
PARSERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (_text, "text that is not empty"),
    "topic": (_topic, "a name of Kafka: at most 249 letters, digits, dots, _ and -"),
    "int": (_int, "an integer"),
    "number": (_number, "a finite number"),
    "bool": (_bool, "true or false"),
    "list": (_list, "a list of text"),
    "seeds": (_seeds, "a list of 'name: words', or a list of words for each name"),
    "bytes": (lambda raw: int(_amount(raw, SIZES)), "a size such as 512 MiB"),
    "seconds": (lambda raw: float(_amount(raw, TIMES)), "a time such as 30 s or 5 min"),
    "frequency": (_frequency, "a number of documents, or a fraction from 0.0 to 1.0"),
    "keep": (_keep, "a number of snapshots >= 1, or an age such as 30 d"),
}
