"""What the arrays of a round must be: names, shapes and ranges, by the stage that it begins.

A round comes from an aggregator that nobody has to trust. So nothing in it is used that was not
wanted: a stage has its own set of arrays, each of the shape that follows from the config's
settings, finite float64 and in the range that a release can give. An array too short would let a
kernel read past its end; a number that is not finite, or out of single precision, could make a
site's sum fail on one document and not on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import named
from streamlda.private.refinement import RefinementRounds, check_array, is_round
from streamlda.private.settings import PrivateSettings
from streamlda.private.topics import PairView, PrivateTopics
from streamlda.spectral.topics import SpectralTopics

Arrays = Mapping[str, NDArray[Any]]

#: Stages that look through the projection of the pairs before them.
_TRIPLES = ("triple norms", "triples")

_REFINEMENT = ("components", "shares", "mixed", "sums", "variance", "done")
_MOST = 1 + 1e-9


def check_arrays(arrays: Arrays, stage: str, settings: PrivateSettings, *, ended: bool) -> None:
    """Refuse arrays that are not those at the beginning of a stage of a window. Time O(values).

    `arrays` are those of `PrivateEngine.state`, of which ``sums/`` is left to `Stage.restore`;
    `ended`: whether there was a snapshot before. Errors are of any kind; `Round.open` words them.
    """
    found = {name for name in arrays if not name.startswith("sums/")}
    wanted = _names(stage, ended=ended)
    if found != wanted:
        odd = sorted(found ^ wanted)
        raise ValueError(f"the stage {stage!r} has other arrays: {str(odd)[:120]}")
    if "map" in wanted:
        columns = arrays["map"].shape[-1] if arrays["map"].ndim else 0
        if columns > min(settings.n_components, settings.n_features):
            raise ValueError(f"the projection has too many columns: {columns}")
        check_array("map", arrays["map"], (settings.n_features, columns))
    if "view/first" in wanted:
        _check_view(arrays, settings)
    if is_round(stage):
        refinement = named(arrays, "refinement/")
        # Checks all of it, but for what serves diagnostics alone.
        RefinementRounds.from_state(refinement, settings)
        for name in ("pair_eigenvalues", "pair_noise"):
            _check_vector(f"refinement/found/spectral/{name}", arrays, settings)


def _names(stage: str, *, ended: bool) -> set[str]:
    names: set[str] = set()
    if stage in _TRIPLES:
        names |= {f"view/{f.name}" for f in fields(PairView) if f.name != "probes"}
    if is_round(stage):
        names |= {f"refinement/{name}" for name in _REFINEMENT} | _topics("refinement/found/")
    if names:
        names.add("map")
    return names | _topics("snapshot/") if ended else names


def _topics(prefix: str) -> set[str]:
    own = {prefix + f.name for f in fields(PrivateTopics) if f.name != "spectral"}
    return own | {f"{prefix}spectral/{f.name}" for f in fields(SpectralTopics)}


def _check_view(arrays: Arrays, settings: PrivateSettings) -> None:
    d, known = settings.n_features, arrays["map"].shape[1]
    check_array("view/first", arrays["view/first"], (d,), 0.0, _MOST)
    check_array("view/pairs", arrays["view/pairs"], (d, settings.n_columns or d))
    check_array("view/directions", arrays["view/directions"], (d, known), -_MOST, _MOST)
    check_array("view/eigenvalues", arrays["view/eigenvalues"], (known,))
    _check_vector("view/spectrum", arrays, settings)
    for name in ("stddev", "floor", "centre"):
        check_array(f"view/{name}", arrays[f"view/{name}"], (), 0.0)


def _check_vector(name: str, arrays: Arrays, settings: PrivateSettings) -> None:
    array = arrays[name]
    if array.ndim != 1 or len(array) > settings.n_features:
        raise ValueError(f"{name} is no vector of this size: {array.shape}")
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} is not of finite numbers")
