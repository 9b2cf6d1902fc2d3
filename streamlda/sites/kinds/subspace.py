"""PCA: the leading directions of the rows of all sites (CAPE's capePCA).

Each site sums x x' of its rows, scaled down to the radius; the eigenvectors of the noisy sum are
the answer. Rows are not centred: take off a mean that is public, or let the first direction be
that of the mean.

Privacy
-------
Unit: a row, in one slot of one site. Sensitivity: that of `streamlda.private.vector_moments`, C =
radius^2 under add-remove and sqrt(2) C under replace-one; both are attained (of one number
alone, replace-one moves it by C). Noise is of one size for all values in packed coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streamlda.private.packing import unpack_pairs
from streamlda.private.rows import RowStatistic
from streamlda.private.stage import Stage
from streamlda.private.vector_moments import SecondStatistic, leading
from streamlda.sites.kinds.rows import Array, RowKind, RowSettings, Sums
from streamlda.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspaceSettings(RowSettings):
    """Settings of a PCA."""

    most_columns: ClassVar[int] = 2048

    @property
    def cells(self) -> int:
        """Values of a release."""
        return self.n_features * (self.n_features + 1) // 2


class SubspaceKind(RowKind):
    """The K leading directions; see `RowKind`."""

    name = "pca"
    settings_type = SubspaceSettings

    def statistic(self, settings: SubspaceSettings) -> RowStatistic:
        """See `RowKind`."""
        return SecondStatistic(settings.n_features, settings.radius)

    def learned(self, settings: SubspaceSettings, stage: Stage, sums: Sums) -> dict[str, Array]:
        """See `RowKind`. Time O(d^3)."""
        slots = stage.last - stage.first
        moment = unpack_pairs(sums["second"] / slots, settings.n_features)
        directions, eigenvalues = leading(moment, settings.n_components)
        return {"directions": directions, "eigenvalues": eigenvalues}

    def described(self, settings: SubspaceSettings, vocabulary: Vocabulary | None) -> str:
        """See `Kind`."""
        return f"{settings.n_components} leading directions of {settings.rows_described}"
