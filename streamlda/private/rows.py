"""Rows of numbers as records: how they are read, and a stage of sums over them.

A row is a line of numbers with commas, semicolons or blanks between them. A line that is no row of
the right length has a slot and adds nothing, as a blank document does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.privacy.mechanism import JointGaussian
from streamlda.private.stage import GROUPS, Stage, Summed

Array = NDArray[np.float64]

#: Roundings behind a term of the statistics of rows: products, a clip factor, and sums over a row.
TERM_ROUNDINGS = 2**14

_BETWEEN = re.compile(r"[,;\s]+")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of numbers, of shape (n, d); one that is not finite is none."""

    values: Array

    @classmethod
    def parsed(cls, texts: Sequence[str | None], dimension: int) -> Self:
        """Return a row of each text; of one that is none, a row that adds nothing."""
        values = np.full((len(texts), dimension), np.nan)
        for i, text in enumerate(texts):
            parts = _BETWEEN.split((text or "").strip())
            if len(parts) == dimension:
                try:
                    values[i] = [float(part) for part in parts]
                except ValueError:
                    # A line of other text, such as a header: the row is none.
                    values[i] = np.nan
        return cls(values)

    @property
    def n_documents(self) -> int:
        """Slots."""
        return len(self.values)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which are rows, shape (n,)."""
        return np.asarray(np.isfinite(self.values).all(axis=1))

    def rows(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop`, which share this one's memory."""
        return Rows(self.values[start:stop])

    def copy(self) -> Rows:
        """Return the rows in memory of their own."""
        return Rows(self.values.copy())


class RowStatistic(Summed, Protocol):
    """What is summed of rows; `ratio` as in `JointGaussian`."""

    ratio: float


class RowStage(Stage):
    """Sums of the statistics of one stage over slots that hold rows; see `Stage`."""

    def __init__(
        self,
        name: str,
        first: int,
        last: int,
        statistic: RowStatistic,
        noise_multiplier: float,
        neighboring_relation: str,
    ) -> None:
        mechanism = JointGaussian(
            statistic.blocks(),
            noise_multiplier,
            neighboring_relation=neighboring_relation,
            n_max=last - first,
            term_roundings=TERM_ROUNDINGS,
            group_max=min(GROUPS[0], last - first),
            ratio=statistic.ratio,
        )
        super().__init__(name, first, last, [statistic], mechanism)

    def view(self, rows: Sequence[Rows], active: NDArray[np.bool_]) -> Any:
        """Return the rows of a block, shape (n, d)."""
        return np.vstack([part.values for part in rows])[active]
