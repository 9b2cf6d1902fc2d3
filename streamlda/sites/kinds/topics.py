"""Topics of documents: LDA, and the model in which every document has a single topic.

Both are the windows of `streamlda.private.engine`. A single-topic model is LDA as alpha_0 goes to
0: its pair and triple moments are ``sum w_i mu_i mu_i'`` and ``sum w_i mu_i x mu_i x mu_i``, so
that alpha_0 is at its least and nothing is refined, as refinement infers mixtures. What a document
adds, its clip norms and their sensitivities are those of `streamlda.private.contributions`.

A round has the projection, the bounds and the noisy sums of the stages before. A projection or a
bound that somebody chose changes what is learned, not what is promised: noise follows the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

import numpy as np

from streamlda.arrays import named
from streamlda.checks import require
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.contributions import TripleNorms
from streamlda.private.engine import PrivateEngine
from streamlda.private.published import clip_bounds, model_of
from streamlda.private.refinement import RefinementRounds
from streamlda.private.responsibilities import check_array, is_round
from streamlda.private.settings import LEAST_ALPHA_0, MOMENTS, PrivateSettings
from streamlda.private.topics import PairView, PrivateTopics
from streamlda.private.window import PrivateSnapshot
from streamlda.sites.kinds.kind import Arrays, Found, check_fixed
from streamlda.spectral.topics import SpectralTopics
from streamlda.text.vocabulary import Vocabulary

#: What a site can sum by itself, whatever an aggregator says.
AGREED = {
    "privacy_unit": "document",
    "mode": "window",
    "solver": WHITENED_TENSOR,
    "start": MOMENTS,
    "public_model": None,
    "seed_topics": (),
}

#: What makes topics those of a single-topic model.
SINGLE = {"alpha_0": LEAST_ALPHA_0, "refinement_rounds": 0}

#: Stages that look through the projection of the pairs before them.
_TRIPLES = ("triple norms", "triples")

_REFINEMENT = ("components", "shares", "mixed", "sums", "variance", "done", "long")
#: What rounds begin with, and what documents compare it with.
_STARTS = ("refinement/found/", "refinement/moments/")

_MOST = 1 + 1e-9

_BOUNDS = ("first", "pair", "triple")

#: How far bounds that follow from a projection may differ between machines.
_ROUNDING = 1e-9


class TopicsKind:
    """Topics, with settings that are fixed beside `AGREED`; see `Kind`."""

    of_rows = False

    def __init__(self, name: str, fixed: Mapping[str, Any] | None = None) -> None:
        self.name, self.fixed = name, dict(fixed or {})

    def settings(self, values: Mapping[str, Any]) -> PrivateSettings:
        """See `Kind`."""
        return PrivateSettings.of(values)

    def check(self, settings: PrivateSettings, vocabulary: Vocabulary | None) -> None:
        """See `Kind`."""
        require(
            isinstance(settings, PrivateSettings),
            "topics must have the settings of topics",
            kind=self.name,
            settings=type(settings).__name__,
        )
        remedy = (
            "users and sums over time must be kept in one place, and probes of a power method "
            "could be made up"
        )
        check_fixed(settings, AGREED, remedy)
        check_fixed(settings, self.fixed, "leave them out, or take another kind")
        words = None if vocabulary is None else vocabulary.n_features
        kind = None if vocabulary is None else vocabulary.kind
        require(
            kind in ("given", "hashed") and words == settings.n_features,
            "words must be public, and as many as the settings say",
            kind=kind,
            words=words,
            n_features=settings.n_features,
            remedy="agree on a word list or on hashing",
        )

    def begin(self, settings: PrivateSettings) -> PrivateEngine:
        """See `Kind`."""
        return PrivateEngine(settings)

    def resume(
        self,
        settings: PrivateSettings,
        stage: str,
        window: int,
        bounds: ClipBounds | None,
        arrays: Arrays,
    ) -> PrivateEngine:
        """See `Kind`."""
        check_arrays(arrays, stage, settings)
        slots = settings.stage_slots()
        number = [name for name, _, _ in slots].index(stage)
        begun = (window - 1) * settings.documents_per_snapshot
        multiplier = settings.noise_multiplier
        done = [
            ReleasedStage(name, begun + first, begun + last - 1, multiplier)
            for name, first, last in slots[:number]
        ]
        values = {
            "settings": asdict(settings),
            "places": begun + slots[number][1],
            "snapshots": window - 1,
            "windows": window,
            "lost": 0,
            "records": [asdict(record) for record in done],
            "bounds": asdict(_checked_bounds(settings, stage, bounds, arrays)),
            "stage": None,
            "prefix": False,
            "snapshot": None,
        }
        engine = PrivateEngine.from_state(arrays, values)
        engine.begin_stage(stage)
        return engine

    def public(self, engine: PrivateEngine) -> tuple[bool, ClipBounds | None, Arrays]:
        """See `Kind`."""
        window = engine.window
        return not window.records, window.bounds, window.state()[0]

    def found(self, settings: PrivateSettings, snapshot: PrivateSnapshot) -> Found:
        """See `Kind`."""
        return Found(snapshot.stages, clip_bounds(settings, snapshot.bounds), snapshot)

    def model(
        self,
        settings: PrivateSettings,
        found: Found,
        privacy: dict[str, Any],
        vocabulary: Vocabulary | None,
        further: Mapping[str, Any],
    ) -> TopicModel:
        """See `Kind`."""
        return model_of(found.learned, settings, privacy, vocabulary, further)

    def described(self, settings: PrivateSettings, vocabulary: Vocabulary | None) -> str:
        """See `Kind`."""
        assert vocabulary is not None
        words = f"{vocabulary.n_features:,} words ({vocabulary.kind})"
        single = ", one to a document" if self.fixed else ""
        return f"{settings.n_components} topics{single} of {words}"


def _checked_bounds(
    settings: PrivateSettings, stage: str, bounds: ClipBounds | None, arrays: Arrays
) -> ClipBounds:
    """Return the bounds; those that no release gave must be the config's."""
    assert bounds is not None
    wanted = PrivateEngine(settings).window.bounds
    if settings.clipping == "quantile":
        known = {"norms": (), "pairs": ("first", "pair"), "triple norms": ("first", "pair")}
        names = known.get(stage, _BOUNDS)
        wanted = replace(wanted, **{name: getattr(bounds, name) for name in names})
    elif settings.clipping == "worst-case" and "map" in arrays:
        wanted = replace(wanted, triple=TripleNorms(arrays["map"]).largest_norm)
    near = all(
        np.isclose(getattr(bounds, name), getattr(wanted, name), rtol=_ROUNDING, atol=0)
        for name in _BOUNDS
    )
    require(near and bounds.source == wanted.source, "the bounds are not those to clip by")
    return bounds


def check_arrays(arrays: Arrays, stage: str, settings: PrivateSettings) -> None:
    """Refuse arrays that are not those at the beginning of a stage of a window. Time O(values).

    A round comes from an aggregator that nobody has to trust. So nothing in it is used that was not
    wanted: a stage has its own set of arrays, each of the shape that follows from the config's
    settings, finite float64 and in the range that a release can give. An array too short would let
    a kernel read past its end; a number that is not finite, or out of single precision, could make
    a site's sum fail on one document and not on another.

    Errors are of any kind.
    """
    found, wanted = set(arrays), _names(stage)
    if found != wanted:
        odd = sorted(found ^ wanted)
        raise ValueError(f"the stage {stage!r} has other arrays: {str(odd)[:120]}")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("an array is not finite")
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
        for start, name in product(_STARTS, ("pair_eigenvalues", "pair_noise")):
            _check_vector(f"{start}spectral/{name}", arrays, settings)


def _names(stage: str) -> set[str]:
    names: set[str] = set()
    if stage in _TRIPLES:
        names |= {f"view/{f.name}" for f in fields(PairView) if f.name != "probes"}
    if is_round(stage):
        names |= {f"refinement/{name}" for name in _REFINEMENT}
        names |= {name for start in _STARTS for name in _topics(start)}
    if names:
        names.add("map")
    return names


def _topics(prefix: str) -> set[str]:
    others = ("spectral", "prevalence", "refinement", "fits")
    own = {prefix + f.name for f in fields(PrivateTopics) if f.name not in others}
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
