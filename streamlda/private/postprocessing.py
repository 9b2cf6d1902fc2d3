"""What follows from the noisy sums of a stage for the next: bounds, directions, topics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from streamlda.privacy.clipping import NormHistogram, private_quantile
from streamlda.private.packing import unpack_pairs, unpack_triples
from streamlda.private.settings import PrivateSettings, clip_quantile_for
from streamlda.private.stage import groups_touched
from streamlda.private.topics import (
    PairView,
    PrivateTopics,
    check_documents,
    private_topics,
)

Array = NDArray[np.float64]

#: Least clip bound over the largest norm: below it, rounding of the largest document's terms would
#: cost more of the sensitivity than 1 %, whatever the groups (up to 2^18 words). For users it is as
#: many times larger as their contributions may touch groups.
LEAST_BOUND = 2.0**-16


def quantile_bound(
    settings: PrivateSettings, largest: float, counts: Array, stddev: float
) -> float:
    """Return the clip bound that the noisy counts of norms up to `largest` give."""
    q = settings.clip_quantile
    if q is None:
        slots = {name: last - first for name, first, last in settings.stage_slots()}
        q = clip_quantile_for(settings.n_features, slots["pairs"], settings.noise_multiplier)
    bound = private_quantile(counts, NormHistogram(largest).edges, q, stddev)
    return max(bound, LEAST_BOUND * groups_touched(settings) * largest)


def pair_view(
    settings: PrivateSettings,
    probes: Array | None,
    released: Mapping[str, Array],
    stddevs: Mapping[str, float],
) -> PairView:
    """Return what the released first and pair sums show; `probes` is the public projection."""
    pair, stddev = released["pair"], stddevs["pair"]
    if probes is None:
        # Off the diagonal the packed entries stand for sqrt(2) times their value.
        pair, stddev = unpack_pairs(pair, settings.n_features), stddev / np.sqrt(2)
    return PairView.of(
        released["first"],
        stddevs["first"],
        pair,
        float(released["pair_kept"]),
        stddev,
        probes,
        min(settings.n_components, settings.n_features),
        settings.working_alpha_0,
    )


def triple_topics(
    settings: PrivateSettings,
    view: PairView,
    whitening: Array,
    released: Mapping[str, Array],
    stddevs: Mapping[str, float],
    documents: int,
) -> PrivateTopics:
    """Return the topics of the released triples; `documents` is for the record."""
    kept = float(released["triple_kept"])
    check_documents(kept)
    t = whitening.shape[1]
    return private_topics(
        view,
        unpack_triples(released["triple"], t) / kept,
        stddevs["triple"] / np.sqrt(6) / kept,
        whitening,
        released["triple_first"] / kept,
        unpack_pairs(released["triple_pair"], t) / kept,
        settings.alpha_0,
        documents,
        np.random.default_rng(settings.seed),
    )
