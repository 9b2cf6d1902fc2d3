"""A mixture of spherical Gaussians: means and weights of the rows of all sites (CAPE's capeAGN).

Each site sums t, t t' and t x t x t of its rows, scaled down to the radius, in one release. The
second moment gives the space of the means and their variance, in which the third, corrected by that
variance, is decomposed.

capeAGN shows each sample to two releases, with parts of the budget, the second through directions
that the first gave. Here a record is in one release. A second stage would need other rows, whose
moments differ by sampling: three components, d = 10, 9,000 rows, epsilon 2, had q_comp 0.046 with
two stages, 0.008 with one, and 0.007 to 0.012 in the simulation. The d^3 / 6 values cost no noise,
which is in k directions what it is for k^3 / 6 values; but rows are clipped at their length, not at
that of projections. D = 50, N = 100,000, epsilon 1, delta 0.01, ten components, samples as for
CAPE's Figure 3: q_comp 0.11 to 0.13, simulation 0.08 to 0.10.

Privacy
-------
Unit: a row, in one slot of one site. Sensitivity: that of `streamlda.private.mixture` for the three
in one release, 1 under add-remove and 1.4145 under replace-one in weighted coordinates; both are
attained. The rest is made of the noisy sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamlda.checks import between
from streamlda.private.mixture import MixtureStatistic, in_order, mixture_means, mixture_view, seen
from streamlda.private.packing import unpack_pairs, unpack_triples
from streamlda.private.rows import RowStatistic
from streamlda.private.stage import Stage
from streamlda.sites.kinds.rows import Array, RowKind, RowSettings, Sums
from streamlda.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSettings(RowSettings):
    """Settings of a mixture; K below d, so that there are directions without a mean."""

    most_columns: ClassVar[int] = 128

    def __post_init__(self) -> None:
        RowSettings.__post_init__(self)
        between(1, self.n_features - 1, n_components=self.n_components)

    @property
    def cells(self) -> int:
        """Values of a release."""
        d = self.n_features
        return d + d * (d + 1) // 2 + d * (d + 1) * (d + 2) // 6


class MixtureKind(RowKind):
    """K means and their weights; see `RowKind`."""

    name = "mixture"
    settings_type = MixtureSettings

    def statistic(self, settings: MixtureSettings) -> RowStatistic:
        """See `RowKind`."""
        return MixtureStatistic(settings.n_features, settings.radius)

    def learned(self, settings: MixtureSettings, stage: Stage, sums: Sums) -> dict[str, Array]:
        """See `RowKind`. Time O(d^3 K + K^4)."""
        d, K, slots = settings.n_features, settings.n_components, stage.last - stage.first
        means = {name: values / slots for name, values in sums.items()}
        # Off the diagonal an entry is its packed value over sqrt(2).
        stddev = stage.stddevs()["second"] / math.sqrt(2) / slots
        view = mixture_view(unpack_pairs(means["second"], d), K, stddev, settings.radius)
        third = seen(unpack_triples(means["third"], d), means["first"], view)
        found = mixture_means(view, third, np.random.default_rng(settings.seed))
        components, weights = in_order(*found, K)
        return {"means": components, "weights": weights, "variance": np.array(view.variance)}

    def described(self, settings: MixtureSettings, vocabulary: Vocabulary | None) -> str:
        """See `Kind`."""
        return f"{settings.n_components} means of {settings.rows_described}"
