"""Sites against the strongest adversary: the aggregator, helped by all sites but two, and more.

It knows all documents but the *canary*, which is at an honest site, and the keys, documents and
noise of the sites that help it; it sees the shares of all (`tests.private.audit`). A sound protocol
is refuted by one bound with probability 1e-8. That it gives away at least 0.6 of its claim, and
that a planted bug is found, fail by chance with probability below 1e-8: after 600 shares the bound
by the noise that was seen is .82 of mu, give or take 2.9 %. Noise has no seed.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.guarantee import sums as guarantee_sums
from streamlda.guarantee.accounting import mu_of
from streamlda.privacy.clipping import ClipBounds
from streamlda.sites import site as site_module
from streamlda.sites.keys import RoundKey
from streamlda.sites.rounds import Round
from tests.private.audit import Evidence, less, look_along
from tests.sites.protocol import Sites, add_up

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
        self.sums = [[own, *others] for own in (absent, present)]
        # The noise of the honest sites.
        stage, part = self.stage.mechanism, math.sqrt(HONEST / S)
        self.sigma = {name: part * stage.stddevs[name] / stage.steps[name] for name in present}
        self.shift = self.in_noise(less(present, absent))
        self._known, self._attempts = {}, 1

    def in_noise(self, sums):
        """Return flat sums in units of the noise of the honest sites."""
        own = self.stage.name
        return {f"{own} {name}": n.reshape(-1) / self.sigma[name] for name, n in sums.items()}

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
            self._known[this.context] = {name: add_up(m[name] for m in masks) for name in shapes}
        known = self._known[this.context]
        return {name: add_up(own[name] for own in shares) + known[name] for name in known}


def document(word):
    """Return what puts a document of one word, many times, in place of a blank."""

    def canary(documents, slot):
        counts = documents["site0"].to_csr().toarray()
        for row in (np.zeros(D), 10.0 * np.eye(D)[word]):
            counts[slot] = row
            yield DocumentBatch.from_matrix(counts)

    return canary


def of_the_sum(scene, sums):
    """Return what the aggregator and the colluders have of one round, and its sums."""
    seen = scene.unmasked(scene.shares(sums, scene.round), scene.round)
    return seen, {name: sum(own[name] for own in sums) for name in seen}


def of_one_share(scene, sums):
    """Return what anybody has who sees the share with the canary alone, and its sums."""
    (seen,) = scene.shares(sums[:1], scene.fresh())
    return {name: part.view(np.int64) for name, part in seen.items()}, sums[0]


def of_two_attempts(scene, sums):
    """Return a share less the second attempt of its site, without the canary: masks must differ."""
    first, again = (scene.shares(own[:1], scene.fresh())[0] for own in (sums, scene.sums[0]))
    seen = {name: (first[name] - again[name]).view(np.int64) for name in first}
    return seen, less(sums[0], scene.sums[0][0])


def audit(scene, look, draws=600):
    settings = scene.config.settings
    evidence = Evidence(mu_of(settings.epsilon, settings.delta), ["canary"])
    for bit in np.random.default_rng(0).permutation(np.arange(draws) % 2):
        seen, sums = look(scene, scene.sums[bit])
        flat = {name: own.reshape(-1) for name, own in sums.items()}
        noise = scene.in_noise(less(seen, flat))
        evidence.add([bit], [look_along(noise, scene.shift)], noise)
    return evidence.verdict()


def at_work(tmp_path, colluders, **changes):
    return Sites.of(S, tmp_path, colluders=colluders, n_features=D, **changes)


def gives_away(verdict, claim):
    """Tell whether what is claimed is given away, or most of it."""
    return 0.6 * claim <= verdict.findings["canary"].noise <= claim


@pytest.mark.long
def test_all_sites_but_two_and_the_aggregator_learn_what_is_claimed(tmp_path):
    with at_work(tmp_path, S - 2) as sites:
        this, word = sites.first, 3
        for stage in ("pairs", "triples"):
            scene = Scene(sites, this, document(word))
            assert scene.stage.name == stage
            verdict = audit(scene, of_the_sum)
            assert not verdict.faults, str(verdict)
            assert gives_away(verdict, verdict.claim), str(verdict)
            if stage == "pairs":
                this = sites.answer(this).next_round
                rows = np.linalg.norm(this.open(sites.config)[0].window.whitening, axis=1)
                word = int(rows.argmax())


@pytest.mark.long
def test_more_colluders_than_agreed_on_learn_what_the_statement_says(tmp_path):
    with at_work(tmp_path, 0) as sites:
        verdict = audit(Scene(sites, sites.first, document(3)), of_the_sum)
        config = sites.config
    claim = mu_of(config.epsilon_against(S - HONEST), config.settings.delta)
    assert gives_away(verdict, claim), str(verdict)
    assert "canary: noise" in verdict.faults


@pytest.mark.long
@pytest.mark.parametrize("look", [of_one_share, of_two_attempts])
def test_a_share_alone_and_two_attempts_tell_nothing(tmp_path, look):
    with at_work(tmp_path, 0) as sites:
        verdict = audit(Scene(sites, sites.first, document(3)), look)
    found = verdict.findings["canary"]
    assert max(found.noise, found.runs) < 1e-3, str(verdict)


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
    ("bug", "look", "colluders", "fault"),
    [
        (one_site_without_noise, of_the_sum, S - HONEST, "pairs pair: quiet"),
        (noise_of_all_sites_counted, of_the_sum, S - HONEST, "pairs pair: quiet"),
        (no_clip, of_the_sum, S - HONEST, "canary: reach"),
        (one_round_key, of_two_attempts, 0, "canary: noise"),
        (no_masks, of_one_share, 0, "pairs pair: quiet"),
    ],
)
def test_planted_bug_is_found(tmp_path, monkeypatch, bug, look, colluders, fault):
    bounds = ClipBounds(0.5, 0.4, 1.0, "fixed")
    with at_work(tmp_path, colluders, clipping=bounds) as sites:
        bug(monkeypatch)
        verdict = audit(Scene(sites, sites.first, document(3)), look)
    assert fault in verdict.faults, str(verdict)
