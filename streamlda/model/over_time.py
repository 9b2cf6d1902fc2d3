"""Topics over time: the interval since the model before, and shares by event time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, failure, require
from streamlda.model.faults import check

Array = NDArray[np.float64]

#: Sums of shares may be this far from 1.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Documents since the model before this one, or since the beginning.

    Parameters
    ----------
    documents, tokens : int
        Documents learned from, and their tokens.
    prevalence : tuple of K float, or None
        Share of these tokens that each topic of the model has; None where it was not measured, or
        nothing came.
    start, end : str or None
        Event time of the earliest and the latest dated document, ISO 8601 in UTC; None without one.
    """

    documents: int
    tokens: int
    prevalence: tuple[float, ...] | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        at_least(0, documents=self.documents, tokens=self.tokens)
        if self.prevalence is not None:
            shares = checked_shares("prevalence", self.prevalence, len(self.prevalence))
            object.__setattr__(self, "prevalence", tuple(shares.tolist()))
        for name in ("start", "end"):
            if getattr(self, name) is not None:
                utc_time(name, getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        found = asdict(self)
        return found | {"prevalence": None if self.prevalence is None else list(self.prevalence)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return what `to_json` was called on."""
        found = dict(values)
        shares = found.pop("prevalence")
        return cls(prevalence=None if shares is None else tuple(shares), **found)


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
        bins = self.starts.shape
        check(
            len(bins) == 1
            and self.tokens.shape[:1] == bins == self.documents.shape
            and self.tokens.ndim == 2,
            "timeline",
            starts=bins,
            tokens=self.tokens.shape,
            documents=self.documents.shape,
        )
        check(bool(np.all(np.diff(self.starts) > 0)), "bins", unit=self.unit)
        low = min(self.tokens.min(initial=0.0), self.documents.min(initial=0))
        check(low >= 0 and bool(np.isfinite(self.tokens).all()), "tokens of bins", min=low)
        at_least(0, undated=self.undated, ahead=self.ahead, late=self.late)

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

    @classmethod
    def from_json(cls, values: Mapping[str, Any], tokens: Array) -> Self:
        """Return what `to_json` was called on, with its tokens."""
        return cls(tokens=tokens, **values)


def checked_shares(name: str, shares: Any, n: int) -> Array:
    """Return shares of n topics, which must be >= 0 and sum to 1, as a read-only array."""
    values = np.array(shares, dtype=np.float64)
    require(
        values.shape == (n,)
        and bool(np.all(np.isfinite(values) & (values >= 0)))
        and abs(values.sum() - 1) <= SUM_TOLERANCE,
        f"{name} must hold a share >= 0 of each topic, with the sum 1 within {SUM_TOLERANCE}",
        shape=values.shape,
        topics=n,
        remedy="divide tokens of topics by their sum",
    )
    values.flags.writeable = False
    return values


def utc_time(name: str, text: str) -> datetime:
    """Return a time in ISO 8601, which must be in UTC."""
    remedy = "pass datetime.now(UTC).isoformat()"
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        rule = f"{name} must be a time in ISO 8601"
        raise failure(f"{rule}, got {name}={str(text)[:60]}", remedy=remedy) from error
    offset = found.utcoffset()
    require(
        offset is not None and not offset, f"{name} must be in UTC", offset=offset, remedy=remedy
    )
    return found.astimezone(UTC)
