"""A round: what all sites must know before they sum the documents of a stage.

A round is the state of a window of the config's kind (`streamlda.sites.kinds`) at the beginning of
a stage: bounds to clip by, and what the noisy sums of the stages before gave, such as a projection.
All of that has been released.
The first round follows from the config, later ones from the shares of the round before: anybody who
has them can make it again and compare. A round also has the round keys of all sites, each as its
site announced it, and is signed by the aggregator of the config.

The aggregator is not trusted with it. A round says which stage of which window it is, and has the
arrays that stages before have given; settings, slots, records, sums that are 0, the mechanism, the
noise and its price are computed at the site from the config. A projection or a bound that somebody
chose changes what is learned, not what is promised. What the arrays may hold at all, the kind says.
Masks are bound to the digest of the round, so sites that were given different ones
do not add up.

Windows are counted with those that gave no model, as a site cannot see whether one did. So
``snapshots`` of the config bounds the rounds that a site answers, whatever it says of those
before: round n of window w and stage s, of S stages, has ``w + s - 1 <= n <= (w - 1) S + s``. Slots
have numbers as if every window were whole.

A round file is a checked file of `streamlda.container` of kind ``streamlda-round``, version 2.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from streamlda.checks import at_least, between, failure, require
from streamlda.container import ArraysFile, read_arrays, write_arrays
from streamlda.errors import ModelFileError, StreamLDAError
from streamlda.privacy.clipping import ClipBounds
from streamlda.private.stage import Stage
from streamlda.sites.announcement import Announcement, check_attempt, occasion
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import check_members, content_digest, parsed
from streamlda.sites.keys import ROUND, SiteKey
from streamlda.sites.kinds.kind import Arrays, Engine

ROUND_FORMAT, ROUND_VERSION = "streamlda-round", 2


@dataclass(frozen=True, eq=False)
class Round:
    """A stage that is to be summed at all sites.

    `config` is the digest of the federation config. `number` counts from 1, over all windows, and
    `window` from 1; `attempt` too: a round that not all sites could answer is begun again under the
    next one, with other round keys and other documents. `keys` are the announcements of all sites,
    in the order of their names. `bounds` are those to clip by, where any were released, `arrays`
    what stages before gave. `signature` is the aggregator's.
    """

    config: str
    number: int
    attempt: int
    window: int
    stage: str
    keys: tuple[Announcement, ...] = field(repr=False)
    bounds: ClipBounds | None = field(repr=False)
    arrays: Arrays = field(repr=False)
    signature: str = ""

    @classmethod
    def first(cls, config: FederationConfig, keys: Sequence[Announcement]) -> Self:
        """Return the first round of a federation, unsigned."""
        engine = config.kind_of_model.begin(config.run_settings)
        assert engine.stage is not None
        found = _keys(config, keys, 1, 1)
        _, bounds, arrays = config.kind_of_model.public(engine)
        return cls(config.digest, 1, 1, 1, engine.stage.name, found, bounds, arrays)

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
        self, config: FederationConfig, engine: Engine, keys: Sequence[Announcement]
    ) -> Self | None:
        """Return the next round, from the engine that has taken the release of this one, unsigned.

        None after the last window.
        """
        begins, bounds, arrays = config.kind_of_model.public(engine)
        most, window = config.run_settings.snapshots, self.window + begins
        if engine.stage is None or (most is not None and window > most):
            return None
        number, stage = self.number + 1, engine.stage.name
        found = _keys(config, keys, number, 1)
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

    def open(self, config: FederationConfig) -> tuple[Engine, Stage]:
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

    def _engine(self, config: FederationConfig) -> tuple[Engine, Stage]:
        settings = config.run_settings
        windows, names = settings.snapshots, list(settings.stages)
        require(self.stage in names, "the config has no such stage", stage=self.stage)
        number = names.index(self.stage) + 1
        between(1, windows or self.number, window=self.window)
        least, most = self.window + number - 1, (self.window - 1) * len(names) + number
        between(least, most, round=self.number)
        kind = config.kind_of_model
        engine = kind.resume(settings, self.stage, self.window, self.bounds, self.arrays)
        assert engine.stage is not None
        return engine, engine.stage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the round to a file, whole or not at all."""
        metadata = {**self._metadata(), "signature": self.signature}
        write_arrays(path, ROUND_FORMAT, ROUND_VERSION, self.arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        file = read_arrays(path, ROUND_FORMAT, ROUND_VERSION)
        rule, remedy = "a round file must be whole", "ask the aggregator for it again"
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
            None if values["bounds"] is None else ClipBounds(**values["bounds"]),
            file.arrays,
            values["signature"],
        )
        check_members(values, {**made._metadata(), "signature": made.signature})
        at_least(1, round=made.number, window=made.window)
        check_attempt(made.attempt)
        if len(bytes.fromhex(made.config)) != 32 or not isinstance(made.signature, str):
            raise ValueError("its digest or its signature is none")
        bounds = {} if made.bounds is None else asdict(made.bounds)
        if not all(type(bound) is float for name, bound in bounds.items() if name != "source"):
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
            "bounds": None if self.bounds is None else asdict(self.bounds),
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
