"""Rounds: a stage that all sites sum, and the releases that came before it, in a signed file.

A round has the noisy sums of the earlier stages of its window, and the round keys that the sites
announced. The first round follows from the config, a later one from the shares of the round before:
whoever has them can make it again and compare.

The aggregator that signs a round is not trusted. Settings, slots, the mechanism, the noise and the
price are computed at the site from the config; bounds, projections and topics, from the noisy sums.
`check_release` refuses sums that no release can give. Sums that somebody chose change what is
learned, not what is promised: noise follows the bound. Masks are bound to the digest of the round,
so that shares of different rounds do not add up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import StreamLDAError, at_least, between, require
from streamlda.private.learner import PrivateLearner
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.sites.announcement import Announcement, check_attempt
from streamlda.sites.faults import check, fault
from streamlda.sites.federation import FederationConfig
from streamlda.sites.share import SignedFile
from streamlda.utils.arrays import take_named

Arrays = Mapping[str, NDArray[Any]]

#: Largest noise in a released number, in standard deviations: never drawn.
_MOST_NOISE = 64.0


@dataclass(frozen=True, eq=False)
class Round(SignedFile):
    """A stage that is to be summed at all sites.

    `config` is the digest of the federation config. `number`, over all windows, `window` and
    `attempt` count from 1: a round that not all sites could answer is begun again under the next
    attempt, with other round keys and documents. `keys` are the announcements of all sites, in the
    order of their names. `signature` is the aggregator's.

    Windows that gave no model count, as a site cannot see whether one did. So ``snapshots`` of the
    config bounds the rounds that a site answers: round n of window w and stage s, of S stages, has
    ``w + s - 1 <= n <= (w - 1) S + s``. Slots have numbers as if every window were whole.
    """

    purpose, kind, version, sender = b"streamlda site round 2", "round", 3, "aggregator"

    config: str
    number: int
    attempt: int
    window: int
    stage: str
    keys: tuple[Announcement, ...] = field(repr=False)
    arrays: Arrays = field(repr=False)  # Noisy sums, named ``STAGE/BLOCK``.
    signature: str = ""

    @classmethod
    def first(cls, config: FederationConfig, keys: Sequence[Announcement]) -> Self:
        """Return the first round of a federation, unsigned."""
        learner = PrivateLearner(config.run_settings)
        return cls._at(config, learner, 1, 1, keys)

    @classmethod
    def _at(
        cls,
        config: FederationConfig,
        learner: PrivateLearner,
        number: int,
        window: int,
        keys: Sequence[Announcement],
    ) -> Self:
        """Return the round of the running stage of a learner, unsigned."""
        assert learner.stage is not None
        found, arrays = check_keys(config, keys, number, 1), learner.window.arrays
        return cls(config.digest, number, 1, window, learner.stage.name, found, arrays)

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
        self, config: FederationConfig, learner: PrivateLearner, keys: Sequence[Announcement]
    ) -> Self | None:
        """Return the next round, from the learner that has taken the release of this one, unsigned.

        None after the last window.
        """
        window, most = self.window + (not learner.window.records), config.run_settings.snapshots
        if learner.stage is None or (most is not None and window > most):
            return None
        return self._at(config, learner, self.number + 1, window, keys)

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it but the signature, in hex."""
        return self.content.hex()

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

    def open(self, config: FederationConfig) -> tuple[PrivateLearner, Stage]:
        """Return a learner at the beginning of the stage, and that stage.

        Refused if the round is not one of the config, is not signed by its aggregator and all its
        members, or holds what cannot be there at the beginning of a stage.
        """
        config.check_digest("config of round", self.config, round=self.number)
        aggregator, is_signed = config.aggregator, self.is_signed_by(config.aggregator)
        check(is_signed, "signature of round", round=self.number, aggregator=aggregator.name)
        try:
            check_keys(config, self.keys, self.number, self.attempt)
            return self._learner(config.run_settings)
        except (
            *(StreamLDAError, LookupError, TypeError, ValueError),
            *(ArithmeticError, AssertionError, AttributeError),
        ) as error:
            raise fault("stage of round", round=self.number, reason=str(error)[:200]) from error

    def _learner(self, settings: PrivateSettings) -> tuple[PrivateLearner, Stage]:
        windows, slots = settings.snapshots, settings.stage_slots()
        names = [name for name, *_ in slots]
        require(self.stage in names, "the config has no such stage", stage=self.stage)
        number = names.index(self.stage)
        between(1, windows or self.number, window=self.window)
        least, most = self.window + number, (self.window - 1) * len(names) + number + 1
        between(least, most, round=self.number)
        begun = (self.window - 1) * settings.documents_per_snapshot
        learner, used = PrivateLearner(settings, first_slot=begun), 0
        for name, _, last in slots[:number]:
            released = take_named(self.arrays, f"{name}/")
            check_release(learner.stage, released)
            learner.replay(begun + last, released)
            used += len(released)
        if used != len(self.arrays):
            raise ValueError(f"the stage {self.stage!r} has other arrays: {len(self.arrays)}")
        stage = learner.stage
        if stage is None or stage.name != self.stage:
            raise ValueError(f"the stage {self.stage!r} does not follow")
        return learner, stage

    def check_fields(self) -> None:
        """Refuse values of a file that a round cannot have."""
        at_least(1, round=self.number, window=self.window)
        check_attempt(self.attempt)
        if len(bytes.fromhex(self.config)) != 32 or not isinstance(self.keys, tuple):
            raise ValueError("its digest is none, or it has no announcements")
        if not all(isinstance(key, Announcement) for key in self.keys):
            raise ValueError("its announcements are none")


def check_keys(
    config: FederationConfig, keys: Sequence[Announcement], number: int, attempt: int
) -> tuple[Announcement, ...]:
    """Return the announcements of all sites for an attempt, in order; refuse any others."""
    found = {key.site: key for key in keys}
    missing = [name for name in config.names if name not in found]
    about: dict[str, Any] = {"round": number, "attempt": attempt}
    check(not missing, "announcements missing", sites=", ".join(missing), **about)
    check(len(found) == len(keys), "announced twice", sites=len(found), announcements=len(keys))
    for key in keys:
        key.check(config)
        about = {"site": key.site, "round": key.round, "attempt": key.attempt}
        same = (key.round, key.attempt) == (number, attempt)
        check(same, "announcement of round", **about, expected=f"{number}.{attempt}")
    return tuple(found[name] for name in config.names)


def check_release(stage: Stage | None, sums: Arrays) -> None:
    """Refuse arrays that a stage cannot release; `Round.open` words the errors. O(values)."""
    if stage is None:
        raise ValueError("no stage is left")
    mechanism = stage.mechanism
    if sums.keys() != mechanism.stddevs.keys():
        raise ValueError(f"the stage {stage.name!r} has other arrays: {str(sorted(sums))[:120]}")
    for block in mechanism.blocks:
        array, noise = sums[block.name], _MOST_NOISE * mechanism.stddevs[block.name]
        if (array.dtype, array.shape) != (np.dtype(np.float64), block.shape):
            raise ValueError(f"{stage.name}/{block.name} has another dtype or shape")
        # False for NaN.
        if not np.all(np.abs(array) <= stage.slots_left * block.l2_clip_norm + noise):
            raise ValueError(f"{stage.name}/{block.name} has numbers that no sum can be")
