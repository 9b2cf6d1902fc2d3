"""Forecasts of private runs: they follow from the settings, and come true."""

import math
from dataclasses import replace

import pytest

from streamlda.private.budget import words_and_delta
from streamlda.private.plan import Plan, noise_of, noise_of_ratio
from streamlda.private.settings import PrivateSettings

SETTINGS = PrivateSettings(
    n_components=10,
    n_features=2000,
    epsilon=3.0,
    delta=1e-6,
    documents_per_snapshot=20_000,
    refinement_rounds=0,
)
#: The same with refined topics of common words.
REFINED = replace(SETTINGS, refinement_rounds=1)


def plan(records=20_000, **changes):
    return Plan.of(replace(SETTINGS, **changes), records)


def test_a_plan_is_of_the_stages_and_the_noise_that_the_run_has():
    found = plan(45_000)
    assert found.windows == 2
    assert sum(slots for _, slots in found.stages) == 20_000
    assert found.noise_multiplier == SETTINGS.noise_multiplier
    u = math.sqrt(2000) * SETTINGS.noise_multiplier / 20_000
    assert found.direction_noise == pytest.approx(u)
    assert found.topics_shown == pytest.approx(0.016 / u)
    assert Plan.of(SETTINGS, 45_000, words_records=10_000).windows == 1
    assert Plan.of(SETTINGS, 45_000, delta=2e-6).delta == 2e-6


def test_the_least_window_and_the_least_epsilon_just_show_all_topics():
    found = plan()
    assert "noise hides topics" in found.warnings[0]
    at = plan(found.least_records, documents_per_snapshot=found.least_records)
    assert at.topics_shown == 10
    assert at.warnings == plan(epsilon=found.least_epsilon).warnings == []
    assert "do not fill a window" in plan(documents_per_snapshot=found.least_records).warnings[0]
    below = plan(documents_per_snapshot=int(0.99 * found.least_records))
    assert below.topics_shown < 10
    assert plan(epsilon=found.least_epsilon / 1.06).topics_shown < 10
    # Settings of the largest epsilon are refused.
    assert 0.2 < plan(200_000, documents_per_snapshot=200_000, delta=1e-8).least_epsilon < 8


@pytest.mark.parametrize(("records", "least", "most"), [(2400, 80, 150), (20_000, 1400, 2200)])
def test_a_private_choice_of_words_is_expected_before_it_is_made(records, least, most):
    """Abstracts gave 117 and 1,526 (`private-words`)."""
    asked = replace(REFINED, n_features=8000, epsilon=1.0)
    choice = words_and_delta(1.0, 1e-6, "zero-out").selection
    found = Plan.of(asked, 20_000 + records, records, 1e-6, choice)
    assert least < found.words_chosen < most
    assert found.n_features == round(found.words_chosen)
    assert f"about {found.n_features:,} words chosen of 8,000" in str(found)
    assert "less than half of the words" in found.warnings[0]
    enough = Plan.of(replace(asked, n_features=200), 40_000, 20_000, 1e-6, choice)
    assert (enough.words_chosen, enough.words_wanted) == (200, 200)
    assert not any("private choice" in warning for warning in enough.warnings)
    assert plan().words_chosen is None
    few = Plan.of(asked, 20_250, 250, 1e-6, choice)
    assert few.forecast == "expected: no topics, from about 2 words"


def test_a_window_no_better_than_word_frequencies_is_warned_of():
    large = {"n_features": 8000, "epsilon": 1.0, "refinement_rounds": 1}
    found = plan(**large)
    assert found.word_noise == pytest.approx(8000 * found.noise_multiplier / 20_000)
    warning = found.warnings[-1]
    assert f"word_noise={found.word_noise:.3g}" in warning
    assert "privacy.public_model" in warning
    ratio = found.perplexity_over_frequencies
    assert 1.0 < ratio < 1.15
    assert f"with {ratio:.2f} times the perplexity of its word frequencies" in found.forecast
    assert plan().perplexity_over_frequencies is None
    # What it names is just enough.
    asked = found.word_noise / noise_of_ratio(1.0)
    records, words = round(20_000 * asked), round(8000 / asked)
    assert f"a window of {records:,} records, {words:,} words" in warning
    for change in (
        {"documents_per_snapshot": records + 50},
        {"n_features": words - 20},
        {"epsilon": 3.0},
        {"public_model": "5f"},
    ):
        assert not any("word_noise" in each for each in plan(10**5, **{**large, **change}).warnings)


@pytest.mark.parametrize(("delta", "warned"), [(1e-6, False), (1e-4, True)])
def test_a_delta_that_shows_whole_documents_is_warned_of(delta, warned):
    found = plan(delta=delta, n_components=2)
    assert any("delta is not far below" in warning for warning in found.warnings) is warned


def test_nothing_is_promised_that_cannot_be():
    far = plan(100, n_features=10_000, documents_per_snapshot=100)
    assert far.least_epsilon is None
    assert "epsilon" not in far.warnings[0].partition("would need")[2]


@pytest.mark.parametrize(
    "changes",
    [{"mode": "prefix", "snapshots": 3}, {"clipping": "worst-case"}, {"solver": "simultaneous"}],
)
def test_what_was_not_measured_is_not_expected(changes):
    found = plan(**changes)
    values = (found.topics_shown, found.least_records, found.least_epsilon)
    assert values == (None,) * 3
    assert "not known" in found.forecast


def test_noise_of_users_counts_all_their_documents():
    user = {"privacy_unit": "user", "documents_per_user": 5, "snapshots": 1}
    assert noise_of(replace(SETTINGS, **user)) > 5 * noise_of(SETTINGS)
