"""The aggregator: shares of all sites in, one release, the next round and perhaps a model out.

It adds numbers modulo 2^64, which takes off the masks, and gives the noisy sums to a private engine
as if one process had released them. It holds no secret and is not trusted: all that it does is
post-processing of the shares, which every site can repeat. It refuses what does not fit by name, as
a sum with a wrong share in it would be noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InsufficientDataError, InvalidSettingError, ModelFileError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.mechanism import JointGaussian
from streamlda.privacy.noise import SecureNoise, SeededNoise
from streamlda.privacy.statement import check_statement, private_statement, seeded
from streamlda.private.budget import STATEMENTS
from streamlda.private.engine import PrivateSnapshot
from streamlda.private.learner import PrivateLearner
from streamlda.private.refinement import REFINED_NORM
from streamlda.private.release_manager import ReleaseManager
from streamlda.sites.keys import Words
from streamlda.sites.roster import Roster
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share

MECHANISM = (
    "Integer Gaussian noise on clipped sums, a part of it from each site; shares are masked, and "
    "the sum over all sites is one joint release for each stage."
)

#: How far noise reaches, in standard deviations: `Noise.discrete_gaussian` draws none beyond.
_REACH = 13.0


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What a round gave.

    Attributes
    ----------
    released : dict of str to ndarray of float64
        The noisy sums.
    stddevs : dict of str to float
        Standard deviation of the noise in each value of a block.
    next_round : Round or None
        None after the last snapshot.
    model : TopicModel or None
        After the last stage of a window, if its topics stand above the noise.
    missed : str or None
        Why a window ended without a model.
    """

    released: dict[str, NDArray[np.float64]]
    stddevs: dict[str, float]
    next_round: Round | None
    model: TopicModel | None
    missed: str | None


def aggregate(roster: Roster, this: Round, shares: Sequence[Share]) -> Aggregate:
    """Add the shares of all sites up; see the module.

    Time O(sites * values), and that of the topics after the last stage; memory O(values).

    Parameters
    ----------
    roster : Roster
    this : Round
    shares : sequence of Share
        One of each site, in any order.

    Raises
    ------
    InvalidSettingError
        If a share is from an unknown site, came twice, or is of another roster, vocabulary,
        configuration or round; if a site is missing; or if the masks do not cancel.
    ModelFileError
        If a share is not as its site has signed it.
    """
    check_shares(roster, this, shares)
    engine, stage = this.open(roster)
    released = stage.mechanism.from_grid(_added(stage.mechanism, shares))
    stddevs = stage.stddevs()
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
        model = _model(roster, engine.snapshot, secure)
    next_round = None if engine.stage is None else this.after(engine)
    return Aggregate(released, stddevs, next_round, model, missed)


def check_shares(roster: Roster, this: Round, shares: Sequence[Share]) -> None:
    """Refuse shares that cannot be added up; see `aggregate`."""
    wanted = {
        "roster": roster.digest,
        "round": this.number,
        "attempt": this.attempt,
        "round_digest": this.digest,
    }
    seen: set[str] = set()
    for share in shares:
        check_origin(roster, share)
        if share.site in seen:
            raise InvalidSettingError(
                f"each site must have one share in a round, got two of site={share.site!r} "
                f"round={share.round}; leave one out"
            )
        seen.add(share.site)
        found = {name: getattr(share, name) for name in wanted}
        if found != wanted:
            raise InvalidSettingError(
                f"a share must be one of this round, got site={share.site!r} "
                f"{_differing(roster, share, found, wanted)}; ask the site for its share of "
                f"round={this.number} attempt={this.attempt}"
            )
    missing = [name for name in roster.names if name not in seen]
    if missing:
        raise InvalidSettingError(
            "masks cancel only if all sites have sent their shares, got none of "
            f"site={', '.join(missing)} round={this.number}; wait for it, or begin the round again "
            "without it: that takes a new roster, and other documents at all sites"
        )


def check_origin(roster: Roster, share: Share) -> None:
    """Refuse a share of a site that is not on the roster, or not as its site has signed it.

    Raises
    ------
    InvalidSettingError, ModelFileError
        See `aggregate`.
    """
    keys = roster.member(share.site).keys
    if not keys.check_signature(share.signature, share.content):
        raise ModelFileError(
            "a share must be as its site has signed it, got another: "
            f"site={share.site!r} round={share.round}; it was altered on its way, or is not "
            "from that site: ask the site to send it again"
        )


def _differing(
    roster: Roster, share: Share, found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> str:
    """Tell the first thing in which a share differs, the one that explains the others."""
    parts = {
        "vocabulary": (share.vocabulary, roster.vocabulary.fingerprint),
        "settings": (share.settings, roster.settings_digest),
        **{name: (found[name], wanted[name]) for name in wanted},
    }
    for name, (there, here) in parts.items():
        if there != here:
            return f"{name}={str(there)[:16]} expected={str(here)[:16]}"
    raise AssertionError(parts)


def _added(mechanism: JointGaussian, shares: Sequence[Share]) -> dict[str, NDArray[np.int64]]:
    """Return the sums of all shares, in whole steps of the grid."""
    added: dict[str, NDArray[np.int64]] = {}
    for block in mechanism.blocks:
        total: Words = np.zeros(block.shape, dtype=np.uint64)
        for share in shares:
            part = share.arrays.get(block.name)
            if (
                part is None
                or part.shape != block.shape
                or len(share.arrays) != len(mechanism.blocks)
            ):
                raise ModelFileError(
                    f"a share must have the blocks of its stage, got site={share.site!r} "
                    f"stage={share.stage!r} without block={block.name!r} of shape={block.shape}; "
                    "ask the site to make it with the same version of streamlda"
                )
            total += part
        counts = total.view(np.int64)
        step = mechanism.steps[block.name]
        noise = _REACH * np.sqrt(len(shares)) * mechanism.stddevs[block.name]
        largest = (1.01 * mechanism.n_max * block.l2_clip_norm + noise) / step
        # A mask that is left over is uniform up to 2^63.
        if float(np.abs(counts.astype(np.float64)).max()) > largest:
            raise InvalidSettingError(
                "the masks of all sites must cancel, got a sum that no documents have: "
                f"block={block.name!r} round={shares[0].round}; let every site check its keys "
                "against the roster, and begin the round again (streamlda site redo)"
            )
        added[block.name] = counts
    return added


def statement(roster: Roster, snapshot: PrivateSnapshot, secure: bool) -> dict[str, Any]:
    """Return the privacy statement of a model of several sites.

    Beside the keys of every statement it has ``sites``: their number, how many colluders the
    promise bears, the digest of the roster, and ``epsilon_against``: what a document of an honest
    site has against the aggregator with 0, 1, ... colluding sites, None where that is nothing.
    The mechanism's sentence says what another site has, which always knows its own noise.
    Slots count over all sites.
    """
    if not secure:
        return seeded()
    settings, bounds = roster.settings, snapshot.bounds
    clip_bounds: dict[str, tuple[float, str]] = {
        name: (getattr(bounds, name), bounds.source) for name in ("first", "pair", "triple")
    }
    if roster.run_settings.n_refinement_rounds:
        clip_bounds["shares"] = REFINED_NORM, "fixed"
    made = private_statement(
        epsilon=settings.epsilon,
        delta=settings.delta,
        stages=snapshot.stages,
        clip_bounds=clip_bounds,
        vocabulary=STATEMENTS[roster.vocabulary.kind],
        secure=secure,
        ledger="one at each site",
        neighboring_relation=settings.neighboring_relation,
    )
    made["mechanism"] = f"{MECHANISM} {roster.insider_line}"
    made["sites"] = {
        "n_sites": len(roster.members),
        "colluders": roster.colluders,
        "roster": roster.digest,
        "epsilon_against": [roster.epsilon_against(c) for c in range(len(roster.members))],
    }
    made["excluded"] = [*made["excluded"], "documents of sites that collude"]
    check_statement(made)
    return made


def _model(roster: Roster, snapshot: PrivateSnapshot, secure: bool) -> TopicModel:
    noise = SecureNoise() if secure else SeededNoise(0)
    # Never asked to draw: it says what a model is made of.
    learner = PrivateLearner(
        roster.run_settings, ReleaseManager(noise), vocabulary=STATEMENTS[roster.vocabulary.kind]
    )
    model = learner.model_of(snapshot, roster.vocabulary, {"sites": len(roster.members)})
    settings = {**model.settings, "epsilon": roster.settings.epsilon}
    return replace(model, settings=settings, privacy=statement(roster, snapshot, secure))
