"""Whole federations against an aggregator that knows all records but a canary of one site.

Two sites, each with a ledger, keys and records of its own, make all rounds of a window; the
aggregator has the sum of their shares in each. How it is judged, false alarms and power:
`tests.private.pipelines` and `tests.private.test_pipelines`.
"""

from functools import cached_property

import pytest

from streamlda.private.learner import PrivateLearner
from streamlda.sites import site as site_module
from streamlda.text.vocabulary import Vocabulary
from tests.private.audit import Release
from tests.private.pipelines import CLAIM, DELTA, EPSILON, Canary, Run, Scene, audit
from tests.private.test_pipelines import PAIRS, SLOTS, WORDS, only, records
from tests.sites.protocol import Sites, config_of, keys_of, settings_of

pytestmark = pytest.mark.statistical

N_SITES = 2


class Federation(Scene):
    """Records of all sites: those of a stage together, site after site."""

    @cached_property
    def vocabulary(self):
        return Vocabulary.given(WORDS)

    def prepared(self, folder):
        return _config(self.flags).run_settings

    def perform(self, present, folder):
        folder.mkdir()
        texts, releases = self.records(present), []
        with Sites.of(N_SITES, folder, **self.flags) as sites:
            config = sites.config
            own, at = {name: [] for name in config.names}, 0
            for _, first, last in config.run_settings.stage_slots():
                for name, slots in config.allocate(last - first).items():
                    own[name] += texts[at : at + slots]
                    at += slots
            sites.documents = {name: self.batch(part) for name, part in own.items()}
            this, found = sites.first, None
            while this is not None and (found is None or found.missed is None):
                found = sites.answer(this)
                released = found.released
                releases.append(Release(this.stage, released, released, found.stddevs))
                this = found.next_round
        return Run(releases, _published(found.model))

    def reenact(self, prepared, texts, releases, *, to_the_end=True):
        learner, at = PrivateLearner(prepared), 0
        sums = []
        for release in releases:
            stop = at + learner.stage.slots_left
            if any(texts[at:stop]):
                learner.add(self.batch(texts[at:stop]))
            else:
                learner.skip(stop - at)
            at = stop
            stage = learner.stage
            sums.append(stage.mechanism.from_grid(stage.state()))
            if release is releases[-1] and not to_the_end:
                break
            learner.accept(release.arrays)
            if learner.private.missed:
                break
        return sums, None if learner.last is None else _published(learner.last.topics)

    def batch(self, texts):
        return self.vocabulary.encode(texts).batch


def _published(found):
    if found is None:
        return None
    return [a.tobytes() for a in (found.components, found.alpha, found.prevalence)]


def _config(flags):
    return config_of(keys_of(N_SITES), settings_of(**flags))


def federation(*, of_each_word=False):
    flags = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "n_features": len(WORDS),
        "documents_per_snapshot": SLOTS,
        "snapshots": 1,
    }
    config, canaries, at = _config(flags), [], 0
    for name, first, last in config.run_settings.stage_slots():
        slots = config.allocate(last - first)[config.names[0]]
        canaries.append(Canary(name, (at + slots - 1,), only(WORDS[0])))
        if name == "pairs":
            words = enumerate(WORDS[1:], at)
            canaries += [Canary(word, (i,), only(word)) for i, word in words if of_each_word]
        at += last - first
    return Federation(flags, tuple(records(SLOTS)), tuple(canaries))


@pytest.mark.soak
def test_whole_federations_give_away_what_is_claimed(folder):
    scene = federation(of_each_word=True)
    verdict = audit(scene, 2 * -(-PAIRS // len(scene.canaries)), folder)
    print(f"sites\n{verdict}")
    assert not verdict.faults, str(verdict)
    assert max(each.noise for each in verdict.findings.values()) > 0.75 * CLAIM, str(verdict)


def test_some_federations_show_no_gross_fault(folder):
    verdict = audit(federation(), 6, folder, echoes=False)
    assert not verdict.faults, str(verdict)
    assert all(each.reach > 0.85 * CLAIM for each in verdict.findings.values()), str(verdict)


def test_sites_with_half_of_their_noise_are_found(folder, monkeypatch):
    original = site_module.draw_local_noise

    def draw_local_noise(mechanism, noise, variance_fraction):
        return original(mechanism, noise, variance_fraction / 4)

    monkeypatch.setattr(site_module, "draw_local_noise", draw_local_noise)
    verdict = audit(federation(), 4, folder, echoes=False)
    assert "pairs (1) pair: quiet" in verdict.faults, str(verdict)
