"""Sites: sums of their own documents, a part of the noise, a mask, and the ledger.

    share_s = a_s + g_s + m_s   modulo 2^64, in whole steps of the grid of the stage

a_s are the sums that a stage of the private route would have of these documents
(`streamlda.private.stage`), g_s is discrete Gaussian noise of variance sigma^2 / S, with sigma the
standard deviation of the aggregate's noise, and m_s the site's mask (`streamlda.sites.keys`).

Privacy
-------
*Unit and relation*: a document, in a slot of the site's own stream; `zero-out` or
`replace-one`, as the federation config says.

*Sensitivity*: a document is in the sums of one site, whole numbers that it moves by its own
(`streamlda.guarantee.sums`). So what is added to the noise moves by at most the `l2_sensitivity` of
the stage's mechanism, which a document of one word, as heavy as the clip bound, attains. The sum
over all sites moves by exactly what that share moves.

*Public*: the config; the round, all of which was released before; which slots a site has read; who
sent a share, and when.

*Release*: with h honest sites, the sum over them of a_s + g_s (masks hide all else), under
noise of variance h sigma^2 / S on the grid. The config takes sigma such that h = S - t gives the
noise multiplier that was promised.

*Sums of discrete Gaussians*: the sum of h of them, each of variance s^2 in steps, is not quite one
of variance h s^2. Adding the j-th, the mass at x is that of the right one times a ratio of two sums
of a Gaussian of deviation rho over shifted integers, where rho^2 >= s^2 / 2. By Poisson's formula
each is within 1 +- 2.01 e^(-2 pi^2 rho^2) of its mean. As s is above 2^26, that is nothing beside
the 2^-60 a value by which each site's sampler may differ from its law, and which
`FederationConfig.event` counts once for each site. For small s see Kairouz, Liu and Steinke,
The distributed discrete Gaussian mechanism, ICML 2021.

*Ledger*: the price is on the site's disk before the noise is drawn, with the digest of the round:
there will never be another share of that round. The round key is destroyed before the noise is
drawn (`streamlda.sites.announcement`): another ledger gives no second share under a mask.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.guarantee.mechanism import Counts, JointGaussian
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.learner import Learner, Users
from streamlda.privacy.ledger import Cohort, Ledger, Provenance
from streamlda.privacy.ledger.ledger import SUFFIX, unpublished_path
from streamlda.private.stage import Stage
from streamlda.sites import federation
from streamlda.sites.announcement import Announcement, RoundKeys
from streamlda.sites.faults import check, fault
from streamlda.sites.keys import RoundKey, SiteKey
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.text.vocabulary import Vocabulary


class ShareAccumulator(Learner):
    """Sums of the slots `first` to `last` of one site in a round: raw, and never stored."""

    counts_slots = True

    def __init__(
        self, this: Round, config: federation.FederationConfig, site: str, first: int, last: int
    ) -> None:
        self.round, self.first, self.last = this, first, last
        self._learner, self.stage = this.open(config)
        self._site = site
        #: Slots seen, which are public; the number of documents is not.
        self.documents_seen = 0

    @property
    def due(self) -> int | None:
        """Rows that are wanted; None if no more are."""
        return self.last - self.documents_seen or None

    def add(self, batch: DocumentBatch, users: Users | None = None, /) -> int:
        """Take rows of the stream, one a slot; those before `first` are left."""
        batch = batch.rows(0, min(batch.n_documents, self.last - self.documents_seen))
        rows = batch.rows(max(self.first - self.documents_seen, 0), batch.n_documents)
        if rows.n_documents:
            self._learner.add(rows)
        self.documents_seen += batch.n_documents
        return batch.n_documents

    def release(
        self, vocabulary: Vocabulary | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Return None: a site makes its share of the sums, and topics come of all shares."""

    def sums(self) -> dict[str, Counts]:
        """Return the raw sums in whole steps of the grid, if no slot is missing."""
        filled, wanted = max(self.documents_seen - self.first, 0), self.last - self.first
        about = {"site": self._site, "slots": filled, "expected": wanted}
        check(self.due is None, "slots of site", **about, stage=self.stage.name)
        return self.stage.state()


class Site:
    """A site: its config, its key, its round keys, and the ledger of its documents.

    `key` is that of one of the members, and `round_keys` lie beside it. `ledger` is open for
    writing, with `FederationConfig.ledger_terms`; shares are kept in ``NAME.releases`` beside it.
    `stream` names the stream in which this site's slots count. A config that this site has not
    signed is refused, one under which its own noise promises more than epsilon `max_epsilon_alone`,
    and a ledger that is not that of earlier shares.
    """

    def __init__(
        self,
        config: federation.FederationConfig,
        key: SiteKey,
        round_keys: RoundKeys,
        ledger: Ledger,
        stream: str,
        noise: Noise | None = None,
        max_epsilon_alone: float = federation.MAX_EPSILON_ALONE,
    ) -> None:
        check_allowed(config, key, round_keys, max_epsilon_alone)
        round_keys.check_ledger(config.digest, ledger.ledger_id)
        self.config, self.stream, self.ledger = config, stream, ledger
        #: Gets every record that is read. Of files, slots count from the first record that was in
        #: no release.
        self.provenance = Provenance(ledger.key, stream, by_slots=True)
        self._key, self._round_keys = key, round_keys
        self._noise = SecureNoise() if noise is None else noise
        self.name = key.public.name

    def get_slots(self, this: Round) -> tuple[int, int]:
        """Return the slots that this site fills in a round, first and last + 1.

        They begin after all that its ledger has in the stream: what was spent is not summed again.
        """
        _, stage = this.open(self.config)
        wanted = self.config.allocate(stage.slots_left)[self.name]
        first = self.ledger.records.reach(self.stream) if self.provenance.by_slots else 0
        return first, first + wanted

    def count_slots_to_come(self, this: Round) -> int:
        """Return the slots that this site fills in a round and in the rest of its window."""
        _, running = this.open(self.config)
        stages = self.config.run_settings.stage_slots()
        at = [name for name, *_ in stages].index(running.name)
        wanted = [running.slots_left, *(last - first for _, first, last in stages[at + 1 :])]
        return sum(self.config.allocate(slots)[self.name] for slots in wanted)

    def find_share(self, this: Round) -> Path | None:
        """Return the file of this site's share of a round, if it has made one and not lost it."""
        for release in self.ledger.releases:
            if release.config_hash != this.digest:
                continue
            path = self._path(this)
            if release.state == "committed" and path.exists():
                self.ledger.check_target(path)
                return path
            raise fault("share lost", site=self.name, round=this.number, attempt=this.attempt)
        return None

    def begin(self, this: Round) -> ShareAccumulator:
        """Return the accumulator of a round's documents; nothing is spent yet.

        Refused if the ledger does not allow the share or has one of this round (`find_share`), or
        if the round key is not here or was used.
        """
        first, last = self.get_slots(this)
        found = self.find_share(this)
        check(found is None, "share made", site=self.name, round=this.number, path=str(found))
        self._round_keys.check(this.get_key(self.name))
        accumulator = ShareAccumulator(this, self.config, self.name, first, last)
        cohort = self._make_cohort(accumulator) if self.provenance.by_slots else None
        self.ledger.check(self.config.event, cohort)
        return accumulator

    def publish(self, accumulator: ShareAccumulator) -> Path:
        """Pay for a share, draw its noise, and return the file that it is in.

        Nothing is spent if rows are missing. After an error of the ledger the price may be spent.
        """
        this, sums = accumulator.round, accumulator.sums()
        stage = accumulator.stage
        self._round_keys.keep_ledger(self.config.digest, self.ledger.ledger_id)
        intent = self.ledger.begin(
            self._make_cohort(accumulator),
            self.config.event,
            config_hash=this.digest,
            description=f"round {this.number}.{this.attempt} {stage.name}",
        )
        following = None
        if not this.is_last(self.config):
            number = this.number + 1
            following = self._round_keys.announce(self._key, self.config.digest, number, 1)
        round_key = self._round_keys.take(this.get_key(self.name))
        share = self._mask(this, stage, sums, round_key, following)
        final = self._path(this)
        final.parent.mkdir(mode=0o700, exist_ok=True)
        share.save(unpublished_path(final))
        self.ledger.publish(intent, final)
        return final

    def make_share(self, this: Round, fill: Callable[[ShareAccumulator], None]) -> Path:
        """Return the file of this site's share of a round, made by the first call.

        `fill` is to add the rows of this site's stream. A later call reads and draws nothing.
        """
        this.open(self.config)
        found = self.find_share(this)
        if found is not None:
            return found
        accumulator = self.begin(this)
        fill(accumulator)
        return self.publish(accumulator)

    def _make_cohort(self, accumulator: ShareAccumulator) -> Cohort:
        return self.provenance.cohort(accumulator.first, accumulator.last, self.config.digest)

    def _mask(
        self,
        this: Round,
        stage: Stage,
        sums: dict[str, Counts],
        round_key: RoundKey,
        following: Announcement | None,
    ) -> Share:
        noise = draw_local_noise(stage.mechanism, self._noise, 1 / len(self.config.members))
        shapes = {name: counts.shape for name, counts in sums.items()}
        arrays = round_key.mask(this.exchanges, this.context, shapes)
        for name, values in arrays.items():
            # In place, so that single numbers stay arrays, which wrap without a warning.
            values += (sums[name] + noise[name]).view(np.uint64)
        return Share(
            site=self.name,
            config=self.config.digest,
            round=this.number,
            attempt=this.attempt,
            round_digest=this.digest,
            stage=stage.name,
            secure=self._noise.secure,
            following=following,
            arrays=arrays,
        ).sign(self._key)

    def _path(self, this: Round) -> Path:
        name = f"{this.number:06d}-{this.attempt}-{this.digest[:16]}-{self.name}{SUFFIX}"
        return self.ledger.folder / name


def check_allowed(
    config: federation.FederationConfig,
    key: SiteKey,
    round_keys: RoundKeys,
    max_epsilon_alone: float,
) -> None:
    """Refuse a config that this key has not signed, or whose own noise promises too little."""
    federation.check_member(config, key)
    federation.check_alone(config, max_epsilon_alone)
    round_keys.check_pinned(config.digest)


def draw_local_noise(
    mechanism: JointGaussian, noise: Noise, variance_fraction: float
) -> dict[str, Counts]:
    """Draw the noise of a release at this fraction of its variance, in whole steps of the grid."""
    return mechanism.noise_on_grid(noise, math.sqrt(variance_fraction))
