"""A site at work: sums of its own documents, a part of the noise, a mask, and the ledger.

    share_s = a_s + g_s + m_s   modulo 2^64, in whole steps of the grid of the stage

a_s are the sums that a stage of the private route would have of these documents
(`streamlda.private.stage`), g_s is discrete Gaussian noise of variance sigma^2 / S, with sigma the
standard deviation of the aggregate's noise, and m_s the site's mask (`streamlda.sites.keys`).

Privacy
-------
*Unit and relation*: a document, in a slot of the site's own stream; `add-remove` or
`replace-one`, as the roster says.

*Sensitivity*: a document is in the sums of one site. They are made of groups of its own slots, as
a stage's are, and neighbours differ in one group. So what is added to the noise moves by at most
the `l2_sensitivity` of the stage's mechanism (`streamlda.privacy.mechanism`), which allows for the
slots of all sites. A document of one word, as heavy as the clip bound, attains it but for what is
set aside for rounding. The sum over all sites moves by exactly what that share moves.

*Public*: the roster; the round, all of which was released before; which slots a site has read; who
sent a share, and when.

*What is released*: with h honest sites, the sum over them of a_s + g_s (masks hide all else), under
noise of variance h sigma^2 / S on the grid. The roster takes sigma such that h = S - t gives the
noise multiplier that was promised.

*Sums of discrete Gaussians*: the sum of h of them, each of variance s^2 in steps, is not quite one
of variance h s^2. Adding the j-th, the mass at x is that of the right one times a ratio of two sums
of a Gaussian of deviation rho over shifted integers, where rho^2 >= s^2 / 2. By Poisson's formula
each is within 1 +- 2.01 e^(-2 pi^2 rho^2) of its mean. As s is above 2^26, that is nothing beside
the 2^-60 a value by which each site's sampler may differ from its law, and which
`Roster.delta_left` counts once for each site. For small s see Kairouz, Liu and Steinke, The
distributed discrete Gaussian mechanism, ICML 2021.

*Ledger*: the price is on the site's disk before the noise is drawn, with the digest of the round:
there will never be another share of that round. A record beside the key file says it once more
(`streamlda.sites.used`), in case the ledger is another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidSettingError, LedgerError
from streamlda.privacy.ledger import Cohort, DocumentRange, Ledger
from streamlda.privacy.mechanism import Counts, JointGaussian
from streamlda.privacy.noise import Noise, SecureNoise
from streamlda.sites.keys import SiteKeys
from streamlda.sites.roster import Roster
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.used import UsedRounds


class Summing:
    """Sums of one site's places of a round: raw, and never stored.

    Parameters
    ----------
    this : Round
    roster : Roster
    site : str
    first, last : int
        Slots of the site's stream, `last` not included.

    Attributes
    ----------
    stage : Stage
        Holds the sums.
    """

    def __init__(self, this: Round, roster: Roster, site: str, first: int, last: int) -> None:
        self.round, self.first, self.last = this, first, last
        self._engine, self.stage = this.open(roster)
        self._site = site
        self._seen = 0

    @property
    def documents_seen(self) -> int:
        """Slots seen, which are public; the number of documents is not."""
        return self._seen

    @property
    def wanted(self) -> bool:
        """Whether further rows are wanted."""
        return self._seen < self.last

    def add(self, batch: DocumentBatch, /) -> None:
        """Take rows of the stream, one a slot; those before `first` and from `last` on are left.

        Raises
        ------
        InvalidDocumentsError
            As `PrivateEngine.add`.
        """
        start, stop = (max(place - self._seen, 0) for place in (self.first, self.last))
        rows = batch.rows(start, stop)
        if rows.n_documents:
            self._engine.add(rows)
        self._seen += batch.n_documents

    def sums(self) -> dict[str, Counts]:
        """Return the raw sums in whole steps of the grid.

        Raises
        ------
        InsufficientDataError
            If slots are missing.
        """
        if self.wanted:
            found = max(self._seen - self.first, 0)
            raise InsufficientDataError(
                "a site must fill the places that it has promised, got "
                f"site={self._site!r} places={found} expected={self.last - self.first} "
                f"stage={self.stage.name!r}; nothing was spent: bring more documents, or agree on "
                "smaller windows or another weight"
            )
        return self.stage.state()


class Site:
    """A site at work: its roster, its keys, and the ledger of its documents.

    Parameters
    ----------
    roster : Roster
    keys : SiteKeys
        Those of one of its members.
    ledger : Ledger
        Open for writing, made with `Roster.ledger_terms`. Shares are kept in ``NAME.shares``
        beside it.
    stream : str
        Names the stream in which this site's places count.
    noise : Noise, optional
        `SecureNoise` by default; `SeededNoise` in tests, which makes nothing private.
    used : UsedRounds, optional
        The record beside the key file, a second guard against two shares under one mask. None for
        keys that lie in no file.

    Raises
    ------
    InvalidSettingError
        If the keys are not those of a member.
    """

    def __init__(
        self,
        roster: Roster,
        keys: SiteKeys,
        ledger: Ledger,
        stream: str,
        noise: Noise | None = None,
        used: UsedRounds | None = None,
    ) -> None:
        member = roster.member(keys.public.name)
        if member.keys != keys.public:
            raise InvalidSettingError(
                "a site must have the keys that the roster names, got others for "
                f"site={member.name!r} roster={roster.digest[:16]}; use the key file whose public "
                "half is on the roster"
            )
        self.roster, self.stream, self.ledger = roster, stream, ledger
        self._keys, self._used = keys, used
        self._noise = SecureNoise() if noise is None else noise
        self.name = member.name

    def slots_wanted(self, this: Round) -> tuple[int, int]:
        """Return the slots that this site fills in a round, first and last + 1.

        They begin behind all that its ledger has in the stream: what was spent is not read again.

        Raises
        ------
        InvalidSettingError
            As `Round.open`.
        """
        _, stage = this.open(self.roster)
        first = max(
            (
                stop
                for intent in self.ledger.report()["snapshots"]
                for stream, _, stop in intent["documents"]
                if stream == self.stream
            ),
            default=0,
        )
        return first, first + self.roster.deal(stage.slots_left)[self.name]

    def stored(self, this: Round) -> Path | None:
        """Return the file of this site's share of a round, if it has made one.

        Raises
        ------
        LedgerError
            If there was one and it was lost, or something else lies in its place: the round cannot
            have another share of this site.
        """
        for intent in self.ledger.report()["snapshots"]:
            if intent["config_hash"] != this.digest:
                continue
            path = self._path(this)
            if intent["state"] == "committed" and path.exists():
                self.ledger.check_target(path)
                return path
            raise LedgerError(
                "a site must make one share of a round, and that of this round was lost and is "
                f"paid for: site={self.name!r} round={this.number} attempt={this.attempt}; begin "
                "the round again at all sites (streamlda site redo)"
            )
        return None

    def begin(self, this: Round) -> Summing:
        """Return where the documents of a round are to be summed; nothing is spent yet.

        Raises
        ------
        InvalidSettingError
            As `Round.open`.
        BudgetExceededError, LedgerError
            If the ledger will not allow the share, or has one of this round (`stored`), or the
            keys have masked one before.
        """
        found = self.stored(this)
        if found is not None:
            raise LedgerError(
                "a site must make one share of a round, and that of this round is there, got "
                f"site={self.name!r} round={this.number} path={str(found)!r}; send that one"
            )
        if self._used is not None:
            self._used.check(this.digest)
        first, last = self.slots_wanted(this)
        summing = Summing(this, self.roster, self.name, first, last)
        self.ledger.check(self.roster.event, self._cohort(summing))
        return summing

    def publish(self, summing: Summing) -> Path:
        """Pay for a share, draw its noise, and return the file that it is in.

        Raises
        ------
        InsufficientDataError
            If there were fewer rows than this site has promised; nothing is spent then.
        BudgetExceededError, LedgerError
            As `Ledger.begin` and `Ledger.publish`. After an error the price may be spent.
        """
        this, sums = summing.round, summing.sums()
        stage = summing.stage
        intent = self.ledger.begin(
            self._cohort(summing),
            self.roster.event,
            config_hash=this.digest,
            description=f"round {this.number}.{this.attempt} {stage.name}",
        )
        if self._used is not None:
            self._used.record(this.digest)
        share = self._masked(this, stage.name, stage.mechanism, sums)
        final = self._path(this)
        final.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = final.with_name(final.name + ".new")
        share.save(temporary)
        self.ledger.publish(intent, temporary, final)
        return final

    def make_share(self, this: Round, batches: Iterable[DocumentBatch]) -> Path:
        """Do all of it: `begin`, sum the rows of this site's stream from its first on, `publish`.

        Made once: a second call returns the stored file, and reads and draws nothing.
        """
        found = self.stored(this)
        if found is not None:
            return found
        summing = self.begin(this)
        for batch in batches:
            summing.add(batch)
            if not summing.wanted:
                break
        return self.publish(summing)

    def _cohort(self, summing: Summing) -> Cohort:
        first, last = summing.first, summing.last
        documents = (DocumentRange(self.stream, first, last),)
        return Cohort(f"{self.stream}:{first}-{last}", documents, self.ledger.generation)

    def _masked(
        self, this: Round, stage: str, mechanism: JointGaussian, sums: dict[str, Counts]
    ) -> Share:
        noise = local_noise(mechanism, self._noise, self.roster.local_share)
        members = [member.keys for member in self.roster.members]
        shapes = {name: counts.shape for name, counts in sums.items()}
        arrays = self._keys.mask(members, this.context, shapes)
        for name, values in arrays.items():
            # In place, so that single numbers stay arrays, which wrap without a warning.
            values += (sums[name] + noise[name]).view(np.uint64)
        share = Share(
            site=self.name,
            roster=self.roster.digest,
            settings=self.roster.settings_digest,
            vocabulary=self.roster.vocabulary.fingerprint,
            round=this.number,
            attempt=this.attempt,
            round_digest=this.digest,
            stage=stage,
            secure=self._noise.secure,
            arrays=arrays,
        )
        return replace(share, signature=self._keys.sign(share.content))

    def _path(self, this: Round) -> Path:
        ledger = self.ledger.path
        folder = ledger.with_name(ledger.name + ".shares")
        name = f"{this.number:06d}-{this.attempt}-{this.digest[:16]}-{self.name}.safetensors"
        return folder / name


def local_noise(
    mechanism: JointGaussian, noise: Noise, variance_share: float
) -> dict[str, NDArray[np.int64]]:
    """Draw a part of the noise of a release, in whole steps of the grid.

    Parameters
    ----------
    mechanism : JointGaussian
    noise : Noise
    variance_share : float
        Of the variance of the mechanism's own noise.
    """
    scale = math.sqrt(variance_share)
    return {
        block.name: noise.discrete_gaussian(
            scale * mechanism.stddevs[block.name] / mechanism.steps[block.name], block.shape
        )
        for block in mechanism.blocks
    }
