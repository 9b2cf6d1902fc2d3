"""A round: what all sites must know before they sum the documents of a stage.

A round is the state of a private engine (`streamlda.private.engine`) at the beginning of a stage:
the map, the bounds and the noisy sums of the stages before. All of that has been released; the
sums of the stage itself are 0. The first round follows from the roster, later ones from the shares
of the round before: anybody who has them can make it again and compare.

The aggregator is not trusted with it. A site makes the mechanism, the noise and its price from the
roster's settings, whatever the round says; a map or a bound that somebody chose changes what is
learned, not what is promised. What the round may hold at all is in `streamlda.sites.state_checks`.
Masks are bound to the digest of the round, so sites that were given
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

from streamlda.container import read_arrays, to_json, write_arrays
from streamlda.errors import InvalidSettingError, ModelFileError, StreamLDAError
from streamlda.private.arrays import named
from streamlda.private.engine import PrivateEngine
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.sites.roster import Roster
from streamlda.sites.state_checks import check_arrays

ROUND_FORMAT, ROUND_VERSION = "streamlda-round", 1

Arrays = Mapping[str, NDArray[Any]]

#: Arrays of a round that the sensitivity of a stage takes to be positive, or not negative: weights
#: of words are at least 1, and shares of topics in a word not negative, if these are.
POSITIVE = ("refinement/shares", "refinement/found/spectral/alpha_0")
NOT_NEGATIVE = ("refinement/components", "refinement/found/background")


@dataclass(frozen=True, eq=False)
class Round:
    """A stage that is to be summed at all sites.

    Attributes
    ----------
    roster : str
        Digest of the roster.
    number : int
        From 1, over all windows.
    attempt : int
        From 1; a round that not all sites could answer is begun again under the next one, with
        other masks and other documents.
    arrays, values : mapping
        `PrivateEngine.state`.
    """

    roster: str
    number: int
    attempt: int
    arrays: Arrays = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)

    @classmethod
    def first(cls, roster: Roster) -> Self:
        """Return the first round of a roster."""
        return cls(roster.digest, 1, 1, *PrivateEngine(roster.run_settings).state())

    def again(self) -> Self:
        """Return the same round under the next attempt."""
        return replace(self, attempt=self.attempt + 1)

    def after(self, engine: PrivateEngine) -> Self:
        """Return the next round, from the engine that has taken the release of this one."""
        return type(self)(self.roster, self.number + 1, 1, *engine.state())

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it, in hex."""
        return content_digest(self._about(), self.arrays).hex()

    @property
    def context(self) -> bytes:
        """What masks are bound to: the roster and the round."""
        return bytes.fromhex(self.roster) + bytes.fromhex(self.digest)

    def open(self, roster: Roster) -> tuple[PrivateEngine, Stage]:
        """Return an engine at the beginning of the stage, and that stage.

        Raises
        ------
        InvalidSettingError
            If the round is not one of the roster, or its state not that of the beginning of a
            stage.
        """
        if self.roster != roster.digest:
            raise InvalidSettingError(
                "a round must belong to the roster, got "
                f"roster={self.roster[:16]} expected={roster.digest[:16]} round={self.number}; "
                "take the round that was made with this roster"
            )
        try:
            if PrivateSettings.of(self.values["settings"]) != roster.run_settings:
                raise ValueError("the settings are not those of the roster")
            used = [a for name, a in self.arrays.items() if not name.startswith("snapshot/")]
            if not all(np.isfinite(array).all() for array in used):
                raise ValueError("an array is not finite")
            if not (
                all(np.all(a > 0) for name, a in self.arrays.items() if name in POSITIVE)
                and all(np.all(a >= 0) for name, a in self.arrays.items() if name in NOT_NEGATIVE)
            ):
                raise ValueError("a probability is negative")
            if self.values["prefix"] or named(self.arrays, "users/"):
                raise ValueError("it is of another mode or unit")
            begun = self.values["stage"]
            if begun is None or begun["name"] not in dict(_slots(roster)):
                raise ValueError("no stage of the roster begins")
            ended = self.values["snapshot"] is not None
            check_arrays(self.arrays, begun["name"], roster.run_settings, ended=ended)
            engine = PrivateEngine.from_state(self.arrays, self.values)
            stage = engine.stage
            if stage is None or stage.slots_filled or any(map(np.any, stage.aggregates.values())):
                raise ValueError("no stage begins")
            if dict(_slots(roster)).get(stage.name) != stage.slots_left:
                raise ValueError("the stage has other places")
        except (
            *(StreamLDAError, LookupError, TypeError, ValueError),
            *(ArithmeticError, AssertionError, AttributeError),
        ) as error:
            raise InvalidSettingError(
                "a round must begin a stage of the roster's settings, got "
                f"round={self.number} error={str(error)[:200]}; ask the aggregator for the round "
                "again, or make it from the shares"
            ) from error
        return engine, stage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the round to a file, whole or not at all.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_arrays(path, ROUND_FORMAT, ROUND_VERSION, self.arrays, self._about())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`.

        Raises
        ------
        OSError
            If it cannot be read.
        ModelFileError
            If it is not a whole, unaltered round.
        """
        file = read_arrays(path, ROUND_FORMAT, ROUND_VERSION)
        try:
            about = file.metadata
            number, attempt = about["round"], about["attempt"]
            if len(bytes.fromhex(about["roster"])) != 32 or min(number, attempt) < 1:
                raise ValueError("its labels are none")
            return cls(about["roster"], number, attempt, file.arrays, about["values"])
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"a round file must be whole, got path={str(path)!r} error={str(error)[:100]}; "
                "ask the aggregator for it again"
            ) from error

    def _about(self) -> dict[str, Any]:
        return {
            "roster": self.roster,
            "round": self.number,
            "attempt": self.attempt,
            "values": dict(self.values),
        }


def _slots(roster: Roster) -> list[tuple[str, int]]:
    return [(name, last - first) for name, first, last in roster.run_settings.stage_slots()]


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
