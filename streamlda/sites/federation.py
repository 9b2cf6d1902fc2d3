"""The federation config: sites, weights and terms, and the checks of a site that signs it.

One JSON file, the same at all sites and at the aggregator, and public. Its digest goes into every
mask, announcement, round and share: sites that hold different configs cannot be added up by
mistake. Whoever starts a site compares the digest with the others by another way than the file,
since a site trusts the keys in it, and signs it (`streamlda.sites.announcement`).

Noise of S sites, t colluders agreed on, z the noise multiplier of the promise
------------------------------------------------------------------------------
A document moves the sum of any site by as much, whatever the weight of the site. So all sites add
noise of one variance, ``z^2 / (S - t)`` in units of the sensitivity, that they alone know.

1. Any S - t sites together have the noise z that one holder of all documents would need, and the
   aggregate has ``z sqrt(S / (S - t))``.
2. The aggregator and c <= S - 2 colluding sites see the sum of the h = S - c honest sites, and no
   more, since masks hide the rest (`streamlda.sites.keys`): noise ``z sqrt(h / (S - t))``. A
   document is ``sqrt((S - t) / h) / z``-GDP against them: within the promise for c <= t.
3. The aggregator and all S - 1 others know the mask of the last site: h = 1 in the same formula.
4. After a drop-out the masks do not cancel, and nothing is left to see.

The promise of a config holds if few of its sites collude, and whoever makes a config chooses its
sites: of 400 sites 399 may be invented. The noise of the site itself holds whoever the others are.
So a site refuses a config under which that noise alone promises too little (`check_alone`).
"""

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from streamlda.container import digest_content, to_json
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import require
from streamlda.guarantee.accounting import epsilon_of, noise_multiplier
from streamlda.privacy.events import Approximate, GaussianRelease
from streamlda.privacy.ledger import LedgerTerms
from streamlda.privacy.ledger.budget_table import plain
from streamlda.private.settings import PrivateSettings
from streamlda.sites.faults import check, fault
from streamlda.sites.files import JsonKind, check_members
from streamlda.sites.keys import PublicKey, SiteKey
from streamlda.text.vocabulary import Vocabulary

_FILE = JsonKind(
    "streamlda-roster",
    3,
    "a federation config is not whole, or breaks its rules",
    "make it again, and let all sites have the same",
)

#: Part of delta for Gaussian noise; it moves the noise by less than a thousandth.
GAUSSIAN_FRACTION = 0.99

#: Most characters of a label.
MAX_LABEL = 200

#: Delta at which a site's own noise is judged, at most (`FederationConfig.epsilon_alone`).
ALONE_DELTA = 1e-5

#: Largest epsilon that a site accepts if all others collude, at `ALONE_DELTA` at most. Whoever
#: knows all else then guesses whether a document is there rightly in 64 of 100 cases.
MAX_EPSILON_ALONE = 3.0

#: How far the sum of weights may be from 1: they come from files and divisions.
SUM_TOLERANCE = 1e-9

#: Settings with which a site can sum by itself, whatever an aggregator says.
AGREED = {
    "privacy_unit": "document",
    "mode": "window",
    "solver": WHITENED_TENSOR,
    "public_model": None,
    "seed_topics": (),
}


@dataclass(frozen=True, slots=True)
class Member:
    """A site of a federation; `weight` is its fraction of the slots of a window."""

    key: PublicKey
    weight: float

    @property
    def name(self) -> str:
        """Name of the site."""
        return self.key.name


@dataclass(frozen=True)
class FederationConfig:
    """Sites, and what they have agreed on; all of it is public.

    `label` names what is learned; another label gives other masks. `members` are at least two, with
    different names and keys, of weights that sum to 1, kept in the order of their names.
    `aggregator` signs the rounds; it may be one of the members. `settings` are of the model and of
    the promise to each document of an honest site, in windows: ``documents_per_snapshot`` counts
    the slots of all sites together, and ``snapshots`` the windows, with those that give no model.
    `vocabulary` is given or hashed: public. `colluders`, t: the promise holds against the
    aggregator and any t sites that help it.
    """

    label: str
    members: tuple[Member, ...]
    aggregator: PublicKey
    settings: PrivateSettings
    vocabulary: Vocabulary
    colluders: int = 0

    def __post_init__(self) -> None:
        members = tuple(sorted(self.members, key=lambda member: member.name))
        object.__setattr__(self, "members", members)
        label = self.label
        require(
            isinstance(label, str) and label.isprintable() and len(label) <= MAX_LABEL,
            f"a label is not one line of at most {MAX_LABEL} characters that can be shown",
            label=ascii(label)[:80],
            remedy="sites look at it before they sign; take plain text",
        )
        check_weights([member.weight for member in members])
        check_colluders(self.colluders, len(members))
        keys = [member.key for member in members]
        keys += [] if self.aggregator in keys else [self.aggregator]
        for kind in ("name", "signing"):
            value, times = Counter(getattr(key, kind) for key in keys).most_common(1)[0]
            check(times == 1, "own key", same=kind, value=value)
        check_terms(self.settings, self.vocabulary)
        for name, first, last in self.run_settings.stage_slots():
            for site, n in self.allocate(last - first).items():
                check(n >= 1, "slots of stage", site=site, stage=name, slots=last - first)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in order."""
        return tuple(member.name for member in self.members)

    def member(self, name: str) -> Member:
        """Return the site of a name."""
        for member in self.members:
            if member.name == name:
                return member
        raise fault(
            "site", site=str(name)[:80], config=self.digest[:16], sites=", ".join(self.names)
        )

    def allocate(self, slots: int) -> dict[str, int]:
        """Return how many of a stage's slots each site fills; they add up to all."""
        total, allocated, before = 0.0, {}, 0
        for member in self.members[:-1]:
            total += member.weight
            upto = round(total * slots)
            allocated[member.name], before = upto - before, upto
        return {**allocated, self.members[-1].name: slots - before}

    @cached_property
    def digest(self) -> str:
        """BLAKE2b of 32 bytes over all of it, in hex."""
        return digest_content(_FILE.name_values(self._values())).hex()

    def check_digest(self, rule: str, digest: str, **about: Any) -> None:
        """Refuse what names the digest of another config."""
        check(digest == self.digest, rule, config=digest[:16], expected=self.digest[:16], **about)

    @cached_property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity, z, that the promise asks for."""
        return noise_multiplier(self.settings.epsilon, self.delta_left)

    @property
    def delta_left(self) -> float:
        """The part of delta that is left to Gaussian noise, `GAUSSIAN_FRACTION` of it.

        The rest is for the exactness of the draws, which counts once for each site. It is a fixed
        part, so that the noise does not depend on how many sites there are.
        """
        settings = self.settings
        lost = len(self.members) * (settings.delta - settings.delta_left)
        most = (1 - GAUSSIAN_FRACTION) * settings.delta
        check(lost <= most, "delta", delta=settings.delta, taken=lost)
        return GAUSSIAN_FRACTION * settings.delta

    @property
    def event(self) -> Approximate:
        """Price of a share for each of its documents, against t colluders."""
        distance = len(self.members) * self.settings.tv_distance
        return Approximate(GaussianRelease(self.noise_multiplier), distance)

    @property
    def ledger_terms(self) -> LedgerTerms:
        """Return the terms of the ledger that each site keeps."""
        return LedgerTerms(
            epsilon=self.settings.epsilon,
            delta=self.settings.delta,
            neighboring_relation=self.settings.neighboring_relation,
        )

    def loss_factor(self, colluders: int) -> float:
        """Return sqrt((S - t) / (S - c)): the loss to c colluders over the promised one."""
        n_sites = len(self.members)
        check_colluders(colluders, n_sites)
        return math.sqrt((n_sites - self.colluders) / (n_sites - colluders))

    @cached_property
    def run_settings(self) -> PrivateSettings:
        """The settings with the epsilon of the aggregate, whose noise is that of all S sites.

        Its noise multiplier is at least ``z sqrt(S / (S - t))``: any S - t sites have, at an Sth
        of the variance each, what the promise asks for. What follows from the noise, such as the
        stages, follows from these settings.
        """
        n_sites = len(self.members)
        wanted = self.noise_multiplier * math.sqrt(n_sites / (n_sites - self.colluders))
        epsilon = min(self.settings.epsilon, epsilon_of(1 / wanted, self.settings.delta_left))
        less = 2.0**-36
        while True:
            made = replace(self.settings, epsilon=epsilon)
            if made.noise_multiplier >= wanted:
                return made
            # What epsilon_of rounds up, and a smaller epsilon leaves more of delta to the noise.
            epsilon, less = epsilon * (1 - less), 2 * less

    def epsilon_against(self, colluders: int) -> float | None:
        """Return the epsilon of a document, at the whole delta, against that many colluders.

        What was promised for as many as agreed on, more beyond; None where delta does not cover
        the exactness of the noise any more.
        """
        if colluders <= self.colluders:
            return self.settings.epsilon
        return self._epsilon_at(self.settings.delta, colluders)

    @property
    def alone_delta(self) -> float:
        """The delta of `epsilon_alone`: the config's, or `ALONE_DELTA` where that is less."""
        return min(self.settings.delta, ALONE_DELTA)

    @property
    def epsilon_alone(self) -> float | None:
        """Epsilon of a document under the noise of its site alone; None where there is no bound."""
        if self.alone_delta == self.settings.delta:
            return self.epsilon_against(len(self.members) - 1)
        return self._epsilon_at(self.alone_delta, len(self.members) - 1)

    def _epsilon_at(self, delta: float, colluders: int) -> float | None:
        settings = self.settings
        mu = self.loss_factor(colluders) / self.noise_multiplier
        # A tenth of delta is for the exactness, whose loss grows as 1 + e^epsilon.
        epsilon = max(settings.epsilon, epsilon_of(mu, 0.9 * delta))
        log_growth = math.log1p(math.exp(-epsilon)) + epsilon - settings.epsilon
        lost = len(self.members) * (settings.delta - settings.delta_left)
        fits = log_growth < 700 and lost * math.exp(log_growth) <= 0.1 * delta
        return epsilon if fits else None

    @property
    def insider_line(self) -> str:
        """One sentence on the bound against any one site, which can take its own noise off."""
        found = self.epsilon_against(1)
        bound = "no bound" if found is None else f"epsilon {math.ceil(found * 1000) / 1000:g}"
        return (
            "Against any one site of the federation, which sees all sums and can subtract its own "
            f"noise, a document of another has {bound}."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the config to a file."""
        Path(path).write_text(_FILE.write(self._values()), encoding="ascii")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        return _FILE.read(path, cls._parse)

    @classmethod
    def _parse(cls, values: dict[str, Any]) -> Self:
        words = values["vocabulary"]
        made = cls(
            values["label"],
            tuple(Member(PublicKey(**site["key"]), site["weight"]) for site in values["sites"]),
            PublicKey(**values["aggregator"]),
            PrivateSettings.of(values["settings"]),
            Vocabulary.from_metadata(words["metadata"], words["words"]),
            values["colluders"],
        )
        check_members(values, made._values())
        return made

    def _values(self) -> dict[str, Any]:
        words = self.vocabulary
        return {
            "label": self.label,
            "colluders": self.colluders,
            "settings": json.loads(to_json(asdict(self.settings))),
            "vocabulary": {"metadata": words.metadata(), "words": words.words},
            "aggregator": asdict(self.aggregator),
            "sites": [{"key": asdict(m.key), "weight": m.weight} for m in self.members],
        }


def check_weights(weights: Sequence[float]) -> None:
    """Refuse weights that are not at least two numbers above 0 of sum 1."""
    positive = len(weights) >= 2 and all(0 < weight < 1 for weight in weights)
    check(positive, "weights", weights=tuple(weights))
    total = math.fsum(weights)
    check(abs(total - 1) <= SUM_TOLERANCE, "sum of weights", sum=total, weights=tuple(weights))


def check_colluders(colluders: int, n_sites: int) -> None:
    """Refuse a number of colluding sites that is not from 0 to S - 1."""
    check(0 <= colluders <= n_sites - 1, "colluders", colluders=colluders, sites=n_sites)


def check_terms(settings: PrivateSettings, vocabulary: Vocabulary) -> None:
    """Refuse settings and words that sites cannot agree on."""
    found = {name: getattr(settings, name) for name in AGREED}
    wanted = " ".join(f"{name}={value}" for name, value in AGREED.items())
    require(
        found == AGREED,
        f"sites learn only with {wanted}",
        **found,
        remedy="users and sums over time need one place, and probes of a power method could be "
        "made up",
    )
    kind, words = vocabulary.kind, vocabulary.n_features
    fits = kind in ("given", "hashed") and words == settings.n_features
    check(fits, "words", kind=kind, words=words, n_features=settings.n_features)


def check_member(config: FederationConfig, key: SiteKey) -> None:
    """Refuse a key that is not the one of its site in the config."""
    member = config.member(key.public.name)
    check(member.key == key.public, "key of site", site=member.name, config=config.digest[:16])


def check_alone(config: FederationConfig, most: float) -> None:
    """Refuse a config whose promise rests on the other sites more than this site allows.

    `most` may be infinite: whatever the others are.
    """
    require(most > 0, "max_epsilon_alone must be > 0", max_epsilon_alone=most)
    found = config.epsilon_alone
    check(
        (math.inf if found is None else found) <= most,
        "noise alone",
        epsilon_alone="no bound" if found is None else f"{found:.4g}",
        delta=config.alone_delta,
        max_epsilon_alone=most,
        sites=len(config.members),
        colluders=config.colluders,
    )


def check_expected(config: FederationConfig, expected: str) -> None:
    """Refuse a config whose digest is not the one that the sites have compared."""
    same = expected.strip().lower() == config.digest
    check(same, "digest", digest=config.digest, expected=expected[:64])


def describe(config: FederationConfig) -> list[str]:
    """Return the terms that a site signs with a config, in lines; a key is a fingerprint."""
    settings, n_sites = config.settings, len(config.members)
    windows = "no limit" if settings.snapshots is None else f"at most {settings.snapshots}"
    lines = [
        f"digest       {config.digest}",
        f"label        {config.label or '(none)'}",
        f"aggregator   {config.aggregator.name}: {config.aggregator.fingerprint}",
        f"sites        {n_sites}",
    ]
    for member in config.members:
        lines.append(
            f"  {member.name}: weight {plain(member.weight)}, key {member.key.fingerprint}"
        )
    words = f"{config.vocabulary.n_features:,} words ({config.vocabulary.kind})"
    lines += [
        f"learns       {settings.n_components} topics of {words}, "
        f"{settings.documents_per_snapshot:,} record slots of all sites a window, "
        f"windows: {windows}",
        f"rounds       {', '.join(config.run_settings.stages)} in each window",
        f"promise      epsilon {plain(settings.epsilon)}, delta {plain(settings.delta)} for each "
        f"document, against the aggregator and {config.colluders} colluding sites "
        f"({settings.neighboring_relation})",
        f"one insider  {_bound(config.epsilon_against(1))}: any other site by itself",
        f"alone        {_bound(config.epsilon_alone)} at delta {plain(config.alone_delta)}: if all "
        "others collude, by the noise of this site",
    ]
    return lines


def _bound(epsilon: float | None) -> str:
    return "no bound" if epsilon is None else f"epsilon {epsilon:.4g}"
