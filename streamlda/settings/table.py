"""The settings of ``streamlda run``: one table, from which files, environment, flags and help come.

A setting has one name, ``section.key``, and from it follow its place in the file
(``[section]`` ``key = ...``), its variable (``STREAMLDA_SECTION_KEY``) and its flag
(``--section-key``). A flag goes before a variable, a variable before the file, the file before the
default. What is unknown is an error, and all errors are reported at once.

A secret stands in a file that ``section.key_file`` names, or in its variable; never in the
settings file, a flag, or what is printed.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streamlda.errors import InvalidSettingError
from streamlda.settings.rules import clashes
from streamlda.stream.credentials import MECHANISMS, PROTOCOLS, read_secret

Kind = Literal["text", "whole", "number", "switch", "list", "bytes", "seconds", "secret"]

PREFIX = "STREAMLDA_"

#: Units of sizes and of times, as in ``memory.limit = "2 GiB"`` and ``interval = "5 min"``.
SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
TIMES = {"": 1.0, "MS": 1e-3, "S": 1.0, "MIN": 60.0, "H": 3600.0, "D": 86400.0}
AMOUNT = re.compile(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*\Z")


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is; the secret itself is read when it is needed, and never shown.

    Parameters
    ----------
    file : str or None
        Its file; else it is in the variable.
    variable : str
        Its environment variable.
    """

    file: str | None
    variable: str

    def reveal(self) -> str:
        """Return the secret, as `read_secret` does."""
        return read_secret(self.file, self.variable)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes
    ----------
    name : str
        ``section.key``.
    kind : str
    default : object
        None for none.
    unit : str
        Empty where there is none.
    help : str
        One sentence.
    choices : tuple of str
        The only values of a text.
    least, most : float
        Bounds of numbers; `least` itself is allowed unless `above`.
    """

    name: str
    kind: Kind
    default: Any
    unit: str
    help: str
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf
    above: bool = False

    @property
    def section(self) -> str:
        """Table of the TOML file."""
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        """Key in the table."""
        return self.name.partition(".")[2]

    @property
    def variable(self) -> str:
        """Environment variable."""
        return PREFIX + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """Flag of the command line."""
        return "--" + self.name.replace(".", "-").replace("_", "-")


def _row(name: str, kind: Kind, default: Any, help: str, unit: str = "", **limits: Any) -> Setting:
    return Setting(name, kind, default, unit, help, **limits)


MIB = 2**20

TABLE: tuple[Setting, ...] = (
    _row("source.kind", "text", "kafka",
         "What is read: a topic, files once, or files that grow and folders that fill.",
         choices=("kafka", "files", "follow")),
    _row("source.files", "list", (), "Files, folders and patterns, with kind files or follow."),
    _row("source.format", "text", "json", "How a record holds its text; auto goes by file names.",
         choices=("json", "text", "csv", "parquet", "auto")),
    _row("source.text_field", "text", "text", "Key or column of the text; a.b goes down."),
    _row("source.user_field", "text", None, "Key or column of the user."),
    _row("source.stream", "text", None, "Name of the stream in the ledger; default: the source."),
    _row("source.allow_gaps", "switch", False,
         "Go on where records are gone (retention, truncation), and record it."),
    _row("source.max_document", "bytes", 16 * MIB, "Longer records are passed over.", "bytes",
         least=1),
    _row("kafka.bootstrap", "text", None, "Brokers, host:port,host:port."),
    _row("kafka.topic", "text", None, "Topic to read."),
    _row("kafka.partitions", "text", "all", "all, a list such as 0,3, or share i/n."),
    _row("kafka.start", "text", "earliest", "Where to begin without a checkpoint.",
         choices=("earliest", "latest")),
    _row("kafka.group", "text", None, "Group under which lag is shown; offsets are our own."),
    _row("kafka.protocol", "text", "PLAINTEXT", "How to connect.",
         choices=PROTOCOLS),
    _row("kafka.mechanism", "text", None, "SASL mechanism.",
         choices=MECHANISMS),
    _row("kafka.username", "text", None, "SASL user."),
    _row("kafka.password", "secret", None, "SASL password."),
    _row("kafka.ca_file", "text", None, "Certificates of the authorities that are trusted."),
    _row("kafka.certificate_file", "text", None, "Certificate of this client."),
    _row("kafka.key_file", "text", None, "Key of this client."),
    _row("kafka.key_password", "secret", None, "Password of the key."),
    _row("words.kind", "text", "hashed", "Where the columns come from.",
         choices=("hashed", "given", "learned", "selected")),
    _row("words.file", "text", None, "Word list, with kind given."),
    _row("words.size", "whole", 8000, "Most words, learned or selected.", "words", least=1),
    _row("words.hash_bits", "whole", 14, "Columns of hashed words, as a power of 2.", "bits",
         least=1, most=22),
    _row("words.documents", "whole", 20_000, "Records to learn or select words from.", "records",
         least=1),
    _row("words.stop_words", "text", "english", "Words to leave out: a list by name, or none.",
         choices=("english", "none")),
    _row("words.token_pattern", "text", None,
         "Regular expression of a word; default: two or more letters of any script."),
    _row("topics.count", "whole", 20, "Topics K.", "topics", least=1),
    _row("topics.alpha_0", "number", 1.0, "Sum of the Dirichlet parameters; 0 estimates it.",
         least=0),
    _row("topics.solver", "text", "whitened-tensor", "Way from sums to topics.",
         choices=("whitened-tensor", "online-power", "simultaneous", "noisy-power")),
    _row("topics.seed", "whole", 0, "Of maps and restarts, never of noise.", least=0,
         most=2**63 - 1),
    _row("topics.warmup", "whole", None,
         "Documents behind the first topics; default: 20000, or 10000 without a refinement.",
         "documents", least=1),
    _row("topics.refine", "switch", None,
         "Let likelihood refine the topics; default: where it can, not with privacy, a map file or "
         "another solver."),
    _row("topics.map_file", "text", None,
         "Map of streamlda map, shared by daemons that are to be merged; default: its own."),
    _row("topics.documents_per_round", "whole", None,
         "Documents of a round of the online solvers; default: they grow.", "documents", least=1),
    _row("topics.memory_documents", "whole", None,
         "Let online solvers forget: topics rest on the last half to all of so many.",
         "documents", least=1),
    _row("topics.restarts", "whole", None, "Random starts L of a component, power methods.",
         "starts", least=1),
    _row("topics.iterations", "whole", None, "Power iterations R.", "rounds", least=1),
    _row("topics.oversampling", "whole", 50, "Columns of maps beyond K.", "columns", least=0),
    _row("snapshots.every", "whole", 100_000, "Records between snapshots.", "records", least=100),
    _row("snapshots.most", "whole", None, "Most snapshots; default: no limit.", "snapshots",
         least=1),
    _row("snapshots.when_exhausted", "text", "idle", "What to do when no release is left.",
         choices=("idle", "stop")),
    _row("privacy.epsilon", "number", None, "Budget of a unit; default: not private.", least=0,
         above=True),
    _row("privacy.delta", "number", None, "What epsilon leaves open.", least=0, most=1, above=True),
    _row("privacy.unit", "text", "document", "Whose presence is hidden.",
         choices=("document", "user")),
    _row("privacy.documents_per_user", "whole", None, "Of one user, in a stage.", "documents",
         least=1),
    _row("privacy.relation", "text", "add-remove", "What neighbours are.",
         choices=("add-remove", "replace-one")),
    _row("privacy.mode", "text", "window", "Disjoint windows, or all since the start.",
         choices=("window", "prefix")),
    _row("privacy.clipping", "text", "quantile", "Bounds of a document's share.",
         choices=("quantile", "worst-case")),
    _row("privacy.refinement_rounds", "whole", None, "Of a window; default: where they help.",
         least=0),
    _row("privacy.noise_in_state", "switch", False, "Begin sums with noise, against theft."),
    _row("privacy.ledger", "text", None, "File that remembers what was spent."),
    _row("memory.limit", "bytes", None, "Resident memory, at most; default: no limit.", "bytes",
         least=1),
    _row("memory.queue", "bytes", 64 * MIB, "Documents that wait, at most.", "bytes", least=MIB),
    _row("memory.patience", "seconds", 60.0, "How long memory may stay short.", "seconds",
         least=0),
    _row("checkpoint.folder", "text", "checkpoints", "Folder of the checkpoints."),
    _row("checkpoint.interval", "seconds", 60.0, "Between checkpoints.", "seconds", least=0.1),
    _row("output.folder", "text", "snapshots", "Folder of the published snapshots."),
    _row("output.topic", "text", None, "Compacted topic for snapshots; default: none."),
    _row("dead_letters.topic", "text", None, "Topic for rejected records; default: none."),
    _row("dead_letters.with_text", "switch", False, "Also send what the record says."),
    _row("breaker.share", "number", 0.5, "Stop when more than this share is rejected.", least=0,
         most=1),
    _row("breaker.records", "whole", 10_000, "Of so many records.", "records", least=1),
    _row("breaker.attempts", "whole", 5, "Failures in a row after which to stop.", least=1),
    _row("http.host", "text", "127.0.0.1", "Address to listen on."),
    _row("http.port", "whole", 8080, "Port of health, metrics and snapshots; 0 for none.",
         least=0, most=65535),
    _row("http.token", "secret", None, "Bearer token, needed unless the host is loopback."),
    _row("log.format", "text", "console", "How log lines look.", choices=("console", "json")),
    _row("log.level", "text", "info", "Least level shown.",
         choices=("debug", "info", "warning", "error")),
)  # fmt: skip

SETTINGS = {setting.name: setting for setting in TABLE}


@dataclass(frozen=True, slots=True)
class Settings(Mapping[str, Any]):
    """Settings by name, all checked. Made by `load_settings`.

    Attributes
    ----------
    origins : dict of str to str
        Where each value comes from: ``default``, ``file``, ``environment`` or ``flag``.
    """

    _values: Mapping[str, Any]
    origins: Mapping[str, str] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def private(self) -> bool:
        """Whether the run has a privacy budget."""
        return self["privacy.epsilon"] is not None


def load_settings(
    path: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings from a file, the environment and flags, the last of them first in rank.

    Parameters
    ----------
    path : path-like, optional
        TOML.
    environment : mapping, optional
        `os.environ` by default. Every ``STREAMLDA_`` variable must be known, but for
        ``STREAMLDA_TEST_...``.
    flags : mapping, optional
        Values by name; None stands for a flag that was not given.

    Raises
    ------
    InvalidSettingError
        With all that is wrong, a line each.
    """
    environment = os.environ if environment is None else environment
    problems: list[str] = []
    values: dict[str, Any] = {setting.name: setting.default for setting in TABLE}
    origins = dict.fromkeys(values, "default")
    layers = (
        ("file", _from_file(path, problems)),
        ("environment", _from_environment(environment, problems)),
        ("flag", {name: v for name, v in (flags or {}).items() if v is not None}),
    )
    for origin, layer in layers:
        for name, raw in layer.items():
            if not _known(name, origin, problems):
                continue
            setting = SETTINGS.get(name) or SETTINGS[name.removesuffix("_file")]
            try:
                values[setting.name] = _parsed(setting, name, raw, origin)
                origins[setting.name] = origin
            except ValueError as error:
                shown = "" if setting.kind == "secret" else f" got {name}={str(raw)[:80]!r}"
                problems.append(f"{name} {error},{shown} ({origin})")
    if not problems:
        problems += clashes(values)
    if problems:
        raise InvalidSettingError(
            f"settings must be known and fit together, got problems={len(problems)}; correct "
            "these, and see streamlda run --help:\n" + "\n".join(f"- {p}" for p in problems)
        )
    return Settings(values, origins)


def describe() -> list[dict[str, str]]:
    """Return the table as text for documentation and help: a row for each setting, in order."""
    return [
        {
            "name": setting.name,
            "type": " | ".join(setting.choices) or setting.kind,
            "default": _shown(setting),
            "unit": setting.unit,
            "help": setting.help,
            "variable": setting.variable,
            "flag": f"{setting.flag}-file" if setting.kind == "secret" else setting.flag,
        }
        for setting in TABLE
    ]


def _shown(setting: Setting) -> str:
    default = setting.default
    if default is None or default == ():
        return "none"
    if setting.kind == "bytes":
        return f"{default // MIB} MiB"
    if setting.kind == "switch":
        return "true" if default else "false"
    return f"{default:g}" if isinstance(default, float) else str(default)


# Reading.


def _from_file(path: str | os.PathLike[str] | None, problems: list[str]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        problems.append(f"the settings file must be readable, got path={str(path)!r} ({reason})")
        return {}
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problems.append(f"the settings file must be TOML, got path={str(path)!r}: {error}")
        return {}
    values: dict[str, Any] = {}
    for section, table in found.items():
        if isinstance(table, dict):
            values |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            values[section] = table
    return values


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    names = {s.variable: s.name for s in TABLE}
    names |= {f"{s.variable}_FILE": f"{s.name}_file" for s in TABLE if s.kind == "secret"}
    values = {}
    for variable, value in environment.items():
        if variable in names:
            values[names[variable]] = value
        elif variable.startswith(PREFIX) and not variable.startswith(PREFIX + "TEST_"):
            problems.append(f"{_plain(variable)} is no known variable{_nearest(variable, names)}")
    return values


def _known(name: str, origin: str, problems: list[str]) -> bool:
    names = {s.name: s for s in TABLE}
    names |= {f"{s.name}_file": s for s in TABLE if s.kind == "secret"}
    if name not in names:
        problems.append(f"{_plain(name)} is no known setting{_nearest(name, names)} ({origin})")
    elif name in SETTINGS and SETTINGS[name].kind == "secret" and origin != "environment":
        problems.append(
            f"{name} is a secret, and must stand in a file or in {SETTINGS[name].variable}: set "
            f"{name}_file ({origin})"
        )
    else:
        return True
    return False


def _plain(name: str) -> str:
    """Return a name as it is if it is one, else so that it stays on its line."""
    return name if re.fullmatch(r"[\w.-]{1,80}", name) else repr(name[:80])


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    # Somebody who knows the key but not its section is helped too.
    found = found or [n for n in known if n.partition(".")[2] == name.rpartition(".")[2]][:1]
    return f"; did you mean {found[0]}?" if found else ""


def _parsed(setting: Setting, name: str, raw: Any, origin: str) -> Any:
    """Return the value of a setting; the message of a `ValueError` says the rule."""
    if setting.kind == "secret":
        if not isinstance(raw, str) or not raw:
            raise ValueError("must be text that is not empty")
        return Secret(raw if name != setting.name else None, setting.variable)
    value = _PARSERS[setting.kind](raw, origin)
    if setting.choices and value not in setting.choices:
        raise ValueError(f"must be one of {', '.join(setting.choices)}")
    if isinstance(value, int | float) and setting.kind != "switch":
        low = value <= setting.least if setting.above else value < setting.least
        if low or value > setting.most or (setting.above and value >= setting.most):
            sign = ">" if setting.above else ">="
            upper = "" if setting.most == math.inf else f" and <= {setting.most:g}"
            raise ValueError(f"must be {sign} {setting.least:g}{upper}")
    return value


def _text(raw: Any, origin: str) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError("must be text that is not empty")
    return raw


def _whole(raw: Any, origin: str) -> int:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,20}", raw):
        raw = int(raw)
    if type(raw) is not int:
        raise ValueError("must be a whole number")
    return raw


def _number(raw: Any, origin: str) -> float:
    try:
        value = float(raw) if isinstance(raw, str | int | float) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if isinstance(raw, bool) or not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _switch(raw: Any, origin: str) -> bool:
    if isinstance(raw, str):
        raw = {"true": True, "1": True, "false": False, "0": False}.get(raw.lower())
    if type(raw) is not bool:
        raise ValueError("must be true or false")
    return raw


def _list(raw: Any, origin: str) -> tuple[str, ...]:
    # In a variable, names are separated as in PATH.
    parts = raw.split(os.pathsep) if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(p, str) and p for p in parts):
        raise ValueError("must be a list of text")
    return tuple(parts)


def _amount(raw: Any, units: Mapping[str, float], what: str) -> float:
    found = AMOUNT.match(raw) if isinstance(raw, str) else None
    try:
        if found is not None:
            raw = float(found[1]) * units[found[2].upper()]
        # Python's own whole numbers may be too large for a float.
        fits = not isinstance(raw, str | bool) and math.isfinite(raw) and float(raw) < 2.0**63
    except (KeyError, TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(what)
    amount: float = raw
    return amount


def _bytes(raw: Any, origin: str) -> int:
    return int(_amount(raw, SIZES, "must be a size such as 512 MiB"))


def _seconds(raw: Any, origin: str) -> float:
    return float(_amount(raw, TIMES, "must be a time such as 30 s or 5 min"))


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "text": _text,
    "whole": _whole,
    "number": _number,
    "switch": _switch,
    "list": _list,
    "bytes": _bytes,
    "seconds": _seconds,
}
