"""A round: what all sites must know before they sum the documents of a stage.

A round is the state of a private engine (`streamlda.private.engine`) at the beginning of a stage:
the projection, the bounds, and the noisy sums of the stages before. All of that has been released.
The first round follows from the config, later ones from the shares of the round before: anybody who
has them can make it again and compare. A round also has the round keys of all sites, each as its
site announced it, and is signed by the aggregator of the config.

The aggregator is not trusted with it. A round says which stage of which window it is, and has the
arrays that stages before have given; settings, slots, records, sums that are 0, the mechanism, the
noise and its price are computed at the site from the config. A projection or a bound that somebody
chose changes what is learned, not what is promised. What the arrays may hold at all is in
`check_arrays`. Masks are bound to the digest of the round, so sites that were given different ones
do not add up.

Windows are counted with those that gave no model, as a site cannot see whether one did. So
``snapshots`` of the config bounds the rounds that a site answers, whatever it says of those
before: round n of window w and stage s, of S stages, has ``w + s - 1 <= n <= (w - 1) S + s``. Slots
have numbers as if every window were whole.

A round file is a checked file of `streamlda.container` of kind ``streamlda-round``, version 2.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import named
from streamlda.checks import at_least, between, failure, require
from streamlda.container import ArraysFile, read_arrays, write_arrays
from streamlda.errors import ModelFileError, StreamLDAError
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.contributions import TripleNorms
from streamlda.private.engine import PrivateEngine
from streamlda.private.refinement import RefinementRounds
from streamlda.private.responsibilities import check_array, is_round
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.private.topics import PairView, PrivateTopics
from streamlda.sites.announcement import Announcement, check_attempt, occasion
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import check_members, check_version, content_digest, parsed
from streamlda.sites.keys import ROUND, SiteKey
from streamlda.spectral.topics import SpectralTopics

ROUND_FORMAT, ROUND_VERSION = "streamlda-round", 2

Arrays = Mapping[str, NDArray[Any]]

#: Stages that look through the projection of the pairs before them.
_TRIPLES = ("triple norms", "triples")

_REFINEMENT = ("components", "shares", "mixed", "sums", "variance", "done", "long")
#: What rounds begin with, and what documents compare it with.
_STARTS = ("refinement/found/", "refinement/moments/")

_MOST = 1 + 1e-9

_BOUNDS = ("first", "pair", "triple")

#: How far bounds that follow from a projection may differ between machines.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Round:
    """A stage that is to be summed at all sites.

    `config` is the digest of the federation config. `number` counts from 1, over all windows, and
    `window` from 1; `attempt` too: a round that not all sites could answer is begun again under the
    next one, with other round keys and other documents. `keys` are the announcements of all sites,
    in the order of their names. `bounds` are those to clip by, `arrays` those of
    `PrivateEngine.state` less sums and snapshots. `signature` is the aggregator's.
    """

    config: str
    number: int
    attempt: int
    window: int
    stage: str
    keys: tuple[Announcement, ...] = field(repr=False)
    bounds: ClipBounds = field(repr=False)
    arrays: Arrays = field(repr=False)
    signature: str = ""

    @classmethod
    def first(cls, config: FederationConfig, keys: Sequence[Announcement]) -> Self:
        """Return the first round of a federation, unsigned."""
        engine = PrivateEngine(config.run_settings)
        assert engine.stage is not None
        found = _keys(config, keys, 1, 1)
        return cls(config.digest, 1, 1, 1, engine.stage.name, found, engine.window.bounds, {})

    def again(self, config: FederationConfig, keys: Sequence[Announcement]) -> Self:
        """Return the same round under the next attempt, unsigned."""
        check_attempt(self.attempt + 1)
        found = _keys(config, keys, self.number, self.attempt + 1)
        return replace(self, attempt=self.attempt + 1, keys=found, signature="")

    def is_last(self, config: FederationConfig) -> bool:
        """Return whether no round can follow."""
        settings = config.run_settings
        return self.window == settings.snapshots and self.stage == list(settings.stages)[-1]

    def after(
        self, config: FederationConfig, engine: PrivateEngine, keys: Sequence[Announcement]
    ) -> Self | None:
        """Return the next round, from the engine that has taken the release of this one, unsigned.

        None after the last window.
        """
        most, window = config.run_settings.snapshots, self.window + (not engine.window.records)
        if engine.stage is None or (most is not None and window > most):
            return None
        arrays, _ = engine.window.state()
        number = self.number + 1
        found = _keys(config, keys, number, 1)
        stage, bounds = engine.stage.name, engine.window.bounds
        return type(self)(self.config, number, 1, window, stage, found, bounds, arrays)

    def signed(self, key: SiteKey) -> Self:
        """Return it under the signature of the aggregator."""
        return replace(self, signature=key.sign(ROUND, bytes.fromhex(self.digest)))

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it but the signature, in hex."""
        return content_digest(self._metadata(), self.arrays).hex()

    @property
    def context(self) -> bytes:
        """What masks are bound to: the config and the round."""
        return bytes.fromhex(self.config) + bytes.fromhex(self.digest)

    def key_of(self, site: str) -> Announcement:
        """Return what a site announced for this round."""
        return next(key for key in self.keys if key.site == site)

    def open(self, config: FederationConfig) -> tuple[PrivateEngine, Stage]:
        """Return an engine at the beginning of the stage, and that stage.

        Refused if the round is not one of the config, is not signed by its aggregator and all its
        members, or holds what cannot be there at the beginning of a stage.
        """
        require(
            self.config == config.digest,
            "a round must belong to the federation config",
            config=self.config[:16],
            expected=config.digest[:16],
            round=self.number,
            remedy="take the round that was made with this config",
        )
        require(
            config.aggregator.check_signature(ROUND, self.signature, bytes.fromhex(self.digest)),
            "a round must be as the aggregator has signed it, and this one is another",
            round=self.number,
            aggregator=config.aggregator.name,
            remedy="ask the aggregator for the round again",
            error=ModelFileError,
        )
        try:
            _keys(config, self.keys, self.number, self.attempt)
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
        slots, windows = settings.stage_slots(), settings.snapshots
        names = [name for name, _, _ in slots]
        require(self.stage in names, "the config has no such stage", stage=self.stage)
        number = names.index(self.stage) + 1
        between(1, windows or self.number, window=self.window)
        least, most = self.window + number - 1, (self.window - 1) * len(names) + number
        between(least, most, round=self.number)
        check_arrays(self.arrays, self.stage, settings)
        begun = (self.window - 1) * settings.documents_per_snapshot
        multiplier = settings.noise_multiplier
        done = [
            ReleasedStage(name, begun + first, begun + last - 1, multiplier)
            for name, first, last in slots[: number - 1]
        ]
        values = {
            "settings": asdict(settings),
            "places": begun + slots[number - 1][1],
            "snapshots": self.window - 1,
            "windows": self.window,
            "records": [asdict(record) for record in done],
            "bounds": asdict(self._checked_bounds(settings)),
            "stage": None,
            "prefix": False,
            "snapshot": None,
        }
        engine = PrivateEngine.from_state(self.arrays, values)
        engine.begin_stage(self.stage)
        assert engine.stage is not None
        return engine, engine.stage

    def _checked_bounds(self, settings: PrivateSettings) -> ClipBounds:
        """Return the bounds; those that no release gave must be the config's."""
        wanted = PrivateEngine(settings).window.bounds
        if settings.clipping == "quantile":
            known = {"norms": (), "pairs": ("first", "pair"), "triple norms": ("first", "pair")}
            names = known.get(self.stage, _BOUNDS)
            wanted = replace(wanted, **{name: getattr(self.bounds, name) for name in names})
        elif settings.clipping == "worst-case" and "map" in self.arrays:
            wanted = replace(wanted, triple=TripleNorms(self.arrays["map"]).largest_norm)
        near = all(
            np.isclose(getattr(self.bounds, name), getattr(wanted, name), rtol=_ROUNDING, atol=0)
            for name in _BOUNDS
        )
        require(near and self.bounds.source == wanted.source, "the bounds are not those to clip by")
        return self.bounds

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the round to a file, whole or not at all."""
        metadata = {**self._metadata(), "signature": self.signature}
        write_arrays(path, ROUND_FORMAT, ROUND_VERSION, self.arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        file = read_arrays(path, ROUND_FORMAT, ROUND_VERSION)
        rule, remedy = "a round file must be whole", "ask the aggregator for it again"
        check_version(file.format_version, ROUND_VERSION, path, remedy)
        return parsed(lambda: cls._of(file), path, rule, remedy)

    @classmethod
    def _of(cls, file: ArraysFile) -> Self:
        values = file.metadata
        made = cls(
            values["roster"],
            values["round"],
            values["attempt"],
            values["window"],
            values["stage"],
            tuple(Announcement.of(key) for key in values["keys"]),
            ClipBounds(**values["bounds"]),
            file.arrays,
            values["signature"],
        )
        check_members(values, {**made._metadata(), "signature": made.signature})
        at_least(1, round=made.number, window=made.window)
        check_attempt(made.attempt)
        if len(bytes.fromhex(made.config)) != 32 or not isinstance(made.signature, str):
            raise ValueError("its digest or its signature is none")
        if not all(type(getattr(made.bounds, name)) is float for name in _BOUNDS):
            raise ValueError("its bounds are no numbers")
        return made

    def _metadata(self) -> dict[str, Any]:
        return {
            "roster": self.config,
            "round": self.number,
            "attempt": self.attempt,
            "window": self.window,
            "stage": self.stage,
            "keys": [asdict(key) for key in self.keys],
            "bounds": asdict(self.bounds),
        }


def _keys(
    config: FederationConfig, keys: Sequence[Announcement], number: int, attempt: int
) -> tuple[Announcement, ...]:
    """Return the announcements of all sites for an attempt, in order; refuse any others."""
    found = {key.site: key for key in keys}
    missing = [name for name in config.names if name not in found]
    require(
        not missing,
        "a round needs the announcements of all sites, and some are missing",
        sites=", ".join(missing),
        round=number,
        attempt=attempt,
        remedy="let these sites sign the config (streamlda site sign), or the next attempt "
        "(streamlda site redo)",
    )
    require(
        len(found) == len(keys),
        "each site must be announced once in a round, and one is twice",
        sites=len(found),
        announcements=len(keys),
        remedy="leave one out",
    )
    for key in keys:
        key.check(config)
        require(
            key.occasion == occasion(config.digest, number, attempt),
            "an announcement must be of this round",
            site=key.site,
            round=key.round,
            attempt=key.attempt,
            expected=f"{number}.{attempt}",
            remedy="ask the site for its announcement of this attempt",
        )
    return tuple(found[name] for name in config.names)


def check_arrays(arrays: Arrays, stage: str, settings: PrivateSettings) -> None:
    """Refuse arrays that are not those at the beginning of a stage of a window. Time O(values).

    A round comes from an aggregator that nobody has to trust. So nothing in it is used that was not
    wanted: a stage has its own set of arrays, each of the shape that follows from the config's
    settings, finite float64 and in the range that a release can give. An array too short would let
    a kernel read past its end; a number that is not finite, or out of single precision, could make
    a site's sum fail on one document and not on another.

    Errors are of any kind; `Round.open` words them.
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
