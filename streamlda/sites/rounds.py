"""A round: what all sites must know before they sum the documents of a stage.

A round is the state of a private engine (`streamlda.private.engine`) at the beginning of a stage:
the projection, the bounds and the noisy sums of the stages before. All of that has been released;
the sums of the stage itself are 0. The first round follows from the config, later ones from the
shares of the round before: anybody who has them can make it again and compare.

The aggregator is not trusted with it. A site makes the mechanism, the noise and its price from the
config's settings, whatever the round says; a projection or a bound that somebody chose changes what
is learned, not what is promised. What the round may hold at all is in
`streamlda.sites.state_checks`. Masks are bound to the digest of the round, so sites that were given
different ones do not add up.

A round file is a checked file of `streamlda.container` of kind ``streamlda-round``, version 1.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import named
from streamlda.checks import failure, require
from streamlda.container import ArraysFile, read_arrays, to_json, write_arrays
from streamlda.errors import StreamLDAError
from streamlda.private.engine import PrivateEngine
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import parsed
from streamlda.sites.state_checks import check_arrays

ROUND_FORMAT, ROUND_VERSION = "streamlda-round", 1

Arrays = Mapping[str, NDArray[Any]]


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
