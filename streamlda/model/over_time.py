"""Topics over time: the interval since the model before, and shares by event time."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, require
from streamlda.utils.arrays import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Documents since the model before this one, or since the beginning.

    Parameters
    ----------
    documents, tokens : int
        Documents learned from, and their tokens.
    prevalence : sequence of K float, or None
        Share of these tokens that each topic of the model has; None where it was not measured, or
        nothing came.
    start, end : str or None
        Event time of the earliest and the latest dated document, ISO 8601 in UTC; None without one.
    """

    documents: int
    tokens: int
    prevalence: Sequence[float] | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        at_least(0, documents=self.documents, tokens=self.tokens)
        if self.prevalence is not None:
            object.__setattr__(self, "prevalence", tuple(map(float, self.prevalence)))
        for name in ("start", "end"):
            if getattr(self, name) is not None:
                check_utc(name, getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self) | {"prevalence": self.prevalence and [*self.prevalence]}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Timeline:
    """Tokens of each topic by event time, so far.

    Parameters
    ----------
    unit : str
        Of the bins: ``"hour"``, ``"day"``, ``"week"``, ``"month"``, ``"year"``, or ``"custom"``.
    starts : ndarray of shape (B,), int64
        Start of each bin in seconds since 1970 UTC, ascending; bins without documents are left out.
    tokens : ndarray of shape (B, K), float64
        Tokens of each topic, by the proportions of the documents.
    documents : ndarray of shape (B,), int64
        Documents of each bin.
    undated, ahead, late : int
        Documents without a time; documents from later than the clock
        allowed; documents far from the `MOST_BINS` bins that are kept. All are in no bin.
    """

    unit: str
    starts: NDArray[np.int64]
    tokens: Array
    documents: NDArray[np.int64]
    undated: int = 0
    ahead: int = 0
    late: int = 0

    def __post_init__(self) -> None:
        for name, dtype in (("starts", np.int64), ("tokens", np.float64), ("documents", np.int64)):
            array = np.array(getattr(self, name), dtype=dtype)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def shares(self) -> Array:
        """Share of each bin's tokens that each topic has, (B, K); NaN in a bin without tokens."""
        total = self.tokens.sum(axis=1, keepdims=True)
        shares: Array = np.divide(
            self.tokens, total, out=np.full(self.tokens.shape, np.nan), where=total > 0
        )
        return shares

    def to_json(self) -> dict[str, Any]:
        """Return all but `tokens` as plain JSON values; files of 0.2.0 know of none `ahead`."""
        return {
            "unit": self.unit,
            "starts": self.starts.tolist(),
            "documents": self.documents.tolist(),
            "undated": self.undated,
            "late": self.late,
            **({"ahead": self.ahead} if self.ahead else {}),
        }


def check_utc(name: str, text: Any) -> None:
    """Refuse a text that is no time in ISO 8601, in UTC."""
    try:
        is_utc = datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except (TypeError, ValueError):
        is_utc = False
    rule, found = f"{name} must be a time in ISO 8601, and in UTC", {name: text}
    require(is_utc, rule, remedy="pass datetime.now(UTC).isoformat()", **found)
