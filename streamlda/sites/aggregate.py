"""The aggregator: shares of all sites in, one release, the next round and perhaps a model out.

It adds numbers modulo 2^64, which takes off the masks, and gives the noisy sums to a private engine
as if one process had released them. It holds no secret and is not trusted: all that it does is
post-processing of the shares, which every site can repeat. It refuses what does not fit by name, as
a sum with a wrong share in it would be noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.errors import InsufficientDataError, ModelFileError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.mechanism import JointGaussian
from streamlda.privacy.statement import check_statement, private_statement, seeded
from streamlda.private.budget import STATEMENTS
from streamlda.sites.estimate import Estimate
from streamlda.sites.federation import FederationConfig
from streamlda.sites.keys import SHARE, Words
from streamlda.sites.kinds.kind import Found
from streamlda.sites.poisoning import SumCheck, check_sums
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share

MECHANISM = (
    "Integer Gaussian noise on clipped sums, a part of it from each site; shares are masked, and "
    "the sum over all sites is one joint release for each stage."
)

#: How a statement calls the columns of rows of numbers.
COLUMNS = "columns of a matrix: public"

#: How far noise reaches, in standard deviations: `Noise.discrete_gaussian` draws none beyond.
_REACH = 13.0


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What a round gave: noisy sums, and the standard deviation of each value of a block.

    `next_round`, unsigned, is None after the last window. `model` comes after the last stage of a
    window, if its topics stand above the noise; `missed` says why a window ended without one.
    `checks`: what the sums of all documents must keep, and how far they are from it.
    """

    released: dict[str, NDArray[np.float64]]
    stddevs: dict[str, float]
    next_round: Round | None
    model: TopicModel | Estimate | None
    missed: str | None
    checks: list[SumCheck]


def aggregate(config: FederationConfig, this: Round, shares: Sequence[Share]) -> Aggregate:
    """Add the shares of all sites up, one of each in any order; see the module.

    Time O(sites * values), and that of the topics after the last stage; memory O(values).
    """
    check_shares(config, this, shares)
    engine, stage = this.open(config)
    released = stage.mechanism.from_grid(_added(stage.mechanism, shares))
    stddevs = stage.stddevs()
    checks = check_sums(this, config.run_settings, stage, released)
    engine.skip(stage.slots_left)
    before, missed = engine.snapshot, None
    try:
        engine.accept(released)
    except InsufficientDataError as error:
        # The window is lost, and paid for; the next one may do better.
        missed = str(error)
    model = None
    if engine.snapshot is not None and engine.snapshot is not before:
        secure = all(share.secure for share in shares)
        model = _model(config, this, engine.snapshot, secure)
    announced = [share.following for share in shares if share.following is not None]
    next_round = this.after(config, engine, announced)
    return Aggregate(released, stddevs, next_round, model, missed, checks)


def check_shares(config: FederationConfig, this: Round, shares: Sequence[Share]) -> None:
    """Refuse shares that cannot be added up; see `aggregate`."""
    expected: dict[str, Any] = {
        # In this order the first that differs explains the others.
        "vocabulary": config.columns_digest,
        "settings": config.settings_digest,
        "config": config.digest,
        "round": this.number,
        "attempt": this.attempt,
        "round_digest": this.digest,
    }
    seen: set[str] = set()
    for share in shares:
        check_origin(config, share)
        require(
            share.site not in seen,
            "each site must have one share in a round, and one has two",
            site=share.site,
            round=share.round,
            remedy="leave one out",
        )
        seen.add(share.site)
        for name, wanted in expected.items():
            found = getattr(share, name)
            require(
                found == wanted,
                f"a share must be one of this round, and its {name} is another",
                site=share.site,
                found=str(found)[:16],
                expected=str(wanted)[:16],
                remedy=f"ask the site for its share of round={this.number} attempt={this.attempt}",
            )
    missing = [name for name in config.names if name not in seen]
    require(
        not missing,
        "masks cancel only if all sites have sent their shares, and some are missing",
        sites=", ".join(missing),
        round=this.number,
        remedy="wait for them, or begin the round again without them: that takes a new config, and "
        "other documents at all sites",
    )


def check_origin(config: FederationConfig, share: Share) -> None:
    """Refuse a share of a site that is not a member, or not as its site has signed it."""
    key = config.member(share.site).key
    require(
        key.check_signature(SHARE, share.signature, share.content),
        "a share must be as its site has signed it, and this one is another",
        site=share.site,
        round=share.round,
        remedy="it was altered on its way, or is not from that site: ask the site to send it again",
        error=ModelFileError,
    )


def _added(mechanism: JointGaussian, shares: Sequence[Share]) -> dict[str, NDArray[np.int64]]:
    """Return the sums of all shares, in whole steps of the grid."""
    added: dict[str, NDArray[np.int64]] = {}
    for block in mechanism.blocks:
        total: Words = np.zeros(block.shape, dtype=np.uint64)
        for share in shares:
            part = share.arrays.get(block.name)
            alike = len(share.arrays) == len(mechanism.blocks)
            if part is None or part.shape != block.shape or not alike:
                raise failure(
                    "a share must have the blocks of its stage",
                    site=share.site,
                    stage=share.stage,
                    without=block.name,
                    shape=block.shape,
                    remedy="ask the site to make it with the same version of streamlda",
                    error=ModelFileError,
                )
            total += part
        counts = total.view(np.int64)
        step = mechanism.steps[block.name]
        noise = _REACH * np.sqrt(len(shares)) * mechanism.stddevs[block.name]
        largest = (1.01 * mechanism.n_max * block.l2_clip_norm + noise) / step
        # A mask that is left over is uniform up to 2^63.
        require(
            float(np.abs(counts.astype(np.float64)).max()) <= largest,
            "the masks of all sites must cancel, and a sum is one that no documents have",
            block=block.name,
            round=shares[0].round,
            remedy="let every site check its keys against the config, and begin the round again "
            "(streamlda site redo)",
        )
        added[block.name] = counts
    return added


def statement(config: FederationConfig, found: Found, secure: bool) -> dict[str, Any]:
    """Return the privacy statement of a model of several sites.

    Beside the keys of every statement it has ``sites``: their number, how many colluders the
    promise bears, the digest of the config, and ``epsilon_against``: what a document of an honest
    site has against the aggregator with 0, 1, ... colluding sites, None where that is nothing.
    The mechanism's sentence says what another site has, which always knows its own noise.
    Slots count over all sites.
    """
    if not secure:
        return seeded()
    settings, words, unit = config.settings, config.vocabulary, config.privacy_unit
    made = private_statement(
        epsilon=settings.epsilon,
        delta=settings.delta,
        stages=found.stages,
        clip_bounds=found.clip_bounds,
        vocabulary=COLUMNS if words is None else STATEMENTS[words.kind],
        secure=secure,
        ledger="one at each site",
        privacy_unit=unit,
        neighboring_relation=settings.neighboring_relation,
    )
    made["mechanism"] = f"{MECHANISM} {config.insider_line}"
    made["sites"] = {
        "n_sites": len(config.members),
        "colluders": config.colluders,
        "roster": config.digest,
        "epsilon_against": [config.epsilon_against(c) for c in range(len(config.members))],
    }
    made["excluded"] = [*made["excluded"], f"{unit}s of sites that collude"]
    check_statement(made)
    return made


def _model(
    config: FederationConfig, this: Round, snapshot: Any, secure: bool
) -> TopicModel | Estimate:
    """Return the model of a window; `this`, its last round, tells attempts apart."""
    kind, settings = config.kind_of_model, config.run_settings
    found = kind.found(settings, snapshot)
    further: dict[str, Any] = {"sites": len(config.members), **config.said_kind}
    further |= {"epsilon": config.settings.epsilon, "round": this.digest}
    said = statement(config, found, secure)
    return kind.model(settings, found, said, config.vocabulary, further)
