"""What a site looks at before it signs a config: what is promised, by whom, and what is left of it.

The promise of a config holds if few of its sites collude, and who makes a config chooses its sites:
of 400 sites 399 may be invented. What holds whoever the others are is the noise of the site itself.
So a site refuses a config under which that noise alone promises too little.
"""

from __future__ import annotations

import math

from streamlda.checks import require
from streamlda.privacy.ledger.budget_table import plain
from streamlda.sites.federation import FederationConfig
from streamlda.sites.keys import SiteKey

#: Largest epsilon, at a delta of 1e-5 at most, that a site accepts if all others collude. Who knows
#: all else then guesses whether a document is there rightly in 64 of 100 cases at most (mu 0.72 at
#: epsilon 3 and delta 1e-5). At epsilon 1 and delta 1e-6, seven sites are within it without
#: colluders (2.9), eight are not (3.13), and 400 have 33.
MAX_EPSILON_ALONE = 3.0


def check_member(config: FederationConfig, key: SiteKey) -> None:
    """Refuse a key that is not the one of its site in the config."""
    member = config.member(key.public.name)
    require(
        member.key == key.public,
        "a site must have the key that the federation config names, and this is another",
        site=member.name,
        config=config.digest[:16],
        remedy="use the key file whose public half is in the config",
    )


def check_alone(config: FederationConfig, most: float) -> None:
    """Refuse a config whose promise rests on the other sites more than this site allows.

    `most` may be infinite: whatever the others are.
    """
    require(most > 0, "max_epsilon_alone must be > 0", max_epsilon_alone=most)
    found = config.epsilon_alone
    require(
        (math.inf if found is None else found) <= most,
        "a site's own noise must keep its promise within max_epsilon_alone if all others collude",
        epsilon_alone="no bound" if found is None else f"{found:.4g}",
        delta=config.alone_delta,
        max_epsilon_alone=most,
        sites=len(config.members),
        colluders=config.colluders,
        remedy="agree on more colluders or a smaller epsilon, or, if you know all sites and trust "
        "them, set --max-epsilon-alone (inf: no limit)",
    )


def check_expected(config: FederationConfig, expected: str) -> None:
    """Refuse a config whose digest is not the one that the sites have compared."""
    require(
        expected.strip().lower() == config.digest,
        "the digest of the federation config must be the one that you expect",
        digest=config.digest,
        expected=expected[:64],
        remedy="ask the other sites for the digest of theirs, by another way than the file",
    )


def described(config: FederationConfig) -> list[str]:
    """Return what a site agrees to when it signs a config, in lines; a key is a fingerprint."""
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
    learned = config.kind_of_model.described(settings, config.vocabulary)
    lines += [
        f"learns       {learned}, {settings.documents_per_snapshot:,} record slots of all sites a "
        f"window, windows: {windows}",
        f"rounds       {', '.join(config.run_settings.stages)} in each window",
        f"promise      epsilon {plain(settings.epsilon)}, delta {plain(settings.delta)} for each "
        f"{config.privacy_unit}, against the aggregator and {config.colluders} colluding sites "
        f"({settings.neighboring_relation})",
        f"one insider  {_bound(config.epsilon_against(1))}: any other site by itself",
        f"alone        {_bound(config.epsilon_alone)} at delta {plain(config.alone_delta)}: if all "
        "others collude, by the noise of this site",
    ]
    return lines


def _bound(epsilon: float | None) -> str:
    return "no bound" if epsilon is None else f"epsilon {epsilon:.4g}"
