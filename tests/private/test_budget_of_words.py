"""The budget of a private run whose words are chosen privately."""

import math
from dataclasses import replace

import pytest

from streamlda.privacy.accounting import cost
from streamlda.privacy.selection import calibrate_selection
from streamlda.private.budget import WORDS_FRACTION, for_fewer_words, ledger_terms
from streamlda.private.settings import PrivateSettings


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-7, 1e-6])
def test_terms_for_the_most_words_cover_fewer_and_their_choice(epsilon, delta):
    selection = calibrate_selection(epsilon, WORDS_FRACTION * delta)
    settings = PrivateSettings(
        n_components=3,
        n_features=900,
        epsilon=epsilon,
        delta=delta - selection.delta,
        documents_per_snapshot=1000,
    )
    budget = ledger_terms(settings).mu_squared()
    assert cost(selection.event).mu_squared <= budget
    for n_features in (3, 500, 899, 900):
        made = for_fewer_words(settings, n_features)
        assert made.n_features == n_features
        assert cost(made.event).mu_squared <= budget
        assert made.noise_multiplier >= settings.noise_multiplier
        assert made.delta == pytest.approx(settings.delta, rel=0.1)
        assert math.fsum([made.delta, selection.delta]) <= delta * (1 + 1e-15)
    # Without the correction fewer words would cost more than the terms allow.
    bare = replace(settings, n_features=3)
    assert cost(bare.event).mu_squared > budget
