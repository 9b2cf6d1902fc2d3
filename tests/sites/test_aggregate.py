"""The aggregator: what it adds up, what it refuses by name, and what it says of a model."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.noise import SeededNoise
from streamlda.privacy.statement import check_statement, statement_lines
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.simulate import PlantedLDA
from streamlda.sites import site as site_module
from streamlda.sites.aggregate import aggregate
from streamlda.sites.roster import Member
from streamlda.sites.rounds import Round
from streamlda.text.vocabulary import Vocabulary
from tests.sites.protocol import D, Sites, keys_of, roster_of, settings_of

#: False-alarm rate of a statistical test. Noise is `SecureNoise`: no seed was picked.
ALARM = 1e-6


@pytest.fixture
def at_work(tmp_path):
    keys = keys_of(3)
    with Sites(roster_of(keys, weights=[0.2, 0.3, 0.5]), keys, tmp_path) as sites:
        yield sites


def signed(sites, share, **changes):
    """Return a share that its own site has made otherwise."""
    made = replace(share, **changes)
    keys = {k.public.name: k for k in sites.keys}[share.site]
    return replace(made, signature=keys.sign(made.content))


def other_words():
    return Vocabulary.given(f"v{i:03d}" for i in range(D))


def from_roster(sites, tmp_path, **changes):
    """Return a share of site1 that was made under another roster."""
    other = replace(sites.roster, **changes)
    (tmp_path / "other").mkdir()
    with Sites(other, sites.keys, tmp_path / "other") as others:
        return others.share("site1", Round.first(other))


REFUSED = {
    "an unknown site": (
        lambda s, this, shares, tmp: [*shares, replace(shares[0], site="west")],
        InvalidSettingError,
        "got site='west' .* sites=site0, site1, site2",
    ),
    "a share sent twice": (
        lambda s, this, shares, tmp: [*shares, shares[1]],
        InvalidSettingError,
        "got two of site='site1' round=1",
    ),
    "altered numbers": (
        lambda s, this, shares, tmp: [
            *shares[:2],
            replace(shares[2], arrays={k: v + np.uint64(1) for k, v in shares[2].arrays.items()}),
        ],
        ModelFileError,
        "as its site has signed it, got another: site='site2'",
    ),
    "an altered label": (
        lambda s, this, shares, tmp: [replace(shares[0], secure=False), *shares[1:]],
        ModelFileError,
        "got another: site='site0'",
    ),
    "another site's name": (
        lambda s, this, shares, tmp: [replace(shares[0], site="site1"), *shares[1:]],
        ModelFileError,
        "got another: site='site1'",
    ),
    "another round": (
        lambda s, this, shares, tmp: [signed(s, shares[0], round=2), *shares[1:]],
        InvalidSettingError,
        "got site='site0' round=2 expected=1",
    ),
    "another attempt": (
        lambda s, this, shares, tmp: [s.share("site0", this.again()), *shares[1:]],
        InvalidSettingError,
        "got site='site0' attempt=2 expected=1",
    ),
    "another vocabulary": (
        lambda s, this, shares, tmp: [
            shares[0],
            from_roster(s, tmp, vocabulary=other_words()),
            shares[2],
        ],
        InvalidSettingError,
        "got site='site1' vocabulary=",
    ),
    "another configuration": (
        lambda s, this, shares, tmp: [
            shares[0],
            from_roster(s, tmp, settings=settings_of(epsilon=3.0)),
            shares[2],
        ],
        InvalidSettingError,
        "got site='site1' settings=",
    ),
    "another study": (
        lambda s, this, shares, tmp: [shares[0], from_roster(s, tmp, label="b"), shares[2]],
        InvalidSettingError,
        "got site='site1' roster=",
    ),
    "a missing site": (
        lambda s, this, shares, tmp: shares[:2],
        InvalidSettingError,
        "got none of site=site2 round=1",
    ),
    "all sites missing": (
        lambda s, this, shares, tmp: [],
        InvalidSettingError,
        "got none of site=site0, site1, site2",
    ),
    "a missing block": (
        lambda s, this, shares, tmp: [
            signed(s, shares[0], arrays={"first": shares[0].arrays["first"]}),
            *shares[1:],
        ],
        ModelFileError,
        "blocks of its stage, got site='site0'",
    ),
    "a mask of its own": (
        lambda s, this, shares, tmp: [
            signed(
                s,
                shares[0],
                arrays={k: v + np.uint64(2**61) for k, v in shares[0].arrays.items()},
            ),
            *shares[1:],
        ],
        InvalidSettingError,
        "masks of all sites must cancel",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_added_up_is_refused_by_name(at_work, tmp_path, kind):
    change, error, told = REFUSED[kind]
    this = Round.first(at_work.roster)
    shares = at_work.shares(this)
    wrong = change(at_work, this, list(shares), tmp_path)
    with pytest.raises(error, match=told):
        aggregate(at_work.roster, this, wrong)
    # What was right before is right still.
    assert aggregate(at_work.roster, this, shares).released


def test_a_round_of_another_roster_is_refused(at_work):
    this = Round.first(at_work.roster)
    shares = at_work.shares(this)
    other = replace(at_work.roster, label="b")
    with pytest.raises(InvalidSettingError, match="got site='site0' roster="):
        aggregate(other, Round.first(other), shares)
    with pytest.raises(InvalidSettingError, match="must be one of this round"):
        aggregate(at_work.roster, this.again(), shares)


def variance_p_value(noise, stddev):
    statistic = float(np.sum(np.square(noise)) / stddev**2)
    return 2 * min(chi2.cdf(statistic, noise.size), chi2.sf(statistic, noise.size))


def blank_release(tmp_path, colluders=0, d=200, noise=None):
    """Return the releases of three sites whose documents are all blank: noise alone."""
    keys = keys_of(3)
    roster = roster_of(keys, settings_of(n_features=d), [0.2, 0.3, 0.5], colluders)
    with Sites(roster, keys, tmp_path, noise) as sites:
        for name in sites.documents:
            sites.documents[name] = DocumentBatch.from_matrix(np.zeros((600, d)))
        return roster, sites.answer(Round.first(roster))


@pytest.mark.statistical
@pytest.mark.parametrize("colluders", [0, 1])
def test_the_aggregate_has_the_noise_of_a_pooled_release_and_no_other(tmp_path, colluders):
    roster, found = blank_release(tmp_path, colluders)
    pooled = PrivateLearner(roster.settings, ReleaseManager(), vocabulary="public").engine.stage
    times = np.sqrt(3 / (3 - colluders))
    for name in ("pair", "first"):
        stddev = pooled.stddevs()[name] * times
        assert found.stddevs[name] == pytest.approx(stddev, rel=1e-3)
    noise, stddev = found.released["pair"], pooled.stddevs()["pair"] * times
    assert noise.size == 200 * 201 // 2
    assert variance_p_value(noise, stddev) > ALARM
    for wrong in (2 / 3, 3 / 2):
        assert variance_p_value(noise, stddev * wrong) < ALARM
    assert found.model is None


@pytest.mark.statistical
def test_noise_that_one_site_leaves_out_is_found(tmp_path, monkeypatch):
    original, calls = site_module.local_noise, []

    def forgetful(mechanism, noise, variance_share):
        calls.append(variance_share)
        drawn = original(mechanism, noise, variance_share)
        return {name: 0 * y for name, y in drawn.items()} if len(calls) == 2 else drawn

    monkeypatch.setattr(site_module, "local_noise", forgetful)
    _, found = blank_release(tmp_path)
    assert calls == [1 / 3] * 3
    assert variance_p_value(found.released["pair"], found.stddevs["pair"]) < ALARM
    left = found.stddevs["pair"] * np.sqrt(2 / 3)
    assert variance_p_value(found.released["pair"], left) > ALARM


def test_a_window_that_is_lost_in_noise_says_so_and_the_next_begins(tmp_path):
    # Of blank documents, noise leaves less than none in half of all draws.
    for seed in range(20):
        (tmp_path / f"{seed}").mkdir()
        roster, found = blank_release(tmp_path / f"{seed}", d=10, noise=SeededNoise(seed))
        if found.missed is not None:
            break
    assert "noisy_number=" in found.missed
    assert found.model is None
    _, stage = found.next_round.open(roster)
    assert stage.name == "pairs"
    assert found.next_round.number == 2


def learned(tmp_path, noise=None, **changes):
    """Return the roster, what every round gave, and the topics that were planted."""
    keys = keys_of(3)
    asked = settings_of(documents_per_snapshot=6000, n_components=3, snapshots=2, **changes)
    roster = roster_of(keys, asked, [0.2, 0.3, 0.5], colluders=1)
    planted = PlantedLDA(3, D, mean_length=40, seed=3)
    with Sites(roster, keys, tmp_path, noise) as sites:
        sites.documents = {name: planted.documents(6000) for name in sites.documents}
        this, found = Round.first(roster), []
        while this is not None:
            found.append(sites.answer(this))
            this = found[-1].next_round
    return roster, found, planted.components


def test_windows_of_all_stages_give_models_with_a_true_statement(tmp_path):
    roster, found, truth = learned(tmp_path, clipping="quantile")
    stages = len(roster.run_settings.stages)
    ends = [number % stages == 0 for number in range(1, 2 * stages + 1)]
    assert [result.model is not None for result in found] == ends
    assert [result.missed for result in found] == [None] * 2 * stages
    model = found[-1].model
    assert matched_l1_error(truth, model.components).mean < 0.3
    assert model.vocabulary == roster.vocabulary
    assert model.settings["epsilon"] == roster.settings.epsilon
    said = model.privacy
    check_statement(said)
    assert (said["epsilon"], said["delta"]) == (roster.settings.epsilon, roster.settings.delta)
    assert said["sites"]["n_sites"] == 3
    assert said["sites"]["colluders"] == 1
    assert said["sites"]["roster"] == roster.digest
    assert said["sites"]["epsilon_against"] == [roster.epsilon_against(c) for c in range(3)]
    against = roster.epsilon_against(1)
    assert f"a document of another has epsilon {against:g}." in said["mechanism"]
    assert said["cohort"] == {"first": 6000, "last": 11_999}
    assert said["noise_multiplier"] >= roster.noise_multiplier * np.sqrt(1.5) * (1 - 1e-12)
    assert any("one at each site" in line for line in statement_lines(said))
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").privacy == said


def test_seeded_noise_makes_a_model_that_promises_nothing(tmp_path):
    _, found, _ = learned(tmp_path, SeededNoise(5))
    assert found[1].model.privacy == {"statement": "not private (seeded)"}


def test_anybody_can_repeat_what_the_aggregator_does(at_work):
    this = Round.first(at_work.roster)
    shares = at_work.shares(this)
    one, other = (aggregate(at_work.roster, this, order) for order in (shares, shares[::-1]))
    assert one.next_round.digest == other.next_round.digest


def test_members_are_known_by_their_keys_not_by_their_names(at_work, tmp_path):
    """A stranger who calls himself site1 signs with other keys."""
    strangers = keys_of(3)
    this = Round.first(at_work.roster)
    member = Member(strangers[1].public, 0.3)
    members = (at_work.roster.members[0], member, at_work.roster.members[2])
    forged = replace(at_work.roster, members=members)
    (tmp_path / "forged").mkdir()
    keys = [at_work.keys[0], strangers[1], at_work.keys[2]]
    with Sites(forged, keys, tmp_path / "forged") as others:
        share = others.share("site1", Round.first(forged))
    with pytest.raises(ModelFileError, match="got another: site='site1'"):
        aggregate(at_work.roster, this, [*at_work.shares(this)[:1], share])
