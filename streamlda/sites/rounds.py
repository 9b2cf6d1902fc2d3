"""Rounds: the public state of a window at the beginning of a stage, in a signed file.

A round has bounds to clip by, arrays that follow from the noisy sums of earlier stages, such as a
projection, and the round keys that the sites announced. The first round follows from the config, a
later one from the shares of the round before: whoever has them can make it again and compare.

The aggregator that signs a round is not trusted. Settings, slots, the mechanism, the noise and the
price are computed at the site from the config, and `check_arrays` refuses arrays that cannot follow
from a release. A projection or a bound that somebody chose changes what is learned, not what is
promised: noise follows the bound. Masks are bound to the digest of the round, so that shares of
different rounds do not add up.
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

from streamlda.container import ArraysFile, digest_content, read_arrays, write_arrays
from streamlda.errors import StreamLDAError, at_least, between, require
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.contributions import TripleStatistic
from streamlda.private.engine import PrivateEngine
from streamlda.private.refinement import RefinementRounds
from streamlda.private.responsibilities import check_array, is_round
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.private.topics import PairView, PrivateTopics
from streamlda.sites.announcement import Announcement, check_attempt
from streamlda.sites.faults import check, fault
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import check_members, parse_content
from streamlda.sites.keys import ROUND, SiteKey
from streamlda.spectral.topics import SpectralTopics
from streamlda.utils.arrays import named

ROUND_FORMAT, ROUND_VERSION = "streamlda-round", 2

Arrays = Mapping[str, NDArray[Any]]

#: Stages that look through the projection of the pairs before them.
_TRIPLES = ("triple norms", "triples")

_REFINEMENT = ("components", "shares", "mixed", "sums", "variance", "done", "long")
#: Topics that refinement rounds begin with, and topics that documents compare with them.
_STARTS = ("refinement/found/", "refinement/moments/")

_MOST = 1 + 1e-9

_BOUNDS = ("first", "pair", "triple")

#: How far bounds that follow from a projection may differ between machines.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Round:
    """A stage that is to be summed at all sites.

    `config` is the digest of the federation config. `number`, over all windows, `window` and
    `attempt` count from 1: a round that not all sites could answer is begun again under the next
    attempt, with other round keys and documents. `keys` are the announcements of all sites, in the
    order of their names. `signature` is the aggregator's.

    Windows that gave no model count, as a site cannot see whether one did. So ``snapshots`` of the
    config bounds the rounds that a site answers: round n of window w and stage s, of S stages, has
    ``w + s - 1 <= n <= (w - 1) S + s``. Slots have numbers as if every window were whole.
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
        return cls._at(config, engine, 1, 1, keys)

    @classmethod
    def _at(
        cls,
        config: FederationConfig,
        engine: PrivateEngine,
        number: int,
        window: int,
        keys: Sequence[Announcement],
    ) -> Self:
        """Return the round of the running stage of an engine, unsigned."""
        assert engine.stage is not None
        found, running = check_keys(config, keys, number, 1), engine.window
        arrays = running.state()[0]
        values = config.digest, number, 1, window, engine.stage.name, found, running.bounds, arrays
        return cls(*values)

    def repeat(self, config: FederationConfig, keys: Sequence[Announcement]) -> Self:
        """Return the same round under the next attempt, unsigned."""
        check_attempt(self.attempt + 1)
        found = check_keys(config, keys, self.number, self.attempt + 1)
        return replace(self, attempt=self.attempt + 1, keys=found, signature="")

    def is_last(self, config: FederationConfig) -> bool:
        """Return whether no round can follow."""
        settings = config.run_settings
        return self.window == settings.snapshots and self.stage == list(settings.stages)[-1]

    def advance(
        self, config: FederationConfig, engine: PrivateEngine, keys: Sequence[Announcement]
    ) -> Self | None:
        """Return the next round, from the engine that has taken the release of this one, unsigned.

        None after the last window.
        """
        window, most = self.window + (not engine.window.records), config.run_settings.snapshots
        if engine.stage is None or (most is not None and window > most):
            return None
        return self._at(config, engine, self.number + 1, window, keys)

    def sign(self, key: SiteKey) -> Self:
        """Return it under the signature of the aggregator."""
        return replace(self, signature=key.sign(ROUND, bytes.fromhex(self.digest)))

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it but the signature, in hex."""
        return digest_content(self._metadata(), self.arrays).hex()

    @property
    def context(self) -> bytes:
        """Digests of config and round, which masks are bound to."""
        return bytes.fromhex(self.config) + bytes.fromhex(self.digest)

    @property
    def exchanges(self) -> dict[str, str]:
        """Public round keys by site, in hex."""
        return {key.site: key.exchange for key in self.keys}

    def get_key(self, site: str) -> Announcement:
        """Return the announcement of a site for this round."""
        return next(key for key in self.keys if key.site == site)

    def open(self, config: FederationConfig) -> tuple[PrivateEngine, Stage]:
        """Return an engine at the beginning of the stage, and that stage.

        Refused if the round is not one of the config, is not signed by its aggregator and all its
        members, or holds what cannot be there at the beginning of a stage.
        """
        check(
            self.config == config.digest,
            "config of round",
            config=self.config[:16],
            expected=config.digest[:16],
            round=self.number,
        )
        check(
            config.aggregator.check_signature(ROUND, self.signature, bytes.fromhex(self.digest)),
            "signature of round",
            round=self.number,
            aggregator=config.aggregator.name,
        )
        try:
            check_keys(config, self.keys, self.number, self.attempt)
            return self._engine(config.run_settings)
        except (
            *(StreamLDAError, LookupError, TypeError, ValueError),
            *(ArithmeticError, AssertionError, AttributeError),
        ) as error:
            raise fault("stage of round", round=self.number, reason=str(error)[:200]) from error

    def _engine(self, settings: PrivateSettings) -> tuple[PrivateEngine, Stage]:
        windows, slots = settings.snapshots, settings.stage_slots()
        names = [name for name, *_ in slots]
        require(self.stage in names, "the config has no such stage", stage=self.stage)
        number = names.index(self.stage)
        between(1, windows or self.number, window=self.window)
        least, most = self.window + number, (self.window - 1) * len(names) + number + 1
        between(least, most, round=self.number)
        check_arrays(self.arrays, self.stage, settings)
        begun = (self.window - 1) * settings.documents_per_snapshot
        done = [
            ReleasedStage(name, begun + first, begun + last - 1, settings.noise_multiplier)
            for name, first, last in slots[:number]
        ]
        values = {
            "settings": settings.values(),
            "places": begun + slots[number][1],
            "snapshots": self.window - 1,
            "windows": self.window,
            "lost": 0,
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
        """Return the bounds; bounds that no release gave must be the config's."""
        wanted = PrivateEngine(settings).window.bounds
        if settings.clipping == "quantile":
            known = {"norms": (), "pairs": ("first", "pair"), "triple norms": ("first", "pair")}
            names = known.get(self.stage, _BOUNDS)
            wanted = replace(wanted, **{name: getattr(self.bounds, name) for name in names})
        elif settings.clipping == "worst-case" and "map" in self.arrays:
            wanted = replace(wanted, triple=TripleStatistic(self.arrays["map"]).largest_norm)
        near = all(
            np.isclose(getattr(self.bounds, name), getattr(wanted, name), rtol=_ROUNDING, atol=0)
            for name in _BOUNDS
        )
        same = near and self.bounds.source == wanted.source
        require(same, "the bounds are not those to clip by")
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
        return parse_content(lambda: cls._parse(file), path, rule, remedy)

    @classmethod
    def _parse(cls, file: ArraysFile) -> Self:
        values = file.metadata
        made = cls(
            values["roster"],
            values["round"],
            values["attempt"],
            values["window"],
            values["stage"],
            tuple(Announcement.from_json(key) for key in values["keys"]),
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


def check_keys(
    config: FederationConfig, keys: Sequence[Announcement], number: int, attempt: int
) -> tuple[Announcement, ...]:
    """Return the announcements of all sites for an attempt, in order; refuse any others."""
    found = {key.site: key for key in keys}
    missing = [name for name in config.names if name not in found]
    check(
        not missing,
        "announcements missing",
        sites=", ".join(missing),
        round=number,
        attempt=attempt,
    )
    check(len(found) == len(keys), "announced twice", sites=len(found), announcements=len(keys))
    for key in keys:
        key.check(config)
        check(
            (key.round, key.attempt) == (number, attempt),
            "announcement of round",
            site=key.site,
            round=key.round,
            attempt=key.attempt,
            expected=f"{number}.{attempt}",
        )
    return tuple(found[name] for name in config.names)


def check_arrays(arrays: Arrays, stage: str, settings: PrivateSettings) -> None:
    """Refuse arrays that are not those at the beginning of a stage of a window. Time O(values).

    Each has the shape that follows from the config's settings, is finite float64 and in the range
    that a release can give: a kernel could read past the end of a short array, and a number out of
    single precision could make a sum fail on one document alone. `Round.open` words the errors.
    """
    found, wanted = set(arrays), _list_names(stage)
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
        # Checks all of it, but for the arrays that serve diagnostics alone.
        RefinementRounds.from_state(named(arrays, "refinement/"), settings)
        for start, name in product(_STARTS, ("pair_eigenvalues", "pair_noise")):
            _check_vector(f"{start}spectral/{name}", arrays, settings)


def _list_names(stage: str) -> set[str]:
    names: set[str] = set()
    if stage in _TRIPLES:
        names |= {f"view/{f.name}" for f in fields(PairView) if f.name != "probes"}
    if is_round(stage):
        names |= {f"refinement/{name}" for name in _REFINEMENT}
        names |= {name for start in _STARTS for name in _list_topics(start)}
    if names:
        names.add("map")
    return names


def _list_topics(prefix: str) -> set[str]:
    others = ("spectral", "prevalence", "refinement", "fits", "ratio")
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
