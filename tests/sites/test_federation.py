"""The federation config: rules, digest, slots of sites, and how much noise hides from whom."""

import json
import math
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.guarantee.accounting import delta_of, mu_of
from streamlda.guarantee.noise import Noise
from streamlda.papers.imtiaz_sarwate.cape import CapePlan
from streamlda.privacy.costs import cost
from streamlda.private.learner import PrivateLearner
from streamlda.private.stage import joint_mechanism
from streamlda.sites import federation
from streamlda.sites.federation import MAX_EPSILON_ALONE, FederationConfig, check_alone, describe
from streamlda.sites.keys import SiteKey
from streamlda.text.vocabulary import Vocabulary
from tests.sites.protocol import config_of, keys_of, settings_of, words_of

KEYS = keys_of(8)
LEARNED = Vocabulary.learn(["aa bb cc"] * 9, size=3)


@st.composite
def configs(draw):
    n = draw(st.integers(2, 8))
    parts = draw(st.lists(st.integers(1, 20), min_size=n, max_size=n))
    settings = settings_of(
        epsilon=draw(st.floats(0.05, 8)),
        delta=draw(st.sampled_from([1e-5, 1e-7])),
        documents_per_snapshot=draw(st.integers(20_000, 200_000)),
        clipping=draw(st.sampled_from(["quantile", "worst-case"])),
    )
    weights = [part / sum(parts) for part in parts]
    return config_of(KEYS[:n], settings, weights, draw(st.integers(0, n - 1)))


#: A config looks for its epsilon, tens of milliseconds.
few = hypothesis.settings(max_examples=25)


@few
@given(configs())
def test_the_aggregate_has_the_noise_of_a_pooled_release_for_any_split(config):
    """Within 1 % in variance; with t colluders, the noise of any S - t sites has."""
    S, t = len(config.members), config.colluders
    settings = config.run_settings
    stage = PrivateLearner(settings).stage
    pooled = joint_mechanism(
        stage.statistics, stage.slots_left, config.settings, config.settings.noise_multiplier
    )
    for name, stddev in stage.mechanism.stddevs.items():
        local = stddev**2 / len(config.members)
        assert S * local == pytest.approx(S / (S - t) * pooled.stddevs[name] ** 2, rel=0.01)
        assert (S - t) * local >= pooled.stddevs[name] ** 2 * (1 - 1e-9)


@few
@given(configs())
def test_the_promise_holds_with_the_exactness_of_all_sites_counted(config):
    settings, S = config.settings, len(config.members)
    times = math.sqrt(S / (S - config.colluders))
    assert config.run_settings.noise_multiplier >= config.noise_multiplier * times
    mu = times / config.run_settings.noise_multiplier
    stage = PrivateLearner(config.run_settings).stage
    cells = sum(block.cells for block in stage.mechanism.blocks)
    lost = S * cells * Noise.tv_distance_bound * (1 + math.exp(settings.epsilon))
    assert delta_of(mu, settings.epsilon) + lost <= settings.delta
    assert config.event.event.noise_multiplier >= 1 / mu_of(settings.epsilon, settings.delta)
    assert config.event.tv_distance >= 2 * S * cells * Noise.tv_distance_bound
    terms = config.ledger_terms
    assert terms.delta == settings.delta
    assert terms.covers(terms.price(cost(config.event)))


@few
@given(configs(), st.integers(1, 10**6))
def test_slots_are_allocated_whole_and_by_weight(config, slots):
    dealt = config.allocate(slots)
    assert list(dealt) == list(config.names)
    assert sum(dealt.values()) == slots
    for member in config.members:
        assert abs(dealt[member.name] - member.weight * slots) <= 1 + 1e-6


@pytest.mark.parametrize("colluders", range(5))
def test_losses_are_those_of_a_plan_whose_adversary_is_derived(colluders):
    """`tests.papers.imtiaz_sarwate.test_cape` derives the plan's from covariances."""
    weights = [0.05, 0.1, 0.2, 0.4, 0.25]
    config = config_of(KEYS[:5], weights=weights, colluders=colluders)
    z = config.noise_multiplier
    plan = CapePlan(tuple(weights), tuple(z / weight for weight in weights), colluders)
    assert config.run_settings.noise_multiplier == pytest.approx(plan.aggregate, rel=1e-6)
    for c in range(5):
        assert plan.losses(c) == pytest.approx([config.loss_factor(c)] * 5)


@pytest.mark.parametrize(
    ("sites", "colluders", "changes", "allowed"),
    [
        (3, 0, {}, True),
        (7, 0, {}, True),
        (8, 0, {}, False),
        (8, 1, {}, True),
        (8, 7, {"epsilon": 3.0}, True),
        # The attack: epsilon that promises nothing, or a small one beside a large delta.
        (3, 2, {"epsilon": 20.0, "delta": 0.01}, False),
        (3, 2, {"epsilon": 2.0, "delta": 0.02}, False),
    ],
)
def test_what_a_site_has_alone_is_within_the_default(sites, colluders, changes, allowed):
    settings = settings_of(**({"epsilon": 1.0, "delta": 1e-6} | changes))
    config = config_of(keys_of(sites), settings, colluders=colluders)
    found = config.epsilon_alone
    assert (found is not None and found <= MAX_EPSILON_ALONE) == allowed
    if allowed:
        check_alone(config, MAX_EPSILON_ALONE)
        mu = math.sqrt(sites - colluders) / config.noise_multiplier
        assert delta_of(mu, found) <= config.alone_delta
    else:
        with pytest.raises(InvalidSettingError, match="does not keep max_epsilon_alone"):
            check_alone(config, MAX_EPSILON_ALONE)


def test_the_table_of_the_page_is_true():
    page = Path(federation.__file__).with_name("README.md").read_text("utf-8")
    table = page.split("<!-- table: colluders -->")[1].split("<!-- /table -->")[0]
    rows = [line.strip("| ").split("|") for line in table.strip().splitlines()[2:]]
    settings = settings_of(epsilon=1.0, delta=1e-6)
    assert len(rows) == 5
    for t, row in enumerate(rows):
        config = config_of(KEYS[:5], settings, colluders=t)
        noise = config.run_settings.noise_multiplier / settings.noise_multiplier
        found = [t, noise, *(config.epsilon_against(c) for c in range(5))]
        assert [float(cell) for cell in row] == pytest.approx(found, abs=0.006)


def test_a_config_is_read_as_written(tmp_path):
    hashed = settings_of(n_features=64)
    for config in (
        config_of(KEYS[:3], colluders=1, weights=[0.2, 0.3, 0.5]),
        config_of(KEYS[:2], hashed, vocabulary=Vocabulary.hashed(6)),
    ):
        config.save(tmp_path / "config")
        found = FederationConfig.load(tmp_path / "config")
        assert found == config
        assert found.digest == config.digest
        assert found.run_settings == config.run_settings


@pytest.mark.parametrize("label", ["a\ndigest       00", "\x1b[2Jx", "\u202etopics", "x" * 201, 7])
def test_a_label_cannot_change_what_sites_see_before_they_sign(label):
    """The attack: a label that clears the terminal, or has lines of its own."""
    config = config_of(KEYS[:3])
    with pytest.raises(InvalidSettingError, match="label is not one line"):
        replace(config, label=label)
    shown = describe(replace(config, label="Themen, \u00f6ffentlich"))
    assert len(shown) == len(describe(config))


def test_whatever_is_changed_shows_in_the_digest_but_the_order_of_sites():
    weights = [0.2, 0.3, 0.5]
    one, other = config_of(KEYS[:3], None, weights), config_of(KEYS[2::-1], None, weights[::-1])
    assert one.digest == other.digest
    assert one.names == ("site0", "site1", "site2")
    config = config_of(KEYS[:3])
    others = [
        replace(config, label="another"),
        replace(config, colluders=1),
        replace(config, aggregator=KEYS[0].public),
        replace(config, settings=settings_of(seed=1)),
        replace(config, settings=settings_of(epsilon=4.5)),
        config_of(KEYS[:3], weights=[0.3, 0.3, 0.4]),
        config_of(KEYS[1:4]),
        replace(config, vocabulary=words_of(30, "v")),
    ]
    assert len({made.digest for made in (config, *others)}) == 1 + len(others)


def two(**changes):
    return config_of(KEYS[:2], settings_of(**changes))


def twins():
    keys, other = SiteKey.generate("site8"), SiteKey.generate("site9")
    other.public = replace(keys.public, name="site9")
    return [keys, other]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: config_of(KEYS[:2], weights=[1.0, 0.0]), "weight is not between 0 and 1"),
        (lambda: config_of(KEYS[:2]).loss_factor(2), "colluders=2"),
        (lambda: config_of(KEYS[:2], weights=[0.5, 0.6]), "do not sum to 1"),
        (lambda: config_of(KEYS[:1]), "fewer than two sites"),
        (lambda: config_of(KEYS[:2], colluders=2), "colluders=2 sites=2"),
        (
            lambda: config_of([KEYS[0], KEYS[0]]),
            "the same name or key, got same='name' value='site0'",
        ),
        (lambda: config_of(KEYS[:2], aggregator=SiteKey.generate("site0").public), "same='name'"),
        (lambda: config_of(twins()), "same='signing'"),
        (lambda: two(mode="prefix", snapshots=3), "got .*mode='prefix'"),
        (
            lambda: two(privacy_unit="user", documents_per_user=1, snapshots=1),
            "got privacy_unit='user'",
        ),
        (lambda: two(public_model="0" * 64, clipping="quantile"), "public_model='0000"),
        (lambda: two(solver="online-power", documents_per_snapshot=9000), "solver='online-power'"),
        (lambda: config_of(KEYS[:2], vocabulary=words_of(29)), "words=29 n_features=30"),
        (lambda: config_of(KEYS[:2], settings_of(n_features=3), vocabulary=LEARNED), "'learned'"),
        (
            lambda: config_of(KEYS[:2], weights=[0.999, 0.001]),
            "no slot in a stage, got site='site1'",
        ),
        (lambda: config_of(KEYS[:2]).member("west"), "got site='west' .* sites='site0, site1'"),
        (lambda: config_of(KEYS, settings_of(epsilon=23.0, delta=1e-4)), "100 times"),
    ],
)
def test_bad_configs_are_refused(change, message):
    with pytest.raises(InvalidSettingError, match=message):
        change()


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values.pop("sites"),
        lambda values: values.update(format="other"),
        lambda values: values["sites"][0].update(weight="much"),
        lambda values: values["vocabulary"]["words"].reverse(),
        lambda values: values["settings"].update(epsilon=-1),
        lambda values: values.update(unknown=1),
        lambda values: values["sites"][0].update(trusted=True),
        lambda values: values["sites"][0]["key"].update(signing="01" + "00" * 31),
    ],
)
def test_damaged_config_files_are_refused(tmp_path, damage):
    path = tmp_path / "config"
    config_of(KEYS[:2]).save(path)
    values = json.loads(path.read_text())
    damage(values)
    path.write_text(json.dumps(values))
    with pytest.raises(ModelFileError, match="a federation config is not whole"):
        FederationConfig.load(path)
