"""Attacks by one site of a tenth of the slots on a model: some are refused, some succeed.

It plants a topic of two words. The figures of the table in ``sites/README.md`` come from here:
measured values are compared with them.
"""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidSettingError
from streamlda.guarantee.noise import SeededNoise
from streamlda.simulate import PlantedLDA
from streamlda.sites.aggregate import aggregate
from streamlda.sites.poisoning import FAR, check_sums
from streamlda.sites.share import Share
from streamlda.sites.site import ShareAccumulator
from tests.sites.protocol import HUB, Sites

D, N, WEIGHT = 60, 9000, 0.1


def fakes(n):
    rows = np.zeros((n, D))
    rows[:, :2] = 20
    return DocumentBatch.from_matrix(rows)


def make_attack(change, config, this, documents):
    """Return what gives an accumulator its documents, and changes their sums."""

    def give(accumulator):
        accumulator.add(documents)
        fake = ShareAccumulator(this, config, "site0", 0, accumulator.last - accumulator.first)
        fake.add(fakes(fake.due))
        own, planted = accumulator.sums(), fake.sums()
        made = {name: change(name, own[name], planted[name]) for name in own}
        accumulator.sums = lambda: made

    return give


def kept_alone(times):
    """The attack: more fake documents than slots, of which the counts know nothing."""
    return lambda name, own, fake: own if name.endswith("_kept") else own + times * fake


def times_own(times):
    """Fake documents, counted, as many as these times the slots."""
    return lambda name, own, fake: np.rint(times * fake).astype(np.int64)


def in_place_of_others(part):
    """Take off a part of what the other sites are expected to have, and plant as much."""
    more = part * (1 / WEIGHT - 1)
    return lambda name, own, fake: np.rint(fake + more * (fake - own)).astype(np.int64)


def documents(seed, blanks=0.0):
    rows = PlantedLDA(3, D, mean_length=40, seed=3).documents(N).to_csr().toarray()
    rows[: int(blanks * N)] = 0
    np.random.default_rng(seed).shuffle(rows)
    return DocumentBatch.from_matrix(rows)


def learn_under_attack(tmp_path, attack, clipping="worst-case", blanks=0.0):
    changes = {"documents_per_snapshot": N, "n_components": 4, "n_features": D, "snapshots": 1}
    changes |= {"clipping": clipping, "delta": 1e-6}
    weights = [WEIGHT, 0.45, 0.45]
    with Sites.of(3, tmp_path, SeededNoise(5), weights, **changes) as sites:
        sites.documents = {name: documents(i, blanks) for i, name in enumerate(sites.sites)}
        this = sites.first
        while this is not None:
            own = make_attack(attack, sites.config, this, sites.documents["site0"])
            shares = [
                Share.load(sites.sites["site0"].make_share(this, own)),
                *(sites.share(name, this) for name in ("site1", "site2")),
            ]
            found = aggregate(sites.config, this, shares)
            this = None if found.next_round is None else found.next_round.sign(HUB)
        return found.model


def planted_topic(model):
    """Return the row of the planted topic, and its share of alpha: 0 if there is none."""
    mass = model.components[:, :2].sum(axis=1)
    row = int(mass.argmax())
    return row, float(model.alpha[row] / model.alpha.sum()) if mass[row] > 0.5 else 0.0


@pytest.mark.parametrize("clipping", ["worst-case", "quantile"])
@pytest.mark.parametrize("times", [1, 8])
def test_sums_that_the_counts_do_not_know_are_refused(tmp_path, clipping, times):
    with pytest.raises(InvalidSettingError, match="no sums of documents"):
        learn_under_attack(tmp_path, kept_alone(times), clipping)


@pytest.mark.parametrize("clipping", ["worst-case", "quantile"])
def test_more_documents_than_slots_and_blanks_are_refused(tmp_path, clipping):
    with pytest.raises(InvalidSettingError, match=r"do not cancel|sums of documents"):
        learn_under_attack(tmp_path, times_own(5.0), clipping)


@pytest.mark.parametrize(
    ("blanks", "times", "share"),
    [(0.0, 1.0, WEIGHT), (0.3, 3.5, 0.3)],
    ids=["its own slots", "and the blanks of others"],
)
def test_documents_that_are_counted_plant_no_more_than_their_slots(tmp_path, blanks, times, share):
    _, found = planted_topic(learn_under_attack(tmp_path, times_own(times), blanks=blanks))
    assert found == pytest.approx(share, abs=0.03)


def test_a_topic_in_place_of_others_passes_and_no_honest_site_has_it(tmp_path):
    """What masks leave: the page says it, and what every site can look at."""
    model = learn_under_attack(tmp_path, in_place_of_others(0.3))
    row, found = planted_topic(model)
    assert found == pytest.approx(0.31, abs=0.03)
    own = model.transform(documents(1).rows(0, 500)).mean(axis=0)
    assert own[row] < 0.01
    assert np.delete(own, row).min() > 0.1


@pytest.mark.statistical
@pytest.mark.parametrize("clipping", ["worst-case", "quantile"])
def test_checks_know_the_noise_of_the_sums(tmp_path, clipping):
    """Over noise alone, what is compared has the deviation that is allowed for, within a fifth.

    The standard deviation of 400 draws is off by a fifth with probability below 1e-7.
    """
    with Sites.of(2, tmp_path, clipping=clipping, documents_per_snapshot=N) as sites:
        this, settings = sites.first, sites.config.run_settings
        rng, seen = np.random.default_rng(1), {}
        for stage_name in ("norms", "pairs") if clipping == "quantile" else ("pairs",):
            learner, _ = this.open(sites.config)
            learner._begin_stage(stage_name)
            stage = learner.stage
            for _ in range(400):
                noise = {
                    block.name: rng.normal(0, stage.stddevs()[block.name], block.shape)
                    for block in stage.mechanism.blocks
                }
                for check in check_sums(this.number, settings, stage, noise):
                    if check.rule.endswith("over what is allowed"):
                        seen.setdefault(check.rule, []).append(check.found * FAR)
    for rule, found in seen.items():
        if "of the pairs," not in rule:
            assert 0.8 < np.sqrt(np.mean(np.square(found))) < 1.2, rule
    assert len(seen) == 3
