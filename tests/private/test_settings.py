"""Settings and budget of private runs: what follows, what is refused, and their digest."""

import math
from dataclasses import asdict, replace
from functools import partial

import pytest

from streamlda.errors import InvalidSettingError
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Composed, event_of_selection
from streamlda.privacy.ledger.terms import NOTHING
from streamlda.private.budget import ledger_terms, words_and_delta
from streamlda.private.release_manager import config_hash
from streamlda.private.settings import PrivateSettings
from tests.corpora import batch_of
from tests.private.streams import Run, settings_of

config_of = partial(settings_of, n_features=6)
USERS = {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 2}
PREFIX = {"mode": "prefix", "snapshots": 3}
POWER = {"solver": "noisy-power"}
REFINED = {"refinement_rounds": 1}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clipping": ClipBounds(0.6, 0.4, 5.0, "fixed")},
        {**USERS, "epsilon": 25.0, "delta": 1e-2},
        {**REFINED, "documents_per_snapshot": 3000},
        {**POWER, "n_iterations": 2, "n_restarts": 2, "documents_per_snapshot": 4000},
    ],
)
def test_a_digest_tells_settings_apart_but_not_seeds(options):
    values = {"n_components": 3, "n_features": 20, "documents_per_snapshot": 1000, **options}
    digest = config_hash(config_of(**values), "public")
    assert config_hash(config_of(**values, seed=9), "public") == digest
    assert config_hash(config_of(**{**values, "n_features": 21}), "public") != digest
    assert config_hash(config_of(**values), "hashed") != digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents_per_snapshot": 99}, "documents_per_snapshot must be .* >= 100"),
        # Single precision must not lose what a round of refinement starts from.
        ({"alpha_0": 1e-7}, "alpha_0 must lie in 1e-06..1e"),
        ({"privacy_unit": "household"}, "privacy_unit must be one of document, user"),
        ({"mode": "binary tree"}, "mode must be one of window, prefix"),
        # Before a window is paid for, whose rounds cannot be released.
        (
            {"mode": "prefix", "epsilon": 8.0, "documents_per_snapshot": 3_000_000},
            r"over 2\^61 steps",
        ),
        ({"documents_per_user": 3}, "None for documents"),
        ({**USERS, "documents_per_user": None}, "documents_per_user must be a number for users"),
        ({**USERS, "snapshots": None}, "snapshots must be a number"),
        ({"snapshots": 0}, "snapshots must be .* >= 1, got snapshots=0"),
        ({"clipping": "none"}, "clipping must be quantile, worst-case or ClipBounds"),
        ({"delta": 1e-15}, "delta must be at least ten times"),
        ({"neighboring_relation": "swap"}, "relation"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"solver": "magic"}, "solver='magic'"),
        ({**POWER, "n_restarts": 0}, "n_restarts=0"),
        ({**POWER, "n_iterations": 0}, "n_iterations=0"),
        ({**POWER, "documents_per_snapshot": 100, "n_iterations": 30}, "slots=0 rounds=62"),
        ({"refinement_rounds": -1}, "refinement_rounds=-1"),
        ({"refinement_rounds": 2}, "refinement_rounds=2"),
        ({**POWER, "refinement_rounds": 1}, "cannot follow a power method"),
        ({**PREFIX, "refinement_rounds": 1}, "unless the mode is window"),
        *(
            ({"public_model": "0" * 64, **more}, "a public model begins only windows")
            for more in ({"clipping": "worst-case"}, {"solver": "simultaneous"}, PREFIX)
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(InvalidSettingError, match=message):
        config_of(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_features": 6},
        {"clipping": "worst-case"},
        PREFIX,
        {**PREFIX, "snapshots": None, "epsilon": 9.0},
    ],
)
def test_delta_pays_for_the_distance_of_the_noise_in_all_blocks_of_a_stage(options):
    config = config_of(**{"n_features": 30, "n_components": 2, **options})
    paid, own, start, needed = config.delta - config.delta_left, Run(config), 0, {}
    batch = batch_of([[n % 6, n % 5, 3, 4] for n in range(1200)], config.n_features)
    while start < batch.n_documents:
        stage = own.learner.stage
        needed[stage.name] = (1 + math.exp(config.epsilon)) * stage.mechanism.tv_distance_bound
        assert config.event.tv_distance >= stage.mechanism.tv_distance_bound
        start += own.learner.add(batch.rows(start, batch.n_documents))
        own.settle()
    assert {"pairs", "triples"} <= needed.keys()
    assert max(needed.values()) <= paid
    assert ("prefix" in needed) == (config.mode == "prefix")


def test_saved_settings_are_restored_and_compared():
    config = config_of(clipping=ClipBounds(0.6, 0.4, 5.0, "fixed"))
    values = {**asdict(config), "epsilon": 3.0, "later": 1}
    assert PrivateSettings.of(asdict(config)) == config
    assert config.list_differences(asdict(config)) == []
    assert config.list_differences(values) == ["epsilon=20.0 (saved: 3.0)", "later=None (saved: 1)"]
    assert replace(config, alpha_0=None).working_alpha_0 == config.working_alpha_0 == 1.0


@pytest.mark.parametrize("epsilon", [0.1, 8.0])
@pytest.mark.parametrize("delta", [1e-7, 1e-6])
def test_terms_cover_every_number_of_words_and_topics_and_the_choice(epsilon, delta):
    choice = words_and_delta(epsilon, delta, "zero-out")
    numbers = {"epsilon": epsilon, "delta": choice.delta, "documents_per_snapshot": 1000}
    made = [
        config_of(**numbers, n_features=d, n_components=K, **more)
        for d, K in ((3, 3), (900, 3), (900, 20), (1025, 5))
        for more in ({}, {"solver": "simultaneous"}, REFINED)
    ]
    (terms,) = {ledger_terms(settings, choice) for settings in made}
    assert terms.delta == delta
    (alone,) = {ledger_terms(replace(settings, delta=delta)) for settings in made}
    assert alone == terms
    assert len({settings.event for settings in made}) > 3
    for settings in made:
        # The whole delta, and no more than is needed for what is drawn.
        own = replace(settings, delta=delta)
        assert terms.covers(terms.price(cost(own.event)))
        dearer = replace(own.event, tv_distance=own.event.tv_distance * (1 + 1e-3) + 1e-4 * delta)
        assert not terms.covers(terms.price(cost(dearer)))
    assert terms.covers(terms.price(cost(event_of_selection(choice.selection))))


def allows(spent, price):
    """As a ledger does: no price may set more aside for each mu^2 than the first."""
    return not spent.mu_squared or price.rate <= spent.rate


def test_a_window_of_users_is_paid_to_its_end():
    """Each release by itself, whatever is set aside; and not one more."""
    for changes in ({}, {"epsilon": 9.0, "n_features": 8000, "n_components": 20, "delta": 3e-6}):
        settings = config_of(**{"epsilon": 1.0, "delta": 1e-6, **USERS, **changes})
        terms = ledger_terms(settings)
        price, spent = terms.price(cost(settings.event)), NOTHING
        for _ in range(settings.n_stages * settings.snapshots):
            assert allows(spent, price)
            spent = spent.plus(price)
            assert terms.covers(spent)
        assert not terms.covers(spent.plus(price))
        assert not allows(spent, terms.price(cost(replace(settings, n_features=9000).event)))
        assert allows(spent, terms.price(cost(replace(settings, n_features=6).event)))
        assert allows(spent, terms.price(cost(Composed([settings.event] * 7))))
