"""Errors that streamlda raises on purpose, and the checks of values that raise them.

A message states what is wrong, then ``name=value``, then what to do. It never holds document text.
Values are passed to a check by keyword, under the name that the user knows them by::

    at_least(1, n_components=K)
    require(low <= high, "limits must be in order", low=low, high=high, remedy="swap them")

A check returns None or raises `InvalidSettingError`; ``error=`` chooses another class.
"""

import errno
import re
from collections.abc import Collection, Mapping
from typing import Any

from streamlda.guarantee.checks import Error as Error
from streamlda.guarantee.checks import InvalidDocumentsError as InvalidDocumentsError
from streamlda.guarantee.checks import InvalidSettingError as InvalidSettingError
from streamlda.guarantee.checks import StreamLDAError as StreamLDAError
from streamlda.guarantee.checks import at_least as at_least
from streamlda.guarantee.checks import between as between
from streamlda.guarantee.checks import failure as failure
from streamlda.guarantee.checks import is_finite
from streamlda.guarantee.checks import require as require


class TopicWarning(UserWarning):
    """Topics that are not to be relied on, as ``diagnostics["warnings"]`` of their model says."""


class AccountError(StreamLDAError):
    """A state that has not each record before the position of its source once."""


class FencedError(StreamLDAError):
    """Another process owns the target by now; nothing was written."""


class InsufficientDataError(StreamLDAError, ValueError):
    """Too few usable documents for the request."""


class SourceError(StreamLDAError, OSError):
    """A stream of documents that cannot be opened or read."""

    #: A word for the cause and an errno or a class, if more is known than the class of this.
    reason: str | None = None


class SourceAwayError(SourceError):
    """A source or sink that cannot be reached now; waiting may help."""


class SinkAwayError(SourceAwayError):
    """A sink that refuses or does not answer; nothing that it was given is lost."""


class SourceRefusedError(SourceError):
    """A stream that is not the one that was read before, or not as its settings say."""


class SourceAccessError(SourceRefusedError):
    """A login or rights that do not allow to read or write, as far as is known now."""


class VocabularyError(StreamLDAError, ValueError):
    """A word list that cannot be used."""


class ModelFileError(StreamLDAError, ValueError):
    """A file that is not a whole, unaltered streamlda file."""


class NewerFormatError(ModelFileError):
    """A file written in a later format than this version reads."""


class OlderFormatError(ModelFileError):
    """A file written in an earlier format than this version reads. Models are always read."""


class LedgerError(StreamLDAError):
    """A privacy ledger that cannot be trusted or written now: nothing may be released."""


class BudgetExceededError(StreamLDAError):
    """A release that the privacy budget does not cover; it is raised before data is touched.

    What is `spent` on the documents, `remaining` for them and `requested` is in mu^2 (squared
    parameter of Gaussian differential privacy), the unit in which releases add up.
    """

    def __init__(self, message: str, *, spent: float, remaining: float, requested: float) -> None:
        super().__init__(message)
        self.spent = spent
        self.remaining = remaining
        self.requested = requested


class MissingExtraError(StreamLDAError, ImportError):
    """A package that is not installed, the extra that brings it, and its purpose."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs a package that is not installed: package={package}; "
            f"install all of the extra {extra}: pip install "
            + " ".join(f"'{each}'" for each in list_packages(extra))
        )


#: Errors of a path that no wait heals; others of the system, as of a full disk, may pass.
MISPLACED = (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError)


def name_errno(error: BaseException) -> str | None:
    """Return the name of the errno that an error has, or that its message names; None if none.

    Packages that wrap an error of the system keep its number in the text, if anywhere.
    """
    number = getattr(error, "errno", None) if isinstance(error, OSError) else None
    if number is not None and number in errno.errorcode:
        return errno.errorcode[number]
    text = " ".join(map(str, error.args))
    numbered = re.search(r"\[Errno (\d+)\]", text)
    if numbered:
        return errno.errorcode.get(int(numbered[1]))
    names = set(errno.errorcode.values())
    return next((word for word in re.findall(r"\bE[A-Z0-9]{3,}\b", text) if word in names), None)


def list_packages(extra: str) -> list[str]:
    """Return the requirements of an extra of this installation, as pip takes them."""
    from importlib.metadata import requires

    listed = (line.split(";") for line in requires("streamlda") or ())
    return [name.strip() for name, *mark in listed if mark and f"'{extra}'" in mark[0]]


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


def above(low: float, *, remedy: str = "", **values: Any) -> None:
    """Values must be finite numbers > `low`."""
    for name, value in values.items():
        holds = is_finite(value) and value > low
        rule = f"{name} must be > {low:g} and finite"
        require(holds, rule, remedy=remedy, **{name: value})


def one_of(choices: Collection[Any], *, remedy: str = "", **values: Any) -> None:
    """Values must be among the choices."""
    for name, value in values.items():
        rule = f"{name} must be one of {', '.join(map(str, choices))}"
        require(value in choices, rule, remedy=remedy, **{name: value})


def require_state(holds: object, **found: Any) -> None:
    """Refuse arrays that `state` cannot have returned."""
    rule = "a saved state is not what state() returned, or not whole or in its ranges"
    remedy = "restore the checkpoint whole, with the settings it was made with"
    require(holds, rule, **found, remedy=remedy)
