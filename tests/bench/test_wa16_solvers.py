"""Replayed queries, which the private solvers are compared with."""

import pytest

from bench import wa16_solvers
from streamlda.model.evaluation import matched_l1_error
from streamlda.privacy.accounting import mu_of
from streamlda.privacy.noise import SeededNoise
from streamlda.simulate import PlantedLDA


@pytest.mark.parametrize("epsilon", wa16_solvers.EPSILONS)
def test_the_budget_of_replay_is_split_exactly(epsilon):
    parts = [mu_of(part, wa16_solvers.DELTA) for part in wa16_solvers.split_budget(epsilon)]
    whole = mu_of(epsilon, wa16_solvers.DELTA)
    assert sum(mu**2 for mu in parts) == pytest.approx(whole**2, rel=1e-6)
    assert parts[0] ** 2 == pytest.approx(wa16_solvers.PAIRS_SHARE * whole**2, rel=1e-6)


def test_replayed_queries_find_the_topics_where_noise_is_small(monkeypatch):
    monkeypatch.setattr(wa16_solvers, "DELTA", 1e-3)
    corpus = PlantedLDA(2, 12, topic_concentration=0.2, mean_length=30, seed=4)
    parameters = {"n_components": 2, "n_features": 12, "documents": 4000, "epsilon": 25.0}
    found = wa16_solvers.replayed(corpus.documents(4000), parameters, 0, SeededNoise(8))
    assert matched_l1_error(corpus.components, found.components).mean < 0.25
