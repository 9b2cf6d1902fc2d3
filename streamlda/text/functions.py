"""Analyzers of users: functions from a text to the list of its words, known by name."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from streamlda.errors import failure
from streamlda.text.faults import check, fault

Analyze = Callable[[str], list[str]]

_NAMED = "module", "qualname"

#: The text that an analyzer is tried on before it is used.
PROBE = "A text with several words."

# A name from a model file is not called until the user has named it too: ``os:system`` is a
# function from a text as well.
_ALLOWED: dict[str, Analyze] = {}


class UnreadableTextError(Exception):
    """An analyzer raised on a text, or returned no list of words. Never quotes the text."""


def allow(function: str | Analyze, name: str | None = None) -> str:
    """Let a function be called for texts, and return its name.

    `function` is ``"module:function"``, or the function itself, by default named after its
    definition; models keep `name`. `InvalidSettingError` if it cannot be imported or is none.
    """
    if isinstance(function, str):
        found = _import_analyzer(function)
        name = name or function
    else:
        found = function
        parts = (getattr(found, f"__{part}__", type(found).__qualname__) for part in _NAMED)
        name = name or ":".join(map(str, parts))
    check(callable(found), "analyzer", analyzer=name)
    try:
        call_analyzer(found, PROBE)
    except UnreadableTextError as error:
        raise fault("analyzer", cause=str(error), analyzer=name, tried_on=PROBE) from error
    _ALLOWED[name] = found
    return name


def is_allowed(name: str) -> bool:
    """Return whether this process may call the analyzer of this name."""
    return name in _ALLOWED


def find(name: str) -> Analyze:
    """Return the analyzer that a model or checkpoint names, or raise `VocabularyError`."""
    if name not in _ALLOWED:
        raise fault("analyzer of a model", option=f"--set vocabulary.analyzer={name}")
    return _ALLOWED[name]


def call_analyzer(function: Analyze, text: str) -> list[str]:
    """Return the words of a text, or raise `UnreadableTextError`."""
    try:
        words = function(text)
    except MemoryError:
        raise
    # Parsers of command lines, among others, end the process.
    except (Exception, SystemExit) as error:
        raise UnreadableTextError(f"it raised {type(error).__name__}") from None
    if type(words) is not list or not all(isinstance(word, str) for word in words):
        raise UnreadableTextError(f"it returned {type(words).__name__}")
    joined = " ".join(words)
    try:
        joined.encode()
    except UnicodeEncodeError:
        raise UnreadableTextError("it returned half a surrogate pair") from None
    # Files of words have one on each line.
    return [" ".join(word.split()) for word in words] if "\n" in joined else words


def _import_analyzer(name: str) -> Any:
    module, _, attribute = name.partition(":")
    check(bool(attribute), "unknown analyzer", analyzer=name)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        rule = f"an analyzer cannot be imported: {type(error).__name__}: {error}"
        remedy = "install its package, or put its folder on PYTHONPATH"
        raise failure(rule, analyzer=name, remedy=remedy) from error
    return found
