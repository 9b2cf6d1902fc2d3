"""Setting: an entry of the table, and the names that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from streamlda.stream.credentials import read_secret

Kind = Literal[
    "text",
    "topic",
    "int",
    "number",
    "bool",
    "list",
    "seeds",
    "bytes",
    "seconds",
    "secret",
    "frequency",
    "keep",
    "ngrams",
]

PREFIX = "STREAMLDA_"

#: Commands that read settings, and the one that has flags of its own for some.
FIT, RUN = "fit", "run"
INFER = "infer"

#: Commands in which sites agree on settings, and in which a private run is planned; readers of
#: settings that read no documents.
AGREEMENT, PLAN = "site config", "plan"
WITHOUT_DOCUMENTS = ("", AGREEMENT, PLAN)

#: Sections whose flags begin with their name, and those of the daemon alone.
PREFIXED = (
    *("kafka", "registry", "checkpoint", "memory", "dead_letters", "breaker", "http", "log"),
    "infer",
)
DAEMON = ("memory", "dead_letters", "breaker", "http", "log", "infer")


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
    """One entry of the table; `fit_default` stands in for the default in ``streamlda fit``."""

    section: str
    key: str
    kind: Kind
    default: Any
    help: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf
    #: Whether the bounds themselves are excluded.
    open: bool = False
    #: Words that are values too.
    words: tuple[str, ...] = ()
    flag: str = ""
    #: Flag in ``streamlda infer``, where it differs.
    infer_flag: str = ""
    short: str = ""
    #: Name as a parameter of `StreamLDA`, if it is one.
    parameter: str = ""
    commands: tuple[str, ...] = (FIT, RUN)
    fit_default: Any = ...

    @property
    def name(self) -> str:
        """Name in files and messages: ``section.key``."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """Environment variable."""
        return f"{PREFIX}{self.section}_{self.key}".upper()

    def flag_of(self, command: str) -> str:
        """Return the flag in a command."""
        return self.infer_flag if command == INFER and self.infer_flag else self.flag

    def default_of(self, command: str) -> Any:
        """Return the default in a command."""
        return self.default if command != FIT or self.fit_default is ... else self.fit_default


def entry(kind: Kind, default: Any, help: str, **more: Any) -> Any:
    """Return the field of a section that declares a setting; `more` as in `Setting`."""
    return field(default=default, metadata={"kind": kind, "help": help, **more})


def make_setting(section: str, declared: Any) -> Setting:
    """Return the setting that a field of a section declares."""
    key, more = declared.name, dict(declared.metadata)
    if not more.get("flag"):
        words = f"{section}_{key}" if section in PREFIXED else key
        more["flag"] = "--" + words.replace("_", "-")
        if more["kind"] == "secret":
            more["flag"] += "-file"
    if section in DAEMON:
        more["commands"] = (RUN,)
    return Setting(section=section, key=key, default=declared.default, **more)
