"""Bins of event time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import AHEAD, UNDATED

#: Weeks of NumPy begin on a Thursday, as 1970 did.
_TO_THURSDAY = {"week": np.timedelta64(3, "D")}


def find_bins(times: NDArray[np.float64], unit: str, latest: float = math.inf) -> NDArray[np.int64]:
    """Return the start of the bin of each time; `UNDATED` for NaN, `AHEAD` after the `latest`."""
    starts = np.full(len(times), UNDATED, dtype=np.int64)
    dated = np.flatnonzero(np.isfinite(times))
    seconds = np.floor(times[dated]).astype(np.int64)
    shift = _TO_THURSDAY.get(unit, np.timedelta64(0, "s"))
    code = "h" if unit == "hour" else unit[0].upper()
    bins = (seconds.astype("datetime64[s]") + shift).astype(f"datetime64[{code}]")
    starts[dated] = (bins.astype("datetime64[s]") - shift).astype(np.int64)
    starts[times > latest] = AHEAD
    return starts
