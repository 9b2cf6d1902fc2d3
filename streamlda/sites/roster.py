"""The roster: who learns together, how large a part each has, and all that they have agreed on.

One JSON file, the same at all sites and at the aggregator, and public. Its digest goes into every
mask, round and share: sites that hold different rosters cannot be added up by mistake. Whoever
starts a site compares the digest with the others by another way than that of the file, since the
keys in it are what a site trusts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from streamlda.container import to_json
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import InvalidSettingError, ModelFileError, StreamLDAError
from streamlda.privacy.accounting import epsilon_of, noise_multiplier
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.ledger import LedgerTerms
from streamlda.private.settings import PrivateSettings
from streamlda.sites.keys import PublicKeys
from streamlda.sites.scheme import NoisePlan, check_colluders, check_weights
from streamlda.text.vocabulary import Vocabulary

ROSTER_FORMAT, ROSTER_VERSION = "streamlda-roster", 1

#: Part of delta for Gaussian noise; it moves the noise by less than a thousandth.
GAUSSIAN_SHARE = 0.99

#: What a site can sum by itself, whatever an aggregator says.
AGREED = {
    "privacy_unit": "document",
    "mode": "window",
    "noise_in_state": False,
    "solver": WHITENED_TENSOR,
}


@dataclass(frozen=True, slots=True)
class Member:
    """A site of a roster.

    Parameters
    ----------
    keys : PublicKeys
    weight : float
        Its share of the slots of a window.
    """

    keys: PublicKeys
    weight: float

    @property
    def name(self) -> str:
        """Name of the site."""
        return self.keys.name


@dataclass(frozen=True)
class Roster:
    """Sites, and what they have agreed on; all of it is public.

    Parameters
    ----------
    label : str
        Names what is learned; another label gives other masks.
    members : sequence of Member
        At least two, with different names and keys, of weights that sum to 1. Kept in the order
        of their names.
    settings : PrivateSettings
        What is learned and what is promised to each document of an honest site.
        ``documents_per_snapshot`` counts the slots of all sites together. For documents as the
        unit, in windows, without noise in the state, by the whole tensor.
    vocabulary : Vocabulary
        Given or hashed: public.
    colluders : int, default 0
        t: the promise holds against the aggregator and any t sites that help it.

    Raises
    ------
    InvalidSettingError
        If one of these rules is broken, or a site would have no place in a stage.
    """

    label: str
    members: tuple[Member, ...]
    settings: PrivateSettings
    vocabulary: Vocabulary
    colluders: int = 0

    def __post_init__(self) -> None:
        members = tuple(sorted(self.members, key=lambda member: member.name))
        object.__setattr__(self, "members", members)
        check_weights([member.weight for member in members])
        check_colluders(self.colluders, len(members))
        for kind in ("name", "exchange", "signing"):
            values = [getattr(member.keys, kind) for member in members]
            twice = sorted({v for v in values if values.count(v) > 1})
            if twice:
                raise InvalidSettingError(
                    f"every site must have a name and keys of its own, got two with {kind}="
                    f"{twice[0]!r}; let each site make its own keys"
                )
        found = {name: getattr(self.settings, name) for name in AGREED}
        if found != AGREED:
            raise InvalidSettingError(
                f"sites must learn with {_told(AGREED)}, got {_told(found)}: users and sums over "
                "time must be kept in one place, and probes of a power method could be made up"
            )
        words = self.vocabulary
        if words.kind not in ("given", "hashed") or words.n_features != self.settings.n_features:
            raise InvalidSettingError(
                "words must be public, and as many as the settings say, got "
                f"kind={words.kind!r} words={words.n_features} "
                f"n_features={self.settings.n_features}; agree on a word list or on hashing"
            )
        for name, first, last in self.run_settings.stage_slots():
            empty = [site for site, n in self.deal(last - first).items() if n < 1]
            if empty:
                raise InvalidSettingError(
                    "every site must have a place in every stage, got none for "
                    f"site={empty[0]!r} stage={name!r} places={last - first}; take larger windows, "
                    "or leave the site out"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(member.name for member in self.members)

    def member(self, name: str) -> Member:
        """Return the site of a name.

        Raises
        ------
        InvalidSettingError
            If there is none.
        """
        for member in self.members:
            if member.name == name:
                return member
        raise InvalidSettingError(
            f"a site must be on the roster, got site={str(name)[:80]!r} roster={self.digest[:16]} "
            f"sites={', '.join(self.names)}; leave its share out, or agree on a new roster"
        )

    def deal(self, slots: int) -> dict[str, int]:
        """Return how many of a stage's places each site fills; they add up to all."""
        total, dealt, before = 0.0, {}, 0
        for member in self.members[:-1]:
            total += member.weight
            upto = round(total * slots)
            dealt[member.name], before = upto - before, upto
        return {**dealt, self.members[-1].name: slots - before}

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it, in hex."""
        return _digest(self._values())

    @cached_property
    def settings_digest(self) -> str:
        """Of the settings and the number of colluders; all that is here but sites and words."""
        return _digest([_plain(self.settings), self.colluders])

    # What the promise asks of the noise.

    @cached_property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity, z, that the promise asks for."""
        return noise_multiplier(self.settings.epsilon, self.delta_left)

    @property
    def delta_left(self) -> float:
        """The part of delta that is left to Gaussian noise, `GAUSSIAN_SHARE` of it.

        The rest is for the exactness of the draws: what one draw of a release takes off delta
        (`PrivateSettings.delta_left`) counts once for each site. It is a fixed part, so that a
        site's ledger serves rosters of other sites, too. That sums of discrete Gaussians are not
        quite one of the summed variance is in `streamlda.sites.site`.
        """
        settings = self.settings
        lost = len(self.members) * (settings.delta - settings.delta_left)
        if not lost <= (1 - GAUSSIAN_SHARE) * settings.delta:
            raise InvalidSettingError(
                "delta must be at least a hundred times what the exactness of all sites' noise "
                f"leaves open, got delta={settings.delta} open={lost:.2g}; take a larger delta or "
                "a smaller epsilon"
            )
        return GAUSSIAN_SHARE * settings.delta

    @property
    def event(self) -> GaussianRelease:
        """What a share costs each of its documents, against t colluders."""
        return GaussianRelease(self.noise_multiplier)

    def ledger_terms(self) -> LedgerTerms:
        """Return the terms of the ledger that each site keeps."""
        return LedgerTerms(
            epsilon=self.settings.epsilon,
            delta=self.delta_left,
            neighboring_relation=self.settings.neighboring_relation,
        )

    @cached_property
    def plan(self) -> NoisePlan:
        """Noise of the sites in units of the sum, of which each document moves all by as much."""
        weights = [member.weight for member in self.members]
        z = self.noise_multiplier
        return NoisePlan.of(weights, [z / weight for weight in weights], self.colluders)

    @cached_property
    def run_settings(self) -> PrivateSettings:
        """The settings with the epsilon of the aggregate, whose noise is that of all S sites.

        Its noise multiplier is at least ``z sqrt(S / (S - t))``: any S - t sites have, at an Sth
        of the variance each, what the promise asks for. What follows from the noise, such as the
        stages, follows from these settings.
        """
        wanted = self.plan.aggregate
        epsilon = min(self.settings.epsilon, epsilon_of(1 / wanted, self.settings.delta_left))
        less = 2.0**-36
        while True:
            made = replace(self.settings, epsilon=epsilon)
            if made.noise_multiplier >= wanted:
                return made
            # What epsilon_of rounds up, and a smaller epsilon leaves more of delta to the noise.
            epsilon, less = epsilon * (1 - less), 2 * less

    @property
    def local_share(self) -> float:
        """Each site's part of the variance of the aggregate."""
        return 1.0 / len(self.members)

    def epsilon_against(self, colluders: int) -> float | None:
        """Return the epsilon of a document, at the whole delta, against so many colluders.

        What was promised for as many as agreed on, more beyond; None where delta does not cover
        the exactness of the noise any more.
        """
        settings = self.settings
        if colluders <= self.colluders:
            return settings.epsilon
        mu = float(self.plan.losses(colluders).max()) / self.noise_multiplier
        # A tenth of delta is for the exactness, whose loss grows as 1 + e^epsilon.
        epsilon = max(settings.epsilon, epsilon_of(mu, 0.9 * settings.delta))
        log_growth = math.log1p(math.exp(-epsilon)) + epsilon - settings.epsilon
        lost = len(self.members) * (settings.delta - settings.delta_left)
        fits = log_growth < 700 and lost * math.exp(log_growth) <= 0.1 * settings.delta
        return epsilon if fits else None

    @property
    def insider_line(self) -> str:
        """One sentence: what one site has of another's document, by nothing but taking part.

        Every site sees the sums of all rounds and can take its own noise off them. So c = 1 holds
        against it, whatever `colluders` says.
        """
        found = self.epsilon_against(1)
        told = "no bound" if found is None else f"epsilon {math.ceil(found * 1000) / 1000:g}"
        return (
            "Against any one site of the roster, which sees all sums and can take its own noise "
            f"off, a document of another has {told}."
        )

    # Files.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the roster to a file.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        text = json.dumps(self._values(), indent=1, sort_keys=True)
        Path(path).write_text(text + "\n", encoding="ascii")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a roster.

        Raises
        ------
        OSError
            If the file cannot be read.
        ModelFileError
            If it is no roster, or breaks a rule of one.
        """
        try:
            values = json.loads(Path(path).read_bytes())
            kind = (values["format"], values["format_version"])
            if kind != (ROSTER_FORMAT, ROSTER_VERSION):
                raise ValueError(f"the format is {kind}")
            words = values["vocabulary"]
            return cls(
                values["label"],
                tuple(
                    Member(PublicKeys(**site["keys"]), site["weight"]) for site in values["sites"]
                ),
                PrivateSettings.of(values["settings"]),
                Vocabulary.from_metadata(words["metadata"], words["words"]),
                values["colluders"],
            )
        except (StreamLDAError, LookupError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"a roster must be whole and keep its rules, got path={str(path)!r} "
                f"error={str(error)[:300]}; make it anew, and let all sites have the same"
            ) from error

    def _values(self) -> dict[str, Any]:
        words = self.vocabulary
        return {
            "format": ROSTER_FORMAT,
            "format_version": ROSTER_VERSION,
            "label": self.label,
            "colluders": self.colluders,
            "settings": _plain(self.settings),
            "vocabulary": {"metadata": words.metadata(), "words": words.words},
            "sites": [{"keys": asdict(m.keys), "weight": m.weight} for m in self.members],
        }


def _plain(settings: PrivateSettings) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(to_json(asdict(settings)))
    return plain


def _told(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _digest(values: Mapping[str, Any] | Sequence[Any]) -> str:
    return hashlib.blake2b(to_json(values).encode(), digest_size=32).hexdigest()
