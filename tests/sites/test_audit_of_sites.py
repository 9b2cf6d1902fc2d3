"""Sites against the strongest adversary: the aggregator, helped by all sites but two, and more.

It knows all documents but the *canary*, which is at an honest site, and the keys, documents and
noise of the sites that help it; it sees the shares of all. Its test is an inner product of what it
sees with how far the canary moves it (`tests.private.audit`). False alarms: a sound protocol is
refuted with probability 1e-8 a test. That it gives away at least 0.6 of its claim, and that a
planted bug is found, fail by chance with probability below 2e-7. Noise has no seed.
"""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.guarantee import sums as guarantee_sums
from streamlda.guarantee.accounting import epsilon_of
from streamlda.privacy.clipping import ClipBounds
from streamlda.sites import site as site_module
from streamlda.sites.keys import RoundKey
from streamlda.sites.rounds import Round
from tests.private.audit import LIKELY, SURE, Finding, mu_below, one_word
from tests.sites.protocol import Sites, added

pytestmark = pytest.mark.statistical

#: Five sites, of which two are honest; few words, so that draws are quick.
S, HONEST, D = 5, 2, 10


class Scene:
    """Honest sites with their raw sums, without the canary and with it, and colluders' keys."""

    def __init__(self, sites, this, canary):
        self.round, self.config = this, sites.config
        _, self.stage = this.open(sites.config)
        self.honest = list(sites.sites.values())[:HONEST]
        self.colluders = list(sites.sites)[HONEST:]
        # The round keys in memory, so that shares can be drawn again and again.
        self.keys, self._sites = {}, sites
        self._read_keys(this)
        first, _ = self.honest[0].get_slots(this)
        absent, present = (
            self._sums(self.honest[0], records) for records in canary(sites.documents, first + 3)
        )
        others = [self._sums(site, sites.documents[site.name]) for site in self.honest[1:]]
        self.absent, self.present = [absent, *others], [present, *others]
        # How far the canary moves each block, in units of the noise of a whole release.
        stage = self.stage.mechanism
        sigma = {name: stage.stddevs[name] / stage.steps[name] for name in present}
        self.direction = {
            name: (present[name] - absent[name]).reshape(-1) / sigma[name] ** 2 for name in present
        }
        self._known, self._attempts = {}, 1

    def _sums(self, site, batch):
        accumulator = site.begin(self.round)
        accumulator.add(batch)
        return accumulator.sums()

    def shares(self, sums, this):
        """Draw a share of each honest site, as it would be sent; blocks are flat."""
        made = [
            site._mask(this, self.stage, own, self.keys[this.digest][site.name], None).arrays
            for site, own in zip(self.honest[: len(sums)], sums, strict=True)
        ]
        return [{name: part.reshape(-1) for name, part in own.items()} for own in made]

    def _read_keys(self, this):
        self.keys[this.digest] = found = {}
        for own in this.keys:
            path = self._sites.round_keys(own.site)._file(own)
            found[own.site] = RoundKey(own.site, path.read_bytes())

    def fresh(self):
        """Return another round: a draw of the masks, which the adversary does not know."""
        self._attempts += 1
        secrets = {site: RoundKey(site, RoundKey.random()) for site in self._sites.sites}
        keys = tuple(replace(own, exchange=secrets[own.site].exchange) for own in self.round.keys)
        drawn = replace(self.round, window=self._attempts, keys=keys)
        self.keys = {self.round.digest: self.keys[self.round.digest], drawn.digest: secrets}
        return drawn

    def unmasked(self, shares, this):
        """Add up the honest shares, and take off what the colluders know of their masks."""
        if this.context not in self._known:
            shapes = {name: part.shape for name, part in shares[0].items()}
            known = [self.keys[this.digest][name] for name in self.colluders]
            masks = [key.mask(this.exchanges, this.context, shapes) for key in known]
            self._known[this.context] = {name: added(m[name] for m in masks) for name in shapes}
        known = self._known[this.context]
        return {name: added(own[name] for own in shares) + known[name] for name in known}

    def score(self, seen):
        return float(sum(np.vdot(self.direction[name], seen[name]) for name in seen))


def document(word):
    """Return what puts a document of one word, many times, in place of a blank."""

    def canary(documents, slot):
        counts = documents["site0"].to_csr().toarray()
        for row in (np.zeros(D), one_word(D, word)):
            counts[slot] = row
            yield DocumentBatch.from_matrix(counts)

    return canary


def of_the_sum(scene, sums):
    """What the aggregator and the colluders have of one round."""
    return scene.score(scene.unmasked(scene.shares(sums, scene.round), scene.round))


def of_one_share(scene, sums):
    """What anybody has who sees the share with the canary alone."""
    seen = scene.shares(sums[:1], scene.fresh())[0]
    return scene.score({name: part.view(np.int64) for name, part in seen.items()})


def of_two_attempts(scene, sums):
    """The canary's share less the second attempt of its site, without it: masks must not cancel."""
    first = scene.shares(sums[:1], scene.fresh())[0]
    again = scene.shares(scene.absent[:1], scene.fresh())[0]
    return scene.score({name: (first[name] - again[name]).view(np.int64) for name in first})


def audit(sites, look, draws=1000, claim=None, scene=None):
    scene = scene or Scene(sites, sites.first, document(3))
    scores = [
        np.array([look(scene, sums) for _ in range(draws)])
        for sums in (scene.absent, scene.present)
    ]
    likely, sure = (mu_below(scores[0], scores[1], quantile) for quantile in (LIKELY, SURE))
    settings = sites.config.settings
    bounds = epsilon_of(likely, settings.delta), epsilon_of(sure, settings.delta)
    return Finding(settings.epsilon if claim is None else claim, *bounds)


def at_work(tmp_path, colluders, **changes):
    return Sites.of(S, tmp_path, colluders=colluders, n_features=D, **changes)


def assert_tight(finding):
    assert finding.sound, finding
    assert finding.likely >= 0.6 * finding.claim, finding


@pytest.mark.long
def test_all_sites_but_two_and_the_aggregator_learn_what_is_claimed(tmp_path):
    with at_work(tmp_path, S - 2) as sites:
        assert_tight(audit(sites, of_the_sum))
        this = sites.answer(sites.first).next_round
        rows = np.linalg.norm(this.open(sites.config)[0].window.whitening, axis=1)
        scene = Scene(sites, this, document(int(rows.argmax())))
        assert scene.stage.name == "triples"
        assert_tight(audit(sites, of_the_sum, scene=scene))


@pytest.mark.long
def test_more_colluders_than_agreed_on_learn_what_the_statement_says(tmp_path):
    with at_work(tmp_path, 0) as sites:
        finding = audit(sites, of_the_sum, claim=sites.config.epsilon_against(S - HONEST))
    assert_tight(finding)
    assert finding.sure > sites.config.settings.epsilon


@pytest.mark.long
@pytest.mark.parametrize("look", [of_one_share, of_two_attempts])
def test_a_share_alone_and_two_attempts_tell_nothing(tmp_path, look):
    with at_work(tmp_path, 0) as sites:
        finding = audit(sites, look, draws=400)
    # Where there is nothing to find, a bound is above this with probability below 1e-8.
    assert finding.likely < 1.2


def one_round_key(patch):
    """Keys of the site serve all rounds, under one context: two attempts have one mask."""
    secret = RoundKey.random()
    patch.setattr(RoundKey, "random", staticmethod(lambda: secret))
    patch.setattr(Round, "context", property(lambda self: b"always the same"))


def no_masks(patch):
    def mask(self, announced, context, shapes):
        return {name: np.zeros(shape, dtype=np.uint64) for name, shape in shapes.items()}

    patch.setattr(RoundKey, "mask", mask)


def one_site_without_noise(patch):
    original, calls = site_module.draw_local_noise, [0]

    def draw_local_noise(mechanism, noise, share):
        calls[0] += 1
        drawn = original(mechanism, noise, share)
        return {name: 0 * y for name, y in drawn.items()} if calls[0] % HONEST else drawn

    patch.setattr(site_module, "draw_local_noise", draw_local_noise)


def noise_of_all_sites_counted(patch):
    """Forget the colluders: noise as if all S sites were honest."""
    original = site_module.draw_local_noise

    def draw_local_noise(mechanism, noise, share):
        return original(mechanism, noise, share * HONEST / S)

    patch.setattr(site_module, "draw_local_noise", draw_local_noise)


def no_clip(patch):
    patch.setattr(guarantee_sums, "clip_factors", lambda norms, bound: np.ones(len(norms)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "look", "colluders", "draws"),
    [
        (one_site_without_noise, of_the_sum, S - HONEST, 2000),
        (noise_of_all_sites_counted, of_the_sum, S - HONEST, 1200),
        (no_clip, of_the_sum, S - HONEST, 500),
        (one_round_key, of_two_attempts, 0, 1100),
        (no_masks, of_one_share, 0, 500),
    ],
)
def test_planted_bug_is_found(tmp_path, monkeypatch, bug, look, colluders, draws):
    bounds = ClipBounds(0.5, 0.4, 1.0, "fixed")
    with at_work(tmp_path, colluders, clipping=bounds) as sites:
        bug(monkeypatch)
        finding = audit(sites, look, draws)
    assert not finding.sound, finding
