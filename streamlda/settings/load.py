"""Settings from a file, the environment, flags and the parameters of `StreamLDA`.

A flag goes before a variable, a variable before the file, the file before the default. What is
unknown is an error, and all errors are reported at once. A secret stands in a file that
``section.key_file`` names, or in its variable; never in the settings file, a flag, or what is
printed.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from streamlda.errors import InvalidSettingError
from streamlda.settings.rules import clashes
from streamlda.settings.setting import PREFIX, RUN, parse_value
from streamlda.settings.table import SECTIONS, SETTINGS, TABLE, HttpSettings, RunSettings

#: Names in files and flags: of a secret, the name of its file too.
NAMES = {s.name: s for s in TABLE} | {f"{s.name}_file": s for s in TABLE if s.kind == "secret"}
VARIABLES = {s.variable: s.name for s in TABLE}
VARIABLES |= {f"{s.variable}_FILE": f"{s.name}_file" for s in TABLE if s.kind == "secret"}
#: Folders of a daemon that names none.
FOLDERS = {"output.folder": "snapshots", "checkpoint.folder": "checkpoints"}
PARAMETERS = {s.parameter: s for s in TABLE if s.parameter}


def load_settings(
    path: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    command: str = RUN,
    names: Iterable[str] = SETTINGS,
    flagged: Container[str] = (),
) -> RunSettings:
    """Return the settings of a command, checked; an `InvalidSettingError` has all that is wrong.

    The file may hold settings of other commands; every ``STREAMLDA_`` variable must be known.
    `names` are the settings that the command takes; errors call those `flagged` by their flags.
    """
    problems: list[str] = []
    taken = {NAMES[name].name for name in names}
    layers = {
        "file": _from_file(path, problems),
        "environment": _from_environment(os.environ if environment is None else environment),
        "flag": {name: value for name, value in (flags or {}).items() if value is not None},
    }
    values: dict[str, Any] = {s.name: s.default for s in TABLE}
    origins: dict[str, str] = {}
    for origin, layer in layers.items():
        for name, raw in layer.items():
            setting = NAMES.get(name)
            if setting is None:
                if origin == "environment":
                    problem = f"is no known variable{nearest(name, VARIABLES)}"
                else:
                    problem = f"is no known setting{nearest(name, NAMES)} ({origin})"
                problems.append(f"{name[:80]!r} {problem}")
            elif name == setting.name and setting.kind == "secret" and origin != "environment":
                problems.append(
                    f"{name} is a secret in the open: set {setting.variable} or "
                    f"{name}_file ({origin})"
                )
            elif setting.name in taken:
                try:
                    values[setting.name] = parse_value(setting, raw, from_file=name != setting.name)
                    origins[setting.name] = origin
                except ValueError as error:
                    got = "" if setting.kind == "secret" else f", got {str(raw)[:80]!r}"
                    by_flag = origin == "flag" and setting.name in flagged
                    said = setting.flag if by_flag else name
                    said = setting.variable if origin == "environment" else said
                    problems.append(f"{said} {error}{got} ({origin})")
    settings = _resolve({} if problems else values, origins, command)
    problems = problems or [_spell(rule, command, flagged) for rule in clashes(settings)]
    see = f"see streamlda {command} --help-all"
    if len(problems) == 1:
        raise InvalidSettingError(f"{problems[0]}; {see}")
    if problems:
        raise InvalidSettingError(
            f"settings are unknown or do not fit together, got problems={len(problems)}; correct "
            f"these, and {see}:\n" + "\n".join(f"- {problem}" for problem in problems)
        )
    return settings


def load_http_settings(environment: Mapping[str, str]) -> HttpSettings:
    """Return the settings of HTTP by variables alone, where the settings as a whole are refused."""
    try:
        values = {
            NAMES[name].key: parse_value(NAMES[name], raw, from_file=name not in SETTINGS)
            for name, raw in _from_environment(environment).items()
            if name.startswith("http.") and name in NAMES
        }
    except ValueError as error:
        raise InvalidSettingError(f"the variables of http are refused: {error}") from None
    return HttpSettings(**values)


def settings_of_parameters(parameters: Mapping[str, Any]) -> RunSettings:
    """Return the settings that parameters of `StreamLDA` stand for, checked by the same table."""
    from streamlda.model.topic_model import TopicModel
    from streamlda.privacy.clipping import ClipBounds

    values: dict[str, Any] = {s.name: s.default for s in TABLE}
    origins: dict[str, str] = {}
    for name, raw in parameters.items():
        setting = PARAMETERS[name]
        if raw is None and setting.default is None:
            continue
        try:
            textual = setting.kind in ("text", "seeds") or raw in setting.words
            if isinstance(raw, str) and not textual:
                raise ValueError("must be a number")
            # Public bounds, and a loaded model, are values that only a program can give.
            at_hand = {"clipping": ClipBounds, "public_model": TopicModel}.get(name, ())
            values[setting.name] = raw if isinstance(raw, at_hand) else parse_value(setting, raw)
        except ValueError as error:
            or_else = ", a TopicModel or a fitted StreamLDA" if name == "public_model" else ""
            raise InvalidSettingError(f"{name} {error}{or_else}, got {name}={raw!r}") from None
        if values[setting.name] != setting.default:
            origins[setting.name] = "parameter"
    settings = _resolve(values, origins, "")
    for problem in clashes(settings):
        raise InvalidSettingError(_spell(problem, ""))
    return settings


def _resolve(values: Mapping[str, Any], origins: dict[str, str], command: str) -> RunSettings:
    """Return the settings; what is ``auto`` and known from others is put in its place."""
    resolved = {s.name: s.default for s in TABLE} | dict(values)
    if resolved["source.kind"] == "auto":
        by_topic = resolved["kafka.topic"] is not None and not resolved["source.files"]
        resolved["source.kind"] = "kafka" if by_topic else "files"
    for name, folder in FOLDERS.items() if command == RUN else ():
        resolved[name] = resolved[name] or folder
    if resolved["source.format"] == "auto" and resolved["registry.url"] is not None:
        resolved["source.format"] = "registry"
    if resolved["vocabulary.kind"] == "auto":
        given = resolved["vocabulary.file"] or resolved["privacy.public_model"]
        kind = "learned" if given is None else "given"
        resolved["vocabulary.kind"] = "hashed" if "vocabulary.hash_bits" in origins else kind
    sections = {
        section: made(**{s.key: resolved[s.name] for s in TABLE if s.section == section})
        for section, made in SECTIONS.items()
    }
    return RunSettings(**sections, command=command, origins=origins)


def _spell(rule: str, command: str, flagged: Container[str] = ()) -> str:
    """Return a rule with each ``{section.key}`` as its reader knows it."""

    def spell(match: re.Match[str]) -> str:
        setting = SETTINGS[match[1]]
        if not command:
            return setting.parameter or setting.name
        return setting.flag if setting.name in flagged else setting.name

    return re.sub(r"\{([a-z0-9_.]+)\}", spell, rule)


def _from_file(path: str | os.PathLike[str] | None, problems: list[str]) -> dict[str, Any]:
    try:
        found = {} if path is None else tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problems.append(
            f"the settings file cannot be read as TOML in UTF-8, got path={str(path)!r}: {reason}"
        )
        return {}
    values: dict[str, Any] = {}
    for section, table in found.items():
        own = isinstance(table, dict)
        values |= {f"{section}.{k}": v for k, v in table.items()} if own else {section: table}
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of variables: by the names of settings, unknown ones by their own."""
    ours = [name for name in environment if name.startswith(PREFIX)]
    own = [name for name in ours if not name.startswith(f"{PREFIX}TEST_")]
    return {VARIABLES.get(name, name): environment[name] for name in own}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for the known name that is most like one, or nothing."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    # Somebody who knows the key but not its section is helped too.
    found = found or [n for n in names if n.partition(".")[2] == name.rpartition(".")[2]][:1]
    return f"; did you mean {found[0]}?" if found else ""
