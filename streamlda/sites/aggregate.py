"""The aggregator: adds the shares of all sites to a release, the next round and perhaps a model.

Numbers are added modulo 2^64, which takes off the masks, and a private learner takes the noisy sums
as if one process had released them. The aggregator holds no secret and is not trusted: all that it
does is post-processing of the shares, which every site can repeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.mechanism import JointGaussian
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import check_statement, private_statement, state_seeds
from streamlda.private.budget import STATEMENTS
from streamlda.private.snapshot_model import clip_bounds, model_of
from streamlda.private.window import PrivateSnapshot
from streamlda.sites.faults import check, fault
from streamlda.sites.federation import FederationConfig
from streamlda.sites.keys import Words
from streamlda.sites.poisoning import check_sums
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
    """Outcome of a round: noisy sums, and the standard deviation of each value of a block.

    `next_round`, unsigned, is None after the last window. `model` comes after the last stage of a
    window, if its topics stand above the noise; `missed` says why a window ended without one.
    """

    released: dict[str, NDArray[np.float64]]
    stddevs: dict[str, float]
    next_round: Round | None
    model: TopicModel | None
    missed: str | None


def aggregate(config: FederationConfig, this: Round, shares: Sequence[Share]) -> Aggregate:
    """Add the shares of all sites up, one of each in any order; see the module.

    Time O(sites * values), and that of the topics after the last stage; memory O(values).
    """
    check_shares(config, this, shares)
    learner, stage = this.open(config)
    released = stage.mechanism.from_grid(_add_up(stage.mechanism, shares))
    stddevs = stage.stddevs()
    check_sums(this.number, config.run_settings, stage, released)
    learner.skip(stage.slots_left)
    learner.accept(released)
    model = None
    if learner.last is not None:
        settings, snapshot = config.run_settings, learner.last
        said = make_statement(config, snapshot, all(share.secure for share in shares))
        # The last round of the window tells attempts apart.
        further: dict[str, Any] = {"sites": len(config.members), "round": this.digest}
        further["epsilon"] = config.settings.epsilon
        model = model_of(snapshot, settings, said, config.vocabulary, further)
    announced = [share.following for share in shares if share.following is not None]
    next_round = this.advance(config, learner, announced)
    return Aggregate(released, stddevs, next_round, model, learner.private.missed or None)


def check_shares(config: FederationConfig, this: Round, shares: Sequence[Share]) -> None:
    """Refuse shares that cannot be added up; see `aggregate`."""
    expected: dict[str, Any] = {
        # In this order the first that differs explains the others.
        "config": config.digest,
        "round": this.number,
        "attempt": this.attempt,
        "round_digest": this.digest,
    }
    seen: set[str] = set()
    for share in shares:
        share.check(config)
        check(share.site not in seen, "share twice", site=share.site, round=share.round)
        seen.add(share.site)
        for name, wanted in expected.items():
            found = getattr(share, name)
            about: dict[str, Any] = {"found": str(found)[:16], "expected": str(wanted)[:16]}
            about |= {"round": this.number, "attempt": this.attempt}
            check(found == wanted, "another round", differs=name, site=share.site, **about)
    missing = [name for name in config.names if name not in seen]
    check(not missing, "missing shares", sites=", ".join(missing), round=this.number)


def _add_up(mechanism: JointGaussian, shares: Sequence[Share]) -> dict[str, NDArray[np.int64]]:
    """Return the sums of all shares, in whole steps of the grid."""
    added: dict[str, NDArray[np.int64]] = {}
    for block in mechanism.blocks:
        total: Words = np.zeros(block.shape, dtype=np.uint64)
        for share in shares:
            part = share.arrays.get(block.name)
            alike = len(share.arrays) == len(mechanism.blocks)
            if part is None or part.shape != block.shape or not alike:
                about = {"site": share.site, "stage": share.stage}
                raise fault("blocks of share", **about, without=block.name, shape=block.shape)
            total += part
        counts = total.view(np.int64)
        step = mechanism.steps[block.name]
        noise = _REACH * np.sqrt(len(shares)) * mechanism.stddevs[block.name]
        largest = (1.01 * mechanism.n_max * block.l2_clip_norm + noise) / step
        # A mask that is left over is uniform up to 2^63.
        most = float(np.abs(counts.astype(np.float64)).max())
        check(most <= largest, "masks left", block=block.name, round=shares[0].round)
        added[block.name] = counts
    return added


def make_statement(
    config: FederationConfig, snapshot: PrivateSnapshot, secure: bool
) -> dict[str, Any]:
    """Return the privacy statement of a model of several sites.

    Beside the keys of every statement it has ``sites``, with ``epsilon_against``: the epsilon of a
    document of an honest site against the aggregator with 0, 1, ... colluding sites, None where
    there is no bound. Slots count over all sites.
    """
    if not secure:
        return state_seeds()
    settings = config.settings
    made = private_statement(
        epsilon=settings.epsilon,
        delta=settings.delta,
        stages=snapshot.stages,
        clip_bounds=clip_bounds(config.run_settings, snapshot.bounds),
        vocabulary=STATEMENTS[config.vocabulary.kind],
        secure=secure,
        ledger="one at each site",
        neighboring_relation=settings.neighboring_relation,
    )
    made["mechanism"] = f"{MECHANISM} {config.insider_line}"
    made["sites"] = {
        "n_sites": len(config.members),
        "colluders": config.colluders,
        "roster": config.digest,
        "epsilon_against": [config.epsilon_against(c) for c in range(len(config.members))],
    }
    made["excluded"] = [*made["excluded"], "documents of sites that collude"]
    check_statement(made)
    return made
