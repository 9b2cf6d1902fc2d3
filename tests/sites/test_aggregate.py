"""The aggregator: what it adds up, what it refuses by name, and what it says of a model."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.guarantee.noise import SeededNoise
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement, statement_lines
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.simulate import PlantedLDA
from streamlda.sites.aggregate import aggregate, make_statement
from streamlda.sites.federation import Member
from streamlda.sites.keys import SiteKey
from tests.privacy.chance import has_scale
from tests.sites.protocol import D, Sites, settings_of, shift, sign


@pytest.fixture(scope="module")
def shares(at_work):
    return at_work.shares(at_work.first)


def costly(sites, share, folder):
    with Sites(replace(sites.config, settings=settings_of(epsilon=5.0)), sites.keys, folder) as s:
        return s.share("site1", s.first)


ALTERED = ModelFileError, "as its site has signed it, got site="


def another(name):
    return InvalidSettingError, f"of another round, got differs={name!r} site="


#: Changes of one share: its number, the error, a part of its message, and what comes in its place.
CHANGED = {
    "numbers": (2, *ALTERED, lambda s, share, _: replace(share, arrays=shift(share, 1))),
    "a label": (0, *ALTERED, lambda s, share, _: replace(share, secure=False)),
    "another attempt": (
        *(0, *another("attempt")),
        lambda s, share, _: s.share("site0", s.again(s.first)),
    ),
    "other settings": (*(1, *another("config")), costly),
    "a missing block": (
        *(0, ModelFileError, "a block of its stage, got site="),
        lambda s, share, _: sign(s, share, arrays={"first": share.arrays["first"]}),
    ),
    "a mask of its own": (
        *(0, InvalidSettingError, "masks of all sites do not cancel"),
        lambda s, share, _: sign(s, share, arrays=shift(share, 2**61)),
    ),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_a_share_that_cannot_be_added_is_refused_by_name(at_work, this, shares, tmp_path, kind):
    number, error, message, change = CHANGED[kind]
    wrong = list(shares)
    wrong[number] = change(at_work, shares[number], tmp_path)
    named = f"{wrong[number].site!r}" if message.endswith("site=") else ""
    with pytest.raises(error, match=message + named):
        aggregate(at_work.config, this, wrong)
    # What was right before is right still.
    assert aggregate(at_work.config, this, shares).released


def test_every_site_must_have_one_share_in_any_order(at_work, this, shares):
    one, other = (aggregate(at_work.config, this, order) for order in (shares, shares[::-1]))
    assert one.next_round.digest == other.next_round.digest
    stranger = replace(shares[0], site="west")
    for given, message in (
        ([*shares, stranger], "got site='west' .* sites='site0, site1, site2'"),
        ([*shares, shares[1]], "has two shares in the round, got site='site1' round=1"),
        (shares[:2], "masks do not cancel, got sites='site2' round=1"),
        ([], "masks do not cancel, got sites='site0, site1, site2'"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            aggregate(at_work.config, this, given)


def test_members_are_known_by_their_keys_not_by_their_names(at_work, this, shares, tmp_path):
    """A stranger who calls himself site1 signs with other keys."""
    stranger, (one, own, other) = SiteKey.generate("site1"), at_work.config.members
    forged = replace(at_work.config, members=(one, Member(stranger.public, own.weight), other))
    keys = [at_work.keys[0], stranger, at_work.keys[2]]
    with Sites(forged, keys, tmp_path) as others:
        share = others.share("site1", others.first)
    with pytest.raises(ModelFileError, match="as its site has signed it, got site='site1'"):
        aggregate(at_work.config, this, [shares[0], share])


def blank_release(tmp_path, colluders=0, d=200, noise=None):
    """Return the releases of three sites whose documents are all blank: noise alone."""
    with Sites.of(3, tmp_path, noise, [0.2, 0.3, 0.5], colluders, n_features=d) as sites:
        blank = DocumentBatch.from_matrix(np.zeros((600, d)))
        sites.documents = dict.fromkeys(sites.documents, blank)
        return sites.config, sites.answer(sites.first)


@pytest.mark.statistical
@pytest.mark.parametrize("colluders", [0, 1])
def test_the_aggregate_has_the_noise_of_a_pooled_release_and_no_other(tmp_path, colluders):
    config, found = blank_release(tmp_path, colluders)
    pooled = PrivateLearner(config.settings, ReleaseManager(), vocabulary="public").stage
    times = np.sqrt(3 / (3 - colluders))
    for name in ("pair", "first"):
        stddev = pooled.stddevs()[name] * times
        assert found.stddevs[name] == pytest.approx(stddev, rel=1e-3)
    noise = found.released["pair"]
    assert noise.size == 200 * 201 // 2
    assert has_scale(noise, times * pooled.stddevs()["pair"], alarm=1e-9)
    assert found.model is None


def test_a_window_that_is_lost_in_noise_says_so_and_the_next_begins(tmp_path):
    # Of blank documents, noise leaves less than none in half of all draws.
    for seed in range(20):
        (tmp_path / f"{seed}").mkdir()
        config, found = blank_release(tmp_path / f"{seed}", d=10, noise=SeededNoise(seed))
        if found.missed is not None:
            break
    assert "noisy_number=" in found.missed
    assert found.model is None
    _, stage = found.next_round.open(config)
    assert stage.name == "pairs"
    assert found.next_round.number == 2


def learned(tmp_path, **changes):
    changes |= {"documents_per_snapshot": 6000, "n_components": 3, "snapshots": 2}
    planted = PlantedLDA(3, D, mean_length=40, seed=3)
    with Sites.of(3, tmp_path, None, [0.2, 0.3, 0.5], 1, **changes) as sites:
        sites.documents = {name: planted.documents(6000) for name in sites.documents}
        this, found = sites.first, []
        while this is not None:
            found.append(sites.answer(this))
            this = found[-1].next_round
    return sites.config, found, planted.components


@pytest.mark.long
@pytest.mark.usefixtures("same_noise")
def test_windows_of_all_stages_give_models_with_a_true_statement(tmp_path):
    config, found, truth = learned(tmp_path, clipping="quantile")
    stages = len(config.run_settings.stages)
    ends = [number % stages == 0 for number in range(1, 2 * stages + 1)]
    assert [result.model is not None for result in found] == ends
    assert [result.missed for result in found] == [None] * 2 * stages
    model = found[-1].model
    assert matched_l1_error(truth, model.components).mean < 0.3
    assert model.vocabulary == config.vocabulary
    assert model.settings["epsilon"] == config.settings.epsilon
    said = model.privacy
    check_statement(said)
    assert make_statement(config, None, secure=False) == {"statement": "not private (seeded)"}
    assert (said["epsilon"], said["delta"]) == (config.settings.epsilon, config.settings.delta)
    assert said["sites"] == {
        "n_sites": 3,
        "colluders": 1,
        "roster": config.digest,
        "epsilon_against": [config.epsilon_against(c) for c in range(3)],
    }
    against = config.epsilon_against(1)
    assert f"a document of another has epsilon {against:g}." in said["mechanism"]
    assert said["cohort"] == {"first": 6000, "last": 11_999}
    assert said["noise_multiplier"] >= config.noise_multiplier * np.sqrt(1.5) * (1 - 1e-12)
    assert any("one at each site" in line for line in statement_lines(said))
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").privacy == said
