"""A round: what all sites must know before they sum the documents of a stage.

A round is the state of a private engine (`streamlda.private.engine`) at the beginning of a stage:
the projection, the bounds and the noisy sums of the stages before. All of that has been released;
the sums of the stage itself are 0. The first round follows from the config, later ones from the
shares of the round before: anybody who has them can make it again and compare.

The aggregator is not trusted with it. A site makes the mechanism, the noise and its price from the
config's settings, whatever the round says; a projection or a bound that somebody chose changes what
is learned, not what is promised. What the round may hold at all is in
`check_arrays`. Masks are bound to the digest of the round, so sites that were given
different ones do not add up.

A round file is a checked file of `streamlda.container` of kind ``streamlda-round``, version 1.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import named
from streamlda.checks import failure, require
from streamlda.container import ArraysFile, read_arrays, to_json, write_arrays
from streamlda.errors import StreamLDAError
from streamlda.private.engine import PrivateEngine
from streamlda.private.refinement import RefinementRounds, check_array, is_round
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.private.topics import PairView, PrivateTopics
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import parsed
from streamlda.spectral.topics import SpectralTopics

ROUND_FORMAT, ROUND_VERSION = "streamlda-round", 1

Arrays = Mapping[str, NDArray[Any]]

#: Stages that look through the projection of the pairs before them.
_TRIPLES = ("triple norms", "triples")

_REFINEMENT = ("components", "shares", "mixed", "sums", "variance", "done", "long")
#: What rounds begin with, and what documents compare it with.
_STARTS = ("refinement/found/", "refinement/moments/")

_MOST = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class Round:
    """A stage that is to be summed at all sites.

    `config` is the digest of the federation config. `number` counts from 1, over all windows;
    `attempt` too: a round that not all sites could answer is begun again under the next one, with
    other masks and other documents. `arrays` and `values` are `PrivateEngine.state`.
    """

    config: str
    number: int
    attempt: int
    arrays: Arrays = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)

    @classmethod
    def first(cls, config: FederationConfig) -> Self:
        """Return the first round of a federation."""
        return cls(config.digest, 1, 1, *PrivateEngine(config.run_settings).state())

    def again(self) -> Self:
        """Return the same round under the next attempt."""
        return replace(self, attempt=self.attempt + 1)

    def after(self, engine: PrivateEngine) -> Self:
        """Return the next round, from the engine that has taken the release of this one."""
        return type(self)(self.config, self.number + 1, 1, *engine.state())

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it, in hex."""
        return content_digest(self._metadata(), self.arrays).hex()

    @property
    def context(self) -> bytes:
        """What masks are bound to: the config and the round."""
        return bytes.fromhex(self.config) + bytes.fromhex(self.digest)

    def open(self, config: FederationConfig) -> tuple[PrivateEngine, Stage]:
        """Return an engine at the beginning of the stage, and that stage.

        Refused if the round is not one of the config, or its state not that of the beginning of a
        stage.
        """
        require(
            self.config == config.digest,
            "a round must belong to the federation config",
            config=self.config[:16],
            expected=config.digest[:16],
            round=self.number,
            remedy="take the round that was made with this config",
        )
        try:
            return self._engine(config)
        except (
            *(StreamLDAError, LookupError, TypeError, ValueError),
            *(ArithmeticError, AssertionError, AttributeError),
        ) as error:
            raise failure(
                "a round must begin a stage of the config's settings",
                round=self.number,
                reason=str(error)[:200],
                remedy="ask the aggregator for the round again, or make it from the shares",
            ) from error

    def _engine(self, config: FederationConfig) -> tuple[PrivateEngine, Stage]:
        settings = config.run_settings
        slots = {name: last - first for name, first, last in settings.stage_slots()}
        require(
            PrivateSettings.of(self.values["settings"]) == settings,
            "the settings are not those of the config",
        )
        used = [a for name, a in self.arrays.items() if not name.startswith("snapshot/")]
        require(all(np.isfinite(array).all() for array in used), "an array is not finite")
        require(
            not (self.values["prefix"] or named(self.arrays, "users/")),
            "it is of another mode or unit",
        )
        begun = self.values["stage"]
        require(begun is not None and begun["name"] in slots, "no stage of the config begins")
        ended = self.values["snapshot"] is not None
        check_arrays(self.arrays, begun["name"], settings, ended=ended)
        engine = PrivateEngine.from_state(self.arrays, self.values)
        stage = engine.stage
        if stage is None or stage.slots_filled or any(map(np.any, stage.aggregates.values())):
            raise failure("no stage begins")
        require(slots.get(stage.name) == stage.slots_left, "the stage has other slots")
        return engine, stage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the round to a file, whole or not at all."""
        write_arrays(path, ROUND_FORMAT, ROUND_VERSION, self.arrays, self._metadata())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        file = read_arrays(path, ROUND_FORMAT, ROUND_VERSION)
        rule, remedy = "a round file must be whole", "ask the aggregator for it again"
        return parsed(lambda: cls._of(file), path, rule, remedy)

    @classmethod
    def _of(cls, file: ArraysFile) -> Self:
        values = file.metadata
        number, attempt = values["round"], values["attempt"]
        if len(bytes.fromhex(values["roster"])) != 32 or min(number, attempt) < 1:
            raise ValueError("its digest or its numbers are out of range")
        return cls(values["roster"], number, attempt, file.arrays, values["values"])

    def _metadata(self) -> dict[str, Any]:
        return {
            "roster": self.config,
            "round": self.number,
            "attempt": self.attempt,
            "values": dict(self.values),
        }


def content_digest(values: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return BLAKE2b of 32 bytes over plain JSON values and arrays.

    Over the JSON text ``[VALUES, [[name, dtype, shape], ...]]``, a line feed, and the bytes of the
    arrays in the order of their names, row-major and little-endian.
    """
    ordered = [(name, np.asarray(arrays[name], order="C")) for name in sorted(arrays)]
    listed = [[name, array.dtype.name, array.shape] for name, array in ordered]
    digest = hashlib.blake2b(f"{to_json([dict(values), listed])}\n".encode(), digest_size=32)
    for _, array in ordered:
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.digest()


def check_arrays(arrays: Arrays, stage: str, settings: PrivateSettings, *, ended: bool) -> None:
    """Refuse arrays that are not those at the beginning of a stage of a window. Time O(values).

    A round comes from an aggregator that nobody has to trust. So nothing in it is used that was not
    wanted: a stage has its own set of arrays, each of the shape that follows from the config's
    settings, finite float64 and in the range that a release can give. An array too short would let
    a kernel read past its end; a number that is not finite, or out of single precision, could make
    a site's sum fail on one document and not on another.

    `arrays` are those of `PrivateEngine.state`, of which ``sums/`` is left to `Stage.restore`;
    `ended`: whether there was a snapshot before. Errors are of any kind; `Round.open` words them.
    """
    found = {name for name in arrays if not name.startswith("sums/")}
    wanted = _names(stage, settings, ended=ended)
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
        for start, name in product(_STARTS, ("pair_eigenvalues", "pair_noise")):
            _check_vector(f"{start}spectral/{name}", arrays, settings)


def _names(stage: str, settings: PrivateSettings, *, ended: bool) -> set[str]:
    names: set[str] = set()
    if stage in _TRIPLES:
        names |= {f"view/{f.name}" for f in fields(PairView) if f.name != "probes"}
    if is_round(stage):
        names |= {f"refinement/{name}" for name in _REFINEMENT}
        names |= {name for start in _STARTS for name in _topics(start)}
    if names:
        names.add("map")
    if ended:
        names |= _topics("snapshot/") | {"snapshot/prevalence"}
        names |= {"snapshot/refinement"} if settings.n_refinement_rounds else set()
    return names


def _topics(prefix: str) -> set[str]:
    others = ("spectral", "prevalence", "refinement")
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
